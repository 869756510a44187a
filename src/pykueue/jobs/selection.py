"""Is this job ours?

    A job that names a queue is ours, wherever it is (KEP-3589). With the gate
    ManagedJobsNamespaceSelectorAlwaysRespected, only in namespaces that are selected.
    One that names none is ours where `manageJobsWithoutQueueName` is on and its namespace is selected.
    One whose ancestor is ours is not ours a second time: it may run when the ancestor does.

An owner that cannot be read leaves it open whether an ancestor is ours (`Ancestry.unread`). Then nothing is decided
that could be wrong: a job that would not be ours by itself is left alone, and one that would be is held without a
Workload until the owner has been read (`owners`).

The webhook and the reconciler ask the same functions, for every kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from kubemachinery import unstructured
from kubemachinery.client.errors import KubeError, NoSuchKind
from kubemachinery.kinds import Kind, Version
from kubemachinery.unstructured import Tree
from pykueue.api import labels, registry
from pykueue.jobs.kinds import REPLICA_SET, JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions

DEEPEST: Final = 10

Labels: TypeAlias = Mapping[str, str]


# --- The namespace ----------------------------------------------------------------------------------------------------


def selects(row: JobIntegration, namespace: Labels, options: IntegrationOptions) -> bool:
    """Whether the selectors of the configuration take in this namespace for jobs of this kind."""
    if row.of_pods and options.pod_namespaces is not None and not options.pod_namespaces.matches(namespace):
        return False
    return options.namespaces.matches(namespace)


def is_managed(row: JobIntegration, tree: Tree, namespace: Labels, options: IntegrationOptions) -> bool:
    """Whether an object is ours by its queue name and its namespace; its ancestors are not asked."""
    if queue_name(tree):
        return not options.selector_always_respected or selects(row, namespace, options)
    return options.manage_without_queue and selects(row, namespace, options)


def queue_name(tree: Tree) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", "labels", labels.QUEUE_NAME))


# --- Ancestors --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnreadableOwner:
    """An owner that exists according to a reference, and could not be read; with the reason."""

    reference: Tree
    reason: str

    @property
    def title(self) -> str:
        """The owner as users name it: `JobSet train`."""
        return f"{unstructured.text(self.reference.get('kind'))} {unstructured.text(self.reference.get('name'))}"


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The owners of an object, the nearest first, as far up as kinds are known; and why the walk ended early."""

    owners: tuple[Tree, ...] = ()
    problem: str = ""
    too_deep: bool = False
    # The owner at which the walk ended because it could not be read; what is above it is not known either.
    unread: UnreadableOwner | None = None


class OwnerLookup(Protocol):
    """Where objects are looked up: the object, or None where there is none. A `KubeError` means that it is not known;
    `NoSuchKind` that the server does not serve the kind in this version."""

    def __call__(self, kind: Kind, name: str, namespace: str) -> Awaitable[Tree | None]: ...


async def ancestry(tree: Tree, kinds: JobKinds, options: IntegrationOptions, find: OwnerLookup) -> Ancestry:
    """Walk up the controllers of an object. An owner that cannot be read is part of the result, never an error."""
    namespace = unstructured.text(unstructured.get(tree, "metadata", "namespace"))
    seen = {unstructured.text(unstructured.get(tree, "metadata", "uid"))}
    owners: list[Tree] = []
    while (reference := controller(tree)) is not None and (known := owner_kinds(reference, kinds, options)):
        name, uid = unstructured.text(reference.get("name")), unstructured.text(reference.get("uid"))
        if len(owners) == DEEPEST:
            return Ancestry(tuple(owners), f"is nested more than {DEEPEST} levels deep", too_deep=True)
        if uid in seen:
            return Ancestry(tuple(owners), "is its own ancestor")
        try:
            owner = await _found(known, name, namespace, find)
        except NoSuchKind:
            break  # no controller acts on an object of a kind that is not served, so nothing above admits this one
        except KubeError as error:
            return Ancestry(tuple(owners), unread=UnreadableOwner(reference, str(error)))
        if owner is None:
            return Ancestry(tuple(owners), f"its owner {known[0].kind} {name} does not exist")
        if unstructured.get(owner, "metadata", "uid") != uid:
            break  # another object that has taken the name since
        seen.add(uid)
        # What comes out of a list does not always say what it is.
        tree = {**owner, "apiVersion": reference["apiVersion"], "kind": reference["kind"]}
        owners.append(tree)
    return Ancestry(tuple(owners))


async def _found(known: tuple[Kind, ...], name: str, namespace: str, find: OwnerLookup) -> Tree | None:
    """The owner, in the first of the versions that the server serves."""
    for kind in known[:-1]:
        try:
            return await find(kind, name, namespace)
        except NoSuchKind:
            continue
    return await find(known[-1], name, namespace)


def controller(tree: object) -> Tree | None:
    """The owner reference of the one owner that controls an object."""
    for _, reference in unstructured.entries(tree, "metadata", "ownerReferences"):
        if reference.get("controller") is True:
            return dict(reference)
    return None


def owner_kind(reference: Tree, kinds: JobKinds, options: IntegrationOptions) -> Kind | None:
    """The kind of an owner that is walked through; its plural is empty where only the API server knows it.

    The tables know the plural of every integration and of the built-in kinds. The one of an external framework cannot
    be derived from its name, and is asked of the API server (`kube.discovery`).
    """
    row = kinds.of(reference)
    if row is not None:
        return row.kind
    version, kind = unstructured.text(reference.get("apiVersion")), unstructured.text(reference.get("kind"))
    if (version, kind) == (REPLICA_SET.api_version, REPLICA_SET.kind):
        return REPLICA_SET
    return external_kind(version, kind) if (version, kind) in options.external else None


def external_kind(api_version: str, kind: str) -> Kind:
    """An external framework as far as it is known without asking the API server."""
    built_in = registry.KUBERNETES.find(api_version, kind)
    if built_in is not None:
        return built_in[0]
    group, _, version = api_version.rpartition("/")
    return Kind(group, kind, "", (Version(version, storage=True),))


def owner_kinds(reference: Tree, kinds: JobKinds, options: IntegrationOptions) -> tuple[Kind, ...]:
    """The versions in which an owner is looked for: the one that its reference names, then the one of the table. An
    operator that moved on serves the first only, and references written before that name a version that is gone."""
    kind = owner_kind(reference, kinds, options)
    if kind is None:
        return ()
    _, _, version = unstructured.text(reference.get("apiVersion")).rpartition("/")
    if version == kind.storage.name:
        return (kind,)
    return (replace(kind, versions=(Version(version, storage=True),)), kind)


def is_managed_kind(reference: Tree, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether objects of an owner's kind can be ours: an enabled integration, or one of another controller."""
    row = kinds.of(reference)
    external = (
        unstructured.text(reference.get("apiVersion")),
        unstructured.text(reference.get("kind")),
    ) in options.external
    return external or (row is not None and row.framework in options.frameworks)


def ancestor(found: Ancestry, namespace: Labels, kinds: JobKinds, options: IntegrationOptions) -> Tree | None:
    """The topmost owner that is ours."""
    for owner in reversed(found.owners):
        if is_managed_kind(owner, kinds, options) and _is_ours(owner, namespace, kinds, options):
            return owner
    return None


def belongs(found: Ancestry, namespace: Labels, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether an ancestor is certainly ours. An owner that could not be read is, where it is of a managed kind and
    objects of that kind are ours in this namespace with or without a queue name."""
    if ancestor(found, namespace, kinds, options) is not None:
        return True
    if found.unread is None:
        return False
    owner = {key: found.unread.reference.get(key) for key in ("apiVersion", "kind")}
    return is_managed_kind(owner, kinds, options) and _is_ours(owner, namespace, kinds, options)


def _is_ours(owner: Tree, namespace: Labels, kinds: JobKinds, options: IntegrationOptions) -> bool:
    """Whether an owner is ours. One that names a queue is, even where the gate keeps us from running it."""
    row = kinds.of(owner)
    if queue_name(owner) or row is None:
        return bool(queue_name(owner)) or options.manage_without_queue
    return is_managed(row, owner, namespace, options)
