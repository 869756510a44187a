"""The owner graph, by UID: an object that was created again under the same name is another object."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from kubemachinery import meta
from kubeserver.registry import metadata
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.sqlite import StoreKey


class _Details(msgspec.Struct, rename="camel"):
    owner_references: tuple[meta.OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Details


_decode: Final = msgspec.json.Decoder(_Object).decode


class OwnedObject(msgspec.Struct, frozen=True):
    """An object in the graph: its owners, whether it is under deletion, and its propagation policy."""

    uid: str
    owners: tuple[meta.OwnerReference, ...] = ()
    leaving: bool = False
    foreground: bool = False
    orphan: bool = False


def _node(entry: ObjectEntry) -> OwnedObject:
    # Most objects have neither owners nor finalizers; a search of their bytes is faster than a decoder.
    if b'"ownerReferences"' not in entry.body and b'"deletionTimestamp"' not in entry.body:
        return OwnedObject(entry.uid)
    details = _decode(entry.body).metadata
    leaving = details.deletion_timestamp is not None
    return OwnedObject(
        entry.uid,
        details.owner_references,
        leaving,
        leaving and metadata.FOREGROUND in details.finalizers,
        leaving and metadata.ORPHAN in details.finalizers,
    )


class OwnerGraph:
    """Every object, and the objects that name it as their owner."""

    def __init__(self) -> None:
        self._nodes: dict[StoreKey, OwnedObject] = {}
        self._by_uid: dict[str, StoreKey] = {}
        self._dependents: dict[str, dict[StoreKey, None]] = {}

    def __iter__(self) -> Iterator[tuple[StoreKey, OwnedObject]]:
        return iter(self._nodes.items())

    def __getitem__(self, key: StoreKey) -> OwnedObject:
        return self._nodes[key]

    def get(self, key: StoreKey) -> OwnedObject | None:
        return self._nodes.get(key)

    def with_uid(self, uid: str) -> StoreKey | None:
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> Collection[StoreKey]:
        return self._dependents.get(uid, {})

    def learn(self, entry: ObjectEntry) -> OwnedObject:
        key, node = entry.key, _node(entry)
        before = self._nodes.get(key)
        if before is not None:
            self._forget_owners(key, before)
        self._nodes[key] = node
        self._by_uid[node.uid] = key
        for owner in node.owners:
            self._dependents.setdefault(owner.uid, {})[key] = None
        return node

    def forget(self, key: StoreKey) -> OwnedObject | None:
        """Remove a deleted object and return its node."""
        node = self._nodes.pop(key, None)
        if node is not None:
            self._by_uid.pop(node.uid, None)
            self._forget_owners(key, node)
        return node

    def _forget_owners(self, key: StoreKey, node: OwnedObject) -> None:
        for owner in node.owners:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.pop(key, None)
                if not dependents:
                    del self._dependents[owner.uid]
