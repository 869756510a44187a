"""Hints on jobs: who submitted them, how long they are expected to run, and their deadline."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.jobs import admission, kinds, workloads
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.options import IntegrationOptions

ROW = next(row for row in kinds.BUILT_IN if row.framework == "batch/job")
KINDS = kinds.load()
ON, OFF = IntegrationOptions(workload_hints=True), IntegrationOptions()
FACTS = JobAdmissionFacts(user="ana")
BY, EXPECTED = "pykueue.io/submitted-by", "pykueue.io/expected-time"


def job(deadline: int | None = None, **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    if deadline is not None:
        spec["activeDeadlineSeconds"] = deadline
    metadata = {
        "name": "train", "namespace": "ns", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        "annotations": {f"pykueue.io/{name.replace('_', '-')}": value for name, value in annotations.items()},
    }  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def stored(tree: dict[str, Any], options: IntegrationOptions) -> dict[str, str]:
    found = admission.default(ROW, tree, FACTS, KINDS, options)
    annotations: dict[str, str] = found["metadata"].get("annotations", {})
    return annotations


def test_a_new_job_gets_the_user_of_its_request_whatever_the_client_wrote() -> None:
    assert stored(job(), ON)[BY] == "ana"
    assert stored(job(submitted_by="bob"), ON)[BY] == "ana"


def test_without_the_gate_nothing_is_written_or_refused() -> None:
    assert BY not in stored(job(), OFF)
    result = admission.validate_update(ROW, job(submitted_by="b"), job(submitted_by="a"), FACTS, KINDS, OFF)
    assert result.errors == ()


def test_a_job_without_a_queue_is_left_as_it_is() -> None:
    tree = job()
    del tree["metadata"]["labels"]
    assert BY not in stored(tree, ON)


@pytest.mark.parametrize(("old", "new"), [("ana", "bob"), ("ana", ""), ("", "bob")])
def test_who_submitted_a_job_never_changes(old: str, new: str) -> None:
    before = job(submitted_by=old) if old else job()
    after = job(submitted_by=new) if new else job()
    errors = admission.validate_update(ROW, after, before, FACTS, KINDS, ON).errors
    assert [error.path for error in errors] == [f"metadata.annotations[{BY}]"]


@pytest.mark.parametrize("text", ["soon", "-1h", "0s", "10ms"])
def test_an_expected_time_that_is_no_duration_is_refused(text: str) -> None:
    errors = admission.validate_create(ROW, job(expected_time=text), FACTS, KINDS, OFF).errors
    assert [error.path for error in errors] == [f"metadata.annotations[{EXPECTED}]"]


def test_an_expected_time_beyond_the_limit_is_a_warning() -> None:
    result = admission.validate_create(ROW, job(deadline=3600, expected_time="2h"), FACTS, KINDS, OFF)
    assert result.errors == ()
    assert "the expected run time of 7200 s is longer than the time limit of 3600 s" in result.warnings


def test_the_workload_gets_the_hints_of_its_job() -> None:
    tree = job(deadline=600, expected_time="5m", submitted_by="ana")
    assert workloads.copied_annotations(ROW.job(tree), ON) == {
        EXPECTED: "5m", BY: "ana", "pykueue.io/active-deadline-seconds": "600",
    }  # fmt: skip
    assert workloads.copied_annotations(ROW.job(tree), OFF) == {EXPECTED: "5m"}
