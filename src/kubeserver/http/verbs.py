"""A question about a resource, answered: the verb is chosen, permitted and carried out, and its outcome shown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from kubemachinery import status
from kubemachinery.clock import Clock
from kubemachinery.http_server import Request, Response, Write
from kubemachinery.serving import views
from kubemachinery.serving.negotiation import Representation
from kubeserver.http import access_reviews, listing, responses
from kubeserver.http.request_info import Question
from kubeserver.protocol import authentication, bodies, cooperative
from kubeserver.protocol.authentication import Access
from kubeserver.protocol.cooperative import Workers
from kubeserver.protocol.scoped_rows import Lent
from kubeserver.registry import discovery, scale, unsupported
from kubeserver.registry.registry import Registry
from kubeserver.registry.representations import Presenter
from kubeserver.registry.strategy import Action, Scaling, Tree
from kubeserver.registry.write_context import Call, Outcome
from kubeserver.storage.objects import Objects
from kubeserver.storage.watch import WatchStream
from kubeserver.write import prepare
from kubeserver.write.rest import Rest

# A JSON patch with more operations than this is long work.
OPERATIONS_SHORT: Final = 50

T = TypeVar("T")

# What answers for a part of an object that the server itself does not know: (object, request) -> answer.
Door: TypeAlias = Callable[[Tree, Request], Awaitable[Response]]


class Verbs:
    """Every verb on every resource."""

    def __init__(
        self,
        objects: Objects,
        registry: Registry,
        rest: Rest,
        tokens: Access,
        clock: Clock,
        rng: random.Random,
        workers: Workers,
    ) -> None:
        self._objects = objects
        self._workers = workers
        self._registry = registry
        self._rest = rest
        self._tokens = tokens
        self._clock = clock
        self._chance = rng
        self.doors: Lent[Door] = Lent()

    async def answer(self, asked: Question) -> Response:
        request, address, resource = asked.request, asked.address, asked.resource
        if resource.deprecated:
            asked.warnings.append(resource.deprecated)
        if address.namespace and not resource.namespaced:
            raise status.no_such_path(request.path[:200])
        if view := resource.views.get(address.subresource):
            authentication.check(asked.user, "get", resource.group, resource.plural, address.name)
            return views.respond(request, address, view, namespaced=resource.namespaced)
        if door := self.doors.rows.get(f"{resource.group_resource}/{address.subresource}"):
            return await self._through(door, asked)
        if action := resource.actions.get(address.subresource):
            return await self._act(action, asked)
        if address.subresource and address.subresource not in resource.subresources:
            why = unsupported.of_subresource(resource.plural, address.subresource)
            raise status.no_such_path(request.path[:200], why)
        verb = asked.verb
        allowed = discovery.SUBRESOURCE_VERBS[address.subresource] if address.subresource else resource.verbs
        if verb not in allowed:
            raise status.method_not_allowed(request.method, f"{resource.group_resource} ({address.name or 'all'})")
        if address.name and resource.namespaced and not address.namespace:
            raise status.no_such_path(request.path[:200])
        authentication.check(asked.user, verb, resource.group, resource.plural, address.name)
        form = asked.form
        if address.subresource == scale.NAME:
            return await self._scale(asked, verb, form)
        presenter = Presenter(self._registry, self._clock, resource, form, asked.include)
        match verb:
            case "list":
                return await self._list(asked, presenter, form)
            case "watch":
                return await self._watch(asked, presenter)
            case "get":
                entry = self._rest.get(resource, address.namespace, address.name)
                return await responses.formed(presenter.one(entry), form)
        return await self._write(asked, verb, presenter, form)

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def _list(self, asked: Question, presenter: Presenter, form: Representation) -> Response:
        options = listing.ListOptions.read(asked.request, asked.resource)
        namespace = asked.address.namespace
        entries, details = await listing.select(self._objects, asked.resource, namespace, options, presenter)
        return await responses.formed(await presenter.many(entries, details), form)

    async def _watch(self, asked: Question, presenter: Presenter) -> Response:
        resource, address = asked.resource, asked.address
        options = listing.ListOptions.read(asked.request, resource, watch=True)
        if address.name:
            options = options.narrowed_to(address.name)
        if options.initial:
            await listing.wait_until(self._objects, options.revision)
        # Requests of the process's own controllers come from no address.
        remote = bool(asked.request.remote)
        stream = WatchStream(
            self._objects, listing.watch(resource, address.namespace, options, presenter, self._chance, remote=remote)
        )

        async def run(write: Write) -> None:
            self._registry.opened(resource.group_resource, stream)
            try:
                await stream.run(write)
            finally:
                self._registry.ended(resource.group_resource, stream)

        return Response(stream=run, content_type=bodies.JSON)

    async def _through(self, door: Door, asked: Question) -> Response:
        address, resource = asked.address, asked.resource
        responses.only_get(asked.request, f"{resource.group_resource}/{address.subresource}")
        authentication.check(asked.user, "get", resource.group, resource.plural, address.name)
        entry = self._rest.get(resource, address.namespace, address.name)
        return await door(self._rest.tree(resource, entry), asked.request)

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def _write(self, asked: Question, verb: str, presenter: Presenter, form: Representation) -> Response:
        if words := unsupported.warning(asked.resource.group):
            asked.warnings.append(words)
        body = await asked.body()
        call = asked.call()
        match verb:
            case "deletecollection":
                options = await self._read(call, body, asked.delete_options)
                return await self._delete_collection(asked, call, options, presenter, form)
            case "delete":
                outcome = await self._rest.delete(call, await self._read(call, body, asked.delete_options))
            case "patch":
                outcome = await self._patch(asked, call, body)
            case _:
                tree = await self._read(call, body, asked.object)
                if asked.resource.virtual:
                    return await responses.formed(bodies.encode(self._reviewed(call, tree)), form, 201)
                outcome = await (self._rest.create if verb == "create" else self._rest.update)(call, tree)
        return await self._shown(outcome, presenter, form)

    async def _patch(self, asked: Question, call: Call, body: bytes) -> Outcome:
        kind = asked.media_type
        if kind == bodies.APPLY_YAML:
            return await self._rest.apply(call, await self._read(call, body, asked.configuration))
        patch = await self._read(call, body, lambda call, body: self._read_patch(asked, call, body))
        # Each operation may copy or move a large part of the object.
        call.is_long |= isinstance(patch, list) and len(patch) > OPERATIONS_SHORT
        return await self._rest.patch(call, kind, patch)

    @staticmethod
    def _read_patch(asked: Question, call: Call, body: bytes) -> Any:
        patch = asked.patch(body)
        odd = bodies.duplicates(body, patch) + bodies.unknown_in_patch(asked.media_type, patch)
        call.patches, call.oddities = True, odd
        return patch

    async def _read(self, call: Call, body: bytes, read: Callable[[Call, bytes], T]) -> T:
        """What a body holds. A long one is read in a thread, and the write that follows is long, too."""
        call.is_long = len(body) > cooperative.LONG_BYTES
        return await self._workers.run(call.user.name, lambda: read(call, body), is_long=call.is_long)

    async def _act(self, action: Action, asked: Question) -> Response:
        address, resource = asked.address, asked.resource
        if asked.request.method != "POST":
            raise status.method_not_allowed(asked.request.method, f"{resource.group_resource}/{address.subresource}")
        authentication.check(asked.user, "create", resource.group, resource.plural, address.name)
        call = asked.call()
        sent = await self._read(call, await asked.body(), asked.object)
        await self._rest.change(call, lambda tree: action.alter(tree, sent))
        return Response(status=201, body=bodies.encode(status.success()))

    async def _scale(self, asked: Question, verb: str, form: Representation) -> Response:
        """The object behind is read and written; what is answered is its Scale."""
        resource, where = asked.resource, asked.resource.scaling
        assert where is not None, "the subresource is served where there is something to scale"
        presenter = Presenter(self._registry, self._clock, scale.KIND, form, asked.include)
        if verb == "get":
            outcome = Outcome(entry=self._rest.get(resource, asked.address.namespace, asked.address.name))
        else:
            outcome = await self._rescale(asked, verb, where)
        tree = outcome.tree if outcome.entry is None else self._rest.tree(resource, outcome.entry)
        assert tree is not None, "a write comes to an object"
        if verb == "get":
            scale.refuse_unsaid(where, tree)
        return await responses.formed(presenter.of_tree(scale.shown(where, tree)), form, outcome.code)

    async def _rescale(self, asked: Question, verb: str, where: Scaling) -> Outcome:
        body = await asked.body()
        call = asked.call()
        if verb == "update":
            sent = await self._read(call, body, asked.object)
            return await self._rest.rescale(call, lambda _: sent)
        if asked.media_type == bodies.APPLY_YAML:
            configuration = scale.read(await self._read(call, body, asked.configuration))
            return await self._rest.apply(call, scale.configuration(asked.resource, where, configuration))
        patch = await self._read(call, body, lambda _, body: asked.patch(body))
        return await self._rest.patch_scale(call, asked.media_type, patch)

    async def _delete_collection(
        self, asked: Question, call: Call, options: Mapping[str, Any], presenter: Presenter, form: Representation
    ) -> Response:
        """Delete what is selected, one by one. Not atomic: what is gone meanwhile is gone."""
        chosen = listing.ListOptions.read(asked.request, call.resource)
        entries, details = await listing.select(self._objects, call.resource, call.namespace, chosen, presenter)

        async def delete(namespace: str, name: str) -> None:
            one = Call(
                resource=call.resource,
                user=call.user,
                namespace=namespace,
                name=name,
                dry_run=call.dry_run,
                warnings=call.warnings,
            )
            try:
                await self._rest.delete(one, options)
            except status.StatusError as error:
                if error.code != 404:
                    raise

        async for some in cooperative.slices(entries):
            await asyncio.gather(*(delete(entry.key.namespace, entry.key.name) for entry in some))
        return await responses.formed(await presenter.many(entries, details), form)

    def _reviewed(self, call: Call, tree: Tree) -> Tree:
        said = prepare.received(call, tree)
        served: dict[str, list[str]] = {}
        for one in self._registry.all():
            parts = (*one.subresources, *one.views)
            served.setdefault(one.group, []).extend((one.plural, *(f"{one.plural}/{part}" for part in parts)))
        return access_reviews.review(self._tokens, call.user, call.resource.kind, said, served)

    @staticmethod
    async def _shown(outcome: Outcome, presenter: Presenter, form: Representation) -> Response:
        if outcome.entry is not None:
            return await responses.formed(presenter.one(outcome.entry), form, outcome.code)
        tree = outcome.tree or {}
        body = bodies.encode(tree) if tree.get("kind") == "Status" else presenter.of_tree(tree)
        return await responses.formed(body, form, outcome.code)
