"""The state of a job, and the reason for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubemachinery import codec, meta
from pykueue.api import kube, kueue
from pykueue.client import job_status, queued_job
from pykueue.client.job_status import JobState, QueuedJobStatus
from pykueue.jobs.interface import GenericJob


def workload(*given: tuple[str, str, str], active: bool = True, **status: Any) -> kueue.Workload:
    conditions = [
        {
            "type": type_,
            "status": truth,
            "reason": "R",
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for type_, truth, message in given
    ]
    containers = [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
    pod_set = {"name": "main", "count": 3, "template": {"spec": {"containers": containers}}}
    tree = {"spec": {"active": active, "podSets": [pod_set]}, "status": {"conditions": conditions, **status}}
    return codec.from_tree(tree, kueue.Workload)


RESERVED = ("QuotaReserved", "True", "")


@pytest.mark.parametrize(
    ("found", "stands"),
    [
        (workload(), QueuedJobStatus(JobState.WAITING, "the scheduler has not considered it yet")),
        (workload(("QuotaReserved", "False", "no cpu")), QueuedJobStatus(JobState.WAITING, "no cpu")),
        (workload(active=False), QueuedJobStatus(JobState.WAITING, "the Workload is deactivated")),
        (
            workload(RESERVED, admissionChecks=[{"name": "budget", "state": "Pending"}]),
            QueuedJobStatus(JobState.WAITING, "quota is reserved; waits for checks: budget"),
        ),
        (workload(RESERVED, ("Admitted", "True", "")), QueuedJobStatus(JobState.STARTING)),
        (workload(RESERVED, ("Admitted", "True", ""), ("PodsReady", "True", "")), QueuedJobStatus(JobState.RUNNING)),
        (workload(RESERVED, ("Evicted", "True", "preempted")), QueuedJobStatus(JobState.STOPPING, "preempted")),
        (workload(("Finished", "True", "")), QueuedJobStatus(JobState.SUCCEEDED)),
        (
            workload(("QuotaReserved", "False", "no cpu"), ("Evicted", "True", "old")),
            QueuedJobStatus(JobState.WAITING, "no cpu"),
        ),
    ],
)
def test_a_workload(found: kueue.Workload, stands: QueuedJobStatus) -> None:
    assert job_status.of_workload(found) == stands


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("Succeeded", JobState.SUCCEEDED),
        ("JobFinished", JobState.SUCCEEDED),  # Kueue before v0.9
        ("Failed", JobState.FAILED),
        ("FailedToStart", JobState.FAILED),
        ("OutOfSync", JobState.FAILED),
        ("OwnerNotFound", JobState.CANCELLED),
        ("WorkloadSliceReplaced", JobState.CANCELLED),
    ],
)
def test_only_success_is_shown_as_success(reason: str, word: JobState) -> None:
    over = workload(("Finished", "True", "why"))
    [condition] = over.status.conditions
    ended = msgspec.structs.replace(condition, reason=reason)
    status = msgspec.structs.replace(over.status, conditions=(ended,))
    shown = job_status.of_workload(msgspec.structs.replace(over, status=status))
    assert shown == QueuedJobStatus(word, "" if word is JobState.SUCCEEDED else "why")
    assert shown.state.is_finished


def job(suspend: bool = False, labels: dict[str, str] | None = None, **status: Any) -> GenericJob:
    tree = {"metadata": {"labels": labels or {}}, "spec": {"suspend": suspend}, "status": status}
    return queued_job.job_row().job(tree)


def test_a_job_that_was_let_go_stands_by_its_own_pods() -> None:
    assert job_status.of_job(job(), None).state is JobState.STARTING
    assert job_status.of_job(job(ready=1), None).state is JobState.RUNNING
    failed = {"type": "Failed", "status": "True", "message": "too many"}
    assert job_status.of_job(job(conditions=[failed]), None) == QueuedJobStatus(JobState.FAILED, "too many")


def test_a_job_that_is_held_back_stands_as_its_workload_does() -> None:
    waits = workload(("QuotaReserved", "False", "no cpu"))
    assert str(job_status.of_job(job(suspend=True), waits)) == "waiting, no cpu"
    assert "has no queue label" in job_status.of_job(job(suspend=True), None).message


def test_a_job_without_a_workload_stands_by_the_last_warning_about_it() -> None:
    def event(note: str, at: int, type_: str = "Warning", uid: str = "1", **more: Any) -> kube.Event:
        tree = {"type": type_, "note": note, "eventTime": meta.format_micro_time(at * meta.SECOND), **more}
        return codec.from_tree({**tree, "regarding": {"kind": "Job", "uid": uid}}, kube.Event)

    again = {"count": 2, "lastObservedTime": meta.format_micro_time(5 * meta.SECOND)}
    events = [
        event("first", 1, series=again),
        event("second", 3),
        event("fine", 9, "Normal"),
        event("other", 7, uid="2"),
    ]
    assert job_status.troubles(events) == {"1": "first", "2": "other"}
    mine = {"kueue.x-k8s.io/queue-name": "q"}
    assert job_status.of_job(job(suspend=True, labels=mine), None, "no class") == QueuedJobStatus(
        JobState.UNQUEUED, "no class"
    )
    assert job_status.of_job(job(suspend=True, labels=mine), None).state is JobState.WAITING


def test_a_failure_has_the_message_of_the_last_failed_container() -> None:
    def pod(code: int, at: int, **more: Any) -> kube.Pod:
        over = {"exitCode": code, "finishedAt": meta.format_time(at * meta.SECOND), **more}
        status = {"name": "main", "ready": False, "restartCount": 0, "image": "i", "state": {"terminated": over}}
        return codec.from_tree({"status": {"containerStatuses": [status]}}, kube.Pod)

    assert job_status.failure([pod(1, 5), pod(2, 9), pod(0, 12)]) == "failed with exit code 2"
    assert job_status.failure([pod(137, 1, signal=9)]) == "failed: killed by signal 9"
    assert job_status.failure([pod(127, 1, message="cannot run 'x'")]) == "failed: cannot run 'x'"
    assert job_status.failure([pod(0, 1)]) == ""


def test_what_is_asked_for_is_the_sum_over_all_pods() -> None:
    assert (
        job_status.total_requests((each.template.spec, each.count) for each in workload().spec.pod_sets)
        == "cpu 1500m, memory 3Gi"
    )


def pod(**status: Any) -> kube.Pod:
    return codec.from_tree(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": status}, kube.Pod
    )


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
PULLING = {
    "name": "c",
    "ready": False,
    "restartCount": 0,
    "image": "i",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
}


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ([], "its pods do not exist yet"),
        ([pod(phase="Pending")], "pod p has no node yet"),
        ([pod(phase="Pending", conditions=[UNSCHEDULABLE])], "pod p: 0/3 nodes fit"),
        ([pod(phase="Pending", containerStatuses=[PULLING])], "pod p: no such image"),
        ([pod(phase="Running")], ""),
    ],
)
def test_job_with_quota_reports_what_it_waits_for(pods: list[kube.Pod], message: str) -> None:
    assert job_status.starting(pods) == message
