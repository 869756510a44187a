"""Requests for resources: the verb is determined, authorized and executed, and its result encoded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from kubemachinery import meta, status
from kubemachinery.clock import Clock
from kubemachinery.http_messages import Request, Response, Write
from kubemachinery.serving import views
from kubemachinery.serving.negotiation import Representation
from kubeserver.http import access_reviews, listing, responses
from kubeserver.http.request_info import RequestInfo
from kubeserver.protocol import authentication, bodies, cooperative
from kubeserver.protocol.authentication import Authenticator
from kubeserver.protocol.cooperative import Workers
from kubeserver.protocol.scoped_rows import ScopedRows
from kubeserver.registry import discovery, metadata, patching, scale, unsupported
from kubeserver.registry.registry import Registry
from kubeserver.registry.representations import Presenter
from kubeserver.registry.strategy import ScalePaths, SubresourceAction, Tree
from kubeserver.registry.write_context import WriteContext, WriteResult
from kubeserver.storage.fan_out import FanOut
from kubeserver.storage.objects import Objects
from kubeserver.storage.watch import WatchStream
from kubeserver.write import prepare
from kubeserver.write.rest import Rest

# A JSON patch with more operations than this is long work.
OPERATIONS_SHORT: Final = 50
# From this size on Python joins bytes without its lock.
JOINED_BYTES: Final = 1024 * 1024

T = TypeVar("T")

# What answers for a part of an object that the server itself does not know: (object, request) -> answer.
SubresourceHandler: TypeAlias = Callable[[Tree, Request], Awaitable[Response]]


class Verbs:
    """Every verb on every resource."""

    def __init__(
        self,
        objects: Objects,
        registry: Registry,
        rest: Rest,
        tokens: Authenticator,
        clock: Clock,
        rng: random.Random,
        workers: Workers,
    ) -> None:
        self._objects = objects
        self._fan_out = FanOut(objects)
        self._workers = workers
        self._registry = registry
        self._rest = rest
        self._tokens = tokens
        self._clock = clock
        self._chance = rng
        self.subresource_handlers: ScopedRows[SubresourceHandler] = ScopedRows()

    async def answer(self, info: RequestInfo) -> Response:
        request, address, resource = info.request, info.address, info.resource
        if resource.deprecated:
            info.warnings.append(resource.deprecated)
        if address.namespace and not resource.namespaced:
            raise status.no_such_path(request.path[:200])
        if view := resource.views.get(address.subresource):
            authentication.check(info.user, "get", resource.group, resource.plural, address.name)
            return await views.respond(request, address, view, namespaced=resource.namespaced)
        if resource.collection is not None and views.is_collection(address):
            authentication.check(info.user, "list", resource.group, resource.plural, "")
            return await views.respond_with_list(request, address, resource.collection)
        if authenticator := self.subresource_handlers.rows.get(f"{resource.group_resource}/{address.subresource}"):
            return await self._subresource(authenticator, info)
        if action := resource.actions.get(address.subresource):
            return await self._act(action, info)
        if address.subresource and address.subresource not in resource.subresources:
            why = unsupported.of_subresource(resource.plural, address.subresource)
            raise status.no_such_path(request.path[:200], why)
        verb = info.verb
        allowed = discovery.SUBRESOURCE_VERBS[address.subresource] if address.subresource else resource.verbs
        if verb not in allowed:
            raise status.method_not_allowed(request.method, f"{resource.group_resource} ({address.name or 'all'})")
        if address.name and resource.namespaced and not address.namespace:
            raise status.no_such_path(request.path[:200])
        authentication.check(info.user, verb, resource.group, resource.plural, address.name)
        form = info.form
        if address.subresource == scale.NAME:
            return await self._scale(info, verb, form)
        presenter = Presenter(self._registry, self._clock, resource, form, info.include)
        match verb:
            case "list":
                return await self._list(info, presenter, form)
            case "watch":
                return await self._watch(info, presenter)
            case "get":
                entry = self._rest.get(resource, address.namespace, address.name)
                return await responses.formed(presenter.one(entry), form)
        return await self._write(info, verb, presenter, form)

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def _list(self, info: RequestInfo, presenter: Presenter, form: Representation) -> Response:
        options = listing.ListOptions.read(info.request, info.resource)
        namespace = info.address.namespace
        entries, details = await listing.select(self._objects, info.resource, namespace, options, presenter)
        return await responses.formed(await presenter.many(entries, details, partial(self._join, info.user.name)), form)

    async def _join(self, user: str, parts: Sequence[bytes]) -> bytes:
        """Join the parts of a list: a large one in a thread, where Python releases its lock for the copy."""
        is_long = sum(map(len, parts)) > JOINED_BYTES
        return await self._workers.run(user, lambda: b",".join(parts), is_long=is_long)

    async def _watch(self, info: RequestInfo, presenter: Presenter) -> Response:
        resource, address = info.resource, info.address
        options = listing.ListOptions.read(info.request, resource, watch=True)
        if address.name:
            options = options.narrowed_to(address.name)
        if options.initial:
            await listing.wait_until(self._objects, options.revision)
        # Requests of the process's own controllers come from no address.
        fan_out = self._fan_out if info.request.remote else None
        watch = listing.watch(resource, address.namespace, options, presenter, self._chance)
        stream = WatchStream(self._objects, watch, fan_out)

        async def run(write: Write) -> None:
            self._registry.opened(resource.group_resource, stream)
            try:
                await stream.run(write)
            finally:
                self._registry.ended(resource.group_resource, stream)

        return Response(stream=run, content_type=bodies.JSON)

    async def _subresource(self, authenticator: SubresourceHandler, info: RequestInfo) -> Response:
        address, resource = info.address, info.resource
        responses.only_get(info.request, f"{resource.group_resource}/{address.subresource}")
        authentication.check(info.user, "get", resource.group, resource.plural, address.name)
        entry = self._rest.get(resource, address.namespace, address.name)
        return await authenticator(self._rest.tree(resource, entry), info.request)

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def _write(self, info: RequestInfo, verb: str, presenter: Presenter, form: Representation) -> Response:
        if words := unsupported.warning(info.resource.group):
            info.warnings.append(words)
        body = await info.body()
        context = info.write_context()
        match verb:
            case "deletecollection":
                options = await self._read(context, body, info.delete_options)
                return await self._delete_collection(info, context, options, presenter, form)
            case "delete":
                outcome = await self._rest.delete(context, await self._read(context, body, info.delete_options))
            case "patch":
                outcome = await self._patch(info, context, body)
            case _:
                tree = await self._read(context, body, info.object)
                if info.resource.virtual:
                    return await responses.formed(bodies.encode(self._reviewed(context, tree)), form, 201)
                outcome = await (self._rest.create if verb == "create" else self._rest.update)(context, tree)
        return await self._shown(outcome, presenter, form)

    async def _patch(self, info: RequestInfo, context: WriteContext, body: bytes) -> WriteResult:
        kind = info.media_type
        if kind not in (supported := patching.types(info.resource)):
            raise status.unsupported_media_type(kind, supported)
        if kind == bodies.APPLY_YAML:
            return await self._rest.apply(context, await self._read(context, body, info.configuration))
        patch = await self._read(context, body, lambda context, body: self._read_patch(info, context, body))
        # Each operation may copy or move a large part of the object.
        context.is_long |= isinstance(patch, list) and len(patch) > OPERATIONS_SHORT
        return await self._rest.patch(context, kind, patch)

    @staticmethod
    def _read_patch(info: RequestInfo, context: WriteContext, body: bytes) -> Any:
        patch = info.patch(body)
        odd = bodies.duplicates(body, patch) + bodies.unknown_in_patch(info.media_type, patch)
        context.patches, context.oddities = True, odd
        return patch

    async def _read(self, context: WriteContext, body: bytes, read: Callable[[WriteContext, bytes], T]) -> T:
        """Decode a body. A long one is decoded in a thread, and the write that follows counts as long too."""
        context.is_long = len(body) > cooperative.LONG_BYTES
        return await self._workers.run(context.user.name, lambda: read(context, body), is_long=context.is_long)

    async def _act(self, action: SubresourceAction, info: RequestInfo) -> Response:
        address, resource = info.address, info.resource
        if info.request.method != "POST":
            raise status.method_not_allowed(info.request.method, f"{resource.group_resource}/{address.subresource}")
        authentication.check(info.user, "create", resource.group, resource.plural, address.name)
        context = info.write_context()
        sent = await self._read(context, await info.body(), info.object)
        metadata.read(sent)
        now = meta.format_time(self._clock.now())
        await self._rest.modify(context, lambda tree: action.alter(tree, sent, now))
        return Response(status=201, body=bodies.encode(status.success()))

    async def _scale(self, info: RequestInfo, verb: str, form: Representation) -> Response:
        """Read or write the Scale of an object."""
        resource, where = info.resource, info.resource.scaling
        assert where is not None, "the subresource is served where there is something to scale"
        presenter = Presenter(self._registry, self._clock, scale.KIND, form, info.include)
        if verb == "get":
            outcome = WriteResult(entry=self._rest.get(resource, info.address.namespace, info.address.name))
        else:
            outcome = await self._rescale(info, verb, where)
        tree = outcome.tree if outcome.entry is None else self._rest.tree(resource, outcome.entry)
        assert tree is not None, "a write comes to an object"
        if verb == "get":
            scale.refuse_missing_replicas(where, tree)
        return await responses.formed(presenter.of_tree(scale.shown(where, tree)), form, outcome.code)

    async def _rescale(self, info: RequestInfo, verb: str, where: ScalePaths) -> WriteResult:
        body = await info.body()
        context = info.write_context()
        if verb == "update":
            sent = await self._read(context, body, info.object)
            return await self._rest.rescale(context, lambda _: sent)
        if info.media_type == bodies.APPLY_YAML:
            configuration = scale.read(await self._read(context, body, info.configuration))
            return await self._rest.apply(context, scale.configuration(info.resource, where, configuration))
        patch = await self._read(context, body, lambda _, body: info.patch(body))
        return await self._rest.patch_scale(context, info.media_type, patch)

    async def _delete_collection(
        self,
        info: RequestInfo,
        context: WriteContext,
        options: Mapping[str, Any],
        presenter: Presenter,
        form: Representation,
    ) -> Response:
        """Delete the selected objects one by one. Not atomic: objects that are deleted meanwhile are skipped."""
        chosen = listing.ListOptions.read(info.request, context.resource)
        entries, details = await listing.select(self._objects, context.resource, context.namespace, chosen, presenter)

        async def delete(namespace: str, name: str) -> None:
            one = WriteContext(
                resource=context.resource,
                user=context.user,
                namespace=namespace,
                name=name,
                dry_run=context.dry_run,
                warnings=context.warnings,
            )
            try:
                await self._rest.delete(one, options)
            except status.StatusError as error:
                if error.code != 404:
                    raise

        async for some in cooperative.yield_to_loop(entries):
            await asyncio.gather(*(delete(entry.key.namespace, entry.key.name) for entry in some))
        return await responses.formed(await presenter.many(entries, details, partial(self._join, info.user.name)), form)

    def _reviewed(self, context: WriteContext, tree: Tree) -> Tree:
        sent = prepare.received(context, tree)
        served: dict[str, list[str]] = {}
        for one in self._registry.all():
            parts = (*one.subresources, *one.views)
            served.setdefault(one.group, []).extend((one.plural, *(f"{one.plural}/{part}" for part in parts)))
        return access_reviews.review(self._tokens, context.user, context.resource.kind, sent, served)

    @staticmethod
    async def _shown(outcome: WriteResult, presenter: Presenter, form: Representation) -> Response:
        if outcome.entry is not None:
            return await responses.formed(presenter.one(outcome.entry), form, outcome.code)
        tree = outcome.tree or {}
        body = bodies.encode(tree) if tree.get("kind") == "Status" else presenter.of_tree(tree)
        return await responses.formed(body, form, outcome.code)
