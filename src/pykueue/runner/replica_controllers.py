"""The controllers of Deployments, ReplicaSets, StatefulSets and CronJobs: they read, decide and write.

One loop for all four; a key contains its kind. An object is reconciled again only when the informers contain what was
written for it, so that no pod is created twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubemachinery import unstructured
from kubemachinery.client import event_recorder
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller, Result
from kubemachinery.client.errors import AlreadyExists, NotFound
from kubemachinery.client.event_recorder import EventRecorder, EventReference, PendingEvent
from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.clock import Clock
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, registry
from pykueue.runner import cron_job, deployment, replica_set, stateful_set
from pykueue.runner.replicas import PodsPlan

PODS: Final = registry.ALL.of(kube.Pod)
JOBS: Final = registry.ALL.of(kube.Job)
KINDS: Final = (deployment.KIND, replica_set.KIND, stateful_set.KIND, cron_job.KIND)
# The kind that each of them creates.
_CHILDREN: Final[Mapping[str, Kind]] = {
    deployment.KIND.kind: replica_set.KIND,
    replica_set.KIND.kind: PODS,
    stateful_set.KIND.kind: PODS,
    cron_job.KIND.kind: JOBS,
}

_OWNER: Final = "owner-of-replicas"
_BEHIND_SECONDS: Final = 0.01
# How soon a name that an object of another owner has is tried again.
_TAKEN_SECONDS: Final = 10.0


class OwnerKey(NamedTuple):
    """An object of one of the kinds."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def owners(tree: Tree) -> Iterator[str]:
    """The object that controls another one, as a key (an informer index)."""
    view = ObjectView(tree)
    owner = view.controller
    if owner is not None and owner.kind in _CHILDREN:
        yield str(OwnerKey(owner.kind, view.namespace, owner.name))


class ReplicaControllers:
    """Creates pods and Jobs for the kinds that have them, and writes their status."""

    REPORTS_AS: Final = "pykueue-runner"

    def __init__(
        self,
        client: ApiClient,
        jobs: Informer[Tree],
        pods: Informer[Tree],
        make: Callable[[Kind], Informer[Tree]],
        events: EventRecorder,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client, self._events, self._clock = client, events, clock
        self.informers: Final = {kind.kind: make(kind) for kind in KINDS}
        self._all: Final = {**self.informers, "Pod": pods, "Job": jobs}
        # The revisions that informers, by kind, must have reached before an object is reconciled again.
        self._awaited: dict[OwnerKey, dict[str, int]] = {}
        self._reported: set[tuple[str, str]] = set()
        self.loop: Controller[OwnerKey] = Controller("replicas", self._reconcile, rng, workers=8)
        for name, informer in self.informers.items():
            informer.add_handler(lambda change, name=name: self._seen(name, change))  # type: ignore[misc]
        for name in dict.fromkeys(kind.kind for kind in _CHILDREN.values()):
            self._all[name].add_index(_OWNER, owners)
            self._all[name].add_handler(self._child_seen)

    def _seen(self, kind: str, change: InformerEvent[Tree]) -> None:
        self.loop.add(OwnerKey(kind, change.key.namespace, change.key.name), priority=change.priority)

    def _child_seen(self, change: InformerEvent[Tree]) -> None:
        for tree in (change.old, change.new):
            owner = ObjectView(tree).controller if tree is not None else None
            if owner is not None and owner.kind in _CHILDREN:
                self.loop.add(OwnerKey(owner.kind, change.key.namespace, owner.name), priority=change.priority)

    async def _reconcile(self, key: OwnerKey) -> Result:
        awaited = self._awaited.get(key, {})
        if any(self._all[kind].revision < revision for kind, revision in awaited.items()):
            return _BEHIND_SECONDS
        self._awaited.pop(key, None)
        tree = self.informers[key.kind].get(key.name, key.namespace)
        if tree is None:
            return None
        uid = ObjectView(tree).uid
        found = self._all[_CHILDREN[key.kind].kind].by_index(_OWNER, str(key))
        mine = [each for _, each in found if any(owner.uid == uid for owner in ObjectView(each).owner_references)]
        now = self._clock.now()
        match key.kind:
            case deployment.KIND.kind:
                return await self._deployment(key, tree, deployment.decide(tree, mine, now))
            case replica_set.KIND.kind:
                return await self._pods(key, replica_set.KIND, tree, replica_set.decide(tree, mine, now))
            case stateful_set.KIND.kind:
                self._warn(tree, stateful_set.ignored(tree))
                return await self._pods(key, stateful_set.KIND, tree, stateful_set.decide(tree, mine, now))
            case _:
                return await self._cron_job(key, tree, cron_job.decide(tree, mine, now))

    # --- Applying -----------------------------------------------------------------------------------------------------

    async def _deployment(self, key: OwnerKey, tree: Tree, plan: deployment.DeploymentPlan) -> Result:
        await self._write_status(key, deployment.KIND, tree, plan.status)
        if plan.create is not None:
            await self._create(key, replica_set.KIND, tree, [plan.create])
        for each, count in plan.scale:
            view = ObjectView(each)
            patch = {"metadata": {"resourceVersion": view.resource_version}, "spec": {"replicas": count}}
            written = await self._client.patch(replica_set.KIND, view.name, patch, view.namespace)
            self._await(key, replica_set.KIND, written)
            self._note(tree, "ScalingReplicaSet", f"Scaled replica set {view.name} to {count}")
        await self._delete(replica_set.KIND, tree, plan.delete)
        return None

    async def _pods(self, key: OwnerKey, kind: Kind, tree: Tree, plan: PodsPlan) -> Result:
        await self._write_status(key, kind, tree, plan.status)
        await self._delete(PODS, tree, plan.delete)
        if await self._create(key, PODS, tree, plan.create):
            return plan.requeue_after_seconds
        return min(_TAKEN_SECONDS, plan.requeue_after_seconds or _TAKEN_SECONDS)

    async def _cron_job(self, key: OwnerKey, tree: Tree, plan: cron_job.CronPlan) -> Result:
        self._warn(tree, plan.problem)
        await self._delete(JOBS, tree, plan.delete)
        # The Job comes before the time that counts as scheduled: after a crash in between, it is found by its name.
        await self._create(key, JOBS, tree, [plan.create] if plan.create is not None else [])
        await self._write_status(key, cron_job.KIND, tree, plan.status)
        return plan.requeue_after_seconds

    async def _write_status(self, key: OwnerKey, kind: Kind, tree: Tree, status: Tree) -> None:
        if _significant(status) == _significant(_same_fields(tree.get("status"), status)):
            return
        view = ObjectView(tree)
        patch = {"metadata": {"resourceVersion": view.resource_version}, "status": status}
        written = await self._client.patch(kind, view.name, patch, view.namespace, subresource="status")
        self._await(key, kind, written)

    async def _create(self, key: OwnerKey, kind: Kind, owner: Tree, trees: Iterable[Tree]) -> bool:
        """Create objects; whether none of their names is taken by an object that the owner does not control."""
        free = True
        for tree in trees:
            try:
                made = await self._client.create(kind, tree)
            except AlreadyExists:
                # Written before a restart, and seen with its next event; or not of the owner: its end wakes nothing.
                free = self._is_mine(kind, owner, ObjectView(tree).name) and free
                continue
            self._await(key, kind, made)
            self._note(owner, "SuccessfulCreate", f"Created {kind.kind} {ObjectView(made).name}")
        return free

    def _is_mine(self, kind: Kind, owner: Tree, name: str) -> bool:
        """Whether the owner controls the object of this name, or the informer does not have the object yet. One that
        the owner does not control is reported once."""
        view = ObjectView(owner)
        found = self._all[kind.kind].get(name, view.namespace)
        if found is None:
            return True
        controller = ObjectView(found).controller
        if controller is not None and controller.uid == view.uid:
            return True
        problem = (
            f"{kind.kind} {name} exists, and this {view.kind} does not control it; it is created when that one is gone"
        )
        self._warn(owner, problem, "FailedCreate")
        return False

    async def _delete(self, kind: Kind, owner: Tree, trees: Iterable[Tree]) -> None:
        for tree in trees:
            view = ObjectView(tree)
            try:
                await self._client.delete(kind, view.name, view.namespace, uid=view.uid)
            except NotFound:
                continue
            self._note(owner, "SuccessfulDelete", f"Deleted {kind.kind} {view.name}")

    def _await(self, key: OwnerKey, kind: Kind, written: Tree) -> None:
        awaited = self._awaited.setdefault(key, {})
        awaited[kind.kind] = max(awaited.get(kind.kind, 0), int(ObjectView(written).resource_version or 0))

    # --- Events -------------------------------------------------------------------------------------------------------

    def _note(self, about: Tree, reason: str, note: str, type_: str = event_recorder.NORMAL) -> None:
        view = ObjectView(about)
        reference = EventReference(
            view.api_version, view.kind, view.name, view.namespace, view.uid, view.resource_version
        )
        self._events.emit(PendingEvent(reference, type_, reason, note, self.REPORTS_AS))

    def _warn(self, about: Tree, problem: str, reason: str = "Ignored") -> None:
        """Report once what has no effect, or cannot be done."""
        if problem and (ObjectView(about).uid, problem) not in self._reported:
            self._reported.add((ObjectView(about).uid, problem))
            self._note(about, reason, problem, event_recorder.WARNING)


def _same_fields(status: object, wanted: Tree) -> Tree:
    found = unstructured.mapping(status)
    return {key: found.get(key) for key in wanted}


def _significant(value: Any) -> Any:
    """A value without what a server leaves out: nothing, zero and empty."""
    if isinstance(value, dict):
        return {key: _significant(entry) for key, entry in value.items() if entry not in (None, 0, "", [], {})}
    if isinstance(value, list):
        return [_significant(entry) for entry in value]
    return value
