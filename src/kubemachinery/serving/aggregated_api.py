"""An aggregated API: views served behind an API server that an APIService object leads here.

The API server in front authenticates the client and passes the request on. `Admit` decides whether it is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from kubemachinery import status
from kubemachinery.http_messages import Handler, Request, Response
from kubemachinery.serving import discovery, openapi, paths, views
from kubemachinery.serving.discovery import DiscoveredResource, DiscoveredSubresource
from kubemachinery.serving.openapi import GroupVersionKind
from kubemachinery.serving.paths import ResourcePath
from kubemachinery.serving.views import VirtualResource

# Returns where a request is permitted, or raises `status.StatusError`. The path is None for discovery documents.
Admit: TypeAlias = Callable[[Request, ResourcePath | None], Awaitable[None]]


def handler(rows: Sequence[VirtualResource], admit: Admit) -> Handler:
    """Return a handler that serves the views of these resources, their discovery documents and their OpenAPI."""
    api = _AggregatedApi(rows)

    async def handle(request: Request) -> Response:
        try:
            return await api.respond(request, admit)
        except status.StatusError as error:
            return Response(status=error.code, body=error.encode(), headers=error.headers)

    return handle


def discovered(row: VirtualResource) -> DiscoveredResource:
    """Return what discovery shows of a virtual resource: `list` for a collection, and `get` for each view."""
    return DiscoveredResource(
        group=row.group,
        version=row.version,
        plural=row.plural,
        kind=row.kind,
        namespaced=row.namespaced,
        verbs=row.verbs,
        subresources=[DiscoveredSubresource(name, view.kind) for name, view in sorted(row.views.items())],
    )


class _AggregatedApi:
    def __init__(self, rows: Sequence[VirtualResource]) -> None:
        self._rows = {(row.group, row.version, row.plural): row for row in rows}
        self._groups = discovery.grouped(discovered(row) for row in rows)
        self._documents: dict[tuple[str, str], bytes] = {}

    async def respond(self, request: Request, admit: Admit) -> Response:
        parts = paths.segments(request.path)
        path = paths.parse(parts)
        row = self._rows.get((path.group, path.version, path.plural)) if path is not None else None
        if path is not None and row is not None and row.collection is not None and views.is_collection(path):
            await admit(request, path)
            return await views.respond_with_list(request, path, row.collection)
        view = row.views.get(path.subresource) if row is not None and path is not None else None
        if path is not None and row is not None and view is not None:
            await admit(request, path)
            return await views.respond(request, path, view, namespaced=row.namespaced)
        await admit(request, None)
        if request.method != "GET":
            raise status.method_not_allowed(request.method, request.path[:200])
        if parts == ["apis"] and discovery.wants_aggregated(request.headers.get("accept", "")):
            tree: dict[str, Any] | bytes | None = discovery.aggregated(self._groups, core=False)
            return Response(body=msgspec.json.encode(tree), content_type=discovery.AGGREGATED)
        tree = self._document(parts)
        if tree is None:
            raise status.no_such_path(request.path[:200])
        return Response(body=tree if isinstance(tree, bytes) else msgspec.json.encode(tree))

    def _document(self, parts: list[str]) -> dict[str, Any] | bytes | None:
        match parts:
            case ["apis"]:
                return discovery.group_list(self._groups)
            case ["apis", group]:
                return discovery.group(self._groups, group)
            case ["apis", group, version]:
                return discovery.resource_list(self._groups, group, version)
            case ["openapi", "v3"]:
                return self._open_api_index()
            case ["openapi", "v3", "apis", group, version] if version in self._groups.get(group, {}):
                return self._open_api(group, version)
        return None

    def _open_api_index(self) -> dict[str, Any]:
        digests = {
            f"apis/{group}/{version}": openapi.digest(self._open_api(group, version))
            for group, versions in sorted(self._groups.items())
            for version in versions
        }
        return openapi.index(digests)

    def _open_api(self, group: str, version: str) -> bytes:
        """Return the OpenAPI document of a version, made at the first request for it."""
        found = self._documents.get((group, version))
        if found is None:
            rows = sorted(
                (row for row in self._rows.values() if (row.group, row.version) == (group, version)),
                key=lambda row: row.plural,
            )
            schemas: dict[str, Any] = dict(openapi.COMMON_SCHEMAS)
            served: dict[str, Any] = {}
            for row in rows:
                kind = GroupVersionKind(group, version, row.kind)
                schemas[kind.component] = openapi.object_schema({}, kind)
                schemas.update(openapi.view_schemas(row))
                served.update(openapi.view_paths(row))
            found = self._documents[group, version] = msgspec.json.encode(openapi.document(version, served, schemas))
        return found
