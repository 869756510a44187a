"""The API client: get, list, watch, create, replace, patch, apply and delete for any kind.

Objects are plain JSON trees; callers decode to types where they need them (an informer does, once). A request is
retried only where that is safe: reads always, writes when the server asked for a retry or was never reached. A write
with a lost response raises `Unanswered`, and the caller decides what to assume.
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from kubemachinery.client import errors
from kubemachinery.client.errors import ApiError, Busy, Unanswered
from kubemachinery.client.priority import LOW, NORMAL, QueuePriority
from kubemachinery.client.transport import ApiRequest, ApiResponse, Fence, Lines, Transport
from kubemachinery.kinds import Kind

Tree: TypeAlias = dict[str, Any]
T = TypeVar("T")

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
# Only the metadata in the response: a status write rarely needs the whole object back.
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_OF_ALL: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_ATTEMPTS: Final = 6
PAGE: Final = 500
_SKIPPED_MAX: Final = 9
# Characters that no segment of a path, and so no name, contains.
_IMPOSSIBLE: Final = frozenset("/%?# \t\r\n\0")


class RateLimiter:
    """A token bucket: `burst` requests at once, then `qps` a second. A rate of zero or less is no limit.

    Requests of low priority wait behind those of normal priority, except for one token in ten: low priority must not
    delay normal work, and a burst of normal work must not starve low priority.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._interval = 1 / qps if qps > 0 else 0.0
        self._allowance = self._interval * max(burst, 1)
        self._spent = 0.0  # the time up to which tokens are spent
        self._normal: deque[asyncio.Future[None]] = deque()
        self._low: deque[asyncio.Future[None]] = deque()
        self._skipped = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """How many tokens are available now."""
        if not self._interval:
            return math.inf
        now = asyncio.get_running_loop().time()
        return (now - max(self._spent, now - self._allowance)) / self._interval

    def use_up(self) -> None:
        """Take all tokens that are available now: what follows is sent at the rate, without a burst."""
        if self._interval:
            self._spent = max(self._spent, asyncio.get_running_loop().time())

    async def take(self, *, priority: QueuePriority = NORMAL) -> None:
        if not self._interval:
            return
        waiters = self._low if priority is LOW else self._normal
        if not self._low and not self._normal and self._spend():
            return
        turn = asyncio.get_running_loop().create_future()
        waiters.append(turn)
        self._grant()
        await turn

    def _spend(self) -> bool:
        now = asyncio.get_running_loop().time()
        start = max(self._spent, now - self._allowance)
        # Rounding of the timer must not cost another wait.
        if start + self._interval > now + 1e-6:
            return False
        self._spent = start + self._interval
        return True

    def _grant(self) -> None:
        """Give available tokens to waiting requests, and set a timer for the next token."""
        while (waiters := self._next_waiters()) is not None and self._spend():
            self._skipped = self._skipped + 1 if waiters is self._normal and self._low else 0
            waiters.popleft().set_result(None)
        if waiters is not None and (self._timer is None or self._timer.cancelled()):
            self._timer = asyncio.get_running_loop().call_at(self._spent + self._interval, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._grant()

    def _next_waiters(self) -> deque[asyncio.Future[None]] | None:
        for waiters in (self._normal, self._low):
            while waiters and waiters[0].done():
                waiters.popleft()  # cancelled meanwhile
        if self._low and (not self._normal or self._skipped >= _SKIPPED_MAX):
            return self._low
        return self._normal or None


class Listing(msgspec.Struct, frozen=True):
    """The objects of a list at one revision."""

    items: list[msgspec.Raw]
    revision: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Written(msgspec.Struct, frozen=True):
    metadata: _Revision


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    # A kube-apiserver returns null for an empty list of metadata.
    items: list[msgspec.Raw] | None = None


_read_list: Final = msgspec.json.Decoder(_List).decode
_read_written: Final = msgspec.json.Decoder(_Written).decode
_read_tree: Final = msgspec.json.Decoder(dict[str, Any]).decode


class ApiClient:
    """A client of one server, as one user."""

    def __init__(
        self,
        transport: Transport,
        rng: random.Random,
        limit: RateLimiter | None = None,
        *,
        attempts: int = _ATTEMPTS,
        page: int = PAGE,
    ) -> None:
        """`page` is the number of objects per request of a list; 0 is all."""
        self._transport = transport
        self._attempts = attempts
        self._page = page
        self._rng = rng
        self._limit = limit
        self._fence: Fence | None = None
        self._priority = NORMAL
        # The number of requests by verb and resource; tests and benchmarks count requests per admission.
        self.sent: dict[tuple[str, str], int] = {}

    def low_priority(self) -> ApiClient:
        """The same client with low priority at the rate limiter."""
        client = copy.copy(self)
        client._priority = LOW
        return client

    def with_fence(self, fence: Fence | None) -> ApiClient:
        """The same client with a fence: writes are sent only while it returns True."""
        client = copy.copy(self)
        client._fence = fence
        return client

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, namespace: str = "", *, version: str = "") -> Tree:
        path = _object_path(kind, namespace, name, version=version)
        return await self._read(_read_tree, kind, ApiRequest("GET", path))

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Tree | None:
        """Return the object, or None when it does not exist."""
        try:
            return await self.get(kind, name, namespace)
        except errors.NotFound:
            return None

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        version: str = "",
        accept: str = JSON,
    ) -> Listing:
        """Return every matching object, read page by page, at one revision."""
        query = [*([("limit", str(self._page))] if self._page else []), *_selectors(labels, fields)]
        items: list[msgspec.Raw] = []
        token = ""
        while True:
            page = [*query, ("continue", token)] if token else query
            request = ApiRequest("GET", kind.path(namespace, version=version), tuple(page), accept=accept)
            found = await self._read(_read_list, kind, request)
            items += found.items or ()
            token = found.metadata.continue_
            if not token:
                return Listing(items, found.metadata.resource_version)

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        revision: str = "",
        initial: bool = False,
        labels: str = "",
        fields: str = "",
        seconds: int = 0,
    ) -> AsyncIterator[Lines]:
        """The changes after `revision`, one per line. With `initial`, first the current objects, then a bookmark."""
        query = [("watch", "true"), ("allowWatchBookmarks", "true"), *_selectors(labels, fields)]
        if initial:
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        if revision:
            query.append(("resourceVersion", revision))
        if seconds:
            query.append(("timeoutSeconds", str(seconds)))
        self._count("watch", kind)
        async with self._transport.stream(ApiRequest("GET", kind.path(namespace), tuple(query))) as lines:
            yield lines

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        kind: Kind,
        tree: Mapping[str, Any],
        *,
        dry_run: bool = False,
        subresource: str = "",
        accept: str = JSON,
    ) -> Tree:
        """Create the object; with a subresource, such as a pod's binding, below the object that the metadata names.

        With `accept=METADATA` the server sends, and this returns, the metadata only.
        """
        metadata = tree.get("metadata", {})
        below = str(metadata.get("name", "")) if subresource else ""
        path = kind.path(str(metadata.get("namespace", "")), below, subresource)
        query = (("dryRun", "All"),) if dry_run else ()
        return await self._write(kind, ApiRequest("POST", path, query, _body(tree), JSON, accept))

    async def replace(self, kind: Kind, tree: Mapping[str, Any], subresource: str = "") -> Tree:
        """Replace the object; a `resourceVersion` in it makes the write conditional."""
        return await self._write(kind, _replacement(kind, tree, subresource))

    async def replace_revision(self, kind: Kind, tree: Mapping[str, Any], subresource: str = "") -> str:
        """Replace the object and return the `resourceVersion` that it has now. The server sends the metadata only."""
        return await self._written_revision(kind, _replacement(kind, tree, subresource, METADATA))

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = MERGE,
        dry_run: bool = False,
    ) -> Tree:
        """Patch the object. A `resourceVersion` in a merge patch makes the write conditional."""
        query = (("dryRun", "All"),) if dry_run else ()
        path = _object_path(kind, namespace, name, subresource)
        return await self._write(kind, ApiRequest("PATCH", path, query, _body(patch), content_type))

    async def patch_revision(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = MERGE,
        manager: str = "",
    ) -> str:
        """Patch the object and return the `resourceVersion` that it has now. The server sends the metadata only."""
        path = _object_path(kind, namespace, name, subresource)
        query = (("fieldManager", manager),) if manager else ()
        request = ApiRequest("PATCH", path, query, _body(patch), content_type, METADATA)
        return await self._written_revision(kind, request)

    async def apply(
        self, kind: Kind, tree: Mapping[str, Any], manager: str, *, force: bool = True, subresource: str = ""
    ) -> Tree:
        """Server-side apply: `manager` owns these fields."""
        metadata = tree["metadata"]
        query = (("fieldManager", manager), ("force", "true" if force else "false"))
        path = _object_path(kind, metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._write(kind, ApiRequest("PATCH", path, query, _body(tree), APPLY))

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        propagation: str = "Background",
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the object; one that does not exist is no error. With `uid`, only the object with this UID.

        Raises NotFound for a name that no object can have.
        """
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if dry_run:
            options["dryRun"] = ["All"]
        if uid:
            options["preconditions"] = {"uid": uid}
        path = _object_path(kind, namespace, name)
        with suppress(errors.NotFound):
            await self._send(kind, ApiRequest("DELETE", path, (), _body(options), JSON))

    async def request(self, request: ApiRequest, *, repeats: bool = True) -> ApiResponse:
        """Send a request that concerns no kind, such as `/version`. Without `repeats` it is sent once: what the server
        computes for a minute is not asked for again by itself."""
        return await self._send_with_retries(request, self._attempts if repeats else 1)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        """The lines of a streaming response to a request that concerns no kind, such as a log that is followed."""
        async with self._transport.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._transport.close()

    # --- Sending ------------------------------------------------------------------------------------------------------

    async def _write(self, kind: Kind, request: ApiRequest) -> Tree:
        return await self._read(_read_tree, kind, request)

    async def _written_revision(self, kind: Kind, request: ApiRequest) -> str:
        return (await self._read(_read_written, kind, request)).metadata.resource_version

    async def _read(self, decode: Callable[[bytes], T], kind: Kind, request: ApiRequest) -> T:
        """Send the request and decode the response. A page of a proxy, for example, is no answer of the server: whether
        a write was carried out is unknown then."""
        response = await self._send(kind, request)
        try:
            return decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the response to {request.method} {request.path} cannot be read: {error}"
            raise Unanswered(message) from error

    async def _send(self, kind: Kind, request: ApiRequest) -> ApiResponse:
        self._count(request.method, kind)
        if self._fence is not None and request.method != "GET":
            request = replace(request, fence=self._fence)
        return await self._send_with_retries(request, self._attempts)

    async def _send_with_retries(self, request: ApiRequest, attempts_max: int) -> ApiResponse:
        attempt = 0
        while True:
            if self._limit is not None:
                await self._limit.take(priority=self._priority)
            try:
                response = await self._transport.send(request)
                if response.status < 300:
                    return response
                raise errors.from_response(response.status, response.body, response.headers.get("Retry-After", ""))
            except (Busy, Unanswered) as error:
                attempt += 1
                if attempt == attempts_max or not _may_repeat(request, error):
                    raise
                await asyncio.sleep(self._backoff(attempt, error))

    def _backoff(self, attempt: int, error: Busy | Unanswered) -> float:
        """The server's Retry-After, or exponential backoff; with jitter, so that many clients do not retry at once."""
        requested = error.retry_after if isinstance(error, Busy) else 0.0
        return float(max(requested, min(0.1 * 2**attempt, 5.0)) * self._rng.uniform(1.0, 1.5))

    def _count(self, verb: str, kind: Kind) -> None:
        key = (verb, kind.plural)
        self.sent[key] = self.sent.get(key, 0) + 1


def _may_repeat(request: ApiRequest, error: ApiError | Unanswered) -> bool:
    if isinstance(error, Unanswered):
        return request.method == "GET" or error.applied is False
    # A server that sends Retry-After has not carried the request out. 504 comes without it, and may have.
    return request.method == "GET" or error.retry_after > 0 or error.code == 429


def _selectors(labels: str, fields: str) -> list[tuple[str, str]]:
    return [(name, text) for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text]


def _body(tree: Any) -> bytes:
    return msgspec.json.encode(tree)


def _replacement(kind: Kind, tree: Mapping[str, Any], subresource: str, accept: str = JSON) -> ApiRequest:
    metadata = tree["metadata"]
    path = _object_path(kind, metadata.get("namespace", ""), metadata["name"], subresource)
    return ApiRequest("PUT", path, (), _body(tree), JSON, accept)


def _object_path(kind: Kind, namespace: str, name: str, subresource: str = "", *, version: str = "") -> str:
    """The request path of one object. Without a name it would be that of the collection, whose deletion deletes every
    object; a name that is no segment of a path would be another request. Such an object does not exist."""
    for given in (name, *((namespace,) if namespace else ())):
        if given in ("", ".", "..") or not _IMPOSSIBLE.isdisjoint(given):
            raise errors.NotFound(404, "NotFound", f"{kind.name} {name!r} not found: {given!r} cannot be a name")
    return kind.path(namespace, name, subresource, version=version)
