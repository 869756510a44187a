"""Elastic Jobs: a running job that grows gets a second Workload, and one that shrinks gives pods back."""

from __future__ import annotations

from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import OPTIONS, JobHarness, batch_job, flavor
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, FinishedReason
from pykueue.lifecycle import eviction, finishing, states

ELASTIC = {"annotations": {labels.ELASTIC_JOB: "true"}}


def elastic(parallelism: int = 2) -> JobHarness:
    """An elastic Job that runs with its first slice."""
    harness = JobHarness(batch_job(metadata=ELASTIC, spec={"parallelism": parallelism, "completions": None}))
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    return harness.settle().admit().settle()


def resized(harness: JobHarness, parallelism: int) -> JobHarness:
    generation = harness.job["metadata"]["generation"] + 1
    return harness.edit({"metadata": {"generation": generation}, "spec": {"parallelism": parallelism}}).settle()


def slices(harness: JobHarness) -> list[tuple[int, bool]]:
    """Every slice that lives: how many pods it is for, and whether it holds quota."""
    living = [each for each in harness.workloads.values() if not states.is_finished(each)]
    return [(each.spec.pod_sets[0].count, states.is_reserved(each)) for each in living]


def newest(harness: JobHarness) -> kueue.Workload:
    return list(harness.workloads.values())[-1]


def test_a_running_job_that_grows_runs_on_while_a_larger_slice_waits() -> None:
    harness = elastic()
    first = harness.workload
    resized(harness, 5)
    assert slices(harness) == [(2, True), (5, False)]
    notes = newest(harness).metadata.annotations
    assert notes[labels.WORKLOAD_SLICE_REPLACEMENT_FOR] == states.key(first)
    assert notes[labels.WORKLOAD_SLICE_NAME] == first.metadata.name
    assert harness.job["spec"]["suspend"] is False
    assert newest(harness).spec.pod_sets[0].template.spec.node_selector == {}


def test_a_slice_that_waits_follows_the_job() -> None:
    harness = resized(resized(elastic(), 5), 7)
    assert slices(harness) == [(2, True), (7, False)]


def test_a_job_that_shrinks_is_resized_in_place() -> None:
    harness = resized(elastic(5), 2)
    assert slices(harness) == [(2, True)]
    assert harness.job["spec"]["suspend"] is False


def test_a_job_that_grew_before_it_was_started_starts_with_the_slice_that_was_let_in() -> None:
    harness = JobHarness(batch_job(metadata=ELASTIC, spec={"parallelism": 2, "completions": None})).settle().admit()
    harness.facts = replace(harness.facts, flavors={"default": flavor()})
    resized(harness, 5)
    assert slices(harness) == [(2, True), (5, False)]
    assert harness.job["spec"]["suspend"] is False


def test_a_job_that_waits_is_resized_in_place() -> None:
    harness = JobHarness(batch_job(metadata=ELASTIC, spec={"parallelism": 2, "completions": None})).settle()
    assert slices(resized(harness, 5)) == [(5, False)]


def test_first_slice_has_its_own_slice_name() -> None:
    first = elastic().workload
    assert first.metadata.annotations[labels.WORKLOAD_SLICE_NAME] == first.metadata.name


def test_resizing_a_slice_emits_no_event() -> None:
    assert "UpdatedWorkload" not in resized(elastic(5), 2).events


def test_replaced_slice_is_kept_until_it_is_deleted() -> None:
    harness = resized(elastic(), 5)
    first = next(iter(harness.workloads.values()))
    changes = finishing.finish(first, FinishedReason.WORKLOAD_SLICE_REPLACED, "", harness.now)
    harness._changed(first.metadata.name, changes)
    harness.settle()
    assert next(iter(harness.workloads.values())).metadata.finalizers == (labels.RESOURCE_IN_USE_FINALIZER,)
    harness.delete_workload(first.metadata.name).settle()
    assert first.metadata.name not in harness.workloads
    assert slices(harness) == [(5, False)]


def test_a_job_that_is_preempted_while_a_larger_slice_waits_is_stopped_before_its_quota_is_released() -> None:
    harness = resized(elastic(), 5).status(active=2)
    first = next(iter(harness.workloads.values()))
    harness._changed(
        first.metadata.name, eviction.evict(first, EvictedReason.PREEMPTED, "Preempted by another", harness.now)
    )
    harness.settle()
    assert harness.job["spec"]["suspend"] is True
    assert slices(harness) == [(2, True), (5, False)], "its pods still run"
    harness.status(active=0).settle()
    assert slices(harness) == [(5, False)]
    (end,) = [each for each in harness.workloads[first.metadata.name].status.conditions if each.type == "Finished"]
    assert end.reason == "WorkloadSliceReplaced"
    del harness.workloads[first.metadata.name]
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False


def test_a_job_that_ends_while_it_is_preempted_ends_the_slice_with_which_it_ran() -> None:
    harness = resized(elastic(), 5).status(active=2)
    first = next(iter(harness.workloads.values()))
    harness._changed(first.metadata.name, eviction.evict(first, EvictedReason.PREEMPTED, "Preempted", harness.now))
    harness.status(conditions=[{"type": "Complete", "status": "True"}]).settle()
    ends = [condition for each in harness.workloads.values() for condition in each.status.conditions]
    assert [end.reason for end in ends if end.type == "Finished"] == ["Succeeded", "Succeeded"]


def test_an_elastic_job_with_one_slice_is_stopped_when_it_is_preempted() -> None:
    harness = elastic().evict().settle()
    assert harness.job["spec"]["suspend"] is True
    assert slices(harness) == [(2, False)]


def test_a_job_runs_on_if_the_larger_slice_that_waits_is_deactivated() -> None:
    harness = resized(elastic(), 5).status(active=2)
    second = newest(harness)
    inactive = replace(second, spec=replace(second.spec, active=False))
    harness.workloads[second.metadata.name] = inactive
    message = "The workload is deactivated"
    harness._changed(second.metadata.name, eviction.evict(inactive, EvictedReason.DEACTIVATED, message, harness.now))
    harness.settle()
    assert harness.job["spec"]["suspend"] is False
    assert slices(harness) == [(2, True), (5, False)]


def test_a_job_is_stopped_if_its_slice_is_deleted_while_a_larger_one_waits() -> None:
    harness = resized(elastic(), 5).status(active=2)
    first = next(iter(harness.workloads))
    harness.delete_workload(first).settle()
    assert harness.job["spec"]["suspend"] is True
    assert slices(harness) == [(2, True), (5, False)], "its pods still run"
    harness.status(active=0).settle()
    assert slices(harness) == [(5, False)]
    assert first not in harness.workloads


def test_a_job_runs_on_if_the_larger_slice_that_waits_is_deleted() -> None:
    harness = resized(elastic(), 5).status(active=2)
    second = newest(harness).metadata.name
    harness.delete_workload(second).settle()
    assert harness.job["spec"]["suspend"] is False
    assert slices(harness) == [(2, True), (5, False)], "another one is created"


def test_a_deleted_slice_that_waits_and_that_another_program_holds_does_not_stop_its_job() -> None:
    harness = resized(elastic(), 5).status(active=2)
    second = newest(harness)
    held = replace(second.metadata, finalizers=("another.program/finalizer",))
    harness.workloads[second.metadata.name] = replace(second, metadata=held)
    harness.delete_workload(second.metadata.name).settle()
    assert harness.job["spec"]["suspend"] is False


def test_the_only_slice_that_is_deleted_while_it_waits_is_that_of_its_job_until_it_is_gone() -> None:
    harness = JobHarness(batch_job(metadata=ELASTIC, spec={"parallelism": 2, "completions": None})).settle()
    held = replace(harness.workload.metadata, finalizers=("another.program/finalizer",))
    harness.workloads[held.name] = replace(harness.workload, metadata=held)
    harness.delete_workload().settle()
    assert slices(harness) == [(2, False)]


def test_a_job_that_grows_twice_while_it_stops_starts_with_the_slice_that_has_quota() -> None:
    harness = resized(elastic(1), 2).status(active=1)
    first = next(iter(harness.workloads.values()))
    harness._changed(first.metadata.name, eviction.evict(first, EvictedReason.PREEMPTED, "Preempted", harness.now))
    harness.settle()
    second = newest(harness)
    harness._changed(
        first.metadata.name, finishing.finish(first, FinishedReason.WORKLOAD_SLICE_REPLACED, "", harness.now)
    )
    del harness.workloads[first.metadata.name]
    harness.admit()
    resized(harness, 5)
    assert slices(harness) == [(2, True), (5, False)]
    assert harness.events[-1] != "Started", "its pods still run"
    harness.status(active=0).settle()
    assert harness.events[-1] == "Started"
    assert harness.job["spec"]["suspend"] is False
    assert states.is_admitted(harness.workloads[second.metadata.name])


def test_slices_that_nothing_needs_are_ended() -> None:
    harness = elastic()
    first = harness.workload
    stray = structs.replace(first, metadata=structs.replace(first.metadata, name="stray", uid="uid-stray"))
    stray = structs.replace(stray, status=kueue.WorkloadStatus())
    harness.workloads["stray"] = stray
    harness.settle()
    assert slices(harness) == [(2, True)]
    (end,) = [each for each in harness.workloads["stray"].status.conditions if each.type == "Finished"]
    assert end.reason == "OutOfSync"


def test_the_slice_with_which_a_job_ends_is_kept_like_those_before() -> None:
    harness = elastic().status(conditions=[{"type": "Complete", "status": "True"}]).settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert harness.workload.metadata.finalizers == (labels.RESOURCE_IN_USE_FINALIZER,)


def test_a_job_that_ends_while_a_larger_slice_waits_gives_its_quota_back() -> None:
    harness = resized(elastic(), 5)
    harness.status(conditions=[{"type": "Complete", "status": "True"}]).settle()
    assert slices(harness) == []


def test_a_job_does_not_run_on_the_slice_of_an_earlier_one_of_its_name() -> None:
    harness = elastic()
    another = batch_job(metadata={**ELASTIC, "uid": "another"}, spec={"parallelism": 2, "completions": None})
    harness.add(another).settle()
    assert slices(harness) == [(2, False)]
    assert harness.job["spec"]["suspend"] is True


def test_pods_of_a_slice_have_the_slice_name() -> None:
    harness = elastic()
    notes = harness.job["spec"]["template"]["metadata"]["annotations"]
    assert notes[labels.WORKLOAD_SLICE_NAME] == harness.workload.metadata.name


def test_without_the_gate_scaling_up_stops_and_requeues_the_job() -> None:
    options = replace(OPTIONS, elastic=False)
    harness = JobHarness(batch_job(metadata=ELASTIC, spec={"parallelism": 2, "completions": None}), options=options)
    harness.settle().admit().settle()
    resized(harness, 5)
    assert harness.job["spec"]["suspend"] is True
    assert len(harness.workloads) == 1


def slice_name(workload: kueue.Workload) -> str | None:
    """The slice name in the pod template of a slice."""
    return workload.spec.pod_sets[0].template.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME)


def test_the_pod_template_of_a_later_slice_keeps_the_name_of_the_first() -> None:
    harness = elastic(1)
    first = harness.workload.metadata.name
    assert slice_name(harness.workload) is None
    assert slice_name(newest(resized(harness, 2))) == first


def test_a_new_line_of_slices_overwrites_the_name_that_the_old_one_left() -> None:
    """The last slice is deleted: the stopped job keeps the old name in its template, and starts with the new one."""
    harness = resized(elastic(1), 2)
    first, second = harness.workloads.values()
    del harness.workloads[first.metadata.name]
    harness.admit().settle()
    harness.delete_workload(second.metadata.name)
    generation = harness.job["metadata"]["generation"] + 1
    harness.edit({"metadata": {"generation": generation}}).settle()
    fresh = harness.workload
    assert fresh.metadata.name not in (first.metadata.name, second.metadata.name)
    assert fresh.metadata.annotations[labels.WORKLOAD_SLICE_NAME] == fresh.metadata.name
    assert slice_name(fresh) == first.metadata.name
    harness.admit().settle()
    running = harness.job["spec"]["template"]["metadata"]["annotations"]
    assert harness.job["spec"]["suspend"] is False
    assert running[labels.WORKLOAD_SLICE_NAME] == fresh.metadata.name
