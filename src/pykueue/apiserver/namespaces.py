"""Namespaces: the one kind whose life touches that of all others."""

from __future__ import annotations

from typing import Final

import msgspec

from pykueue.apiserver import status
from pykueue.apiserver.objects import Entry
from pykueue.apiserver.store import Key
from pykueue.apiserver.strategy import Tree

RESOURCE: Final = "namespaces"
# Nobody can delete these.
_PROTECTED: Final = ("default", "kube-system", "kube-public")
INITIAL: Final = (*_PROTECTED, "kube-node-lease")


def key(name: str) -> Key:
    return Key(RESOURCE, "", name)


def refuse_protected(where: Key) -> None:
    if where.resource == RESOURCE and where.name in _PROTECTED:
        raise status.forbidden("", RESOURCE, where.name, "this namespace may not be deleted")


def is_terminating(entry: Entry) -> bool:
    found: bool = entry.form(
        "terminating", lambda e: bool(msgspec.json.decode(e.body)["metadata"].get("deletionTimestamp"))
    )
    return found


def begin_deletion(where: Key, tree: Tree) -> None:
    """A namespace that goes says so in its phase; its content goes before it does."""
    if where.resource == RESOURCE:
        tree["status"] = {**(tree.get("status") or {}), "phase": "Terminating"}


def is_held(tree: Tree) -> bool:
    """Whether a namespace still waits for its content to go."""
    return tree.get("kind") == "Namespace" and bool((tree.get("spec") or {}).get("finalizers"))
