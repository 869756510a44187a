"""What only batch/v1 Jobs have: partial admission, reclaimable pods, and a stop in three writes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import JOB, NOW, OPTIONS, JobHarness, batch_job, flavor
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs.actions import ReplaceObject
from pykueue.jobs.batch_job import BatchJob
from pykueue.jobs.interface import Stop, StopReason
from pykueue.lifecycle import states

PARTIAL = {"annotations": {labels.JOB_MIN_PARALLELISM: "1"}}
SYNCED = {"annotations": {labels.JOB_MIN_PARALLELISM: "1", labels.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}}


def job(**fields: Any) -> BatchJob:
    found = JOB.job(batch_job(**fields))
    assert isinstance(found, BatchJob)
    return found


# --- Size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parallelism", "completions", "pods"), [(5, None, 5), (5, 3, 3), (3, 5, 3), (None, None, 1), (0, None, 0)]
)
def test_as_many_pods_count_as_run_at_once(parallelism: int | None, completions: int | None, pods: int) -> None:
    assert job(spec={"parallelism": parallelism, "completions": completions}).pods == pods


def test_a_job_with_a_minimum_may_be_admitted_with_fewer_pods() -> None:
    """job/partial-admission"""
    harness = JobHarness(batch_job(metadata=PARTIAL, spec={"parallelism": 5, "completions": None})).settle()
    assert harness.workload.spec.pod_sets[0].min_count == 1
    harness.admit({"main": 3}).settle()
    assert harness.job["spec"]["parallelism"] == 3
    assert harness.workload.spec.pod_sets[0].count == 5
    assert harness.events == ["CreatedWorkload", "Started"]


def test_full_size_is_restored_on_eviction() -> None:
    """job/partial-admission-undone"""
    harness = JobHarness(batch_job(metadata=PARTIAL, spec={"parallelism": 5, "completions": None})).settle()
    harness.admit({"main": 3}).settle().evict().settle()
    assert harness.job["spec"]["parallelism"] == 5
    assert harness.job["spec"]["suspend"] is True


def test_completions_follow_parallelism_with_the_annotation() -> None:
    spec = {"parallelism": 5, "completions": 5, "completionMode": "Indexed"}
    harness = JobHarness(batch_job(metadata=SYNCED, spec=spec)).settle().admit({"main": 2}).settle()
    assert (harness.job["spec"]["parallelism"], harness.job["spec"]["completions"]) == (2, 2)
    harness.evict().settle()
    assert (harness.job["spec"]["parallelism"], harness.job["spec"]["completions"]) == (5, 5)


def test_without_the_gate_the_minimum_means_nothing() -> None:
    options = replace(OPTIONS, partial_admission=False)
    harness = JobHarness(
        batch_job(metadata=PARTIAL, spec={"parallelism": 5, "completions": None}), options=options
    ).settle()
    assert harness.workload.spec.pod_sets[0].min_count is None


# --- Pods that are done -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "status", "reclaimable"),
    [
        ({"parallelism": 5, "completions": 8}, {"succeeded": 3}, {}),
        ({"parallelism": 5, "completions": 8}, {"succeeded": 4}, {"main": 1}),
        ({"parallelism": 5, "completions": 8}, {"succeeded": 8}, {"main": 5}),
        ({"parallelism": 3, "completions": None}, {"succeeded": 1}, {"main": 1}),
        ({"parallelism": 1, "completions": 1}, {"succeeded": 1}, {}),
        ({"parallelism": 5, "completions": 3}, {"succeeded": 1}, {"main": 1}),
        ({"parallelism": 5, "completions": 3}, {"succeeded": 3}, {"main": 3}),
        ({"parallelism": 5, "completions": 1}, {"succeeded": 1}, {}),
        ({"parallelism": 5, "completions": 5}, {}, {}),
        (
            {"parallelism": 5, "completions": 5, "completionMode": "Indexed"},
            {"succeeded": 1, "completedIndexes": "0-1,3", "failedIndexes": "1,4-9"},
            {"main": 4},
        ),
        (
            {"parallelism": 2**31 - 1, "completions": 2**31 - 1, "completionMode": "Indexed"},
            {"succeeded": 1, "completedIndexes": "0-2147483640", "failedIndexes": "3-9"},
            {"main": 2**31 - 7},
        ),
    ],
)
def test_reclaimable_pods(spec: Tree, status: Tree, reclaimable: Tree) -> None:
    assert job(spec=spec, status=status).reclaimable() == reclaimable


def test_reclaimable_pods_are_written_to_the_workload() -> None:
    """job/reclaims-finished-pods"""
    harness = JobHarness(batch_job(spec={"parallelism": 3, "completions": 3})).settle().admit().settle()
    harness.status(active=2, ready=2, succeeded=1).settle()
    assert [(each.name, each.count) for each in harness.workload.status.reclaimable_pods] == [("main", 1)]


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"ready": 1}, False),
        ({"ready": 2}, True),
        ({"ready": 1, "succeeded": 1}, True),
        ({"ready": 1, "uncountedTerminatedPods": {"succeeded": ["uid"]}}, True),
        ({"ready": 1, "failed": 1}, False),
    ],
)
def test_pods_are_ready_when_all_run_or_have_succeeded(status: Tree, ready: bool) -> None:
    assert job(spec={"parallelism": 2, "completions": 2}, status=status).are_pods_ready() is ready


# --- Stopping ---------------------------------------------------------------------------------------------------------


def writes(found: BatchJob) -> list[ReplaceObject]:
    order = Stop(StopReason.NOT_ADMITTED, "why", NOW)
    return [action for action in found.stop(order) if isinstance(action, ReplaceObject)]


def test_a_stop_is_three_writes_of_which_each_is_safe_to_be_the_last() -> None:
    first, second, third = writes(job(spec={"suspend": False}, status={"startTime": "2026-11-15T12:00:00Z"}))
    assert first.after["spec"]["suspend"] is True
    assert first.after["metadata"]["annotations"] == {labels.STOPPING: "true"}
    assert (second.subresource, second.after["status"]) == ("status", {})
    assert "annotations" not in third.after["metadata"]


def test_a_job_that_is_admitted_again_while_it_is_being_stopped_is_stopped_and_then_started() -> None:
    """Seed 472 of the simulation: the stop was interrupted, and the job was not reconciled again."""
    stopping = {"metadata": {"annotations": {labels.STOPPING: "true"}}}
    harness = JobHarness(batch_job()).settle().admit().edit(stopping).settle()
    assert harness.job["spec"]["suspend"] is False
    assert labels.STOPPING not in harness.job["metadata"].get("annotations", {})


def test_a_job_that_is_being_stopped_does_not_count_as_suspended() -> None:
    """Edge case 30: after a crash in between, the stop is repeated to its end."""
    found = job(metadata={"annotations": {labels.STOPPING: "true"}})
    assert not found.is_suspended()
    assert [write.after["metadata"].get("annotations") for write in writes(found)] == [None]


def test_a_job_that_has_stopped_is_not_written_again() -> None:
    assert writes(job()) == []


def test_template_is_restored_when_no_pod_is_active() -> None:
    """The API server refuses another template before that, with "field is immutable" [BJ3]."""
    harness = JobHarness(batch_job())
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle().admit().settle()
    harness.status(active=1, startTime="2026-11-15T12:00:00Z").evict().settle()
    assert (harness.job["spec"]["suspend"], "blue" in str(harness.job["spec"])) == (True, True)
    assert states.is_reserved(harness.workload)
    assert "Stopped" not in harness.events
    harness.status(active=0).settle()
    assert "blue" not in str(harness.job["spec"])
    assert not states.is_reserved(harness.workload)
    assert harness.events.count("Stopped") == 1


def test_deleted_workload_stays_until_the_template_of_its_job_is_restored() -> None:
    """The Workload is what the template is restored from."""
    harness = JobHarness(batch_job())
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle().admit().settle().status(active=1).delete_workload().settle()
    assert harness.workload.metadata.finalizers
    harness.status(active=0)
    harness.apply(harness.decide())
    assert (harness.workloads, "blue" in str(harness.job["spec"])) == ({}, False)


def test_labels_of_the_job_controller_stay_on_the_template_and_out_of_the_comparison() -> None:
    of_the_controller = {"controller-uid": "u", "job-name": "alpha", "batch.kubernetes.io/controller-uid": "u"}
    marks = of_the_controller | {"batch.kubernetes.io/job-name": "alpha", "app": "x"}
    harness = JobHarness(batch_job(spec={"template": {"metadata": {"labels": marks}}})).settle()
    stored = harness.workload.spec.pod_sets[0].template.metadata.labels
    assert stored == {"batch.kubernetes.io/job-name": "alpha", "app": "x"}
    harness.admit().settle().evict().settle()
    assert harness.job["spec"]["template"]["metadata"]["labels"] == marks


# --- What is refused --------------------------------------------------------------------------------------------------

MIN = f"metadata.annotations[{labels.JOB_MIN_PARALLELISM}]"
SYNC = f"metadata.annotations[{labels.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"


@pytest.mark.parametrize(
    ("annotations", "spec", "paths"),
    [
        ({labels.JOB_MIN_PARALLELISM: "2"}, {"parallelism": 4, "completions": 4}, []),
        ({labels.JOB_MIN_PARALLELISM: "two"}, {"parallelism": 4, "completions": 4}, [MIN]),
        ({labels.JOB_MIN_PARALLELISM: "0"}, {"parallelism": 4, "completions": 4}, [MIN]),
        ({labels.JOB_MIN_PARALLELISM: "4"}, {"parallelism": 4, "completions": 4}, [MIN]),
        ({labels.JOB_MIN_PARALLELISM: "2", labels.ELASTIC_JOB: "true"}, {"parallelism": 4, "completions": 4}, [MIN]),
        ({labels.JOB_COMPLETIONS_EQUAL_PARALLELISM: "maybe"}, {}, [SYNC]),
        ({labels.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}, {}, [SYNC]),
        (
            {labels.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"},
            {"parallelism": 2, "completions": 3, "completionMode": "Indexed"},
            ["spec.completions"],
        ),
        ({labels.JOB_COMPLETIONS_EQUAL_PARALLELISM: "false"}, {}, []),
    ],
)
def test_annotations_that_are_refused(annotations: Tree, spec: Tree, paths: list[str]) -> None:
    found = job(metadata={"annotations": annotations}, spec={"suspend": True, **spec})
    assert [error.path for error in (*found.validate_new(OPTIONS), *found.validate_create(OPTIONS))] == paths


@pytest.mark.parametrize("suspend", [True, False])
def test_a_job_may_become_as_small_as_the_fewest_pods_that_it_is_content_with(suspend: bool) -> None:
    """Seed 0 of the simulation: it was admitted, and the webhook refused the write that would have started it."""
    asked = job(metadata=PARTIAL, spec={"suspend": True, "parallelism": 3, "completions": 3})
    least = job(metadata=PARTIAL, spec={"suspend": suspend, "parallelism": 1, "completions": 3})
    assert not [*least.validate_create(OPTIONS), *least.validate_update(asked, OPTIONS)]


def test_changed_min_parallelism_is_validated_again() -> None:
    old = job(spec={"suspend": True, "parallelism": 3})
    new = job(metadata={"annotations": {labels.JOB_MIN_PARALLELISM: "3"}}, spec={"suspend": True, "parallelism": 3})
    assert [error.path for error in new.validate_update(old, OPTIONS)] == [MIN]


def test_parallelism_of_a_partially_admitted_job_is_immutable() -> None:
    old = job(metadata=PARTIAL, spec={"suspend": False, "parallelism": 3, "completions": None})
    new = job(metadata=PARTIAL, spec={"suspend": False, "parallelism": 4, "completions": None})
    assert [error.path for error in new.validate_update(old, OPTIONS)] == ["spec.parallelism"]


def test_parallelism_cannot_change_in_the_write_that_suspends_a_partially_admitted_job() -> None:
    suspended = job(metadata=PARTIAL, spec={"suspend": True, "parallelism": 5, "completions": None})
    running = job(metadata=PARTIAL, spec={"suspend": False, "parallelism": 3, "completions": None})
    assert not list(running.validate_update(suspended, OPTIONS))
    assert [error.path for error in suspended.validate_update(running, OPTIONS)] == ["spec.parallelism"]


def test_a_stop_restores_the_parallelism_after_it_has_suspended_the_job() -> None:
    stopping = {"annotations": PARTIAL["annotations"] | {labels.STOPPING: "true"}}
    reduced = job(metadata=stopping, spec={"suspend": True, "parallelism": 3, "completions": None})
    restored = job(metadata=PARTIAL, spec={"suspend": True, "parallelism": 5, "completions": None})
    assert not list(restored.validate_update(reduced, OPTIONS))


@pytest.mark.parametrize(
    ("before", "after", "was_suspended", "paths"),
    [
        ("true", "false", False, [SYNC]),
        ("true", "True", False, []),
        ("true", "false", True, []),
    ],
)
def test_completions_equal_parallelism_cannot_change_while_the_job_runs(
    before: str, after: str, was_suspended: bool, paths: list[str]
) -> None:
    spec = {"parallelism": 3, "completions": 3, "completionMode": "Indexed"}
    written = [{"annotations": {labels.JOB_COMPLETIONS_EQUAL_PARALLELISM: value}} for value in (before, after)]
    old = job(metadata=written[0], spec={**spec, "suspend": was_suspended})
    new = job(metadata=written[1], spec={**spec, "suspend": False})
    assert [error.path for error in new.validate_update(old, OPTIONS)] == paths


# --- Managed by another program ---------------------------------------------------------------------------------------


def test_a_job_for_multikueue_is_warned_of_when_it_is_created() -> None:
    managed = {"spec": {"managedBy": labels.MULTIKUEUE_CONTROLLER}}
    (warning,) = job(**managed).warnings(OPTIONS)
    assert "MultiKueue is not implemented in this version" in warning
    assert list(job(spec={"managedBy": "example.com/runner"}).warnings(OPTIONS)) == []
    plain = job(metadata={"labels": None}, **managed)
    assert list(plain.warnings(OPTIONS)) == [], "what is not queued is none of our business"
    assert list(plain.warnings(replace(OPTIONS, manage_without_queue=True))) == [warning]


def test_a_job_for_multikueue_gets_a_warning_event_when_it_is_queued_and_when_it_is_started() -> None:
    harness = JobHarness(batch_job(spec={"managedBy": labels.MULTIKUEUE_CONTROLLER})).settle()
    assert harness.events == ["CreatedWorkload", "Warning MultiKueueNotImplemented"]
    harness.events.clear()
    harness.admit().settle()
    assert harness.events[-2:] == ["Started", "Warning MultiKueueNotImplemented"]
