"""The verbs, for any kind of the table: get, list, watch, create, replace, patch, apply, delete.

Objects go in and come out as plain trees; whoever wants types decodes what it reads (`informer` does, once). A request
is sent again only where that is safe: reads always, writes when the server said to come back or was never reached. A
write whose answer was lost raises `Unanswered`, and the caller decides what it knows.
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from kubemachinery.client import errors
from kubemachinery.client.errors import ApiError, Busy, Unanswered
from kubemachinery.client.priority import LOW, NORMAL, QueuePriority
from kubemachinery.client.transport import ApiRequest, ApiResponse, Fence, Lines, Transport
from kubemachinery.kinds import Kind

Tree: TypeAlias = dict[str, Any]

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
# Asks for the metadata alone: who writes a status rarely wants the whole object back.
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_OF_ALL: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_ATTEMPTS: Final = 6
PAGE: Final = 500
_PASSED_OVER_MAX: Final = 9


class RateLimiter:
    """A bucket of tokens: `burst` at once, `qps` a second after that. A rate of zero or less is no limit.

    Who is patient comes after those who are not, but for one token in ten: courtesies must not hold work up, and a rush
    of work must not silence them for good.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._interval = 1 / qps if qps > 0 else 0.0
        self._allowance = self._interval * max(burst, 1)
        self._spent = 0.0  # the moment up to which tokens are spent
        self._normal: deque[asyncio.Future[None]] = deque()
        self._low: deque[asyncio.Future[None]] = deque()
        self._passed_over = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """How many tokens could be had at once."""
        if not self._interval:
            return math.inf
        now = asyncio.get_running_loop().time()
        return (now - max(self._spent, now - self._allowance)) / self._interval

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
        # What a timer rounds must not cost another round.
        if start + self._interval > now + 1e-6:
            return False
        self._spent = start + self._interval
        return True

    def _grant(self) -> None:
        """Give tokens to those in waiters as long as there are any, and come back when there is the next."""
        while (waiters := self._next_waiters()) is not None and self._spend():
            self._passed_over = self._passed_over + 1 if waiters is self._normal and self._low else 0
            waiters.popleft().set_result(None)
        if waiters is not None and (self._timer is None or self._timer.cancelled()):
            self._timer = asyncio.get_running_loop().call_at(self._spent + self._interval, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._grant()

    def _next_waiters(self) -> deque[asyncio.Future[None]] | None:
        for waiters in (self._normal, self._low):
            while waiters and waiters[0].done():
                waiters.popleft()  # given up meanwhile
        if self._low and (not self._normal or self._passed_over >= _PASSED_OVER_MAX):
            return self._low
        return self._normal or None


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list as they were at one revision."""

    items: list[msgspec.Raw]
    revision: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    # A kube-apiserver says null where it lists nothing but metadata, and there is nothing.
    items: list[msgspec.Raw] | None = None


_read_list: Final = msgspec.json.Decoder(_List).decode
_read_tree: Final = msgspec.json.Decoder(dict[str, Any]).decode


class ApiClient:
    """One server, as one user."""

    def __init__(
        self,
        transport: Transport,
        rng: random.Random,
        limit: RateLimiter | None = None,
        *,
        attempts: int = _ATTEMPTS,
        page: int = PAGE,
    ) -> None:
        """`page` is how many objects of a list are asked for at once; 0 is all."""
        self._transport = transport
        self._attempts = attempts
        self._page = page
        self._rng = rng
        self._limit = limit
        self._fence: Fence | None = None
        self._priority = NORMAL
        # How often each verb was sent, for whoever counts requests per admission.
        self.sent: dict[tuple[str, str], int] = {}

    def low_priority(self) -> ApiClient:
        """The same client for what can wait: where requests are limited, others go first."""
        client = copy.copy(self)
        client._priority = LOW
        return client

    def with_fence(self, fence: Fence | None) -> ApiClient:
        """The same client for one who may write only as long as the fence says so."""
        client = copy.copy(self)
        client._fence = fence
        return client

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, namespace: str = "", *, version: str = "") -> Tree:
        answer = await self._send(kind, ApiRequest("GET", kind.path(namespace, name, version=version)))
        return _read_tree(answer.body)

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Tree | None:
        """The object, or None where there is none."""
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
        """Every object that matches, page by page, as of one revision."""
        query = [*([("limit", str(self._page))] if self._page else []), *_selectors(labels, fields)]
        items: list[msgspec.Raw] = []
        token = ""
        while True:
            page = [*query, ("continue", token)] if token else query
            request = ApiRequest("GET", kind.path(namespace, version=version), tuple(page), accept=accept)
            found = _read_list((await self._send(kind, request)).body)
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
        """The changes after `revision`, a line each. With `initial`, first the state, then a bookmark that ends it."""
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
        self, kind: Kind, tree: Mapping[str, Any], *, dry_run: bool = False, subresource: str = ""
    ) -> Tree:
        """Make it; with a subresource, such as a pod's binding, below the object that the metadata names."""
        metadata = tree.get("metadata", {})
        below = str(metadata.get("name", "")) if subresource else ""
        path = kind.path(str(metadata.get("namespace", "")), below, subresource)
        query = (("dryRun", "All"),) if dry_run else ()
        return await self._write(kind, ApiRequest("POST", path, query, _body(tree), JSON))

    async def replace(self, kind: Kind, tree: Mapping[str, Any], subresource: str = "") -> Tree:
        """Put the object back; its `resourceVersion` makes that conditional."""
        metadata = tree["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._write(kind, ApiRequest("PUT", path, (), _body(tree), JSON))

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = MERGE,
        manager: str = "",
        accept: str = JSON,
        dry_run: bool = False,
    ) -> Tree:
        """Change what the patch says. A `resourceVersion` in a merge patch makes it conditional."""
        query = (*((("fieldManager", manager),) if manager else ()), *((("dryRun", "All"),) if dry_run else ()))
        path = kind.path(namespace, name, subresource)
        return await self._write(kind, ApiRequest("PATCH", path, query, _body(patch), content_type, accept))

    async def apply(
        self, kind: Kind, tree: Mapping[str, Any], manager: str, *, force: bool = True, subresource: str = ""
    ) -> Tree:
        """Server-side apply: these fields are the manager's."""
        metadata = tree["metadata"]
        query = (("fieldManager", manager), ("force", "true" if force else "false"))
        path = kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
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
        """Delete it; one that is not there is deleted already. With `uid`, only the very object that was meant."""
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if dry_run:
            options["dryRun"] = ["All"]
        if uid:
            options["preconditions"] = {"uid": uid}
        with suppress(errors.NotFound):
            await self._send(kind, ApiRequest("DELETE", kind.path(namespace, name), (), _body(options), JSON))

    async def request(self, request: ApiRequest) -> ApiResponse:
        """A request that is about no kind, such as `/version`."""
        return await self._send_with_retries(request)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        """The answer to a request that is about no kind, line by line as it comes; a log that is followed, say."""
        async with self._transport.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._transport.close()

    # --- Sending ------------------------------------------------------------------------------------------------------

    async def _write(self, kind: Kind, request: ApiRequest) -> Tree:
        return _read_tree((await self._send(kind, request)).body)

    async def _send(self, kind: Kind, request: ApiRequest) -> ApiResponse:
        self._count(request.method, kind)
        if self._fence is not None and request.method != "GET":
            request = replace(request, fence=self._fence)
        return await self._send_with_retries(request)

    async def _send_with_retries(self, request: ApiRequest) -> ApiResponse:
        attempt = 0
        while True:
            if self._limit is not None:
                await self._limit.take(priority=self._priority)
            try:
                answer = await self._transport.send(request)
                if answer.status < 300:
                    return answer
                raise errors.from_answer(answer.status, answer.body, answer.headers.get("Retry-After", ""))
            except (Busy, Unanswered) as error:
                attempt += 1
                if attempt == self._attempts or not _may_repeat(request, error):
                    raise
                await asyncio.sleep(self._backoff(attempt, error))

    def _backoff(self, attempt: int, error: Busy | Unanswered) -> float:
        """What the server asks for, or ever longer; spread out, so that many clients do not come back at once."""
        asked = error.retry_after if isinstance(error, Busy) else 0.0
        return float(max(asked, min(0.1 * 2**attempt, 5.0)) * self._rng.uniform(1.0, 1.5))

    def _count(self, verb: str, kind: Kind) -> None:
        key = (verb, kind.plural)
        self.sent[key] = self.sent.get(key, 0) + 1


def _may_repeat(request: ApiRequest, error: ApiError | Unanswered) -> bool:
    if isinstance(error, Unanswered):
        return request.method == "GET" or error.applied is False
    # A server that names a time to come back has not carried the request out. 504 names none, and may have.
    return request.method == "GET" or error.retry_after > 0 or error.code == 429


def _selectors(labels: str, fields: str) -> list[tuple[str, str]]:
    return [(name, text) for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text]


def _body(tree: Any) -> bytes:
    return msgspec.json.encode(tree)
