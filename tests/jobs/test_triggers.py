"""Which jobs are looked at when something changes."""

from __future__ import annotations

from msgspec import structs

from jobs.job_harness import JOB, KINDS, OPTIONS, POD, JobHarness, batch_job, pod
from jobs.test_selection import thing
from pykueue.api import labels
from pykueue.jobs import triggers
from pykueue.jobs.executor import JobKey


def test_a_pod_of_a_group_wakes_its_group() -> None:
    assert triggers.key_of(POD, pod("a", "g", 2), OPTIONS) == JobKey("pod", "main", "g", is_group=True)
    assert triggers.key_of(POD, pod("a"), OPTIONS) == JobKey("pod", "main", "a")
    assert triggers.key_of(JOB, batch_job(), OPTIONS) == JobKey("batch/job", "main", "alpha")


def test_a_gated_pod_of_a_group_waits_a_moment_for_the_others() -> None:
    gated = pod("a", "g", 2)
    key = triggers.key_of(POD, gated, OPTIONS)
    assert triggers.delay_seconds(key, gated) > 0
    assert triggers.delay_seconds(key, gated | {"spec": {}}) == 0
    assert triggers.delay_seconds(JobKey("pod", "main", "a"), gated) == 0


def test_a_workload_wakes_its_owner_or_its_group() -> None:
    assert list(triggers.owners_of(JobHarness(batch_job()).settle().workload, KINDS)) == [
        JobKey("batch/job", "main", "alpha")
    ]
    group = JobHarness(pod("a", "g", 2), pod("b", "g", 2)).settle().workload
    assert list(triggers.owners_of(group, KINDS)) == [JobKey("pod", "main", "g", is_group=True)]


def test_prebuilt_workload_of_a_group_triggers_no_single_pod() -> None:
    group = JobHarness(pod("a", "g", 2), pod("b", "g", 2)).settle().workload
    made = structs.replace(group, metadata=structs.replace(group.metadata, annotations={}))
    assert list(triggers.owners_of(made, KINDS)) == []
    assert list(triggers.owners_of(JobHarness(pod("a")).settle().workload, KINDS)) == [JobKey("pod", "main", "a")]


def test_a_workload_is_found_by_its_owners_name() -> None:
    workload = JobHarness(batch_job()).settle().workload
    assert triggers.owner_keys(workload) == (triggers.owner_key(JOB.kind, "main", "alpha"),)


def test_a_child_wakes_with_the_workload_of_its_parent() -> None:
    parent = JobHarness(batch_job("parent")).settle().workload
    child = thing("Job", "child", thing("Job", "parent"))
    assert triggers.parent_keys(child) == triggers.owner_keys(parent)
    assert triggers.parent_keys(batch_job()) == ()


def test_a_job_wakes_with_the_workload_that_it_names() -> None:
    named = batch_job(metadata={"labels": {labels.PREBUILT_WORKLOAD_NAME: "ready-made"}})
    assert triggers.named_keys(JOB, named, OPTIONS) == ("main/ready-made",)
    assert triggers.named_keys(JOB, batch_job(), OPTIONS) == ()
