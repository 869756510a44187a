"""Whether a job is managed.

    A job with a queue name is managed in every namespace (KEP-3589). With the gate
    ManagedJobsNamespaceSelectorAlwaysRespected, only in namespaces that match the selector.
    A job without a queue name is managed if `manageJobsWithoutQueueName` is on and its namespace matches the selector.
    A job with a managed ancestor is not managed itself: it may run while the ancestor's Workload is admitted.

While an owner cannot be read, it is not known whether an ancestor is managed (`Ancestry.unread`). A job that would not
be managed by itself is then left alone; one that would be is held without a Workload until the owner has been read
(`unreadable_owners`).

The webhook and the reconciler call the same functions, for every kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final, Protocol, TypeAlias

from msgspec.structs import replace

from kubemachinery.client.errors import KubeError, NoSuchKind
from kubemachinery.kinds import Kind, Version
from kubemachinery.meta import OwnerReference
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels, registry
from pykueue.jobs.facts import Ancestry, UnreadableOwner
from pykueue.jobs.interface import JobRow
from pykueue.jobs.kinds import REPLICA_SET, JobIntegration, JobKinds, Typed
from pykueue.jobs.options import IntegrationOptions

DEEPEST: Final = 10

Labels: TypeAlias = Mapping[str, str]


# --- The namespace ----------------------------------------------------------------------------------------------------


def selects(row: JobRow, namespace: Labels, options: IntegrationOptions) -> bool:
    """Whether the namespace selectors of the configuration match for jobs of this kind."""
    if row.of_pods and options.pod_namespaces is not None and not options.pod_namespaces.matches(namespace):
        return False
    return options.namespaces.matches(namespace)


def is_managed(row: JobRow, job: ObjectView, namespace: Labels, options: IntegrationOptions) -> bool:
    """Whether an object is managed by its queue name and its namespace, without regard to its ancestors. Pods of a kind
    that is made of pods follow their parent, which the selector for pods need not concern [JF34]: they are gated."""
    is_of_parent = row.of_pods and labels.POD_SUSPENDING_PARENT in job.annotations
    selected = options.namespaces.matches(namespace) if is_of_parent else selects(row, namespace, options)
    if queue_name(job):
        return not options.selector_always_respected or selected
    return options.manage_without_queue and selected


def queue_name(job: ObjectView) -> str:
    return job.labels.get(labels.QUEUE_NAME, "")


# --- Ancestors --------------------------------------------------------------------------------------------------------


class OwnerLookup(Protocol):
    """Looks up an owner: the object, or None if it does not exist. A `KubeError` means that neither is known;
    `NoSuchKind` that the server does not serve the kind in this version."""

    def __call__(self, kind: Kind, name: str, namespace: str) -> Awaitable[Tree | None]: ...


async def ancestry(job: ObjectView, kinds: JobKinds, options: IntegrationOptions, find: OwnerLookup) -> Ancestry:
    """Walk up the controllers of an object. An owner that cannot be read is part of the result, never an error."""
    child, namespace, seen = job, job.namespace, {job.uid}
    owners: list[ObjectView] = []
    while (reference := child.controller) is not None and (known := owner_kinds(reference, kinds, options)):
        if len(owners) == DEEPEST:
            return Ancestry(tuple(owners), f"is nested more than {DEEPEST} levels deep", too_deep=True)
        if reference.uid in seen:
            return Ancestry(tuple(owners), "is its own ancestor")
        try:
            found = await _found(known, reference.name, namespace, find)
        except NoSuchKind:
            break  # no controller acts on an object of a kind that is not served, so nothing above admits this one
        except KubeError as error:
            return Ancestry(tuple(owners), unread=UnreadableOwner(reference, str(error)))
        if found is None:
            return Ancestry(tuple(owners), f"has the owner {known[0].kind} {reference.name}, which does not exist")
        # Items of a list do not always carry apiVersion and kind.
        child = ObjectView({**found, "apiVersion": reference.api_version, "kind": reference.kind})
        if child.uid != reference.uid:
            break  # another object has been created under the name since
        seen.add(reference.uid)
        owners.append(child)
    return Ancestry(tuple(owners))


async def _found(known: tuple[Kind, ...], name: str, namespace: str, find: OwnerLookup) -> Tree | None:
    """The owner, in the first of the versions that the server serves."""
    for kind in known[:-1]:
        try:
            return await find(kind, name, namespace)
        except NoSuchKind:
            continue
    return await find(known[-1], name, namespace)


def owner_kind(owner: Typed, kinds: JobKinds, options: IntegrationOptions) -> Kind | None:
    """The kind of an owner whose own owners are read; its plural is empty where only the API server knows it.

    The tables have the plural of every integration and of the built-in kinds. That of an external framework cannot be
    derived from its name, and is read from the API server (`kubemachinery.client.discovery`).
    """
    row = kinds.of(owner)
    if row is not None:
        return row.kind
    found = (owner.api_version, owner.kind)
    if found == (REPLICA_SET.api_version, REPLICA_SET.kind):
        return REPLICA_SET
    return external_kind(*found) if found in options.external else None


def external_kind(api_version: str, kind: str) -> Kind:
    """An external framework, as far as it is known without asking the API server."""
    built_in = registry.KUBERNETES.find(api_version, kind)
    if built_in is not None:
        return built_in[0]
    group, _, version = api_version.rpartition("/")
    return Kind(group, kind, "", (Version(version, storage=True),))


def owner_kinds(reference: OwnerReference, kinds: JobKinds, options: IntegrationOptions) -> tuple[Kind, ...]:
    """The versions in which an owner is looked up: the one that its reference names, then the one of the table. An
    upgraded operator serves only the first, and references written before the upgrade name a version that is not
    served any more."""
    kind = owner_kind(reference, kinds, options)
    if kind is None:
        return ()
    _, _, version = reference.api_version.rpartition("/")
    if version == kind.storage.name:
        return (kind,)
    return (replace(kind, versions=(Version(version, storage=True),)), kind)


def is_managed_kind(owner: Typed, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether objects of an owner's kind can be managed: an enabled integration, or an external framework."""
    row = kinds.of(owner)
    is_external = (owner.api_version, owner.kind) in options.external
    return is_external or (row is not None and _is_active(row, kinds, options))


def _is_active(row: JobIntegration, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether jobs of a kind are reconciled: its framework is enabled, and the API server serves the kind (JF12)."""
    return kinds.is_enabled(row, options.frameworks) and row.framework not in kinds.not_served


def ancestor(found: Ancestry, namespace: Labels, kinds: JobKinds, options: IntegrationOptions) -> ObjectView | None:
    """The topmost managed owner."""
    for owner in reversed(found.owners):
        is_known = is_managed_kind(owner, kinds, options) or _is_served(owner, kinds, options)
        if is_known and _is_managed_owner(owner, namespace, kinds, options):
            return owner
    return None


def _is_served(owner: ObjectView, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether an owner that was read is of an enabled framework, in the version of its jobs: so the API server serves
    it, although the informer of the kind may not have found that yet (JF12)."""
    row = kinds.of(owner)
    return row is not None and kinds.is_enabled(row, options.frameworks) and owner.api_version == row.kind.api_version


def has_managed_ancestor(found: Ancestry, namespace: Labels, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether an ancestor is certainly managed. An owner that could not be read is, if it is of a managed kind and
    objects of that kind are managed in this namespace with or without a queue name."""
    if ancestor(found, namespace, kinds, options) is not None:
        return True
    if found.unread is None:
        return False
    reference = found.unread.reference
    owner = ObjectView({"apiVersion": reference.api_version, "kind": reference.kind})
    return is_managed_kind(owner, kinds, options) and _is_managed_owner(owner, namespace, kinds, options)


def _is_managed_owner(owner: ObjectView, namespace: Labels, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether an owner is managed. One with a queue name is, even where the gate excludes its namespace."""
    row = kinds.of(owner)
    if row is not None and _is_skipped(row, owner, options):
        return False
    if queue_name(owner) or row is None:
        return bool(queue_name(owner)) or options.manage_without_queue
    return is_managed(row, owner, namespace, options)


def _is_skipped(row: JobIntegration, owner: ObjectView, options: IntegrationOptions) -> bool:
    """Whether an owner is not managed although its kind is, such as a RayJob that selects an existing cluster: it never
    has a Workload, for which its children would wait. Pods are not asked: one that is no job itself may own others. Nor
    are kinds that are made of pods and are no jobs, such as the LeaderWorkerSet that owns a StatefulSet."""
    if row.of_pods or row.implementation is None or row.parent_type is not None:
        return False
    return row.job(owner.tree).is_skipped(options)
