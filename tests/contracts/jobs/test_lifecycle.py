"""The lifecycle that every kind of job has: held at creation, one Workload, started with what was assigned, stopped and
restored, ended once; with the manager killed after every write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import ALL_KINDS, KINDS, JobHarness, flavor
from jobs.samples import SAMPLES, JobSample
from kubemachinery import unstructured
from kubemachinery.meta import format_time
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.jobs import admission, related
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.offline import OfflineContext
from pykueue.lifecycle import states

JOB_ROWS = [row for row in KINDS if row.implementation is not None and not row.is_pod_parent]
# Kinds with a suspend field: a pod is deleted to stop it, and none is restored.
SUSPENDABLE = [row for row in JOB_ROWS if not row.of_pods]

every_kind = pytest.mark.parametrize("row", JOB_ROWS, ids=lambda row: row.framework)
every_suspendable_kind = pytest.mark.parametrize("row", SUSPENDABLE, ids=lambda row: row.framework)

BLUE = "blue-pool"


def sample_of(row: JobIntegration) -> JobSample:
    return SAMPLES[row.framework]


def harness_of(row: JobIntegration, kill_after: int = 0) -> JobHarness:
    """A harness with the sample of a kind, on a flavor with a node label."""
    sample = sample_of(row)
    harness = JobHarness(
        sample.job(), options=ALL_KINDS, row=row, related_objects=sample.related, kill_after=kill_after
    )
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": BLUE})})
    return harness


def job_of(harness: JobHarness) -> GenericJob:
    return harness.row.job(harness.job, related.among(harness.row, harness.job, harness.around.find))


def run(harness: JobHarness) -> JobHarness:
    """The scheduler admits the Workload, the manager starts the job, and its operator runs all pods."""
    return harness.settle().admit().settle().status(**sample_of(harness.row).running).settle()


def stop(harness: JobHarness) -> JobHarness:
    """The scheduler evicts the Workload, the manager stops the job, and its operator removes the pods."""
    return harness.evict().settle().status(**sample_of(harness.row).stopped).settle()


# --- Creation ---------------------------------------------------------------------------------------------------------


@every_suspendable_kind
def test_new_job_is_suspended_by_the_webhook(row: JobIntegration) -> None:
    sample = sample_of(row)
    implementation = row.implementation_type
    assert implementation is not None
    assert issubclass(implementation, GenericJob)
    tree = unstructured.without(sample.job(), implementation.suspend_path)
    facts = JobAdmissionFacts(related=related.among(row, tree, OfflineContext(related=sample.related).find))
    held = admission.default(row, tree, facts, KINDS, ALL_KINDS)
    assert row.job(held, facts.related).is_suspended()
    assert admission.validate_create(row, held, facts, KINDS, ALL_KINDS).errors == ()


@pytest.mark.parametrize("row", [row for row in SUSPENDABLE if row.managed_by_path], ids=lambda row: row.framework)
@pytest.mark.parametrize("controller", ["own", "example.com/runner", labels.MULTIKUEUE_CONTROLLER])
def test_job_of_another_controller_is_queued_and_started(row: JobIntegration, controller: str) -> None:
    """[JF47] Only MultiKueue, which would run the job in another cluster, is reported."""
    named = row.own_controller if controller == "own" else controller
    tree = unstructured.put(sample_of(row).job(), row.managed_by_path, named)
    harness = JobHarness(tree, options=ALL_KINDS, row=row, related_objects=sample_of(row).related)
    stop(run(harness))
    assert unstructured.find(harness.job, row.managed_by_path) == named
    assert (harness.events.count("Started"), harness.events.count("Stopped")) == (1, 1)
    warned = "Warning MultiKueueNotImplemented" in harness.events
    assert warned == (controller == labels.MULTIKUEUE_CONTROLLER)
    assert bool(list(job_of(harness).warnings(ALL_KINDS))) >= warned


@every_suspendable_kind
def test_new_job_without_a_queue_is_left_alone(row: JobIntegration) -> None:
    tree = unstructured.put(sample_of(row).job(), ("metadata", "labels"), {})
    harness = JobHarness(tree, options=ALL_KINDS, row=row, related_objects=sample_of(row).related).settle()
    assert (harness.workloads, harness.writes) == ({}, 0)


@every_kind
def test_job_has_exactly_one_workload(row: JobIntegration) -> None:
    harness = harness_of(row).settle()
    first = harness.workload
    copy = structs.replace(first.metadata, name="copy", uid="uid-copy")
    harness.workloads["copy"] = structs.replace(first, metadata=copy)
    if not row.of_pods:
        assert len(harness.settle().workloads) == 1
    run(harness_of(row))


# --- Start and stop ---------------------------------------------------------------------------------------------------


@every_kind
def test_started_job_has_what_was_assigned(row: JobIntegration) -> None:
    harness = harness_of(row).settle()
    assert BLUE not in str(harness.job)
    harness.admit().settle()
    assert not job_of(harness).is_suspended()
    assert str(harness.job).count(BLUE) >= len(harness.workload.spec.pod_sets)
    assert harness.events.count("Started") == 1


@every_kind
def test_running_job_is_reported_as_ready_and_left_alone(row: JobIntegration) -> None:
    harness = run(harness_of(row))
    assert job_of(harness).are_pods_ready()
    writes = harness.writes
    assert harness.settle().writes == writes


@every_suspendable_kind
def test_stopped_job_is_restored(row: JobIntegration) -> None:
    harness = harness_of(row).settle()
    before = job_of(harness).pod_sets(ALL_KINDS)
    stop(run(harness))
    assert job_of(harness).is_suspended()
    assert job_of(harness).pod_sets(ALL_KINDS) == before
    assert BLUE not in str(harness.job)
    assert harness.events.count("Stopped") == 1


@every_suspendable_kind
def test_evicted_job_holds_its_quota_while_pods_run(row: JobIntegration) -> None:
    harness = run(harness_of(row))
    harness.evict().settle()
    assert job_of(harness).is_active()
    assert states.is_reserved(harness.workload)
    harness.status(**sample_of(row).stopped).settle()
    assert not states.is_reserved(harness.workload)


@every_suspendable_kind
def test_deleted_workload_stops_its_job(row: JobIntegration) -> None:
    harness = run(harness_of(row))
    harness.delete_workload()
    harness.apply(harness.decide())
    assert unstructured.find(harness.job, job_of(harness).suspend_path) is True


@every_kind
def test_deleted_job_releases_its_workload(row: JobIntegration) -> None:
    harness = run(harness_of(row))
    (name,) = harness.objects
    harness.objects[name] = unstructured.put(harness.job, ("metadata", "deletionTimestamp"), format_time(harness.now))
    harness.settle()
    assert harness.condition(WorkloadCondition.FINISHED) == "True/OwnerNotFound"
    assert harness.workload.metadata.finalizers == ()


# --- The end ----------------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[JobSample], Tree | None]] = {
    "Succeeded": lambda sample: sample.succeeded,
    "Failed": lambda sample: sample.failed,
}


@every_kind
@pytest.mark.parametrize("end", ENDS)
def test_job_ends_once(row: JobIntegration, end: str) -> None:
    status = ENDS[end](sample_of(row))
    if status is None:
        pytest.skip(f"{row.framework} has no end {end}")
    harness = run(harness_of(row)).status(**status).settle()
    assert harness.condition(WorkloadCondition.FINISHED) == f"True/{end}"
    writes, events = harness.writes, list(harness.events)
    assert events.count("FinishedWorkload") == 1
    harness.settle()
    assert (harness.writes, harness.events) == (writes, events)


@every_kind
def test_kind_without_an_end_is_declared(row: JobIntegration) -> None:
    """A sample has both ends, or neither: a kind that runs until it is deleted."""
    sample = sample_of(row)
    assert (sample.succeeded is None) == (sample.failed is None)


# --- A manager that is killed -----------------------------------------------------------------------------------------


def stop_without_eviction(harness: JobHarness) -> JobHarness:
    """The Workload loses its admission: nothing but the job itself records that its stop is not completed."""
    return harness.lose_admission().settle().status(**sample_of(harness.row).stopped).settle()


STOPS: dict[str, Callable[[JobHarness], JobHarness]] = {"evicted": stop, "admission lost": stop_without_eviction}


def life(row: JobIntegration, stop: str, kill_after: int = 0) -> list[Tree]:
    """A whole life: admitted, run, stopped, admitted and run again, ended. Returns what was stored at each stage. A pod
    ends with its eviction."""
    harness = harness_of(row, kill_after)
    stages = [_stored(run(harness))]
    if row.of_pods:
        return stages
    stages.append(_stored(STOPS[stop](harness)))
    stages.append(_stored(run(harness)))
    end = sample_of(row).succeeded
    return stages if end is None else [*stages, _stored(harness.status(**end).settle())]


def _stored(harness: JobHarness) -> Tree:
    return {"job": harness.job, "workload": harness.workload, "writes": harness.writes}


@pytest.mark.parametrize("stop", STOPS)
@every_kind
def test_life_is_the_same_with_a_manager_killed_after_any_write(row: JobIntegration, stop: str) -> None:
    whole = life(row, stop)
    writes = whole[-1]["writes"]
    assert writes > 1
    for number in range(1, writes):
        for killed, expected in zip(life(row, stop, kill_after=number), whole, strict=True):
            assert killed["job"] == expected["job"], f"killed after write {number}"
            assert killed["workload"] == expected["workload"], f"killed after write {number}"
