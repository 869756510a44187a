"""The lifecycle that every kind made of pods has: its pods gated at creation, its Workloads created, the pods released
with what was assigned, deleted at a stop and gated again, scaled to zero and back, deleted; with the manager killed
after every write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, flavor
from jobs.parent_harness import DEPLOYMENT, LWS, STATEFUL_SET, ParentHarness, deployment_of, groups_of, set_of
from kubemachinery import conditions, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.pod import PodView
from pykueue.lifecycle import states

BLUE = "blue-pool"


@dataclass(frozen=True)
class ParentSample:
    """An object of one kind, and the pods that its controllers create."""

    row: JobIntegration
    tree: Callable[[], Tree]
    # Creates the pods that are missing.
    fill: Callable[[ParentHarness], object]
    # How many pods and Workloads it has.
    pods: int
    workloads: int
    # Whether its Workloads exist before its pods do, and stay without them.
    creates_workloads: bool = True


def _fill_deployment(harness: ParentHarness) -> None:
    assert harness.parent is not None
    for _ in range(harness.parent["spec"]["replicas"] - len(harness.pods)):
        harness.deployment_pod()


def _fill_set(harness: ParentHarness) -> None:
    assert harness.parent is not None
    for index in range(harness.parent["spec"]["replicas"]):
        if f"web-{index}" not in harness.objects:
            harness.set_pod(index)


def _fill_groups(harness: ParentHarness) -> None:
    assert harness.parent is not None
    for group in range(harness.parent["spec"]["replicas"]):
        for index in range(2):
            name = f"serve-{group}-{index}" if index else f"serve-{group}"
            if name not in harness.objects:
                harness.group_pod(group, index)


SAMPLES = (
    ParentSample(DEPLOYMENT, deployment_of, _fill_deployment, pods=2, workloads=2, creates_workloads=False),
    ParentSample(STATEFUL_SET, set_of, _fill_set, pods=2, workloads=1),
    ParentSample(LWS, lambda: groups_of(replicas=2, size=2), _fill_groups, pods=4, workloads=2),
)
every_parent = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.row.framework)


def test_every_kind_made_of_pods_has_a_sample() -> None:
    assert {sample.row for sample in SAMPLES} == {row for row in KINDS if row.parent_type is not None}


# --- Steps ------------------------------------------------------------------------------------------------------------


def harness_of(sample: ParentSample, kill_after: int = 0) -> ParentHarness:
    harness = ParentHarness(sample.tree(), kill_after=kill_after)
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": BLUE})})
    return harness


def created(sample: ParentSample, harness: ParentHarness) -> ParentHarness:
    """The object is reconciled, its controllers create the pods, and those are reconciled."""
    harness.settle()
    sample.fill(harness)
    harness.settle()
    return harness


def admitted(harness: ParentHarness) -> ParentHarness:
    for name, workload in sorted(harness.workloads.items()):
        if not states.is_reserved(workload):
            harness.admit_named(name)
    harness.settle()
    return harness


def running(sample: ParentSample, harness: ParentHarness) -> ParentHarness:
    admitted(created(sample, harness))
    return harness.run(*harness.pods)


def evicted(harness: ParentHarness) -> ParentHarness:
    for name in sorted(harness.workloads):
        harness.evict_named(name)
    harness.settle()
    return harness


def stopped(harness: ParentHarness) -> ParentHarness:
    """The kubelet has ended the pods, and Workloads without owners are deleted."""
    return harness.end_deleted().collect_garbage()


def scaled(harness: ParentHarness, replicas: int) -> ParentHarness:
    """A user scales the object, and its controllers delete the pods beyond."""
    harness.edit({"spec": {"replicas": replicas}}, harness.name)
    if replicas == 0:
        for name in harness.pods:
            harness.delete(name)
    harness.settle()
    return stopped(harness)


def deleted(harness: ParentHarness) -> ParentHarness:
    """A user deletes the object, and its pods with it."""
    del harness.objects[harness.name]
    for name in harness.pods:
        harness.delete(name)
    harness.settle()
    return stopped(harness)


def reserved(harness: ParentHarness) -> list[bool]:
    return [states.is_reserved(each) for each in harness.workloads.values()]


# --- Creation ---------------------------------------------------------------------------------------------------------


@every_parent
def test_pods_of_a_new_object_are_gated_and_its_workloads_pending(sample: ParentSample) -> None:
    """[PP1]"""
    harness = harness_of(sample).settle()
    assert len(harness.workloads) == (sample.workloads if sample.creates_workloads else 0)
    harness = created(sample, harness_of(sample))
    assert (len(harness.pods), harness.gated) == (sample.pods, list(harness.pods))
    assert reserved(harness) == [False] * sample.workloads
    assert BLUE not in str(harness.pods)


@every_parent
def test_each_pod_belongs_to_exactly_one_workload(sample: ParentSample) -> None:
    harness = created(sample, harness_of(sample))
    counts = [sum(each.count for each in workload.spec.pod_sets) for workload in harness.workloads.values()]
    assert sum(counts) == sample.pods
    for tree in harness.pods.values():
        uid = PodView(tree).uid
        owning = [
            name
            for name, workload in harness.workloads.items()
            if any(owner.uid == uid for owner in workload.metadata.owner_references)
        ]
        assert len(owning) == 1


# --- Start and stop ---------------------------------------------------------------------------------------------------


@every_parent
def test_released_pods_have_what_was_assigned(sample: ParentSample) -> None:
    harness = admitted(created(sample, harness_of(sample)))
    assert harness.gated == []
    selectors = [unstructured.get(tree, "spec", "nodeSelector") for tree in harness.pods.values()]
    assert selectors == [{"pool": BLUE}] * sample.pods
    assert harness.events.count("Started") == sample.pods


@every_parent
def test_running_pods_are_reported_as_ready_and_left_alone(sample: ParentSample) -> None:
    """[PP9]"""
    harness = running(sample, harness_of(sample))
    found = [
        conditions.find(each.status.conditions, WorkloadCondition.PODS_READY) for each in harness.workloads.values()
    ]
    assert [each is not None and str(each.status) for each in found] == ["True"] * sample.workloads
    writes = harness.writes
    harness.settle()
    assert harness.writes == writes


@every_parent
def test_evicted_pods_are_deleted_and_their_successors_gated(sample: ParentSample) -> None:
    """[PP7]"""
    harness = evicted(running(sample, harness_of(sample)))
    going = [tree for tree in harness.pods.values() if unstructured.get(tree, "metadata", "deletionTimestamp")]
    assert len(going) == sample.pods
    # The quota of a single pod is released with its deletion, as Kueue does; that of a group when no pod runs.
    assert reserved(harness) == [sample.creates_workloads] * sample.workloads
    assert created(sample, stopped(harness)).gated == list(harness.pods)
    assert (len(harness.pods), BLUE in str(harness.pods)) == (sample.pods, False)
    assert reserved(harness) == [False] * sample.workloads
    assert harness.events.count("Stopped") == sample.pods


@every_parent
def test_scale_to_zero_releases_the_quota_and_scale_up_requests_it_again(sample: ParentSample) -> None:
    """[SS11] [LW5] [DP6]"""
    harness = scaled(running(sample, harness_of(sample)), 0)
    assert (harness.pods, any(reserved(harness))) == ({}, False)
    replicas = sample.tree()["spec"]["replicas"]
    harness = created(sample, scaled(harness, replicas))
    assert harness.gated == list(harness.pods)
    assert reserved(harness) == [False] * sample.workloads
    assert admitted(harness).gated == []


@every_parent
def test_deleted_object_leaves_no_pod_and_no_workload(sample: ParentSample) -> None:
    """[PP8]"""
    harness = deleted(running(sample, harness_of(sample)))
    assert (harness.objects, harness.workloads) == ({}, {})


# --- A manager that is killed -----------------------------------------------------------------------------------------


def life(sample: ParentSample, kill_after: int = 0) -> list[dict[str, Any]]:
    """A whole life: admitted, run, evicted, run again, scaled to zero and back, deleted. Returns what was stored at
    each stage."""
    harness = harness_of(sample, kill_after)
    replicas = sample.tree()["spec"]["replicas"]
    steps: tuple[Callable[[], object], ...] = (
        lambda: running(sample, harness),
        lambda: stopped(evicted(harness)),
        lambda: running(sample, harness),
        lambda: scaled(harness, 0),
        lambda: running(sample, scaled(harness, replicas)),
        lambda: deleted(harness),
    )
    stages = []
    for step in steps:
        step()
        stages.append({"objects": dict(harness.objects), "workloads": dict(harness.workloads)})
    return [*stages, {"writes": harness.writes}]


@every_parent
def test_life_is_the_same_with_a_manager_killed_after_any_write(sample: ParentSample) -> None:
    *whole, counted = life(sample)
    assert counted["writes"] > 10
    for number in range(1, counted["writes"]):
        *killed, _ = life(sample, kill_after=number)
        for stage, (found, expected) in enumerate(zip(killed, whole, strict=True)):
            assert found == expected, f"stage {stage}, killed after write {number}"


# --- Broken objects ---------------------------------------------------------------------------------------------------

BROKEN: tuple[Any, ...] = (None, -1, 0, 10**12, 1.5, True, "", "Unknown", [], [None], {}, {"x": None})


@every_parent
@pytest.mark.parametrize("field", ["status", "replicas", "readyReplicas", "updatedReplicas", "currentRevision"])
def test_broken_status_changes_nothing(sample: ParentSample, field: str) -> None:
    for value in BROKEN:
        harness = running(sample, harness_of(sample))
        before = dict(harness.pods), dict(harness.workloads)
        status = value if field == "status" else {field: value}
        harness.objects[harness.name] = {**harness.objects[harness.name], "status": status}
        harness.settle()
        assert (harness.pods, harness.workloads) == before, f"status.{field} is {value}"


@every_parent
def test_broken_status_of_a_pod_stops_no_pass(sample: ParentSample) -> None:
    for value in BROKEN:
        for status in (value, {"phase": value}, {"conditions": value}, {"phase": "Running", "conditions": [value]}):
            harness = admitted(created(sample, harness_of(sample)))
            name = next(iter(harness.pods))
            harness.objects[name] = {**harness.objects[name], "status": status}
            harness.settle()


def test_pods_carry_no_finalizer_of_ours() -> None:
    """A controller that deletes its pods does not wait for the manager [PP1]."""
    for sample in SAMPLES:
        harness = running(sample, harness_of(sample))
        assert all(labels.POD_FINALIZER not in PodView(tree).finalizers for tree in harness.pods.values())
