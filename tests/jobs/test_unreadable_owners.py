"""Jobs whose owner cannot be read: what the reconciler does meanwhile, and what it does once the owner can be read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import JOB, KINDS, OPTIONS, POD, JobHarness, batch_job, pod
from jobs.test_executor import NAMESPACE, WORKLOAD, World, fresh
from jobs.test_executor import world as world_on_a_server
from jobs.test_selection import thing
from kubemachinery import codec, patches, unstructured
from kubemachinery.client.errors import ApiError
from kubemachinery.kinds import Kind
from kubemachinery.meta import OwnerReference
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.conditions import EvictedReason
from pykueue.jobs import admission, selection, unreadable_owners
from pykueue.jobs.actions import EmitJobEvent, ReplaceObject
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.executor import JobKey
from pykueue.jobs.facts import Ancestry, UnreadableOwner
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView

world = world_on_a_server

REFERENCE: Tree = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "uid-set", "controller": True,
}  # fmt: skip
UNREAD = Ancestry(unread=UnreadableOwner(codec.from_tree(REFERENCE, OwnerReference), "jobsets is forbidden"))
OWNED: dict[str, Any] = {"metadata": {"ownerReferences": [REFERENCE]}}
# With JobSet among the enabled kinds, so that one can be a managed ancestor.
NESTED = replace(OPTIONS, frameworks=("batch/job", "pod", "jobset.x-k8s.io/jobset"))


async def test_the_walk_ends_at_an_owner_that_cannot_be_read_and_keeps_the_reason() -> None:
    async def find(kind: Kind, name: str, namespace: str) -> Tree | None:
        if kind.kind == "JobSet":
            return {**thing("JobSet", "set", thing("AppWrapper", "wrapper"))}
        raise ApiError(403, "Forbidden", "no right")

    job = ObjectView(thing("Job", "job", thing("JobSet", "set")))
    found = await selection.ancestry(job, KINDS, OPTIONS, find)
    assert [owner.name for owner in found.owners] == ["set"]
    assert found.unread is not None
    assert (found.unread.title, found.unread.reason) == ("AppWrapper wrapper", "no right")


# --- The reconciler, as a decision ------------------------------------------------------------------------------------


def test_a_job_whose_owner_cannot_be_read_gets_no_workload_and_an_event() -> None:
    harness = JobHarness(batch_job(**OWNED), ancestry=UNREAD).settle()
    assert (harness.workloads, harness.writes) == ({}, 0)
    assert harness.events == ["Warning OwnerNotReadable"]
    assert harness.requeue_after == unreadable_owners.AGAIN


def test_a_job_that_runs_is_not_stopped_because_its_owner_cannot_be_read() -> None:
    """It may be the child of an ancestor that is admitted."""
    harness = JobHarness(batch_job(**OWNED, spec={"suspend": False}, status={"active": 1}), ancestry=UNREAD).settle()
    assert (harness.workloads, harness.writes) == ({}, 0)


def test_a_job_without_a_queue_is_left_alone_without_an_event() -> None:
    plain = patches.merge(batch_job(**OWNED, spec={"suspend": False}), {"metadata": {"labels": None}})
    harness = JobHarness(plain, ancestry=UNREAD).settle()
    assert (harness.writes, harness.events, harness.requeue_after) == (0, [], unreadable_owners.AGAIN)


def test_job_with_a_workload_continues_while_its_owner_cannot_be_read() -> None:
    """An eviction has to stop it, whatever becomes of its owner."""
    harness = JobHarness(batch_job(**OWNED)).settle().admit().settle()
    assert harness.job["spec"]["suspend"] is False
    harness.facts = replace(harness.facts, ancestry=UNREAD)
    harness.evict(EvictedReason.PREEMPTED).settle()
    assert harness.job["spec"]["suspend"] is True


# --- The mark ---------------------------------------------------------------------------------------------------------


def held(tree: Tree, options: IntegrationOptions = OPTIONS) -> Tree:
    """An object as the webhook stores it while its owner cannot be read."""
    row = KINDS.of(ObjectView(tree))
    assert row is not None
    made = admission.default(row, tree, JobAdmissionFacts(ancestry=UNREAD), KINDS, options)
    assert unreadable_owners.is_marked(ObjectView(made))
    return made


def raw_pod(**fields: Any) -> Tree:
    tree: Tree = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "app:1"}]}}
    tree["metadata"] = {"name": "solo", "namespace": "main", "uid": "uid-solo", "labels": {labels.QUEUE_NAME: "lq"}}
    merged: Tree = patches.merge(patches.merge(tree, OWNED), fields)
    return merged


def test_the_default_queue_is_given_and_the_job_held_while_its_owner_cannot_be_read() -> None:
    plain = patches.merge(batch_job(**OWNED, spec={"suspend": None}), {"metadata": {"labels": None}})
    made = admission.default(JOB, plain, JobAdmissionFacts(ancestry=UNREAD, default_queue=True), KINDS, OPTIONS)
    assert selection.queue_name(ObjectView(made)) == "default"
    assert made["spec"]["suspend"] is True
    assert unreadable_owners.is_marked(ObjectView(made))


def test_marked_pod_of_a_managed_ancestor_is_restored() -> None:
    ancestor = ObjectView(thing("JobSet", "set", queue="q"))
    (write, event) = unreadable_owners.settled(POD.job(held(raw_pod())), Ancestry((ancestor,)), ancestor, (), NESTED)
    assert isinstance(write, ReplaceObject)
    assert isinstance(event, EmitJobEvent)
    assert (write.after["spec"], write.after["metadata"]["labels"]) == (raw_pod()["spec"], {labels.QUEUE_NAME: "lq"})
    assert not write.after["metadata"].get("finalizers")
    assert not write.after["metadata"].get("annotations")
    assert event.reason == "Resumed"


def test_the_topology_gate_of_an_admitted_template_stays_on_a_released_pod() -> None:
    """Such a pod waits for its place in the topology, as its ancestor was promised."""
    gated = raw_pod(metadata={"annotations": {labels.WORKLOAD: "jobset-set"}})
    gated = unstructured.put(gated, ("spec", "schedulingGates"), [{"name": labels.TOPOLOGY_GATE}])
    ancestor = ObjectView(thing("JobSet", "set", queue="q"))
    (write, _) = unreadable_owners.settled(POD.job(held(gated)), Ancestry((ancestor,)), ancestor, (), NESTED)
    assert isinstance(write, ReplaceObject)
    assert PodView(write.after).gates == {labels.TOPOLOGY_GATE}


# --- On a server ------------------------------------------------------------------------------------------------------


class Denied:
    """A source that forbids to read owners, until it does not any more."""

    def __init__(self, world: World, owner: Tree | None = None) -> None:
        self.owner = owner
        self.allowed = False
        world.sources.find = self.find  # type: ignore[method-assign]

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        if not self.allowed:
            raise ApiError(403, "Forbidden", "jobsets is forbidden")
        return self.owner


@pytest.fixture
def nested(world: World) -> World:
    structs.force_setattr(world.executor, "options", NESTED)
    return world


JOB_KEY, POD_KEY = JobKey("batch/job", NAMESPACE, "alpha"), JobKey("pod", NAMESPACE, "solo")


async def test_a_held_job_is_queued_once_its_owner_is_read_and_not_managed(world: World) -> None:
    owner = Denied(world, thing("JobSet", "set"))
    await world.client.create(JOB.kind, fresh(held(batch_job(**OWNED))))
    await world.settle(JOB_KEY)
    assert world.sources.workloads() == []
    owner.allowed = True
    await world.settle(JOB_KEY)
    assert (await world.workload()).spec.queue_name == "lq"
    stored = await world.client.get(JOB.kind, "alpha", NAMESPACE)
    assert not unreadable_owners.is_marked(ObjectView(stored))
    assert stored["spec"]["suspend"] is True


async def test_a_held_job_of_a_managed_ancestor_runs_with_it_and_is_never_queued(nested: World) -> None:
    owner = Denied(nested, thing("JobSet", "set", queue="q"))
    await nested.client.create(JOB.kind, fresh(held(batch_job(**OWNED))))
    await nested.settle(JOB_KEY)
    owner.allowed = True
    await nested.settle(JOB_KEY)
    assert (await nested.client.get(JOB.kind, "alpha", NAMESPACE))["spec"]["suspend"] is True, "not admitted yet"
    workload = {
        "apiVersion": WORKLOAD.api_version, "kind": "Workload",
        "metadata": {"name": "jobset-set", "namespace": NAMESPACE, "ownerReferences": [REFERENCE]},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}]},
    }  # fmt: skip
    await nested.client.create(WORKLOAD, workload)
    await nested.admit()
    await nested.settle(JOB_KEY)
    stored = await nested.client.get(JOB.kind, "alpha", NAMESPACE)
    assert stored["spec"]["suspend"] is False
    assert not unreadable_owners.is_marked(ObjectView(stored))
    assert [each.metadata.name for each in nested.sources.workloads()] == ["jobset-set"]


async def test_a_held_pod_is_queued_once_its_owner_is_read_and_not_managed(world: World) -> None:
    owner = Denied(world, thing("JobSet", "set"))
    await world.client.create(POD.kind, fresh(held(raw_pod())))
    await world.settle(POD_KEY)
    assert world.sources.workloads() == []
    owner.allowed = True
    await world.settle(POD_KEY)
    assert (await world.workload()).spec.queue_name == "lq"
    assert PodView(await world.client.get(POD.kind, "solo", NAMESPACE)).has_gate()


async def test_a_held_pod_of_a_group_holds_up_the_group_until_its_owner_is_read(world: World) -> None:
    """One pod whose owner is not known is one that may not belong to the group's Workload."""
    owner = Denied(world, thing("JobSet", "set"))
    group = {"labels": {labels.QUEUE_NAME: "lq", labels.POD_GROUP_NAME: "duo"}}
    group |= {"annotations": {labels.POD_GROUP_TOTAL_COUNT: "2"}}
    await world.client.create(POD.kind, fresh(held(raw_pod(metadata=group))))
    await world.client.create(POD.kind, fresh(pod("other", group="duo", total=2)))
    key = JobKey("pod", NAMESPACE, "duo", is_group=True)
    await world.settle(key)
    assert world.sources.workloads() == []
    owner.allowed = True
    await world.settle(key)
    assert (await world.workload()).metadata.name == "duo"
