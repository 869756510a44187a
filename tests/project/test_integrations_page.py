"""The table of tested operators against the job kinds and the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykueue.jobs.kinds import BUILT_IN
from tested_operators import TESTED

ROOT = Path(__file__).resolve().parents[2]
IMPLEMENTED = [row.framework for row in BUILT_IN if row.implementation is not None]


@pytest.mark.parametrize("framework", TESTED)
def test_tested_operator_belongs_to_an_implemented_framework_and_its_test_exists(framework: str) -> None:
    assert framework in IMPLEMENTED
    assert (ROOT / TESTED[framework].test).is_file()
