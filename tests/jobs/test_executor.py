"""Actions applied to a server: writes are accepted and conditional, and Events are emitted afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jobs.job_harness import JOB, KINDS, NOW, OPTIONS, POD, batch_job, flavor, pod
from kubemachinery import codec, patches, unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import AlreadyExists, Conflict, Invalid
from kubemachinery.client.event_recorder import EVENTS, EventRecorder
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from kubeserver.protocol import authentication as server_access
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.api import kube, kueue, labels, registry
from pykueue.api.conditions import EvictedReason
from pykueue.app.server import kueue_parts
from pykueue.jobs import triggers
from pykueue.jobs.actions import CreateWorkload, EmitJobEvent, ReplaceObject, RequeueAfter, RetryWithBackoff
from pykueue.jobs.executor import JobKey, JobReconciler, NotYet
from pykueue.jobs.kinds import JobIntegration
from pykueue.lifecycle import eviction, reservation, states, workload_changes
from pykueue.lifecycle.workload_changes import Changes
from waiting import eventually

WORKLOAD = registry.KUEUE.of(kueue.Workload)
NAMESPACE = "default"


class Reading:
    """Facts straight from the server, read before each pass."""

    flavors: Mapping[str, kueue.ResourceFlavor] = {"default": flavor(nodeLabels={"pool": "blue"})}
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = {}
    priority_classes: Mapping[str, kube.PriorityClass] = {}

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.objects: dict[str, list[Tree]] = {}

    async def refresh(self) -> None:
        for kind in (JOB.kind, POD.kind, WORKLOAD):
            listing = await self.client.list(kind)
            self.objects[kind.kind] = [msgspec.json.decode(item, type=dict[str, Any]) for item in listing.items]

    def job(self, row: JobIntegration, namespace: str, name: str) -> Tree | None:
        found = [each for each in self.objects[row.kind.kind] if each["metadata"]["name"] == name]
        return found[0] if found else None

    def group(self, namespace: str, name: str) -> tuple[Tree, ...]:
        keyed = ((triggers.key_of(POD, each, OPTIONS), each) for each in self.objects["Pod"])
        return tuple(each for key, each in keyed if key == JobKey("pod", namespace, name, is_group=True))

    def pods_of(self, row: JobIntegration, namespace: str, name: str) -> tuple[Tree, ...]:
        keyed = ((triggers.parent_of(each, (row,)), each) for each in self.objects["Pod"])
        return tuple(each for key, each in keyed if key == JobKey(row.framework, namespace, name))

    def owned(self, kind: Kind, namespace: str, name: str) -> tuple[kueue.Workload, ...]:
        word = triggers.owner_key(kind, namespace, name)
        return tuple(each for each in self.workloads() if word in triggers.owner_keys(each))

    def workload(self, namespace: str, name: str) -> kueue.Workload | None:
        return next((each for each in self.workloads() if each.metadata.name == name), None)

    def workloads(self) -> list[kueue.Workload]:
        return [codec.from_tree(each, kueue.Workload) for each in self.objects["Workload"]]

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        return {}

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return await self.client.find(kind, name, namespace)


class Writing:
    """The writer of Workloads, as plain as can be."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def workload(self, before: kueue.Workload, changes: Changes, controller: str, now: Nanoseconds, /) -> int:
        after = workload_changes.apply_to(before, changes, now)
        name, namespace = before.metadata.name, before.metadata.namespace
        made = before.metadata.resource_version
        for part, subresource in (("status", "status"), ("metadata", "")):
            patch = patches.make_merge(codec.to_tree(before).get(part, {}), codec.to_tree(after).get(part, {}))
            if patch:
                conditional = unstructured.put({part: patch}, ("metadata", "resourceVersion"), made)
                answer = await self.client.patch(WORKLOAD, name, conditional, namespace, subresource=subresource)
                made = answer["metadata"]["resourceVersion"]
        if any(isinstance(each, workload_changes.DeleteWorkload) for each in changes):
            await self.client.delete(WORKLOAD, name, namespace)
        return int(made)


class World:
    """A server in memory and the executor on it."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.sources = Reading(client)
        self.recorder = EventRecorder(client, SystemClock(), "test")
        self.executor = JobReconciler(
            client, Writing(client), self.recorder, self.sources, KINDS, OPTIONS, SystemClock()
        )

    async def settle(self, key: JobKey, passes: int = 8) -> None:
        """Pass after pass until a pass writes nothing."""
        for _ in range(passes):
            await self.sources.refresh()
            before = sum(self.client.sent.values())
            await self.executor.reconcile(key)
            if sum(self.client.sent.values()) == before:
                return
        raise AssertionError(f"{key} is still busy")

    async def workload(self) -> kueue.Workload:
        await self.sources.refresh()
        (found,) = self.sources.workloads()
        return found

    async def admit(self) -> None:
        workload = await self.workload()
        assignments = tuple(
            kueue.PodSetAssignment(name=each.name, flavors={"cpu": "default"}, count=each.count)
            for each in workload.spec.pod_sets
        )
        admission = kueue.Admission(cluster_queue="cq", pod_set_assignments=assignments)
        changes = reservation.reserve(workload, admission, (), OPTIONS.lifecycle, NOW)
        await self.executor.writer.workload(workload, changes, "test", NOW)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(settings, kueue_parts()) as serving:
        transport = LocalTransport(partial(serving.embedded.server.handle_as, server_access.ADMIN))
        yield World(ApiClient(transport, random.Random(7)))


def fresh(tree: Tree) -> Tree:
    """An object as a client sends it."""
    metadata = {key: value for key, value in tree["metadata"].items() if key not in ("uid", "resourceVersion")}
    return {**tree, "metadata": {**metadata, "namespace": NAMESPACE}}


async def test_job_runs_finishes_and_is_finalized_on_a_server(world: World) -> None:
    key = JobKey("batch/job", NAMESPACE, "alpha")
    await world.client.create(JOB.kind, fresh(batch_job()))
    await world.settle(key)
    assert (await world.workload()).metadata.finalizers == (labels.RESOURCE_IN_USE_FINALIZER,)
    await world.admit()
    await world.settle(key)
    job = await world.client.get(JOB.kind, "alpha", NAMESPACE)
    assert job["spec"]["suspend"] is False
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "blue"}
    status: dict[str, Any] = {
        "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]
    }
    status |= {"startTime": "2026-11-15T12:00:00Z", "completionTime": "2026-11-15T12:00:01Z", "succeeded": 1}
    await world.client.patch(JOB.kind, "alpha", {"status": status}, NAMESPACE, subresource="status")
    await world.settle(key)
    workload = await world.workload()
    assert "Finished" in [each.type for each in workload.status.conditions]
    assert workload.metadata.finalizers == ()


async def test_while_a_kind_is_not_served_only_a_job_that_was_seen_deleted_ends_its_workload(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = JobKey("batch/job", NAMESPACE, "alpha")
    job = await world.client.create(JOB.kind, fresh(batch_job()))
    await world.settle(key)
    monkeypatch.setattr(KINDS, "not_served", {"batch/job"})
    world.sources.objects["Job"] = []
    assert await world.executor.reconcile(key) is not None
    assert not states.is_finished(await world.workload())
    world.sources.objects["Job"] = []
    world.executor.note_deleted(JOB, key, job)
    assert await world.executor.reconcile(key) is None
    assert states.is_finished(await world.workload())


async def test_a_server_accepts_the_three_writes_of_a_stop(world: World) -> None:
    key = JobKey("batch/job", NAMESPACE, "alpha")
    await world.client.create(JOB.kind, fresh(batch_job()))
    await world.settle(key)
    await world.admit()
    await world.settle(key)
    start = {"status": {"startTime": "2026-11-15T12:00:00Z", "active": 0}}
    await world.client.patch(JOB.kind, "alpha", start, NAMESPACE, subresource="status")
    workload = await world.workload()
    await world.client.delete(WORKLOAD, workload.metadata.name, NAMESPACE)
    await world.settle(key)
    job = await world.client.get(JOB.kind, "alpha", NAMESPACE)
    assert job["spec"]["suspend"] is True
    assert "nodeSelector" not in job["spec"]["template"]["spec"]
    assert labels.STOPPING not in job["metadata"].get("annotations", {})
    assert "startTime" not in job["status"]
    assert (await world.workload()).metadata.uid != workload.metadata.uid


async def test_stale_cached_job_is_not_reconciled(world: World) -> None:
    """A job that was started looks suspended on it: its quota would be given back while it runs."""
    key = JobKey("batch/job", NAMESPACE, "alpha")
    await world.client.create(JOB.kind, fresh(batch_job()))
    await world.settle(key)
    await world.admit()
    await world.sources.refresh()
    suspended = world.sources.objects["Job"]
    await world.settle(key)
    workload = await world.workload()
    evicted = eviction.evict(workload, EvictedReason.PREEMPTED, "Preempted by a workload of higher priority", NOW)
    await world.executor.writer.workload(workload, evicted, "test", NOW)
    await world.sources.refresh()
    world.sources.objects["Job"] = suspended
    await world.executor.reconcile(key)
    assert states.is_reserved(await world.workload())
    await world.settle(key)
    assert not states.is_reserved(await world.workload())


@pytest.mark.parametrize("later_seconds", [0.0, 60.0], ids=["soon", "a minute later"])
async def test_no_second_slice_is_made_while_the_first_is_not_shown(
    world: World, later_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice of an elastic job has a name of its own, so the server would take both."""
    key = JobKey("batch/job", NAMESPACE, "alpha")
    await world.client.create(JOB.kind, fresh(batch_job(metadata={"annotations": {labels.ELASTIC_JOB: "true"}})))
    await world.sources.refresh()
    await world.executor.reconcile(key)
    await world.client.patch(JOB.kind, "alpha", {"spec": {"parallelism": 2}}, NAMESPACE)
    shown = world.sources.objects["Workload"]
    await world.sources.refresh()
    world.sources.objects["Workload"] = shown
    monkeypatch.setattr(SystemClock, "monotonic", lambda clock: time.monotonic() + later_seconds)
    await world.executor.reconcile(key)
    await world.workload()  # of which there is one


async def test_pod_that_joined_a_group_is_not_reconciled_by_itself(world: World) -> None:
    """Pods of a StatefulSet join their group after they were created. A key that was queued before names the pod alone,
    and by itself the pod matches no Workload: it would be stopped, or get a Workload of its own."""
    group, alone = JobKey("pod", NAMESPACE, "g", is_group=True), JobKey("pod", NAMESPACE, "a")
    for name in ("a", "b"):
        await world.client.create(POD.kind, fresh(pod(name, "g", 2)))
    await world.settle(group)
    await world.admit()
    await world.settle(group)
    before = await world.client.get(POD.kind, "a", NAMESPACE)
    workload = await world.workload()
    await world.sources.refresh()
    assert await world.executor.reconcile(alone) is None
    assert await world.client.get(POD.kind, "a", NAMESPACE) == before
    assert await world.workload() == workload


async def test_a_pod_group_runs_on_a_server(world: World) -> None:
    key = JobKey("pod", NAMESPACE, "g", is_group=True)
    for name in ("a", "b"):
        await world.client.create(POD.kind, fresh(pod(name, "g", 2)))
    await world.settle(key)
    workload = await world.workload()
    assert sorted(owner.name for owner in workload.metadata.owner_references) == ["a", "b"]
    await world.admit()
    await world.settle(key)
    for name in ("a", "b"):
        found = await world.client.get(POD.kind, name, NAMESPACE)
        assert "schedulingGates" not in found["spec"]
        assert found["spec"]["nodeSelector"] == {"pool": "blue"}


async def test_stopped_pod_has_termination_target_and_is_deleted(world: World) -> None:
    key = JobKey("pod", NAMESPACE, "solo")
    await world.client.create(POD.kind, fresh(pod()))
    await world.settle(key)
    await world.admit()
    await world.settle(key)
    workload = await world.workload()
    await world.client.delete(WORKLOAD, workload.metadata.name, NAMESPACE)
    await world.settle(key)
    assert await world.client.find(POD.kind, "solo", NAMESPACE) is None


async def test_a_decision_about_an_old_object_is_refused_by_the_server(world: World) -> None:
    stored = await world.client.create(JOB.kind, fresh(batch_job()))
    await world.client.patch(JOB.kind, "alpha", {"metadata": {"labels": {"new": "yes"}}}, NAMESPACE)
    stale = ReplaceObject(JOB.kind, stored, unstructured.put(stored, ("spec", "suspend"), False))
    with pytest.raises(Conflict):
        await world.executor.apply(JOB, (stale,))


async def test_nothing_is_sent_where_nothing_differs(world: World) -> None:
    stored = await world.client.create(JOB.kind, fresh(batch_job()))
    before = dict(world.client.sent)
    await world.executor.apply(JOB, (ReplaceObject(JOB.kind, stored, dict(stored)),))
    assert world.client.sent == before


async def test_missing_dependency_is_an_error_that_is_retried(world: World) -> None:
    with pytest.raises(NotYet, match="no class"):
        await world.executor.apply(JOB, (RetryWithBackoff("no class"),))
    assert await world.executor.apply(JOB, (RequeueAfter(1_500_000_000),)) == 1.5


async def test_a_slice_is_resized_without_touching_its_templates(world: World) -> None:
    key = JobKey("batch/job", NAMESPACE, "alpha")
    metadata = {"annotations": {labels.ELASTIC_JOB: "true"}}
    await world.client.create(JOB.kind, fresh(batch_job(metadata=metadata, spec={"completions": None})))
    await world.settle(key)
    before = await world.client.get(WORKLOAD, (await world.workload()).metadata.name, NAMESPACE)
    await world.client.patch(JOB.kind, "alpha", {"spec": {"parallelism": 4}}, NAMESPACE)
    await world.settle(key)
    after = await world.client.get(WORKLOAD, before["metadata"]["name"], NAMESPACE)
    assert after["spec"]["podSets"][0]["count"] == 4
    assert after["spec"]["podSets"][0]["template"] == before["spec"]["podSets"][0]["template"]


async def test_events_on_the_job_are_reported_by_its_integration(world: World) -> None:
    writer = asyncio.create_task(world.recorder.run())
    await world.client.create(JOB.kind, fresh(batch_job()))
    await world.settle(JobKey("batch/job", NAMESPACE, "alpha"))

    async def events() -> list[msgspec.Raw]:
        return (await world.client.list(EVENTS, NAMESPACE)).items

    (event,) = [msgspec.json.decode(each) for each in await eventually(events)]
    writer.cancel()
    assert (event["reason"], event["regarding"]["kind"]) == ("CreatedWorkload", "Job")
    assert event["reportingController"] == "batch/job-kueue-controller"


def test_job_key_in_logs_has_framework_namespace_and_name() -> None:
    assert str(JobKey("batch/job", "team", "train")) == "batch/job team/train"


async def test_refused_workload_emits_an_event_on_its_job(world: World) -> None:
    job = await world.client.create(JOB.kind, fresh(batch_job()))
    workload = {
        "apiVersion": WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {"name": "job-alpha", "namespace": NAMESPACE},
        "spec": {"podSets": [{"name": "main", "count": -1, "template": {}}]},
    }
    with pytest.raises(Invalid):
        await world.executor.apply(JOB, (CreateWorkload(workload, job),))
    writer = asyncio.create_task(world.recorder.run())

    async def events() -> list[msgspec.Raw]:
        return (await world.client.list(EVENTS, NAMESPACE)).items

    event = msgspec.json.decode((await eventually(events))[0])
    writer.cancel()
    assert (event["type"], event["reason"], event["regarding"]["name"]) == ("Warning", "ErrWorkloadCompose", "alpha")
    assert event["note"].startswith("The Workload of the job was refused: ")
    assert "spec.podSets[0].count" in event["note"]


@pytest.mark.parametrize("owned", [False, True])
async def test_workload_that_the_job_does_not_own_and_that_has_its_name_emits_an_event(
    world: World, owned: bool
) -> None:
    """One that it owns was created a moment ago: the next pass finds it."""
    await world.client.create(JOB.kind, fresh(batch_job()))
    await world.settle(JobKey("batch/job", NAMESPACE, "alpha"))
    workload = await world.workload()
    name, job = workload.metadata.name, await world.client.get(JOB.kind, "alpha", NAMESPACE)
    if not owned:
        await world.client.patch(WORKLOAD, name, {"metadata": {"ownerReferences": None}}, NAMESPACE)
        await world.sources.refresh()
    again = codec.to_tree(workload) | {"metadata": {"name": name, "namespace": NAMESPACE}}
    with pytest.raises(AlreadyExists):
        await world.executor.apply(JOB, (CreateWorkload(again, job),))
    await world.executor.apply(JOB, (EmitJobEvent(job, "Last", "of this test"),))
    writer = asyncio.create_task(world.recorder.run())

    async def events() -> list[dict[str, Any]]:
        found = [msgspec.json.decode(each) for each in (await world.client.list(EVENTS, NAMESPACE)).items]
        return found if any(each["reason"] == "Last" for each in found) else []

    conflicts = [each["note"] for each in await eventually(events) if each["reason"] == "WorkloadNameConflict"]
    writer.cancel()
    note = f"Workload {NAMESPACE}/{name} exists and has another owner or none: delete it to have the job queued"
    assert set(conflicts) == (set() if owned else {note})


@pytest.mark.parametrize("strict", [True, False])
async def test_pod_finalizers_are_removed_under_a_resource_version_only_with_the_gate(
    world: World, strict: bool
) -> None:
    """RemoveFinalizersWithStrictPatch: on, a patch of an older copy is a conflict; off, it is applied."""
    executor = replace(world.executor, options=replace(OPTIONS, strict_finalizers=strict))
    held = fresh(pod())
    held["metadata"]["finalizers"] = [labels.MANAGED]
    read = await world.client.create(POD.kind, held)
    await world.client.patch(POD.kind, "solo", {"metadata": {"labels": {"by": "another"}}}, NAMESPACE)
    removal = ReplaceObject(POD.kind, read, {**read, "metadata": {**read["metadata"], "finalizers": []}})
    if strict:
        with pytest.raises(Conflict):
            await executor.apply(POD, (removal,))
    else:
        await executor.apply(POD, (removal,))
    left = await world.client.find(POD.kind, "solo", NAMESPACE)
    assert left is not None
    assert left["metadata"].get("finalizers", []) == ([labels.MANAGED] if strict else [])
    assert left["metadata"]["labels"]["by"] == "another"
    relabelled = ReplaceObject(POD.kind, read, unstructured.put(read, ("metadata", "labels", "more"), "1"))
    with pytest.raises(Conflict):  # nothing but finalizers is ever removed without a condition
        await executor.apply(POD, (relabelled,))
