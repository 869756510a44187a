"""Routing: from a request to its response, through authentication, load shedding and the endpoint.

`ApiServer.handle` is a `http_messages.Handler`. A caller in the same process uses `handle_as`, which skips
authentication and load shedding (requests of the process's own controllers must not be shed).
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager

from kubemachinery import meta, status
from kubemachinery.clock import Clock
from kubemachinery.http_messages import Handler, Request, Response, Write
from kubemachinery.serving import paths
from kubeserver.http import request_info, responses
from kubeserver.http.discovery_documents import DiscoveryEndpoints
from kubeserver.http.health import HealthEndpoints, ServerInfo
from kubeserver.http.request_info import RequestInfo
from kubeserver.http.verbs import SubresourceHandler, Verbs
from kubeserver.protocol import authentication
from kubeserver.protocol.authentication import Authenticator, RequestUser
from kubeserver.protocol.cooperative import Workers
from kubeserver.protocol.load_shedding import LOG_STREAMS, WATCHES, LoadShedder
from kubeserver.protocol.scoped_rows import ScopedRows
from kubeserver.registry import unsupported
from kubeserver.registry.openapi import OpenApi
from kubeserver.registry.registry import Registry
from kubeserver.storage.objects import Objects
from kubeserver.write.rest import Rest


class ApiServer:
    """The handler of all requests, over one store."""

    def __init__(
        self,
        *,
        objects: Objects,
        registry: Registry,
        rest: Rest,
        openapi: OpenApi,
        authenticator: Authenticator,
        shedder: LoadShedder,
        clock: Clock,
        rng: random.Random,
        about: ServerInfo,
        workers: Workers,
    ) -> None:
        self._objects = objects
        self._registry = registry
        self._authenticator = authenticator
        self._shedder = shedder
        self._clock = clock
        self._about = about
        self.health = HealthEndpoints(objects, about)
        self._pages = DiscoveryEndpoints(registry, openapi)
        self._verbs = Verbs(objects, registry, rest, authenticator, clock, rng, workers)
        # An id for each answer: unique over restarts by its first part, over requests by its last.
        self._audit_prefix = str(uuid.UUID(int=rng.getrandbits(128), version=4))[:24]
        self._answers = 0
        self._shown: ScopedRows[Handler] = ScopedRows()
        self._guests: ScopedRows[Handler] = ScopedRows()

    def hosting(self, guests: Mapping[str, Handler]) -> AbstractContextManager[None]:
        """Pass paths below a prefix, such as `/site/`, to other handlers while inside; they authenticate clients."""
        return self._guests.with_more(guests)

    def showing(self, pages: Mapping[str, Handler]) -> AbstractContextManager[None]:
        """Serve more paths that are no resources while inside, to authenticated users."""
        return self._shown.with_more(pages)

    def answering(self, subresource_handlers: Mapping[str, SubresourceHandler]) -> AbstractContextManager[None]:
        """Serve more subresources while inside, such as `pods/log`."""
        return self._verbs.subresource_handlers.with_more(subresource_handlers)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Response:
        """Handle a request from a socket."""
        return await self._answered(request, self._admit)

    async def handle_as(self, user: RequestUser, request: Request) -> Response:
        """Handle a request of this process, without authentication."""

        async def answer(request: Request, warnings: list[str]) -> Response:
            return await self._route(user, request, warnings)

        return await self._answered(request, answer)

    async def _answered(
        self, request: Request, answer: Callable[[Request, list[str]], Awaitable[Response]]
    ) -> Response:
        warnings: list[str] = []
        try:
            response = await answer(request, warnings)
        except Exception as error:
            response = responses.failure(request, error)
        response.headers.setdefault("Cache-Control", "no-cache, private")
        self._answers += 1
        response.headers["Audit-Id"] = f"{self._audit_prefix}{self._answers:012x}"
        if warnings:
            response.headers["Warning"] = responses.warning_header(warnings)
        return await responses.compressed(request, response)

    async def _admit(self, request: Request, warnings: list[str]) -> Response:
        self._authenticator.check_host(request)
        if authentication.is_open(request.path) and (health := self.health.answer(request)):
            return health
        for folder, guest in self._guests.rows.items():
            if f"{request.path}/".startswith(folder):
                return await guest(request)
        user = self._authenticator.authenticate(request)
        request.identified()
        if request_info.is_watch(request):
            self._shedder.check_stream(WATCHES, user)
            with self._shedder.request(user.name):
                return self._counted(WATCHES, user, await self._route(user, request, warnings))
        with self._shedder.request(user.name):
            response = await self._bounded(request, lambda: self._route(user, request, warnings))
        return self._counted(LOG_STREAMS, user, response)

    def _counted(self, sort: str, user: RequestUser, response: Response) -> Response:
        """Return the response; a stream counts towards the limits of its user while it is open."""
        if (stream := response.stream) is None:
            return response
        self._shedder.check_stream(sort, user)

        async def counted(write: Write) -> None:
            with self._shedder.stream(sort, user):
                await stream(write)

        response.stream = counted
        return response

    async def _bounded(self, request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
        """Bound a request by its `?timeout=30s`."""
        text = request.first("timeout")
        if not text:
            return await answer()
        try:
            seconds = meta.parse_duration(text) / meta.SECOND
        except meta.TimeError as error:
            raise status.bad_request(f"timeout: {error}") from None
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                return await answer()
        except TimeoutError:
            raise status.timeout("the request took longer than its timeout") from None

    # --- Paths --------------------------------------------------------------------------------------------------------

    async def _route(self, user: RequestUser, request: Request, warnings: list[str]) -> Response:
        parts = paths.segments(request.path)
        if parts == [".well-known", "embedded-backup"]:
            return await self._backup(user, request)
        if page := self.health.answer(request) or self._pages.answer(request, parts, self._shown.rows):
            return page
        if shown := self._shown.rows.get(request.path):
            responses.only_reading(request, request.path)
            return await shown(request)
        address = paths.parse(parts)
        if address is None:
            raise status.no_such_path(request.path[:200], unsupported.of_path(request.path.rstrip("/")))
        resource = self._registry.find(address.group, address.version, address.plural)
        if resource is None:
            raise status.no_such_path(request.path[:200])
        return await self._verbs.answer(RequestInfo(user, request, address, resource, warnings))

    async def _backup(self, user: RequestUser, request: Request) -> Response:
        """Write a backup while the server runs, into its own backup directory: the client cannot choose the path."""
        if request.method != "POST":
            raise status.method_not_allowed(request.method, "a backup")
        if user.is_viewer:
            raise status.StatusError(403, "Forbidden", "the role view may not make backups")
        if self._about.backups is None:
            raise status.StatusError(409, "Conflict", "this server keeps its objects in memory: nothing to back up")
        name = meta.format_time(self._clock.now()).replace(":", "") + f"-{self._objects.revision}"
        try:
            await self._objects.backup(self._about.backups / name)
        except FileExistsError:
            raise status.conflict("", "backups", name, "there is one of this moment already") from None
        return responses.json({"name": name, "revision": str(self._objects.revision)})
