"""From a request to an answer: who asks, for what, in which form; then the verb; then the answer or a Status.

`ApiServer.handle` is a `serving.Handler`. A caller in the same process uses `handle_as`, which skips the door (there is
nobody to authenticate) and the queue at the door (the process's own controllers must not be shed).
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import platform
import random
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from pykueue.api import meta
from pykueue.api.errors import ErrorSort, FieldError
from pykueue.apiserver import (
    access,
    bodies,
    discovery,
    extensions,
    forms,
    limits,
    listing,
    openapi,
    paths,
    protobuf,
    scale,
    status,
    turns,
)
from pykueue.apiserver.access import Access, User
from pykueue.apiserver.calls import Call, Outcome
from pykueue.apiserver.forms import Form, Presenter
from pykueue.apiserver.objects import Objects
from pykueue.apiserver.openapi import OpenApi
from pykueue.apiserver.paths import Address
from pykueue.apiserver.registry import Registry
from pykueue.apiserver.rest import Rest
from pykueue.apiserver.shedding import Shedder
from pykueue.apiserver.strategy import Action, Resource, Tree
from pykueue.apiserver.watch import WatchStream
from pykueue.clock import Clock
from pykueue.serving import BodyTooLarge, BodyTooSlow, Handler, Request, Response, Write

log = logging.getLogger(__name__)

GZIP_BYTES: Final = 128 * 1024
WARNING_RUNES: Final = 256
WARNINGS_BYTES: Final = 4 * 1024
# The minor version whose behaviour is followed: kubectl warns when it is more than one away from its own.
KUBERNETES_MINOR: Final = 36

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANAGER_LENGTH: Final = 128


# What answers for a part of an object that the server itself does not know: (object, request) -> answer.
Door: TypeAlias = Callable[[Tree, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class About:
    """What the server says of itself."""

    program_version: str
    durability: str = "full"
    backups: Path | None = None


class ApiServer:
    """Every path, over one set of objects."""

    def __init__(
        self,
        *,
        objects: Objects,
        registry: Registry,
        rest: Rest,
        openapi: OpenApi,
        door: Access,
        shedder: Shedder,
        clock: Clock,
        chance: random.Random,
        about: About,
    ) -> None:
        self._objects = objects
        self._registry = registry
        self._rest = rest
        self._openapi = openapi
        self._door = door
        self._shedder = shedder
        self._clock = clock
        self._chance = chance
        self._about = about
        self.ready = False
        # An id for each answer: unique over restarts by its first part, over requests by its last.
        self._audit_prefix = str(uuid.UUID(int=chance.getrandbits(128), version=4))[:24]
        self._answers = 0
        self._pages: Mapping[str, Handler] = {}
        self._doors: Mapping[str, Door] = {}
        self._guests: Mapping[str, Handler] = {}

    @contextmanager
    def hosting(self, guests: Mapping[str, Handler]) -> Iterator[None]:
        """Hand whole folders of paths, such as `/site/`, to others while inside; they ask themselves who may look."""
        before, self._guests = self._guests, {**self._guests, **guests}
        try:
            yield
        finally:
            self._guests = before

    @contextmanager
    def showing(self, pages: Mapping[str, Handler]) -> Iterator[None]:
        """Answer more paths while inside: what is no resource, for whoever is let in."""
        before, self._pages = self._pages, {**self._pages, **pages}
        try:
            yield
        finally:
            self._pages = before

    @contextmanager
    def answering(self, doors: Mapping[str, Door]) -> Iterator[None]:
        """Serve more parts of objects while inside, such as `pods/log`: whoever knows them comes and goes."""
        before, self._doors = self._doors, {**self._doors, **doors}
        try:
            yield
        finally:
            self._doors = before

    # --- The door -----------------------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Response:
        """Answer somebody from outside."""
        return await self._answered(request, self._admit)

    async def handle_as(self, user: User, request: Request) -> Response:
        """Answer somebody of this process."""

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
            response = _failure(request, error)
        response.headers.setdefault("Cache-Control", "no-cache, private")
        self._answers += 1
        response.headers["Audit-Id"] = f"{self._audit_prefix}{self._answers:012x}"
        if warnings:
            response.headers["Warning"] = _warning_header(warnings)
        return await _compressed(request, response)

    async def _admit(self, request: Request, warnings: list[str]) -> Response:
        self._door.check_host(request)
        if access.is_open(request.path):
            return self._open(request)
        for folder, guest in self._guests.items():
            if f"{request.path}/".startswith(folder):
                return await guest(request)
        user = self._door.authenticate(request)
        if _is_watch(request):
            self._shedder.check_watches(self._registry.watches)
            return await self._route(user, request, warnings)
        with self._shedder.request(user.name):
            return await self._bounded(request, lambda: self._route(user, request, warnings))

    async def _bounded(self, request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
        """`?timeout=30s` is how long the client will wait."""
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

    def _open(self, request: Request) -> Response:
        if request.path.rstrip("/") == "/version":
            return _only_get(request, lambda: _json(self._version()))
        if request.path.rstrip("/") == "/readyz" and not (self.ready and not self._objects.failure):
            why = self._objects.failure or "starting"
            return Response(status=503, body=f"not ready: {why}\n".encode(), content_type="text/plain")
        lines = ["ok"]
        if any(name == "verbose" for name, _ in request.query):
            lines = [f"[+]store ok: {self._about.durability} durability", "[+]ready ok", "check passed"]
        return Response(body="\n".join(lines).encode(), content_type="text/plain")

    def _version(self) -> Tree:
        return {
            "major": "1",
            "minor": str(KUBERNETES_MINOR),
            "gitVersion": f"v1.{KUBERNETES_MINOR}.0+embedded.{self._about.program_version}",
            "gitCommit": "embedded",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"not Go: Python {platform.python_version()}",
            "compiler": platform.python_implementation(),
            "platform": f"{sys.platform}/{platform.machine()}",
        }

    # --- Paths --------------------------------------------------------------------------------------------------------

    async def _route(self, user: User, request: Request, warnings: list[str]) -> Response:
        parts = paths.segments(request.path)
        match parts:
            case ["api"] | ["apis"]:
                return self._discovery(request, parts[0])
            case ["apis", group]:
                return self._document(request, discovery.group(self._registry, group))
            case ["api", version]:
                return self._document(request, discovery.resource_list(self._registry, "", version))
            case ["apis", group, version]:
                return self._document(request, discovery.resource_list(self._registry, group, version))
            case ["openapi", "v3", *rest]:
                return self._open_api(request, rest)
            case ["openapi", "v2"] if openapi.reads_only_v2_protobuf(request.headers.get("accept", "")):
                found = Response(body=openapi.V2_WITHOUT_KINDS, content_type=openapi.V2_PROTOBUF)
                return _only_get(request, lambda: found)
            case [".well-known", "embedded-limits"]:
                return _only_get(request, lambda: _json(limits.document()))
            case [".well-known", "embedded-backup"]:
                return await self._backup(user, request)
            case [""]:
                return _only_get(request, lambda: _json({"paths": self._listed_paths()}))
        if page := self._pages.get(request.path):
            if request.method not in ("GET", "HEAD"):
                raise status.method_not_allowed(request.method, request.path)
            return await page(request)
        address = paths.parse(parts)
        if address is None:
            raise status.no_such_path(request.path[:200], limits.of_path(request.path.rstrip("/")))
        resource = self._registry.find(address.group, address.version, address.plural)
        if resource is None:
            raise status.no_such_path(request.path[:200])
        return await self._verb(user, request, address, resource, warnings)

    def _listed_paths(self) -> list[str]:
        found = ["/.well-known/embedded-limits", "/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3"]
        for group, versions in self._registry.groups().items():
            if group:
                found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return sorted([*found, *self._pages, "/readyz", "/version"])

    def _discovery(self, request: Request, root: str) -> Response:
        def answer() -> Response:
            whole = discovery.wants_aggregated(request.headers.get("accept", ""))
            if not whole:
                forms.negotiate(request.headers.get("accept", ""))
            kind = discovery.AGGREGATED if whole else bodies.JSON
            # Each form has a tag of its own, and a 304 names the form: kubectl's cache keeps one answer for each path.
            headers = {"ETag": f'"{self._registry.etag}{"-v2" if whole else ""}"', "Vary": "Accept"}
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(status=304, content_type=kind, headers=headers)
            if whole:
                tree = discovery.aggregated(self._registry, core=root == "api")
            elif root == "api":
                tree = discovery.versions(request.headers.get("host", "localhost"))
            else:
                tree = discovery.group_list(self._registry)
            return Response(body=bodies.encode(tree), content_type=kind, headers=headers)

        return _only_get(request, answer)

    def _document(self, request: Request, tree: Tree | None) -> Response:
        if tree is None:
            raise status.no_such_path(request.path[:200])
        forms.negotiate(request.headers.get("accept", ""))
        return _only_get(request, lambda: _json(tree))

    def _open_api(self, request: Request, rest: list[str]) -> Response:
        match rest:
            case []:
                return _only_get(request, lambda: _json(self._openapi.index()))
            case ["api", version]:
                found = self._openapi.document("", version)
            case ["apis", group, version]:
                found = self._openapi.document(group, version)
            case _:
                found = None
        if found is None:
            raise status.no_such_path(request.path[:200])
        body, digest = found
        headers = {"ETag": f'"{digest}"', "Vary": "Accept"}
        if request.first("hash") == digest:
            # The address names the content, so it can be kept for ever.
            headers["Cache-Control"] = "public, immutable, max-age=31536000"
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status=304, headers=headers)
        return _only_get(request, lambda: Response(body=body, headers=headers))

    async def _backup(self, user: User, request: Request) -> Response:
        """A copy of the state, made while everything goes on. Where it goes is not the client's choice."""
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
        return _json({"name": name, "revision": str(self._objects.revision)})

    # --- Verbs --------------------------------------------------------------------------------------------------------

    async def _verb(
        self, user: User, request: Request, address: Address, resource: Resource, warnings: list[str]
    ) -> Response:
        if resource.deprecated:
            warnings.append(resource.deprecated)
        if address.namespace and not resource.namespaced:
            raise status.no_such_path(request.path[:200])
        if view := resource.views.get(address.subresource):
            access.check(user, "get", resource.group, resource.plural, address.name)
            return extensions.answer(request, address, resource, view)
        if door := self._doors.get(f"{resource.group_resource}/{address.subresource}"):
            if request.method not in ("GET", "HEAD"):
                raise status.method_not_allowed(request.method, f"{resource.group_resource}/{address.subresource}")
            access.check(user, "get", resource.group, resource.plural, address.name)
            entry = self._rest.get(resource, address.namespace, address.name)
            return await door(self._rest.tree(resource, entry), request)
        if action := resource.actions.get(address.subresource):
            return await self._act(user, request, address, resource, action, warnings)
        if address.subresource and address.subresource not in resource.subresources:
            why = limits.of_subresource(resource.plural, address.subresource)
            raise status.no_such_path(request.path[:200], why)
        verb = self._verb_of(request, address)
        allowed = discovery.SUBRESOURCE_VERBS[address.subresource] if address.subresource else resource.verbs
        if verb not in allowed:
            raise status.method_not_allowed(request.method, f"{resource.group_resource} ({address.name or 'all'})")
        if address.name and resource.namespaced and not address.namespace:
            raise status.no_such_path(request.path[:200])
        access.check(user, verb, resource.group, resource.plural, address.name)
        form = forms.negotiate(request.headers.get("accept", ""))
        if address.subresource == scale.NAME:
            return await self._scale(user, request, address, resource, form, verb, warnings)
        presenter = Presenter(self._registry, self._clock, resource, form, _include(request))
        match verb:
            case "list":
                return await self._list(request, address, resource, presenter, form)
            case "watch":
                return await self._watch(request, address, resource, presenter)
            case "get":
                entry = self._rest.get(resource, address.namespace, address.name)
                return await _formed(presenter.one(entry), form)
        return await self._write(user, request, address, resource, presenter, form, verb, warnings)

    @staticmethod
    def _verb_of(request: Request, address: Address) -> str:
        if request.method in ("GET", "HEAD"):
            if address.watch or listing.flag(request, "watch"):
                return "watch"
            return "get" if address.name else "list"
        verb = _VERBS.get(request.method, "")
        if not verb or (verb == "create" and address.name) or (verb in ("update", "patch") and not address.name):
            raise status.method_not_allowed(request.method, "an object" if address.name else "a collection")
        return "deletecollection" if verb == "delete" and not address.name else verb

    async def _list(
        self, request: Request, address: Address, resource: Resource, presenter: Presenter, form: Form
    ) -> Response:
        options = listing.ListOptions.read(request, resource)
        entries, details = await listing.select(self._objects, resource, address.namespace, options, presenter)
        return await _formed(await presenter.many(entries, details), form)

    async def _watch(self, request: Request, address: Address, resource: Resource, presenter: Presenter) -> Response:
        options = listing.ListOptions.read(request, resource, watch=True)
        if address.name:
            options = options.narrowed_to(address.name)
        if options.initial:
            await listing.wait_until(self._objects, options.revision)
        stream = WatchStream(
            self._objects, listing.watch(resource, address.namespace, options, presenter, self._chance)
        )

        async def run(write: Write) -> None:
            self._registry.opened(resource.group_resource, stream)
            try:
                await stream.run(write)
            finally:
                self._registry.ended(resource.group_resource, stream)

        return Response(stream=run, content_type=bodies.JSON)

    async def _write(
        self,
        user: User,
        request: Request,
        address: Address,
        resource: Resource,
        presenter: Presenter,
        form: Form,
        verb: str,
        warnings: list[str],
    ) -> Response:
        if words := limits.warning(resource.group):
            warnings.append(words)
        body = await request.read(bodies.BODY_BYTES)
        kind = bodies.media_type(request.headers.get("content-type", ""))
        call = _call(user, request, address, resource, warnings)
        if verb in ("delete", "deletecollection"):
            options = self._delete_options(request, call, kind, body)
            if verb == "deletecollection":
                return await self._delete_collection(request, call, options, presenter, form)
            return await self._shown(await self._rest.delete(call, options), presenter, form)
        if verb == "patch":
            return await self._shown(await self._patch(call, request, kind, body), presenter, form)
        tree = self._decoded(resource, kind, body, call)
        if resource.virtual:
            return await _formed(bodies.encode(self._reviewed(call, tree)), form, 201)
        action = self._rest.create if verb == "create" else self._rest.update
        return await self._shown(await action(call, tree), presenter, form)

    async def _act(
        self, user: User, request: Request, address: Address, resource: Resource, action: Action, warnings: list[str]
    ) -> Response:
        if request.method != "POST":
            raise status.method_not_allowed(request.method, f"{resource.group_resource}/{address.subresource}")
        access.check(user, "create", resource.group, resource.plural, address.name)
        call = _call(user, request, address, resource, warnings)
        kind = bodies.media_type(request.headers.get("content-type", ""))
        body = self._decoded(resource, kind, await request.read(bodies.BODY_BYTES), call)
        await self._rest.change(call, lambda tree: action.alter(tree, body))
        return Response(status=201, body=bodies.encode(status.success()))

    async def _scale(
        self,
        user: User,
        request: Request,
        address: Address,
        resource: Resource,
        form: Form,
        verb: str,
        warnings: list[str],
    ) -> Response:
        """The object behind is read and written; what is answered is its Scale."""
        where = resource.scaling
        assert where is not None, "the subresource is served where there is something to scale"
        presenter = Presenter(self._registry, self._clock, scale.KIND, form, _include(request))
        if verb == "get":
            outcome = Outcome(entry=self._rest.get(resource, address.namespace, address.name))
        else:
            body = await request.read(bodies.BODY_BYTES)
            kind = bodies.media_type(request.headers.get("content-type", ""))
            call = _call(user, request, address, resource, warnings)
            if verb == "update":
                sent = self._decoded(resource, kind, body, call)
                outcome = await self._rest.rescale(call, lambda _: sent)
            elif kind == bodies.APPLY_YAML:
                configuration = scale.read(self._configuration(call, request, body))
                outcome = await self._rest.apply(call, scale.configuration(resource, where, configuration))
            else:
                _refuse_force(request)
                outcome = await self._rest.patch_scale(call, kind, bodies.parse_json(body))
        tree = outcome.tree if outcome.entry is None else self._rest.tree(resource, outcome.entry)
        assert tree is not None, "a write comes to an object"
        if verb == "get":
            scale.refuse_unsaid(where, tree)
        return await _formed(presenter.of_tree(scale.shown(where, tree)), form, outcome.code)

    async def _patch(self, call: Call, request: Request, kind: str, body: bytes) -> Outcome:
        if kind == bodies.APPLY_YAML:
            return await self._rest.apply(call, self._configuration(call, request, body))
        _refuse_force(request)
        patch = bodies.parse_json(body)
        call.patches, call.oddities = True, bodies.duplicates(body, patch) + bodies.unknown_in_patch(kind, patch)
        return await self._rest.patch(call, kind, patch)

    @staticmethod
    def _configuration(call: Call, request: Request, body: bytes) -> Tree:
        """What is to be applied."""
        if not request.first("fieldManager"):
            raise _bad_option("PatchOptions", "fieldManager", ErrorSort.REQUIRED, "is required for apply patch")
        configuration = bodies.parse_yaml(body)
        if not isinstance(configuration, dict):
            raise status.bad_request("the configuration to apply is not an object")
        if body.lstrip()[:1] == b"{":
            call.oddities = bodies.duplicates(body, configuration)
        return configuration

    def _decoded(self, resource: Resource, kind: str, body: bytes, call: Call) -> Tree:
        """The object in a body, whatever it is written in. No type at all means JSON."""
        tree: Any
        match kind:
            case "" | bodies.JSON:
                tree = bodies.parse_json(body)
                call.oddities = bodies.duplicates(body, tree)
            case bodies.YAML | "application/x-yaml" | "text/yaml":
                tree = bodies.parse_yaml(body)
            case bodies.PROTOBUF if not resource.custom:
                tree = _from_protobuf(body)
            case _:
                accepted = [bodies.JSON, bodies.YAML] + ([] if resource.custom else [bodies.PROTOBUF])
                raise status.unsupported_media_type(kind, accepted)
        if not isinstance(tree, dict):
            raise status.bad_request("the body is not an object")
        return tree

    def _reviewed(self, call: Call, tree: Tree) -> Tree:
        kind = call.resource.kind
        said = {**tree, "apiVersion": call.resource.api_version, "kind": kind, "metadata": {}}
        served: dict[str, list[str]] = {}
        for one in self._registry.all():
            parts = (*one.subresources, *one.views)
            served.setdefault(one.group, []).extend((one.plural, *(f"{one.plural}/{part}" for part in parts)))
        return access.review(self._door, call.user, kind, said, served)

    def _delete_options(self, request: Request, call: Call, kind: str, body: bytes) -> Tree:
        options: Tree = {}
        if body.strip():
            given = _from_protobuf(body) if kind == bodies.PROTOBUF else bodies.parse_yaml(body)
            if not isinstance(given, dict):
                raise status.bad_request("the options of a deletion are not an object")
            options = {key: value for key, value in given.items() if value is not None}
        if request.first("gracePeriodSeconds"):
            options["gracePeriodSeconds"] = listing.number(request, "gracePeriodSeconds")
        if request.first("propagationPolicy"):
            options["propagationPolicy"] = request.first("propagationPolicy")
        if request.first("orphanDependents"):
            options["orphanDependents"] = listing.flag(request, "orphanDependents")
        if options.get("dryRun"):
            call.dry_run = _dry_run(options["dryRun"])
        return options

    async def _delete_collection(
        self, request: Request, call: Call, options: Mapping[str, Any], presenter: Presenter, form: Form
    ) -> Response:
        """Delete what is selected, one by one. Not atomic: what is gone meanwhile is gone."""
        chosen = listing.ListOptions.read(request, call.resource)
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

        async for some in turns.slices(entries):
            await asyncio.gather(*(delete(entry.key.namespace, entry.key.name) for entry in some))
        return await _formed(await presenter.many(entries, details), form)

    @staticmethod
    async def _shown(outcome: Outcome, presenter: Presenter, form: Form) -> Response:
        if outcome.entry is not None:
            return await _formed(presenter.one(outcome.entry), form, outcome.code)
        tree = outcome.tree or {}
        body = bodies.encode(tree) if tree.get("kind") == "Status" else presenter.of_tree(tree)
        return await _formed(body, form, outcome.code)


# --- Options ----------------------------------------------------------------------------------------------------------


def _call(user: User, request: Request, address: Address, resource: Resource, warnings: list[str]) -> Call:
    manager = request.first("fieldManager")
    if len(manager.encode()) > _MANAGER_LENGTH:
        words = f"may not be more than {_MANAGER_LENGTH} bytes"
        raise _bad_option("CreateOptions", "fieldManager", ErrorSort.TOO_LONG, words)
    if not manager.isprintable():
        raise _bad_option(
            "CreateOptions", "fieldManager", ErrorSort.INVALID, "should only contain printable characters"
        )
    validation = request.first("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise _bad_option(
            "CreateOptions", "fieldValidation", ErrorSort.NOT_SUPPORTED, "must be Ignore, Warn or Strict", validation
        )
    dry_run = [value for name, value in request.query if name == "dryRun" and value]
    options = {"fieldManager": manager, "dryRun": dry_run, "fieldValidation": request.first("fieldValidation")}
    return Call(
        resource=resource,
        user=user,
        namespace=address.namespace,
        name=address.name,
        subresource=address.subresource,
        manager=manager or _agent(request),
        dry_run=_dry_run(dry_run),
        validation=validation,
        force=listing.flag(request, "force"),
        options={name: value for name, value in options.items() if value},
        warnings=warnings,
    )


def _agent(request: Request) -> str:
    """Who owns the fields of a writer that does not say: the first word of its user agent."""
    name = request.headers.get("user-agent", "").partition("/")[0][:_MANAGER_LENGTH]
    return name if name and name.isprintable() else "unknown"


def _dry_run(values: Any) -> bool:
    if not values:
        return False
    if values != ["All"]:
        raise _bad_option("CreateOptions", "dryRun", ErrorSort.NOT_SUPPORTED, 'must be "All"', values)
    return True


def _bad_option(kind: str, path: str, sort: ErrorSort, why: str, value: Any = msgspec.UNSET) -> status.StatusError:
    return status.invalid("meta.k8s.io", kind, "", [FieldError(path, sort, why, value)])


def _refuse_force(request: Request) -> None:
    if request.first("force"):
        raise _bad_option("PatchOptions", "force", ErrorSort.FORBIDDEN, "may not be specified for non-apply patch")


def _include(request: Request) -> str:
    value = request.first("includeObject") or "Metadata"
    if value not in ("None", "Metadata", "Object"):
        raise _bad_option(
            "TableOptions", "includeObject", ErrorSort.NOT_SUPPORTED, "must be None, Metadata or Object", value
        )
    return value


def _is_watch(request: Request) -> bool:
    if request.method not in ("GET", "HEAD"):
        return False
    return bool(request.first("watch")) and request.first("watch") not in ("false", "0")


def _from_protobuf(body: bytes) -> Tree:
    try:
        return protobuf.decode(body)
    except protobuf.ProtobufError as error:
        raise status.bad_request(f"the body cannot be read as protobuf: {error}") from None


def _failure(request: Request, error: Exception) -> Response:
    """Every failure as a Status. What nobody foresaw is logged, and is the only 500 there is."""
    headers: dict[str, str] = {}
    match error:
        case status.StatusError():
            told = error
        case BodyTooLarge():
            # The rest of the body is not read, so the connection cannot be used again.
            told, headers = status.too_large(bodies.BODY_BYTES), {"Connection": "close"}
        case BodyTooSlow():
            told = status.StatusError(408, "Timeout", "the body of the request did not arrive in time")
            headers = {"Connection": "close"}
        case ConnectionError():
            told = status.bad_request("the connection broke before the request was complete")
        case _:
            log.error("%s %s failed", request.method, request.path[:200], exc_info=error)
            told = status.internal("the request met an error in the server; its log has the details")
    return Response(status=told.code, body=told.encode(), headers={**told.headers, **headers})


# --- Answers ----------------------------------------------------------------------------------------------------------


def _json(tree: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body=bodies.encode(tree), headers=dict(headers or {}))


async def _formed(body: bytes, form: Form, code: int = 200) -> Response:
    if form.yaml:
        # Off the loop: it takes a hundred times as long as JSON.
        body = await asyncio.to_thread(bodies.to_yaml, body)
    return Response(status=code, body=body, content_type=form.content_type)


def _only_get(request: Request, answer: Callable[[], Response]) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise status.method_not_allowed(request.method, request.path[:200])
    return answer()


def _warning_header(warnings: list[str]) -> str:
    """`299 - "text"`, each bounded, all of them bounded, and nothing in them that could start another header."""
    shown: list[str] = []
    size = 0
    for text in dict.fromkeys(warnings):
        cleaned = "".join(c for c in text[:WARNING_RUNES] if c.isprintable() and ord(c) < 0x10000)
        quoted = cleaned.replace("\\", "\\\\").replace('"', '\\"').encode("latin-1", "replace").decode("latin-1")
        size += len(quoted) + 10
        if size > WARNINGS_BYTES:
            break
        shown.append(f'299 - "{quoted}"')
    return ", ".join(shown)


async def _compressed(request: Request, response: Response) -> Response:
    if response.stream is not None or len(response.body) < GZIP_BYTES:
        return response
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    # Off the loop: a megabyte takes long enough to be felt by everybody else.
    response.body = await asyncio.to_thread(gzip.compress, response.body, 1)
    response.headers["Content-Encoding"] = "gzip"
    return response
