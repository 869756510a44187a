"""What goes with what: objects follow their owners, content its namespace, instances their CRD, and Events their hour.

One task, woken by changes. It keeps who owns whom by uid, because an object recreated under the same name is another
object. Everything it does goes through the verbs, as a client's wishes do, so finalizers hold for it, too.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pykueue.api import meta
from pykueue.apiserver import access, crds, metadata, namespaces, status
from pykueue.apiserver.calls import Call
from pykueue.apiserver.objects import Change, Entry, Objects
from pykueue.apiserver.registry import Registry
from pykueue.apiserver.rest import Rest
from pykueue.apiserver.store import Key, Op
from pykueue.apiserver.strategy import Tree
from pykueue.clock import Clock

log = logging.getLogger(__name__)

TOGETHER: Final = 64
RETRY_SECONDS: Final = 1.0
EVENTS_SECONDS: Final = 60.0
EVENT_AGE: Final = meta.HOUR
EVENTS_MAX: Final = 20_000
EVENTS: Final = "events"
_MANAGER: Final = "embedded-collector"
# A reference to an owner that is gone harms nobody while there are other owners: it may stay so many times longer.
_OTHERS_LEFT: Final = 10


class _Details(msgspec.Struct, rename="camel"):
    owner_references: tuple[meta.OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Details


_decode: Final = msgspec.json.Decoder(_Object).decode


@dataclass(frozen=True, slots=True)
class _Node:
    """What the collector remembers of an object: its owners, and whether it is on its way out."""

    uid: str
    owners: tuple[meta.OwnerReference, ...] = ()
    leaving: bool = False
    foreground: bool = False
    orphan: bool = False


def _node(entry: Entry) -> _Node:
    # Most objects have neither owners nor finalizers; their bytes say so faster than a decoder.
    if b'"ownerReferences"' not in entry.body and b'"deletionTimestamp"' not in entry.body:
        return _Node(entry.uid)
    details = _decode(entry.body).metadata
    leaving = details.deletion_timestamp is not None
    return _Node(
        entry.uid,
        details.owner_references,
        leaving,
        leaving and metadata.FOREGROUND in details.finalizers,
        leaving and metadata.ORPHAN in details.finalizers,
    )


class Collector:
    """Follows every change, and takes away what has lost its ground."""

    def __init__(
        self, objects: Objects, registry: Registry, rest: Rest, clock: Clock, orphan_seconds: float = 0.0
    ) -> None:
        self._objects = objects
        self._registry = registry
        self._rest = rest
        self._clock = clock
        self._orphan_seconds = orphan_seconds
        self._alone_since: dict[str, float] = {}
        self._nodes: dict[Key, _Node] = {}
        self._by_uid: dict[str, Key] = {}
        self._dependents: dict[str, dict[Key, None]] = {}
        self._due: dict[Key, None] = {}
        self._leaving_namespaces: dict[str, None] = {}
        self._leaving_crds: dict[str, None] = {}
        self._wake = asyncio.Event()
        for resource in objects.resources:
            for entry in objects.collection(resource):
                self._learn(entry)
        for key, node in self._nodes.items():
            if node.owners or node.leaving:
                self._look_at(key)
        objects.listeners.append(self._notice)

    # --- Learning -----------------------------------------------------------------------------------------------------

    def _learn(self, entry: Entry) -> None:
        key = entry.key
        node = _node(entry)
        before = self._nodes.get(key)
        if before is not None:
            self._forget_owners(key, before)
        self._nodes[key] = node
        self._by_uid[node.uid] = key
        for owner in node.owners:
            self._dependents.setdefault(owner.uid, {})[key] = None

    def _forget_owners(self, key: Key, node: _Node) -> None:
        for owner in node.owners:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.pop(key, None)
                if not dependents:
                    del self._dependents[owner.uid]

    def _notice(self, change: Change) -> None:
        key = change.entry.key
        if change.op is Op.DELETED:
            node = self._nodes.pop(key, None)
            if node is None:
                return
            self._by_uid.pop(node.uid, None)
            self._alone_since.pop(node.uid, None)
            self._forget_owners(key, node)
            for dependent in self._dependents.get(node.uid, ()):
                self._look_at(dependent)
            for owner in node.owners:
                if owner.uid in self._by_uid:
                    self._look_at(self._by_uid[owner.uid])
            if key.namespace in self._leaving_namespaces or key.resource in self._leaving_crds:
                self._wake.set()
            return
        self._learn(change.entry)
        node = self._nodes[key]
        if node.owners or node.leaving:
            self._look_at(key)

    def _look_at(self, key: Key) -> None:
        self._due[key] = None
        node = self._nodes.get(key)
        if node is not None and node.leaving:
            if key.resource == namespaces.RESOURCE:
                self._leaving_namespaces[key.name] = None
            elif key.resource == crds.RESOURCE:
                self._leaving_crds[key.name] = None
        self._wake.set()

    # --- The loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._round():
                # Something did not work (the store refuses, a race was lost): the same again, a little later.
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    async def _round(self) -> bool:
        due, self._due = list(self._due), {}
        well = await self._together(self._check, due)
        well &= await self._together(self._empty_namespace, list(self._leaving_namespaces))
        well &= await self._together(self._empty_crd, list(self._leaving_crds))
        return well

    async def _together(self, act: Callable[[Any], Awaitable[None]], subjects: list[Any]) -> bool:
        """Many at once, so that their writes share commits. What fails is looked at again."""
        well = True

        async def attempt(subject: Any) -> None:
            nonlocal well
            try:
                await act(subject)
            except status.StatusError as error:
                if error.code == 404:
                    return
                well = False
                if isinstance(subject, Key):
                    self._due[subject] = None
                log.debug("collecting %s will be tried again: %s", subject, error)

        for start in range(0, len(subjects), TOGETHER):
            await asyncio.gather(*(attempt(subject) for subject in subjects[start : start + TOGETHER]))
        return well

    # --- Owners -------------------------------------------------------------------------------------------------------

    async def _check(self, key: Key) -> None:
        node = self._nodes.get(key)
        if node is None:
            return
        if node.orphan:
            await self._orphan(key, node)
        elif node.foreground:
            await self._foreground(key, node)
        elif node.owners and not node.leaving:
            await self._follow_owners(key, node)

    async def _orphan(self, key: Key, node: _Node) -> None:
        """Dependents stay, and forget their owner."""
        for dependent in list(self._dependents.get(node.uid, ())):
            await self._drop_owners(dependent, {node.uid})
        await self._drop_finalizer(key, metadata.ORPHAN)

    async def _foreground(self, key: Key, node: _Node) -> None:
        """First the dependents that the owner waits for, then the owner."""
        blocking = [
            dependent
            for dependent in self._dependents.get(node.uid, ())
            if any(o.uid == node.uid and o.block_owner_deletion for o in self._nodes[dependent].owners)
        ]
        if not blocking:
            await self._drop_finalizer(key, metadata.FOREGROUND)
            return
        for dependent in blocking:
            await self._follow_owners(dependent, self._nodes[dependent])

    async def _follow_owners(self, key: Key, node: _Node) -> None:
        """An object goes when none of its owners is there to stay."""
        kept: list[str] = []
        gone: set[str] = set()
        waiting = False
        for owner in node.owners:
            found = self._by_uid.get(owner.uid)
            if found is None:
                if self._registry.of_kind(owner.api_version, owner.kind) is None:
                    # Nobody here knows such owners, so nobody can say that this one is gone.
                    kept.append(owner.uid)
                else:
                    gone.add(owner.uid)
            elif found.namespace and found.namespace != key.namespace:
                # An owner in another namespace is no owner. It is not missing either: somebody made a mistake.
                kept.append(owner.uid)
                await self._tell_of_stranger(key, node, owner, found.namespace)
            elif self._nodes[found].foreground and owner.block_owner_deletion:
                waiting = True
                gone.add(owner.uid)
            else:
                kept.append(owner.uid)
        if not gone:
            return
        if kept:
            # Those that are gone, and those that wait for this object although it has others to stay for.
            if waiting or not self._may_stay(key, node, _OTHERS_LEFT * self._orphan_seconds):
                await self._drop_owners(key, gone)
            return
        if node.leaving or (not waiting and self._may_stay(key, node, self._orphan_seconds)):
            return
        policy = "Foreground" if waiting and self._dependents.get(node.uid) else "Background"
        if node.orphan:
            policy = "Orphan"
        await self._delete(key, {"propagationPolicy": policy, "preconditions": {"uid": node.uid}})

    def _may_stay(self, key: Key, node: _Node, seconds: float) -> bool:
        """Whether an object that has lost owners is left alone a little longer. It is looked at again then."""
        if not seconds:
            return False
        loop = asyncio.get_running_loop()
        since = self._alone_since.setdefault(node.uid, loop.time())
        left = since + seconds - loop.time()
        if left > 0:
            loop.call_later(left, self._look_at, key)
        return left > 0

    async def _tell_of_stranger(self, key: Key, node: _Node, owner: meta.OwnerReference, where: str) -> None:
        """An Event beside the object that names an owner in another namespace; one for each, whatever happens."""
        events, own = self._registry.stored_as(EVENTS), self._registry.stored_as(key.resource)
        if events is None or own is None:
            return
        name = f"{key.name[:200]}.{zlib.crc32(f'{node.uid}/{owner.uid}'.encode()):08x}"
        if self._objects.latest(Key(EVENTS, key.namespace, name)) is not None:
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
        call = Call(resource=events, user=access.SYSTEM, namespace=key.namespace, manager=_MANAGER, validation="Ignore")
        await self._rest.create(call, event)

    async def _drop_owners(self, key: Key, uids: set[str]) -> None:
        def change(tree: Tree) -> None:
            owners = [one for one in tree["metadata"].get("ownerReferences") or () if one.get("uid") not in uids]
            tree["metadata"]["ownerReferences"] = owners

        if uids:
            await self._change(key, change)

    async def _drop_finalizer(self, key: Key, finalizer: str) -> None:
        def change(tree: Tree) -> None:
            tree["metadata"]["finalizers"] = [f for f in tree["metadata"].get("finalizers") or () if f != finalizer]

        await self._change(key, change)

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

        await self._change(key, change, subresource="finalize")

    async def _empty_crd(self, name: str) -> None:
        key = crds.key(name)
        if self._objects.latest(key) is None:
            self._leaving_crds.pop(name, None)
            return
        content = list(self._objects.collection(name))
        if content:
            await self._delete_all(content)
            return
        await self._drop_finalizer(key, crds.CLEANUP)

    async def _delete_all(self, content: Iterable[Entry]) -> None:
        """Begin the deletion of everything that has not begun to go. What has finalizers stays until they agree."""
        going = [entry.key for entry in content if not self._nodes[entry.key].leaving]
        for start in range(0, len(going), TOGETHER):
            await asyncio.gather(*(self._delete_quietly(key) for key in going[start : start + TOGETHER]))

    async def _delete_quietly(self, key: Key) -> None:
        try:
            await self._delete(key, {"propagationPolicy": "Background"})
        except status.StatusError as error:
            if error.code != 404:
                raise

    # --- Events -------------------------------------------------------------------------------------------------------

    async def keep_events_few(self) -> None:
        """Events are news: they are kept for an hour, and only so many."""
        while True:
            await asyncio.sleep(EVENTS_SECONDS)
            try:
                await self.drop_old_events()
            except status.StatusError as error:
                log.debug("old events will be dropped later: %s", error)

    async def drop_old_events(self) -> None:
        dated = sorted((_last_seen(entry), entry.key) for entry in self._objects.collection(EVENTS))
        limit = self._clock.now() - EVENT_AGE
        excess = max(0, len(dated) - EVENTS_MAX)
        going = [key for index, (seen, key) in enumerate(dated) if seen < limit or index < excess]
        for start in range(0, len(going), TOGETHER):
            await asyncio.gather(*(self._delete_quietly(key) for key in going[start : start + TOGETHER]))

    # --- Through the verbs --------------------------------------------------------------------------------------------

    def _call(self, key: Key, subresource: str = "") -> Call:
        resource = self._registry.stored_as(key.resource)
        if resource is None:
            raise status.not_found("", key.resource, key.name)
        return Call(
            resource=resource,
            user=access.SYSTEM,
            namespace=key.namespace,
            name=key.name,
            subresource=subresource,
            manager=_MANAGER,
            validation="Ignore",
        )

    async def _delete(self, key: Key, options: Tree) -> None:
        await self._rest.delete(self._call(key), options)

    async def _change(self, key: Key, change: Callable[[Tree], None], subresource: str = "") -> None:
        call = self._call(key, subresource)
        await self._rest.change(call, change)


def _last_seen(entry: Entry) -> int:
    tree = msgspec.json.decode(entry.body)
    series = tree.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        tree.get("lastTimestamp"),
        tree.get("eventTime"),
        tree["metadata"].get("creationTimestamp"),
    )
    found = 0
    for time in times:
        try:
            found = max(found, meta.parse_time(time) if isinstance(time, str) else 0)
        except meta.TimeError:
            continue
    return found
