"""Views: read-only documents about objects, computed per request and never stored.

A `VirtualResource` has no verbs: its objects cannot be read, listed or written, only their views can be read. Discovery
and OpenAPI list it like every other resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubemachinery import kubectl_yaml, status
from kubemachinery.http_messages import Request, Response
from kubemachinery.serving import negotiation, query
from kubemachinery.serving.paths import ResourcePath


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """An integer in the query of a view. A value outside of `minimum` and `maximum` is replaced by the nearer one."""

    description: str
    default: int
    minimum: int = 0
    maximum: int = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SubresourceView:
    """A document about one object, computed per request.

    `read(namespace, name, parameters)` returns its content, or raises `status.StatusError`.
    """

    kind: str
    read: Callable[[str, str, Mapping[str, int]], dict[str, Any]]
    schema: Callable[[], Mapping[str, Any]] = dict
    parameters: Mapping[str, QueryParameter] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VirtualResource:
    """A resource with views alone, by the last part of their path."""

    group: str
    version: str
    kind: str
    plural: str
    views: Mapping[str, SubresourceView]
    namespaced: bool = True


def respond(request: Request, path: ResourcePath, view: SubresourceView, *, namespaced: bool) -> Response:
    """Return the document of a view for the object that the path names."""
    if bool(path.namespace) is not namespaced or path.watch:
        raise status.no_such_path(request.path[:200])
    if request.method != "GET":
        raise status.method_not_allowed(request.method, f"{path.group_resource}/{path.subresource}")
    wanted = negotiation.negotiate(request.headers.get("accept", ""))
    parameters = {name: _number(request, name, row) for name, row in view.parameters.items()}
    content = view.read(path.namespace, path.name, parameters)
    tree = {"kind": view.kind, "apiVersion": path.api_version, **content}
    body = kubectl_yaml.dump(tree, sort_keys=True).encode() if wanted.yaml else msgspec.json.encode(tree)
    return Response(body=body, content_type=wanted.content_type)


def _number(request: Request, name: str, row: QueryParameter) -> int:
    value = query.number(request, name, row.default)
    return min(max(value, row.minimum), row.maximum)
