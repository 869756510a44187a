"""The operators that job kinds were tested with: the table behind two columns of docs/reference/integrations.md.

A row is added with its test. `tests/project/test_integrations_page.py` checks that the test exists.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple


class OperatorUnderTest(NamedTuple):
    """The operator that runs jobs of a kind in a test."""

    # Name and version; empty where the test plays the operator.
    operator: str
    # The file of the test on kube-apiserver.
    test: str
    # The file of the test beside `pykueue up`.
    beside_up: str


_PARTNERS: Final = Path(__file__).resolve().parents[1] / "tests" / "cluster" / "assets" / "partners.py"
_TEST: Final = "tests/cluster/test_operators.py"
_BESIDE_UP: Final = "tests/cluster/test_operators_beside_up.py"


def _partners() -> dict[str, Any]:
    """The table of the real partners. It belongs to the tests, which build them, and imports nothing of theirs."""
    return runpy.run_path(str(_PARTNERS))


def _with_operators() -> Mapping[str, OperatorUnderTest]:
    """The kinds that their real operator runs on a real API server, with its version and what is played beside it."""
    table = _partners()
    names = {partner.name: f"{partner.title} {partner.version}" for partner in table["PARTNERS"]}
    played = {framework: f" with a stand-in for {what}" for framework, what in table["STAND_INS"].items()}
    return {
        framework: OperatorUnderTest(names[name] + played.get(framework, ""), _TEST, _BESIDE_UP)
        for framework, name in table["OPERATORS"].items()
    }


TESTED: Final[Mapping[str, OperatorUnderTest]] = {
    "pod": OperatorUnderTest(
        "none: a kubelet runs pods", "tests/cluster/test_operators.py", "tests/runner/test_pod.py"
    ),
    **_with_operators(),
}
