"""The operators that job kinds were tested with: the table behind two columns of docs/reference/integrations.md.

A row is added with its test. `tests/project/test_integrations_page.py` checks that the test exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class TestedOperator(NamedTuple):
    """The operator that runs jobs of a kind in a test."""

    __test__ = False  # not a test class

    # Name and version; empty where the test plays the operator.
    operator: str
    # The file of the test.
    test: str


PLAYED: Final = ""

TESTED: Final[Mapping[str, TestedOperator]] = {
    "batch/job": TestedOperator("pykueue's own runner", "tests/runner/test_job.py"),
    "pod": TestedOperator("pykueue's own runner", "tests/runner/test_pod.py"),
    "jobset.x-k8s.io/jobset": TestedOperator(PLAYED, "tests/controllers/test_job_kinds.py"),
}
