"""The operators that job kinds were tested with: the table behind two columns of docs/reference/integrations.md.

A row is added with its test. `tests/project/test_integrations_page.py` checks that the test exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class OperatorUnderTest(NamedTuple):
    """The operator that runs jobs of a kind in a test."""

    # Name and version; empty where the test plays the operator.
    operator: str
    # The file of the test.
    test: str


PLAYED: Final = ""

TESTED: Final[Mapping[str, OperatorUnderTest]] = {
    "batch/job": OperatorUnderTest("pykueue's own runner", "tests/runner/test_job.py"),
    "pod": OperatorUnderTest("pykueue's own runner", "tests/runner/test_pod.py"),
    "ray.io/raycluster": OperatorUnderTest(PLAYED, "tests/jobs/test_ray_running.py"),
    "ray.io/rayjob": OperatorUnderTest(PLAYED, "tests/jobs/test_ray_running.py"),
    "ray.io/rayservice": OperatorUnderTest(PLAYED, "tests/jobs/test_ray_running.py"),
    "jobset.x-k8s.io/jobset": OperatorUnderTest(PLAYED, "tests/controllers/test_job_kinds.py"),
    "workload.codeflare.dev/appwrapper": OperatorUnderTest(PLAYED, "tests/jobs/test_wrapped_jobs_server.py"),
    "sparkoperator.k8s.io/sparkapplication": OperatorUnderTest(PLAYED, "tests/jobs/test_wrapped_jobs_server.py"),
    "trainer.kubeflow.org/trainjob": OperatorUnderTest(PLAYED, "tests/jobs/test_wrapped_jobs_server.py"),
    "deployment": OperatorUnderTest(PLAYED, "tests/controllers/test_deployments.py"),
    "statefulset": OperatorUnderTest(PLAYED, "tests/controllers/test_stateful_sets.py"),
    "leaderworkerset.x-k8s.io/leaderworkerset": OperatorUnderTest(
        PLAYED, "tests/controllers/test_leader_worker_sets.py"
    ),
    **{
        f"kubeflow.org/{kind}": OperatorUnderTest(PLAYED, "tests/jobs/test_kubeflow_server.py")
        for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob")
    },
}
