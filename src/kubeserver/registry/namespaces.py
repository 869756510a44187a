"""Namespaces: the lifecycle that objects of all other kinds depend on."""

from __future__ import annotations

from typing import Final

import msgspec

from kubemachinery import status
from kubeserver.registry.strategy import Tree
from kubeserver.registry.write_context import WriteContext
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.sqlite import StoreKey

RESOURCE: Final = "namespaces"
# These cannot be deleted.
_PROTECTED: Final = ("default", "kube-system", "kube-public")
INITIAL: Final = (*_PROTECTED, "kube-node-lease")


def key(name: str) -> StoreKey:
    return StoreKey(RESOURCE, "", name)


def refuse_protected(where: StoreKey) -> None:
    if where.resource == RESOURCE and where.name in _PROTECTED:
        raise status.forbidden("", RESOURCE, where.name, "this namespace may not be deleted")


def is_terminating(entry: ObjectEntry) -> bool:
    found: bool = entry.form(
        "terminating", lambda e: bool(msgspec.json.decode(e.body)["metadata"].get("deletionTimestamp"))
    )
    return found


def check_open(namespace: ObjectEntry | None, context: WriteContext) -> None:
    """Refuse creations in a namespace that does not exist or is under deletion."""
    if namespace is None:
        raise status.not_found("", RESOURCE, context.namespace)
    if is_terminating(namespace):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {context.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = f"unable to create new content in namespace {context.namespace} because it is being terminated"
        raise status.forbidden(context.resource.group, context.resource.plural, context.name, why, [cause])


def begin_deletion(where: StoreKey, tree: Tree) -> None:
    """Set the phase of a namespace under deletion to Terminating; its content is deleted first."""
    if where.resource == RESOURCE:
        tree["status"] = {**(tree.get("status") or {}), "phase": "Terminating"}


def is_held(tree: Tree) -> bool:
    """Whether a namespace still waits for the deletion of its content."""
    return tree.get("kind") == "Namespace" and bool((tree.get("spec") or {}).get("finalizers"))
