"""One reconcile pass over one job: read the facts, decide, apply the actions. Only this module has side effects.

A `JobKey` names what is reconciled: an object of a kind, or a pod group. `JobSources` and `WorkloadWriter` are given by
the caller: where facts are read, and how a Workload is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import structs

from kubemachinery import patches, unstructured
from kubemachinery.client.client import JSON_PATCH, ApiClient
from kubemachinery.client.errors import AlreadyExists, ApiError, KubeError, NoSuchKind, NotFound, Unanswered
from kubemachinery.client.event_recorder import NORMAL, WARNING, EventRecorder, EventReference, PendingEvent
from kubemachinery.clock import Clock
from kubemachinery.kinds import Kind
from kubemachinery.meta import SECOND, Nanoseconds, OwnerReference
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels, workload_owners
from pykueue.jobs import (
    parent_facts,
    parent_reconcile,
    pod,
    related,
    selection,
    unreadable_owners,
    workloads,
)
from pykueue.jobs.actions import (
    Action,
    Actions,
    ChangeWorkload,
    CreateWorkload,
    DeleteObject,
    EmitJobEvent,
    PatchWorkload,
    ReplaceObject,
    RequeueAfter,
    ResizeWorkload,
    RetryWithBackoff,
)
from pykueue.jobs.facts import Ancestry, JobFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_group import PodGroup, holds_quota
from pykueue.jobs.pod_parent import ParentFacts
from pykueue.jobs.reconcile import orphaned, reconcile
from pykueue.jobs.sources import JobSources
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.workload_changes import Changes, DeleteWorkload, SetAdmission

# How soon a job is reconciled again while the informer caches are behind its own writes.
BEHIND_SECONDS: Final = 1.0
_CACHED_WITHIN_SECONDS: Final = 10.0
# How soon a job with pods that are not in the cache is reconciled again.
_UNSEEN_SECONDS: Final = 30.0
# Status codes that a retry does not change: the refusal is emitted as an Event on the job.
_REFUSED: Final = frozenset({400, 403, 422})


class JobKey(NamedTuple):
    """One job: an object of a kind by its name, or a pod group by the name of the group."""

    framework: str
    namespace: str
    name: str
    is_group: bool = False

    def __str__(self) -> str:
        return f"{self.framework} {self.namespace}/{self.name}"


class NotYet(KubeError):
    """An object that the job needs does not exist. The pass is retried."""


class WorkloadWriter(Protocol):
    """Writes changes of Workloads and emits their Events; returns the new resourceVersion."""

    async def workload(self, before: kueue.Workload, changes: Changes, controller: str, now: Nanoseconds, /) -> int: ...


# (the integration, the action, the object after it)
Done: TypeAlias = Callable[[JobIntegration, CreateWorkload | ReplaceObject, Tree], None]


class JobReconciler(msgspec.Struct, frozen=True):
    client: ApiClient
    writer: WorkloadWriter
    recorder: EventRecorder
    sources: JobSources
    kinds: JobKinds
    options: IntegrationOptions
    clock: Clock
    # Called after each create and replace, for metrics.
    done: Done = lambda row, action, answer: None
    # UID -> the resourceVersion of the last write to an object of a job, until the object is deleted.
    _written: dict[str, int] = msgspec.field(default_factory=dict)
    # The Workload that was last created for a job, and until when the cache is expected to have it.
    _made: dict[JobKey, tuple[str, float]] = msgspec.field(default_factory=dict)
    # The UIDs of objects that own a Workload of the job and were found to be deleted.
    _gone: dict[JobKey, set[str]] = msgspec.field(default_factory=dict)

    async def reconcile(self, key: JobKey) -> float | None:
        """One pass; returns after how many seconds to reconcile again, if at all."""
        row = self.kinds.framework(key.framework)
        if row is None or not self.kinds.is_enabled(row, self.options.frameworks):
            return None  # an owner of a Workload that is not reconciled here
        now = self.clock.now()
        if row.parent_type is not None:
            return await self._reconcile_parent(row, key, now)
        if self._has_joined_a_group(row, key):
            return None
        unseen = await self._unseen(row, key)
        if unseen is None:
            return await self._without_its_kind(row, key, now)
        if unseen and not key.is_group and self._cached(row, key):
            return BEHIND_SECONDS
        job = await self._job(row, key, unseen, now)
        if job is None:
            self._made.pop(key, None)
            self._gone.pop(key, None)
            return await self.apply(row, self._after_deletion(row, key, now))
        if await self._awaits(key) or any(self.is_behind(each) for each in job.objects):
            return BEHIND_SECONDS
        marked = next(filter(unreadable_owners.is_marked, job.objects), None)
        if marked is not None and not marked.is_deleting:
            return await self.apply(row, await self._settled(row.job(marked.tree)))
        facts = await self._facts(row, key, job)
        actions = reconcile(job, facts, self.options, now)
        if any(map(_releases_quota, actions)) and await self._is_outdated(row, _unwritten(job, actions)):
            return BEHIND_SECONDS
        try:
            again = await self.apply(row, actions)
        except Unanswered:
            # The Workload may have been created, and the next one could have another name.
            self._remember_created(key, actions, within_seconds=0.0)
            raise
        self._remember_created(key, actions)
        # No event announces what becomes of an object that the cache does not hold.
        return again if not unseen else min(again or _UNSEEN_SECONDS, _UNSEEN_SECONDS)

    def _remember_created(
        self, key: JobKey, actions: Iterable[Action], within_seconds: float = _CACHED_WITHIN_SECONDS
    ) -> None:
        for action in actions:
            if isinstance(action, CreateWorkload):
                self._made[key] = action.workload["metadata"]["name"], self.clock.monotonic() + within_seconds

    async def _reconcile_parent(self, row: JobIntegration, key: JobKey, now: Nanoseconds) -> float | None:
        """One pass over a kind made of pods. Its branches are independent: one that fails does not stop the others,
        and the first failure is raised at the end, so that the pass is retried."""
        facts = await parent_facts.read(row, key.namespace, key.name, self.sources, self.kinds, self.options)
        read = (facts.tree, *facts.pods)
        if await self._awaits(key) or any(self.is_behind(ObjectView(tree)) for tree in read if tree is not None):
            return BEHIND_SECONDS
        again: list[float] = []
        failures: list[KubeError] = []
        for branch in parent_reconcile.reconcile(row, facts, self.options, now):
            try:
                if await self._has_unseen_pods(key, facts, branch):
                    again.append(BEHIND_SECONDS)
                    continue
                after = await self.apply(row, branch)
            except NotFound:
                continue  # a pod or a Workload that was deleted meanwhile; its deletion triggers the next pass
            except KubeError as error:
                failures.append(error)
            else:
                self._remember_created(key, branch)
                again += [after] if after is not None else []
        if failures:
            raise failures[0]
        return min(again, default=None)

    # --- Reading facts ------------------------------------------------------------------------------------------------

    async def _job(
        self, row: JobIntegration, key: JobKey, unseen: Sequence[Tree], now: Nanoseconds
    ) -> GenericJob | None:
        if key.is_group:
            members = [PodView(tree) for tree in (*self.sources.group(key.namespace, key.name), *unseen)]
            # The first one is read for the whole group: one that lost its label would end the reconciliation of all.
            members.sort(key=lambda member: member.labels.get(labels.MANAGED) != "true")
            return PodGroup(row, members, self.options, now) if members else None
        tree = self.sources.job(row, key.namespace, key.name) or next(iter(unseen), None)
        return None if tree is None else row.job(tree, await related.read(row, tree, self.sources.find))

    async def _unseen(self, row: JobIntegration, key: JobKey) -> list[Tree] | None:
        """The objects of a job that own an unfinished Workload and exist, but are not in the cache. Taken for deleted,
        a job would run while its quota is released, or never start: what is finished stays finished. Where the cache
        has an object that was deleted and created again, its Workloads, also finished ones, would be deleted as those
        of another job.

        The cache of pods holds only marked ones, and a user may remove the marks [PD10]. Of other kinds, the watch of a
        new leader may be behind that of Workloads, which its predecessor created for jobs that it has not shown yet.
        None: it is not known whether they exist, because the server does not serve the kind.
        """
        cached = self._cached(row, key)
        owners = tuple(self._owners(row, key, unfinished=key.is_group or not cached))
        if cached and not row.of_pods and all(owner.uid in cached for owner in owners):
            self._gone.pop(key, None)
            return []
        gone, found = self._gone.get(key, set()), list[Tree]()
        for owner in owners:
            if owner.uid in cached or owner.uid in gone:
                continue
            if row.framework in self.kinds.not_served:
                return None
            try:
                tree = await self.client.get(row.kind, owner.name, key.namespace)
            except NoSuchKind:
                return None
            except NotFound:
                tree = {}
            if ObjectView(tree).uid == owner.uid:
                found.append(tree)
            else:
                gone.add(owner.uid)
                self._gone[key] = gone
        return found

    def _cached(self, row: JobIntegration, key: JobKey) -> frozenset[str]:
        """The UIDs of the cached objects of a job."""
        if key.is_group:
            return frozenset(ObjectView(tree).uid for tree in self.sources.group(key.namespace, key.name))
        tree = self.sources.job(row, key.namespace, key.name)
        return frozenset(() if tree is None else (ObjectView(tree).uid,))

    def _owners(self, row: JobIntegration, key: JobKey, *, unfinished: bool) -> Iterator[OwnerReference]:
        """The references of the job's Workloads, or of its unfinished ones, to its objects."""
        named = self.sources.workload(key.namespace, key.name) if key.is_group else None
        found = self.sources.owned(row.kind, key.namespace, key.name) if not key.is_group else (named,)
        for workload in found:
            if workload is not None and not (unfinished and states.is_finished(workload)):
                for owner in workload.metadata.owner_references:
                    if self.kinds.of(owner) is row and (key.is_group or owner.name == key.name):
                        yield owner

    def _has_joined_a_group(self, row: JobIntegration, key: JobKey) -> bool:
        """Whether a pod that was queued by itself belongs to a group now, as pods of a StatefulSet do after they were
        created. It is reconciled with the group; by itself it would not match the Workload and be stopped."""
        if key.is_group or row.framework != pod.FRAMEWORK:
            return False
        tree = self.sources.job(row, key.namespace, key.name)
        return tree is not None and bool(PodView(tree).group_name(self.options))

    def is_behind(self, cached: ObjectView) -> bool:
        """Whether a cached object is older than the last write to it. A decision on it would see a job that was just
        started as not started, and release its quota while it runs."""
        written = self._written.get(cached.uid)
        return written is not None and int(cached.resource_version) < written

    async def _is_outdated(self, row: JobIntegration, objects: Iterable[ObjectView]) -> bool:
        """Whether the cache is older than the server in one of these objects, which are about to count as stopped.

        One that this manager has written is not: the cache holds that write or a later one. Of any other, the start may
        have been written by the manager that led before, and not be shown yet by the watch. It is read, once: what it
        starts from then on is a write of this manager."""
        outdated = False
        for each in objects:
            if each.uid in self._written:
                continue
            with suppress(NotFound):
                found = ObjectView(await self.client.get(row.kind, each.name, each.namespace))
                if found.uid == each.uid:
                    self._written[each.uid] = int(found.resource_version)
                    outdated = outdated or self.is_behind(each)
        return outdated

    async def _has_unseen_pods(self, key: JobKey, facts: ParentFacts, branch: Actions) -> bool:
        """Whether pods that the cache does not hold, or holds as they were before their start, run on the quota of a
        Workload that these actions release. Every pod of a group is an owner of its Workload before it is started."""
        row = self.kinds.framework(pod.FRAMEWORK)
        released = [each.workload for each in branch if isinstance(each, ChangeWorkload) and _gives_up(each)]
        if row is None or not released:
            return False
        cached = {view.uid: view for view in map(PodView, facts.pods)}
        owners = [owner for workload in released for owner in workload.metadata.owner_references]
        pods = [owner for owner in owners if self.kinds.of(owner) is row]
        gone = self._gone.setdefault(key, set())
        for owner in pods:
            if owner.uid in cached or owner.uid in gone:
                continue
            found = await self.client.find(row.kind, owner.name, key.namespace) or {}
            if ObjectView(found).uid != owner.uid:
                gone.add(owner.uid)
            elif holds_quota(PodView(found), self.options, self.clock.now()):
                return True
        return await self._is_outdated(row, (cached[owner.uid] for owner in pods if owner.uid in cached))

    async def _awaits(self, key: JobKey) -> bool:
        """Whether a Workload created for the job is not in the cache yet; a second one would be created. A Workload
        that was deleted at once never enters the cache, and a cache may be cut off from the server for long: after some
        seconds the server is asked."""
        name, until = self._made.get(key, ("", 0.0))
        if name and self.sources.workload(key.namespace, name) is None:
            if self.clock.monotonic() < until:
                return True
            with suppress(NotFound):
                await self.client.get(workloads.KIND, name, key.namespace)
                self._made[key] = name, self.clock.monotonic() + _CACHED_WITHIN_SECONDS
                return True
        self._made.pop(key, None)
        return False

    async def _without_its_kind(self, row: JobIntegration, key: JobKey, now: Nanoseconds) -> float:
        """The Workloads of a kind that the server does not serve stay as they are: an upgrade of the operator may have
        removed a version of jobs that run. A user may delete a Workload all the same."""
        found = self.sources.owned(row.kind, key.namespace, key.name)
        await self.apply(row, orphaned(tuple(filter(workloads.is_deleting, found)), self.options, now))
        return _UNSEEN_SECONDS

    def forget(self, tree: Tree) -> None:
        """Forget the writes to an object of a job that was deleted."""
        self._written.pop(ObjectView(tree).uid, None)

    def note_deleted(self, row: JobIntegration, key: JobKey, tree: Tree) -> None:
        """Note that an object was deleted, so that it is not read. Of pods it is not known: those that lose their marks
        leave the cache, too [PD10]."""
        uid = ObjectView(tree).uid
        if (
            row.parent_type is None
            and not row.of_pods
            and any(owner.uid == uid for owner in self._owners(row, key, unfinished=False))
        ):
            self._gone.setdefault(key, set()).add(uid)

    def _after_deletion(self, row: JobIntegration, key: JobKey, now: Nanoseconds) -> Actions:
        if not key.is_group:
            return orphaned(self.sources.owned(row.kind, key.namespace, key.name), self.options, now)
        found = self.sources.workload(key.namespace, key.name)
        # A Workload with another controller belongs to that, whatever its name.
        foreign = found is not None and not _is_group_workload(found) and workload_owners.controller(found) is not None
        if found is not None and any(self._is_parent(owner) for owner in found.metadata.owner_references):
            return ()  # a parent keeps its Workload while it has no pods (`parent_reconcile`)
        return () if found is None or foreign else orphaned((found,), self.options, now)

    async def _facts(self, row: JobIntegration, key: JobKey, job: GenericJob) -> JobFacts:
        sources = self.sources
        namespace = sources.namespace_labels(key.namespace)
        named = key.name if key.is_group else workloads.prebuilt_name(job, self.options)
        ancestry, ancestor = Ancestry(), None
        if not row.top_level:
            ancestry = await selection.ancestry(job, self.kinds, self.options, sources.find)
            ancestor = selection.ancestor(ancestry, namespace or {}, self.kinds, self.options)
            self._note_kind(ancestor)
        return JobFacts(
            workloads=() if key.is_group else sources.owned(row.kind, key.namespace, key.name),
            named=sources.workload(key.namespace, named) if named else None,
            namespace=namespace,
            ancestry=ancestry,
            ancestor=ancestor,
            ancestor_workloads=() if ancestor is None else self._workloads_of(ancestor, key.namespace),
            flavors=sources.flavors,
            workload_priority_classes=sources.workload_priority_classes,
            priority_classes=sources.priority_classes,
        )

    def _note_kind(self, ancestor: ObjectView | None) -> None:
        """Have an informer ask at once for a kind that is not known to be served, and is."""
        if ancestor is not None and (row := self.kinds.of(ancestor)) is not None:
            self.kinds.found(row)

    def _is_parent(self, owner: OwnerReference) -> bool:
        row = self.kinds.of(owner)
        return row is not None and row.parent_type is not None and self.kinds.is_enabled(row, self.options.frameworks)

    async def _settled(self, job: GenericJob) -> Actions:
        """The actions for an object that was held because an owner of it could not be read."""
        found = await selection.ancestry(job, self.kinds, self.options, self.sources.find)
        namespace = self.sources.namespace_labels(job.namespace) or {}
        ancestor = selection.ancestor(found, namespace, self.kinds, self.options)
        workloads = () if ancestor is None else self._workloads_of(ancestor, job.namespace)
        return unreadable_owners.settled(job, found, ancestor, workloads, self.options)

    def _workloads_of(self, owner: ObjectView, namespace: str) -> tuple[kueue.Workload, ...]:
        return parent_facts.workloads_of(owner, namespace, self.sources, self.kinds, self.options)

    # --- Applying actions ---------------------------------------------------------------------------------------------

    async def apply(self, row: JobIntegration, actions: Actions) -> float | None:
        """Apply actions in order. One that fails ends the pass, and the caller retries."""
        written = _Written()
        again: float | None = None
        for action in actions:
            match action:
                case CreateWorkload():
                    self.done(row, action, await self._create(row, action))
                case PatchWorkload(workload, patch):
                    before = written.newest(workload)
                    written.patched(before, await self._patch(workloads.KIND, before, patch))
                case ResizeWorkload(workload, counts):
                    before = written.newest(workload)
                    written.patched(before, await self._resize(before, counts))
                case ChangeWorkload(workload, changes):
                    before = written.newest(workload)
                    now = self.clock.now()
                    revision = await self.writer.workload(before, changes, row.controller, now)
                    written.changed(workload_changes.apply_to(before, changes, now), revision)
                case ReplaceObject(kind, tree, after, subresource):
                    await self._replace(kind, tree, after, subresource, written)
                    self.done(row, action, after)
                case DeleteObject(kind, tree):
                    deleted = ObjectView(tree)
                    await self.client.delete(kind, deleted.name, deleted.namespace, uid=deleted.uid)
                case EmitJobEvent():
                    self.recorder.emit(_note(action, row))
                case RequeueAfter(after_nanoseconds):
                    again = after_nanoseconds / SECOND
                case RetryWithBackoff(reason):
                    raise NotYet(reason)
        return again

    async def _create(self, row: JobIntegration, action: CreateWorkload) -> Tree:
        try:
            return await self.client.create(workloads.KIND, action.workload)
        except AlreadyExists:
            if self._is_foreign(action):
                wanted = ObjectView(action.workload)
                message = (
                    f"Workload {wanted.namespace}/{wanted.name} exists and has another owner or none: delete it to have"
                    " the job queued"
                )
                self.recorder.emit(_note(EmitJobEvent(action.job, "WorkloadNameConflict", message, warning=True), row))
            raise
        except ApiError as error:
            if error.code in _REFUSED:
                message = f"The Workload of the job was refused: {error}"
                self.recorder.emit(_note(EmitJobEvent(action.job, "ErrWorkloadCompose", message, warning=True), row))
            raise

    def _is_foreign(self, action: CreateWorkload) -> bool:
        """Whether a Workload of this name is known and the job does not own it. One that is not in the informer yet was
        most likely created for the job a moment ago."""
        wanted, uid = ObjectView(action.workload), ObjectView(action.job).uid
        found = self.sources.workload(wanted.namespace, wanted.name)
        return found is not None and all(owner.uid != uid for owner in found.metadata.owner_references)

    async def _patch(self, kind: Kind, before: kueue.Workload, patch: Tree) -> str:
        metadata = before.metadata
        conditional = unstructured.put(patch, ("metadata", "resourceVersion"), metadata.resource_version)
        return await self.client.patch_revision(kind, metadata.name, conditional, metadata.namespace)

    async def _resize(self, before: kueue.Workload, counts: tuple[int, ...]) -> str:
        """Send a JSON patch, since a merge patch would replace the whole list of pod sets."""
        metadata = before.metadata
        patch: list[Tree] = [{"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version}]
        for number, (pod_set, count) in enumerate(zip(before.spec.pod_sets, counts, strict=True)):
            if pod_set.count != count:
                patch.append({"op": "replace", "path": f"/spec/podSets/{number}/count", "value": count})
        return await self.client.patch_revision(
            workloads.KIND, metadata.name, patch, metadata.namespace, content_type=JSON_PATCH
        )

    async def _replace(self, kind: Kind, tree: Tree, after: Tree, subresource: str, written: _Written) -> None:
        patch = patches.make_merge(tree, after)
        if not patch:
            return
        view = ObjectView(tree)
        uid = view.uid
        revision = written.revisions.get(uid, view.resource_version)
        conditional = unstructured.put(patch, ("metadata", "resourceVersion"), revision)
        if not self.options.strict_finalizers and _removes_pod_finalizer(kind, patch):
            # The UID protects a new pod of the same name from the patch.
            conditional = unstructured.put(patch, ("metadata", "uid"), uid)
        made = await self.client.patch_revision(kind, view.name, conditional, view.namespace, subresource=subresource)
        written.revisions[uid] = made
        self._written[uid] = int(written.revisions[uid])


def _releases_quota(action: Action) -> bool:
    """Whether a Workload loses its reservation because its job does not use it any more."""
    return isinstance(action, ChangeWorkload) and any(
        isinstance(change, SetAdmission) and change.admission is None for change in action.changes
    )


def _gives_up(action: ChangeWorkload) -> bool:
    """Whether a Workload that holds quota loses its reservation, or is deleted."""
    is_deleted = any(isinstance(change, DeleteWorkload) for change in action.changes)
    holds = states.is_reserved(action.workload) and not states.is_finished(action.workload)
    return holds and (is_deleted or _releases_quota(action))


def _unwritten(job: GenericJob, actions: Actions) -> Iterator[ObjectView]:
    """The objects of a job that the actions leave as they are. A write is conditional on the cached revision."""
    written = {ObjectView(each.before).uid for each in actions if isinstance(each, ReplaceObject)}
    return (each for each in job.objects if each.uid not in written)


def _removes_pod_finalizer(kind: Kind, patch: Tree) -> bool:
    """Whether a patch changes nothing but the finalizers of a pod."""
    return kind.name == pod.KIND.name and patch.keys() == {"metadata"} and patch["metadata"].keys() == {"finalizers"}


class _Written:
    """The writes of this pass, so that a second write of an object is based on the first."""

    def __init__(self) -> None:
        self.revisions: dict[str, str] = {}
        self._workloads: dict[str, kueue.Workload] = {}

    def newest(self, workload: kueue.Workload) -> kueue.Workload:
        return self._workloads.get(workload.metadata.uid, workload)

    def patched(self, before: kueue.Workload, revision: str) -> None:
        metadata = structs.replace(before.metadata, resource_version=revision)
        self._workloads[metadata.uid] = structs.replace(before, metadata=metadata)

    def changed(self, after: kueue.Workload, revision: int) -> None:
        self.patched(after, str(revision))


def _note(event: EmitJobEvent, row: JobIntegration) -> PendingEvent:
    job = ObjectView(event.regarding)
    regarding = EventReference(
        row.kind.api_version, row.kind.kind, job.name, job.namespace, job.uid, job.resource_version
    )
    type_ = WARNING if event.warning else NORMAL
    return PendingEvent(regarding, type_, event.reason, event.note, row.controller, event.action or event.reason)


def _is_group_workload(workload: kueue.Workload) -> bool:
    return workload.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) == "true"
