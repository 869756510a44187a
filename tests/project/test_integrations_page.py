"""The table of tested operators against the job kinds and the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.assets.partners import OPERATORS
from cluster.queued_kinds import KINDS
from pykueue.jobs.kinds import BUILT_IN
from tested_operators import TESTED

ROOT = Path(__file__).resolve().parents[2]
IMPLEMENTED = [row.framework for row in BUILT_IN if row.implementation is not None]


@pytest.mark.parametrize("framework", TESTED)
def test_tested_operator_belongs_to_an_implemented_framework_and_its_test_exists(framework: str) -> None:
    assert framework in IMPLEMENTED
    assert (ROOT / TESTED[framework].test).is_file()
    assert (ROOT / TESTED[framework].beside_up).is_file()


def test_every_implemented_framework_is_tested_with_its_operator() -> None:
    assert sorted(TESTED) == sorted(IMPLEMENTED)
    with_operators = {kind.framework for kind in KINDS}
    assert with_operators == {name for name, row in TESTED.items() if row.beside_up.endswith("beside_up.py")}
    for kind in KINDS:
        assert set(kind.partners) <= {OPERATORS[kind.framework], "jobset"}, "the page names the operator that runs it"
