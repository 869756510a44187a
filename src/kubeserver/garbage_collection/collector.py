"""The garbage collector: deletes dependents of owners, content of namespaces, and instances of CRDs.

One task, woken by changes.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from kubemachinery import meta, status
from kubemachinery.clock import Clock
from kubeserver.garbage_collection import event_expiry
from kubeserver.garbage_collection.owner_graph import OwnedObject, OwnerGraph
from kubeserver.registry import crd_registration, metadata, namespaces
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Tree
from kubeserver.storage.entries import ObjectEntry, StoreChange
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import StoreKey, WriteOperation
from kubeserver.write.loopback_client import TOGETHER, LoopbackClient

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
# A reference to a deleted owner is harmless while there are other owners: it may stay so many times longer.
_OTHERS_LEFT: Final = 10


# A timer that fires this much early is on time: one set for the rest would fire at once, and again without end.
_ROUNDED_SECONDS: Final = 1e-6


class GarbageCollector:
    """Reads every change, and deletes objects without owners, namespace or CRD."""

    def __init__(
        self,
        objects: Objects,
        registry: Registry,
        client: LoopbackClient,
        clock: Clock,
        orphan_seconds: float = 0.0,
        *,
        crds_only: bool = False,
    ) -> None:
        """`crds_only` restricts it to what kube-apiserver does itself: deleting the instances of a deleted CRD.

        Dependents of owners and the content of namespaces are then left as they are.
        """
        self._objects = objects
        self._registry = registry
        self._client = client
        self._clock = clock
        self._orphan_seconds = orphan_seconds
        self._crds_only = crds_only
        self._alone_since: dict[str, float] = {}
        self._owners = OwnerGraph()
        self._due: dict[StoreKey, None] = {}
        self._leaving_namespaces: dict[str, None] = {}
        self._leaving_crds: dict[str, None] = {}
        self._wake = asyncio.Event()
        for resource in objects.resources:
            for entry in objects.collection(resource):
                self._owners.learn(entry)
        for key, node in self._owners:
            if node.owners or node.leaving:
                self._look_at(key)
        objects.listeners.append(self._notice)

    # --- Learning -----------------------------------------------------------------------------------------------------

    def _notice(self, change: StoreChange) -> None:
        key = change.entry.key
        if change.op is WriteOperation.DELETED:
            node = self._owners.forget(key)
            if node is None:
                return
            self._alone_since.pop(node.uid, None)
            for dependent in self._owners.dependents(node.uid):
                self._look_at(dependent)
            for owner in node.owners:
                if (found := self._owners.with_uid(owner.uid)) is not None:
                    self._look_at(found)
            if key.namespace in self._leaving_namespaces or key.resource in self._leaving_crds:
                self._wake.set()
            return
        node = self._owners.learn(change.entry)
        if node.owners or node.leaving:
            self._look_at(key)

    def _look_at(self, key: StoreKey) -> None:
        self._due[key] = None
        node = self._owners.get(key)
        if node is not None and node.leaving:
            if key.resource == namespaces.RESOURCE:
                self._leaving_namespaces[key.name] = None
            elif key.resource == crd_registration.RESOURCE:
                self._leaving_crds[key.name] = None
        self._wake.set()

    # --- The loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._round():
                # Something did not work (the store refuses, a race was lost): the same again, a little later.
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    async def _round(self) -> bool:
        due, self._due = list(self._due), {}
        well = True
        if not self._crds_only:
            well &= await self._together(self._check, due)
            well &= await self._together(self._empty_namespace, list(self._leaving_namespaces))
        well &= await self._together(self._empty_crd, list(self._leaving_crds))
        return well

    async def _together(self, act: Callable[[Any], Awaitable[None]], subjects: list[Any]) -> bool:
        """Process many objects concurrently, so that their writes share commits. Failures are retried."""
        well = True

        async def attempt(subject: Any) -> None:
            nonlocal well
            try:
                await act(subject)
            except status.StatusError as error:
                if error.code == 404:
                    return
                well = False
                if isinstance(subject, StoreKey):
                    self._due[subject] = None
                log.debug("collecting %s will be tried again: %s", subject, error)
            except Exception:
                # Others are collected all the same; this one when it or its owner changes, or at the next start.
                log.exception("collecting %s failed", subject)

        for start in range(0, len(subjects), TOGETHER):
            await asyncio.gather(*(attempt(subject) for subject in subjects[start : start + TOGETHER]))
        return well

    # --- Owners -------------------------------------------------------------------------------------------------------

    async def _check(self, key: StoreKey) -> None:
        node = self._owners.get(key)
        if node is None:
            return
        if node.orphan:
            await self._orphan(key, node)
        elif node.foreground:
            await self._foreground(key, node)
        elif node.owners and not node.leaving:
            await self._follow_owners(key, node)

    async def _orphan(self, key: StoreKey, node: OwnedObject) -> None:
        """Remove the owner reference from the dependents, which stay."""
        for dependent in list(self._owners.dependents(node.uid)):
            await self._drop_owners(dependent, {node.uid})
        await self._drop_finalizer(key, metadata.ORPHAN)

    async def _foreground(self, key: StoreKey, node: OwnedObject) -> None:
        """Delete the dependents that block the owner, then the owner."""
        blocking = [
            dependent
            for dependent in self._owners.dependents(node.uid)
            if any(o.uid == node.uid and o.block_owner_deletion for o in self._owners[dependent].owners)
        ]
        if not blocking:
            await self._drop_finalizer(key, metadata.FOREGROUND)
            return
        for dependent in blocking:
            await self._follow_owners(dependent, self._owners[dependent])

    async def _follow_owners(self, key: StoreKey, node: OwnedObject) -> None:
        """Delete an object without owners; an owner in foreground deletion that waits for it does not count."""
        kept: list[str] = []
        gone: set[str] = set()
        waiting = False
        for owner in node.owners:
            found = self._owners.with_uid(owner.uid)
            if found is None:
                if self._registry.of_kind(owner.api_version, owner.kind) is None:
                    # This server does not serve the kind of the owner, so it cannot find that the owner is absent.
                    kept.append(owner.uid)
                else:
                    gone.add(owner.uid)
            elif found.namespace and found.namespace != key.namespace:
                # An owner in another namespace is no owner, and not an absent one either: the reference is a mistake.
                kept.append(owner.uid)
                await self._report_foreign_owner(key, node, owner, found.namespace)
            elif self._owners[found].foreground and owner.block_owner_deletion:
                waiting = True
                gone.add(owner.uid)
            else:
                kept.append(owner.uid)
        if not gone:
            return
        if kept:
            # References to deleted owners, and to owners that wait for this object although it has other owners.
            if waiting or not self._may_stay(key, node, _OTHERS_LEFT * self._orphan_seconds):
                await self._drop_owners(key, gone)
            return
        if node.leaving or (not waiting and self._may_stay(key, node, self._orphan_seconds)):
            return
        policy = "Foreground" if waiting and self._owners.dependents(node.uid) else "Background"
        if node.orphan:
            policy = "Orphan"
        await self._client.delete(key, {"propagationPolicy": policy, "preconditions": {"uid": node.uid}})

    def _may_stay(self, key: StoreKey, node: OwnedObject, seconds: float) -> bool:
        """Whether an object without owners stays a while longer; it is then checked again."""
        if not seconds:
            return False
        loop = asyncio.get_running_loop()
        since = self._alone_since.setdefault(node.uid, loop.time())
        left = since + seconds - loop.time()
        if left <= _ROUNDED_SECONDS:
            return False
        loop.call_later(left, self._look_at, key)
        return True

    async def _report_foreign_owner(
        self, key: StoreKey, node: OwnedObject, owner: meta.OwnerReference, where: str
    ) -> None:
        """Emit one Event for an object with an owner in another namespace."""
        own = self._registry.stored_as(key.resource)
        if own is None or self._registry.stored_as(event_expiry.RESOURCE) is None:
            return
        name = f"{key.name[:200]}.{zlib.crc32(f'{node.uid}/{owner.uid}'.encode()):08x}"
        if self._objects.latest(StoreKey(event_expiry.RESOURCE, key.namespace, name)) is not None:
            return
        now = meta.format_time(self._clock.now())
        event = {
            "metadata": {"name": name, "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": own.api_version,
                "kind": own.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": node.uid,
            },
            "reason": "OwnerRefInvalidNamespace",
            "message": f"owner {owner.kind} {owner.name} is in namespace {where}, and so owns nothing here",
            "type": "Warning",
            "source": {"component": "garbage-collector-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._client.create(event_expiry.RESOURCE, key.namespace, event)

    async def _drop_owners(self, key: StoreKey, uids: set[str]) -> None:
        def change(tree: Tree) -> None:
            owners = [one for one in tree["metadata"].get("ownerReferences") or () if one.get("uid") not in uids]
            tree["metadata"]["ownerReferences"] = owners

        if uids:
            await self._client.modify(key, change)

    async def _drop_finalizer(self, key: StoreKey, finalizer: str) -> None:
        def change(tree: Tree) -> None:
            tree["metadata"]["finalizers"] = [f for f in tree["metadata"].get("finalizers") or () if f != finalizer]

        await self._client.modify(key, change)

    # --- Namespaces and CRDs ------------------------------------------------------------------------------------------

    async def _empty_namespace(self, name: str) -> None:
        key = namespaces.key(name)
        if self._objects.latest(key) is None:
            self._leaving_namespaces.pop(name, None)
            return
        content = [
            entry
            for resource in self._registry.stored()
            if resource.namespaced
            for entry in self._objects.collection(resource.group_resource).between(name)
        ]
        if content:
            await self._delete_all(content)
            return

        def change(tree: Tree) -> None:
            spec = tree.setdefault("spec", {})
            spec["finalizers"] = [one for one in spec.get("finalizers") or () if one != "kubernetes"]

        await self._client.modify(key, change, subresource="finalize")

    async def _empty_crd(self, name: str) -> None:
        key = crd_registration.key(name)
        if self._objects.latest(key) is None:
            self._leaving_crds.pop(name, None)
            return
        content = list(self._objects.collection(name))
        if content:
            await self._delete_all(content)
            return
        await self._drop_finalizer(key, crd_registration.CLEANUP)

    async def _delete_all(self, content: Iterable[ObjectEntry]) -> None:
        """Begin the deletion of all objects that are not under deletion yet; finalizers delay its end."""
        await self._client.delete_all(entry.key for entry in content if not self._owners[entry.key].leaving)
