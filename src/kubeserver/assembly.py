"""The whole server, assembled, without a socket and with a clock from outside.

`Embedded` is what `serve` puts on a port, and what tests and simulations call directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from kubemachinery import status
from kubemachinery.clock import Clock
from kubeserver.admission import webhooks
from kubeserver.admission.chain import AdmissionChain, AdmissionHook
from kubeserver.admission.webhooks import WebhookCaller, WebhookPolicy
from kubeserver.garbage_collection.collector import GarbageCollector
from kubeserver.garbage_collection.event_expiry import EventExpiry
from kubeserver.http.health import ServerInfo
from kubeserver.http.server import ApiServer
from kubeserver.protocol import authentication, bodies
from kubeserver.protocol.authentication import Authenticator
from kubeserver.protocol.cooperative import Workers
from kubeserver.protocol.load_shedding import LoadShedder, RequestLimits
from kubeserver.registry import crd_registration as crds
from kubeserver.registry import namespaces, representations
from kubeserver.registry.openapi import OpenApi
from kubeserver.registry.registry import Convert, Registry
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext
from kubeserver.storage.objects import HistoryBounds, Objects
from kubeserver.storage.sqlite import Journal, LoadedState, StoreKey
from kubeserver.write.loopback_client import LoopbackClient
from kubeserver.write.rest import Rest

log = logging.getLogger(__name__)


class FindObjects(Protocol):
    def __call__(self, group_resource: str, namespace: str, name: str = "", /) -> Iterable[Tree]:
        """Return the objects of a resource, in a namespace or ("") in all, or the one of a name.

        They are shared: callers must not change them.
        """
        ...


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is made of: kinds, CRDs, admission hooks, conversions and first objects."""

    builtin: Sequence[Resource]
    hooks: Sequence[AdmissionHook] = ()
    # Hooks that look at other objects come before the plain ones.
    plugins: Callable[[FindObjects], Sequence[AdmissionHook]] = lambda find: ()
    # group -> how its objects change from one version to another.
    conversions: Mapping[str, Convert] = msgspec.field(default_factory=dict)
    # CRDs to install, in order.
    crds: Sequence[Tree] = ()
    # Objects that are there from the beginning, such as the priority classes of the system.
    initial: Sequence[Tree] = ()
    # Objects that a new server begins with; users may change and delete them afterwards.
    first: Sequence[Tree] = ()
    caps: RequestLimits = msgspec.field(default_factory=RequestLimits)
    bounds: HistoryBounds = msgspec.field(default_factory=HistoryBounds)
    webhooks: WebhookPolicy = msgspec.field(default_factory=WebhookPolicy)
    # How long an object stays without its last owner, so that watches see the owner deleted first. A reference to
    # one of several owners outlasts it ten times longer.
    orphan_seconds: float = 0.0
    # Whether dependents of deleted owners and the content of deleted namespaces are deleted, as a cluster does by
    # kube-controller-manager. Without, they stay, and a deleted namespace stays in phase Terminating.
    collects_garbage: bool = True


class Embedded:
    """The whole server without a socket. `start` makes it ready, `close` commits what it has accepted."""

    def __init__(
        self,
        parts: Parts,
        journal: Journal,
        authenticator: Authenticator,
        clock: Clock,
        rng: random.Random,
        about: ServerInfo,
        *,
        loaded: LoadedState | None = None,
        executor: Executor | None = None,
        threads: Executor | None = None,
    ) -> None:
        """`executor` is the one thread of the journal; `threads` take long work off the event loop. Without them,
        everything runs in line."""
        self._parts = parts
        self._tasks: list[asyncio.Task[None]] = []
        self.objects = Objects(journal, clock, loaded=loaded, executor=executor, bounds=parts.bounds)
        own = [tree["metadata"]["name"] for tree in parts.crds]
        self.crds = crds.CustomResources(self.objects, clock, parts.conversions, own)
        self.registry = Registry(map(self._with_rules, parts.builtin))
        self.crds.start(self.registry)
        self._webhooks = WebhookCaller(self.objects, self.registry, parts.webhooks)
        hooks = AdmissionChain((*parts.plugins(self._find), *parts.hooks), self._in_version, self._webhooks)
        workers = Workers(threads)
        self.rest = Rest(self.objects, self.registry, hooks, clock, rng, workers)
        client = LoopbackClient(self.registry, self.rest)
        self._collector = GarbageCollector(
            self.objects, self.registry, client, clock, parts.orphan_seconds, crds_only=not parts.collects_garbage
        )
        self.old_news = EventExpiry(self.objects, client, clock)
        self.server = ApiServer(
            objects=self.objects,
            registry=self.registry,
            rest=self.rest,
            openapi=OpenApi(self.registry),
            authenticator=authenticator,
            shedder=LoadShedder(clock, parts.caps),
            clock=clock,
            rng=rng,
            about=about,
            workers=workers,
        )

    def _with_rules(self, resource: Resource) -> Resource:
        """Return the kinds with the rules that only the server can provide (CRDs, webhook configurations)."""
        match resource.group_resource:
            case crds.RESOURCE:
                return self.crds.kind(resource)
            case webhooks.MUTATING | webhooks.VALIDATING:
                return self._parts.webhooks.kind(resource)
        return resource

    def _in_version(self, resource: Resource, tree: Tree, version: str) -> tuple[Resource, Tree]:
        """Return an object in another version of its kind, for a hook that takes only that one."""
        there = self.registry.find(resource.group, version, resource.plural) or resource
        if tree.get("apiVersion") == there.api_version:
            return there, tree
        return there, representations.to_version(self.registry, there, tree)

    def _find(self, group_resource: str, namespace: str, name: str = "") -> Iterable[Tree]:
        """Find objects for hooks. They read few objects often, so decoded trees are cached for a while."""
        if name:
            entry = self.objects.get(StoreKey(group_resource, namespace, name))
            return () if entry is None else (_decoded(entry.body),)
        return (_decoded(entry.body) for entry in self.objects.collection(group_resource).between(namespace))

    async def start(self) -> None:
        """Create the server's own objects, then become ready."""
        is_new = self.objects.get(namespaces.key(namespaces.INITIAL[0])) is None
        # At once, so that they share a commit: each takes the time of a write to the disk.
        initial = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces.INITIAL)
        await _all(self._ensure(tree) for tree in initial)
        with self.crds.trusting():
            await _all(self.install(tree) for tree in self._parts.crds)
        for tree in (*self._parts.initial, *(self._parts.first if is_new else ())):
            await self._ensure(tree)
        self._tasks = [
            asyncio.create_task(self.objects.keep_compacting()),
            asyncio.create_task(self._collector.run()),
            asyncio.create_task(self.old_news.run()),
        ]
        self.server.health.ready = True

    async def _ensure(self, tree: Tree) -> None:
        with contextlib.suppress(_AlreadyThere):
            await self._create(tree)

    async def _create(self, tree: Tree) -> None:
        context = self._context(tree)
        if self.objects.latest(context.key) is not None:
            raise _AlreadyThere
        context.name = ""
        await self.rest.create(context, _copy(tree))

    async def install(self, tree: Tree) -> None:
        """Create a CRD, or update the stored one."""
        try:
            await self._create(tree)
        except _AlreadyThere:
            wanted = _copy(tree)

            def change(old: Tree) -> None:
                old["spec"] = wanted["spec"]
                for part in ("labels", "annotations"):
                    both = {**(old["metadata"].get(part) or {}), **(wanted["metadata"].get(part) or {})}
                    old["metadata"][part] = both

            await self.rest.modify(self._context(tree), change)

    def _context(self, tree: Tree) -> WriteContext:
        resource = self.registry.of_kind(tree["apiVersion"], tree["kind"])
        if resource is None:
            raise status.bad_request(f"{tree['apiVersion']} {tree['kind']} is not served")
        details = tree["metadata"]
        return WriteContext(
            resource=resource,
            user=authentication.SYSTEM,
            namespace=details.get("namespace", ""),
            name=details["name"],
            manager="embedded",
            validation="Ignore",
        )

    def stop_watches(self) -> None:
        """End every watch, so that clients reconnect to another server."""
        self.server.health.ready = False
        self.registry.stop_watches()

    async def close(self) -> None:
        self.stop_watches()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []
        await self._webhooks.close()
        await self.objects.close()


async def _all(writes: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all writes, then raise the first error of them."""
    for result in await asyncio.gather(*writes, return_exceptions=True):
        if result is not None:
            raise result


class _AlreadyThere(Exception):
    pass


@lru_cache(maxsize=2048)
def _decoded(body: bytes) -> Tree:
    tree: Tree = bodies.parse_json(body)
    return tree


def _copy(tree: Any) -> Any:
    return bodies.parse_json(bodies.encode(tree))
