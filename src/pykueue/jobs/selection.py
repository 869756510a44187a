"""Is this job ours?

    A job that names a queue is ours, wherever it is (KEP-3589). With the gate
    ManagedJobsNamespaceSelectorAlwaysRespected, only in namespaces that are selected.
    One that names none is ours where `manageJobsWithoutQueueName` is on and its namespace is selected.
    One whose ancestor is ours is not ours a second time: it may run when the ancestor does.

The webhook and the reconciler ask the same functions, for every kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from pykueue.api import labels, trees
from pykueue.api.kinds import Kind, Version
from pykueue.api.trees import Tree
from pykueue.jobs.kinds import REPLICA_SET, JobKinds, Row
from pykueue.jobs.options import Options

DEEPEST: Final = 10

Labels: TypeAlias = Mapping[str, str]


# --- The namespace ----------------------------------------------------------------------------------------------------


def selects(row: Row, namespace: Labels, options: Options) -> bool:
    """Whether the selectors of the configuration take in this namespace for jobs of this kind."""
    if row.of_pods and options.pod_namespaces is not None and not options.pod_namespaces.matches(namespace):
        return False
    return options.namespaces.matches(namespace)


def is_managed(row: Row, tree: Tree, namespace: Labels, options: Options) -> bool:
    """Whether an object is ours by its queue name and its namespace; its ancestors are not asked."""
    if queue_name(tree):
        return not options.selector_always_respected or selects(row, namespace, options)
    return options.manage_without_queue and selects(row, namespace, options)


def queue_name(tree: Tree) -> str:
    return trees.text(trees.get(tree, "metadata", "labels", labels.QUEUE_NAME))


# --- Ancestors --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The owners of an object, the nearest first, as far up as kinds are known; and why the walk ended early."""

    owners: tuple[Tree, ...] = ()
    problem: str = ""
    too_deep: bool = False


class Find(Protocol):
    """Where objects are looked up."""

    def __call__(self, kind: Kind, name: str, namespace: str) -> Awaitable[Tree | None]: ...


async def ancestry(tree: Tree, kinds: JobKinds, options: Options, find: Find) -> Ancestry:
    """Walk up the controllers of an object."""
    namespace = trees.text(trees.get(tree, "metadata", "namespace"))
    seen = {trees.text(trees.get(tree, "metadata", "uid"))}
    owners: list[Tree] = []
    while (reference := controller(tree)) is not None and (kind := owner_kind(reference, kinds, options)) is not None:
        name, uid = trees.text(reference.get("name")), trees.text(reference.get("uid"))
        if len(owners) == DEEPEST:
            return Ancestry(tuple(owners), f"is nested more than {DEEPEST} levels deep", too_deep=True)
        if uid in seen:
            return Ancestry(tuple(owners), "is its own ancestor")
        owner = await find(kind, name, namespace)
        if owner is None:
            return Ancestry(tuple(owners), f"its owner {kind.kind} {name} does not exist")
        if trees.get(owner, "metadata", "uid") != uid:
            break  # another object that has taken the name since
        seen.add(uid)
        # What comes out of a list does not always say what it is.
        tree = {**owner, "apiVersion": reference["apiVersion"], "kind": reference["kind"]}
        owners.append(tree)
    return Ancestry(tuple(owners))


def controller(tree: object) -> Tree | None:
    """The owner reference of the one owner that controls an object."""
    for _, reference in trees.entries(tree, "metadata", "ownerReferences"):
        if reference.get("controller") is True:
            return dict(reference)
    return None


def owner_kind(reference: Tree, kinds: JobKinds, options: Options) -> Kind | None:
    """The kind of an owner that we know how to walk through."""
    row = kinds.of(reference)
    if row is not None:
        return row.kind
    version, kind = trees.text(reference.get("apiVersion")), trees.text(reference.get("kind"))
    if (version, kind) == (REPLICA_SET.api_version, REPLICA_SET.kind):
        return REPLICA_SET
    if (version, kind) in options.external:
        group, _, short = version.rpartition("/")
        return Kind(group, kind, f"{kind.lower()}s", (Version(short, storage=True),))
    return None


def is_managed_kind(reference: Tree, kinds: JobKinds, options: Options) -> bool:
    """Whether objects of an owner's kind can be ours: an enabled integration, or one of another controller."""
    row = kinds.of(reference)
    external = (trees.text(reference.get("apiVersion")), trees.text(reference.get("kind"))) in options.external
    return external or (row is not None and row.framework in options.frameworks)


def ancestor(found: Ancestry, namespace: Labels, kinds: JobKinds, options: Options) -> Tree | None:
    """The topmost owner that is ours."""
    for owner in reversed(found.owners):
        if is_managed_kind(owner, kinds, options) and _is_ours(owner, namespace, kinds, options):
            return owner
    return None


def _is_ours(owner: Tree, namespace: Labels, kinds: JobKinds, options: Options) -> bool:
    """Whether an owner is ours. One that names a queue is, even where the gate keeps us from running it."""
    row = kinds.of(owner)
    if queue_name(owner) or row is None:
        return bool(queue_name(owner)) or options.manage_without_queue
    return is_managed(row, owner, namespace, options)
