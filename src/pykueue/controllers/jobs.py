"""Jobs of every enabled kind: their informers, the events that queue each, and where facts about them are read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.event_recorder import EventRecorder
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels
from pykueue.controllers.informers import Informers
from pykueue.controllers.waiting_frameworks import WaitingFrameworks
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.jobs import pod, triggers
from pykueue.jobs.executor import Done, JobKey, JobReconciler
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.unreadable_owners import OwnerReader
from pykueue.lifecycle import states
from pykueue.lifecycle.workload_changes import Changes

_WORKERS: Final = 8
_PARENT: Final = "parent"
_NAMED: Final = "named"
_GROUP: Final = "group"
_POD_PARENT: Final = "pod-parent"


class JobsController:
    """One loop over all kinds; a key contains its kind."""

    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        writer: WorkloadWriter,
        recorder: EventRecorder,
        kinds: JobKinds,
        options: IntegrationOptions,
        clock: Clock,
        rng: random.Random,
        done: Done,
    ) -> None:
        self._informers = informers
        self._kinds = kinds
        self._options = options
        self._copies: dict[str, Informer[Tree]] = {}
        sources = _Sources(client, informers, writer, self._copies)
        self.executor = JobReconciler(client, _Turns(writer), recorder, sources, kinds, options, clock, done)
        self.loop: Controller[JobKey] = Controller("jobs", self.executor.reconcile, rng, workers=_WORKERS)
        self._rows = kinds.enabled(options.frameworks)
        self._parents = tuple(row for row in self._rows if row.parent_type and row.parent_type.is_reconciled)
        for row in self._rows:
            self._copies[row.kind.name] = self._copy(client, row, rng)
        for row in self._rows:
            self._watch_second_kinds(client, row, rng)
        self.waiting = WaitingFrameworks(kinds, self._rows, self._copies, recorder)
        informers.workloads.add_index(triggers.OWNER, triggers.owner_keys, of="metadata.owner_references")
        informers.workloads.add_handler(self._workload_seen)

    def _watch_second_kinds(self, client: ApiClient, row: JobIntegration, rng: random.Random) -> None:
        """Watch the kinds that are read beside the jobs; a change of one that triggers reconciles the job it belongs
        to."""
        for kind in row.second_kinds:
            copy = self._copies.get(kind.name)
            if copy is None:
                copy = self._copies[kind.name] = Informer(client, kind, codec.shared_tree, rng, may_be_absent=True)
            if kind in row.triggered_by:
                copy.add_handler(partial(self._second_seen, row))

    @property
    def informers(self) -> tuple[Informer[Tree], ...]:
        return tuple(self._copies.values())

    def _copy(self, client: ApiClient, row: JobIntegration, rng: random.Random) -> Informer[Tree]:
        # Pods that are none of ours are most of a cluster, and are never ours later: the webhook marks those that are.
        # Pods of a parent carry only its annotation at first, and annotations cannot be selected.
        is_pod, marked = row.framework == pod.FRAMEWORK, bool(self._parents)
        selector = f"{labels.MANAGED}=true" if is_pod and not marked else ""
        keeps = triggers.is_seen if is_pod and marked else None
        informer: Informer[Tree] = Informer(
            client, row.kind, codec.shared_tree, rng, labels=selector, keeps=keeps, may_be_absent=True
        )
        informer.add_index(_PARENT, triggers.parent_keys)
        informer.add_index(_NAMED, lambda tree: triggers.named_keys(row, tree, self._options))
        if row.framework == pod.FRAMEWORK:
            informer.add_index(_GROUP, lambda tree: triggers.group_keys(tree, self._options))
            informer.add_index(_POD_PARENT, self._parent_index)
        informer.add_handler(partial(self._job_seen, row))
        return informer

    # --- Events that add keys -----------------------------------------------------------------------------------------

    def _job_seen(self, row: JobIntegration, change: InformerEvent[Tree]) -> None:
        if change.new is None and change.old is not None:
            self.executor.forget(change.old)
            self.executor.note_deleted(row, triggers.key_of(row, change.old, self._options), change.old)
        for tree in (change.old, change.new):
            if tree is not None:
                key = triggers.key_of(row, tree, self._options)
                self.loop.queue.add_after(key, triggers.delay_seconds(key, change.new))
                parent = triggers.parent_of(tree, self._parents) if row.framework == pod.FRAMEWORK else None
                if parent is not None:
                    self.loop.queue.add_after(parent, triggers.GROUP_DELAY_SECONDS)

    def _parent_index(self, tree: Tree) -> tuple[str, ...]:
        key = triggers.parent_of(tree, self._parents)
        return () if key is None else (str(key),)

    def _second_seen(self, row: JobIntegration, change: InformerEvent[Tree]) -> None:
        for tree in (change.old, change.new):
            key = None if tree is None else triggers.controlled_by(row, tree)
            if key is not None:
                self.loop.add(key)

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _owners(old) == _owners(new):
            old = None  # the same jobs as of the new one
        for workload in (old, new):
            if workload is not None:
                for key in self._concerned(change.key, workload):
                    self.loop.add(key)

    def _concerned(self, key: ObjectKey, workload: kueue.Workload) -> Iterator[JobKey]:
        yield from triggers.owners_of(workload, self._kinds)
        # An object with the name of a group keeps the group from having a Workload, until it is deleted.
        name = str(key)
        pods = self._copies.get(pod.KIND.name)
        if pods is not None and any(pods.by_index(_GROUP, name)):
            yield JobKey(pod.FRAMEWORK, key.namespace, key.name, is_group=True)
        parents = triggers.owner_keys(workload)
        for row in self._rows:
            copy = self._copies[row.kind.name]
            if not len(copy):
                continue
            for _, tree in copy.by_index(_NAMED, name):
                yield triggers.key_of(row, tree, self._options)
            for parent in parents:
                for _, tree in copy.by_index(_PARENT, parent):
                    yield triggers.key_of(row, tree, self._options)


def _owners(workload: kueue.Workload) -> tuple[object, object]:
    """What of a Workload its jobs depend on: its owners, and whether an annotation makes them a group."""
    return workload.metadata.owner_references, workload.metadata.annotations


class _Turns:
    """Writes Workloads, one write per Workload at a time."""

    def __init__(self, writer: WorkloadWriter) -> None:
        self._writer = writer

    async def workload(self, before: kueue.Workload, changes: Changes, controller: str, now: Nanoseconds, /) -> int:
        async with self._writer.turn(ObjectKey(before.metadata.namespace, before.metadata.name)):
            return await self._writer.workload(before, changes, controller, now)


class _Sources:
    """Facts about jobs, from the informers."""

    def __init__(
        self, client: ApiClient, informers: Informers, writer: WorkloadWriter, copies: Mapping[str, Informer[Tree]]
    ) -> None:
        self._informers = informers
        self._writer = writer
        self._copies = copies
        self.find = OwnerReader(client, self._copy)

    def _copy(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        copy = self._copies.get(kind.name)
        return copy.get(name, namespace) if copy is not None else None

    def job(self, row: JobIntegration, namespace: str, name: str) -> Tree | None:
        return self._copies[row.kind.name].get(name, namespace)

    def group(self, namespace: str, name: str) -> tuple[Tree, ...]:
        pods = self._copies.get("pods")
        return tuple(tree for _, tree in pods.by_index(_GROUP, f"{namespace}/{name}")) if pods is not None else ()

    def pods_of(self, row: JobIntegration, namespace: str, name: str) -> tuple[Tree, ...]:
        pods, key = self._copies.get(pod.KIND.name), JobKey(row.framework, namespace, name)
        return tuple(tree for _, tree in pods.by_index(_POD_PARENT, str(key))) if pods is not None else ()

    def owned(self, kind: Kind, namespace: str, name: str) -> tuple[kueue.Workload, ...]:
        under = self._informers.workloads.by_index(triggers.OWNER, triggers.owner_key(kind, namespace, name))
        found = [workload for key, _ in under if (workload := self._writer.current(key)) is not None]
        return tuple(sorted(found, key=lambda workload: (states.created(workload), workload.metadata.uid)))

    def workload(self, namespace: str, name: str) -> kueue.Workload | None:
        return self._writer.current(ObjectKey(namespace, name))

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        found = self._informers.namespaces.get(name)
        return found.metadata.labels if found is not None else None

    @property
    def flavors(self) -> Mapping[str, kueue.ResourceFlavor]:
        return _by_name(self._informers.flavors)

    @property
    def workload_priority_classes(self) -> Mapping[str, kueue.WorkloadPriorityClass]:
        return _by_name(self._informers.workload_priority_classes)

    @property
    def priority_classes(self) -> Mapping[str, kube.PriorityClass]:
        return _by_name(self._informers.priority_classes)


def _by_name(informer: Informer[Any]) -> Mapping[str, Any]:
    return {key.name: value for key, value in informer.items()}
