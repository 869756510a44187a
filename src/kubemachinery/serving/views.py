"""Views: read-only documents about objects, computed per request and never stored.

The objects of a `VirtualResource` cannot be read or written. It has views of single objects, which can be read, or a
view of the whole collection, which can be listed. Discovery and OpenAPI list it like every other resource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery import kubectl_yaml, status
from kubemachinery.http_messages import Request, Response
from kubemachinery.serving import negotiation, query
from kubemachinery.serving.paths import ResourcePath


class QueryParameter(msgspec.Struct, frozen=True):
    """An integer in the query of a view. A value outside of `minimum` and `maximum` is replaced by the nearer one."""

    description: str
    default: int
    minimum: int = 0
    maximum: int = 2**63 - 1


ReadDocument: TypeAlias = Callable[[str, str, Mapping[str, int]], dict[str, Any] | Awaitable[dict[str, Any]]]
"""Namespace, name and parameters in, the content of a document out."""


class SubresourceView(msgspec.Struct, frozen=True, kw_only=True):
    """A document about one object, computed per request.

    `read(namespace, name, parameters)` returns its content, at once or as an awaitable, or raises
    `status.StatusError`.
    """

    kind: str
    read: ReadDocument
    schema: Callable[[], Mapping[str, Any]] = dict
    parameters: Mapping[str, QueryParameter] = msgspec.field(default_factory=dict)


class CollectionView(msgspec.Struct, frozen=True, kw_only=True):
    """A document about all objects of a namespace, or of all, computed per request.

    `read(namespace, parameters)` returns its content, or raises `status.StatusError`. The parameters are those of the
    query that are in `parameters`, each with the values that it was given.
    """

    kind: str
    read: Callable[[str, Mapping[str, tuple[str, ...]]], Awaitable[dict[str, Any]]]
    schema: Callable[[], Mapping[str, Any]] = dict
    # By name, with a description.
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)


class VirtualResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource with views alone, by the last part of their path; and with a view of the collection, if it has one."""

    group: str
    version: str
    kind: str
    plural: str
    views: Mapping[str, SubresourceView] = msgspec.field(default_factory=dict)
    collection: CollectionView | None = None
    namespaced: bool = True

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("list",) if self.collection is not None else ()


def merged(rows: Iterable[VirtualResource]) -> tuple[VirtualResource, ...]:
    """The resources, each once: with the views of all rows of the same resource."""
    found: dict[tuple[str, str, str], VirtualResource] = {}
    for row in rows:
        key = row.group, row.version, row.plural
        before = found.get(key)
        found[key] = row if before is None else replace(before, views={**before.views, **row.views})
    return tuple(found.values())


async def respond(request: Request, path: ResourcePath, view: SubresourceView, *, namespaced: bool) -> Response:
    """Return the document of a view for the object that the path names."""
    if bool(path.namespace) is not namespaced or path.watch:
        raise status.no_such_path(request.path[:200])
    if request.method != "GET":
        raise status.method_not_allowed(request.method, f"{path.group_resource}/{path.subresource}")
    wanted = negotiation.negotiate(request.headers.get("accept", ""))
    parameters = {name: _number(request, name, row) for name, row in view.parameters.items()}
    found = view.read(path.namespace, path.name, parameters)
    content = found if isinstance(found, dict) else await found
    return _response({"kind": view.kind, "apiVersion": path.api_version, **content}, wanted)


def is_collection(path: ResourcePath) -> bool:
    """Whether a path names all objects of a resource."""
    return not path.name and not path.subresource


async def respond_with_list(request: Request, path: ResourcePath, view: CollectionView) -> Response:
    """Return the document of a collection. A parameter that the view does not have is refused."""
    if path.watch or query.flag(request, "watch"):
        raise status.method_not_allowed("WATCH", path.group_resource)
    if request.method != "GET":
        raise status.method_not_allowed(request.method, path.group_resource)
    wanted = negotiation.negotiate(request.headers.get("accept", ""))
    given: dict[str, tuple[str, ...]] = {}
    for name, value in request.query:
        if name in view.parameters:
            given[name] = (*given.get(name, ()), value)
        elif name not in _OF_EVERY_LIST:
            raise status.bad_request(f"{name[:100]}: is not a parameter of {path.plural}")
    content = await view.read(path.namespace, given)
    return _response({"kind": view.kind, "apiVersion": path.api_version, **content}, wanted)


# Parameters that clients send with every list.
_OF_EVERY_LIST: Final = frozenset({"resourceVersion", "resourceVersionMatch", "timeoutSeconds", "watch", "pretty"})


def _response(tree: dict[str, Any], wanted: negotiation.Representation) -> Response:
    body = kubectl_yaml.dump(tree, sort_keys=True).encode() if wanted.yaml else msgspec.json.encode(tree)
    return Response(body=body, content_type=wanted.content_type)


def _number(request: Request, name: str, row: QueryParameter) -> int:
    value = query.number(request, name, row.default)
    return min(max(value, row.minimum), row.maximum)
