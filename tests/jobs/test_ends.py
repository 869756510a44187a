"""When a job ended, in the status of every kind that has the time: the manager may have been down then."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.job_harness import KINDS
from jobs.samples import SAMPLES
from kubemachinery import meta
from pykueue.jobs import related
from pykueue.jobs.interface import JobOutcome, first_time
from pykueue.jobs.offline import OfflineContext

END = "2026-11-18T09:00:00Z"
LATER = "2026-11-18T09:00:07Z"


def _condition(type_: str, at: str = END) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": "True", "reason": "r", "lastTransitionTime": at}]}


def _container(at: str | None = END) -> dict[str, Any]:
    return {"name": "c", "state": {"terminated": {"exitCode": 0, **({"finishedAt": at} if at else {})}}}


STATUSES: list[tuple[str, dict[str, Any]]] = [
    ("batch/job", {**_condition("Complete", LATER), "completionTime": END}),
    ("batch/job", _condition("Failed")),
    ("jobset.x-k8s.io/jobset", _condition("Completed")),
    ("jobset.x-k8s.io/jobset", _condition("Failed")),
    ("kubeflow.org/mpijob", {**_condition("Succeeded", LATER), "completionTime": END}),
    ("kubeflow.org/pytorchjob", {**_condition("Succeeded", LATER), "completionTime": END}),
    ("kubeflow.org/pytorchjob", _condition("Failed")),
    ("trainer.kubeflow.org/trainjob", _condition("Complete")),
    ("ray.io/rayjob", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "endTime": END}),
    ("sparkoperator.k8s.io/sparkapplication", {"applicationState": {"state": "COMPLETED"}, "terminationTime": END}),
    ("pod", {"phase": "Succeeded", "containerStatuses": [_container(), _container("2026-11-18T08:00:00Z")]}),
]


def _outcome(framework: str, status: dict[str, Any]) -> JobOutcome:
    sample = SAMPLES[framework]
    (row,) = (row for row in KINDS if row.framework == framework)
    tree = {**sample.job(), "status": status}
    found = row.job(tree, related.among(row, tree, OfflineContext(related=sample.related).find)).outcome()
    assert found is not None
    return found


@pytest.mark.parametrize(("framework", "status"), STATUSES)
def test_an_outcome_has_the_time_of_the_end(framework: str, status: dict[str, Any]) -> None:
    assert _outcome(framework, status).ended == meta.parse_time(END)


def test_a_pod_with_a_container_that_has_no_time_has_none() -> None:
    status = {"phase": "Failed", "containerStatuses": [_container(), _container(None)]}
    assert _outcome("pod", status).ended is None


@pytest.mark.parametrize("value", ["", "yesterday", 5, None])
def test_what_is_no_time_is_left_out(value: object) -> None:
    assert first_time(value) is None
    assert first_time(value, END) == meta.parse_time(END)
