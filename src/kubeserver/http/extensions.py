"""Documents that are made when somebody asks, in groups of their own beside the objects; nothing of them is stored.

A row is a `Resource` without verbs: nobody can get, list or write it, only look at it through its views. Discovery and
OpenAPI show rows like everything else.

    resource(...)                    a row, for `Registry.extended` of a server that has objects too
    handler(rows, admit)             rows alone: a program that stands behind another API server (an aggregated API)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from kubemachinery.http_server import Handler, Request, Response
from kubeserver.http import responses
from kubeserver.protocol import bodies, paths, query, status
from kubeserver.protocol.paths import Address
from kubeserver.registry import discovery, representations
from kubeserver.registry.openapi import OpenApi
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Parameter, Resource, Tree, View

# Lets a request pass or raises `status.StatusError`. The address is None where only discovery is asked for.
Admit: TypeAlias = Callable[[Request, Address | None], Awaitable[None]]


def resource(
    group: str, version: str, kind: str, plural: str, views: Mapping[str, View], *, namespaced: bool = True
) -> Resource:
    """A row: something that can only be looked at."""
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        verbs=(),
        virtual=True,
        views=views,
    )


def answer(request: Request, address: Address, resource: Resource, view: View) -> Response:
    """The document that a view shows of one object."""
    if bool(address.namespace) is not resource.namespaced or address.watch:
        raise status.no_such_path(request.path[:200])
    responses.only_get(request, f"{resource.group_resource}/{address.subresource}")
    form = representations.negotiate(request.headers.get("accept", ""))
    given = {name: _number(request, name, row) for name, row in view.parameters.items()}
    shown = view.read(address.namespace, address.name, given)
    body = bodies.encode({"kind": view.kind, "apiVersion": resource.api_version, **shown})
    return Response(body=bodies.to_yaml(body) if form.yaml else body, content_type=form.content_type)


def _number(request: Request, name: str, row: Parameter) -> int:
    given = query.number(request, name, row.default)
    return min(max(given, row.minimum), row.maximum)


# --- Behind another server --------------------------------------------------------------------------------------------


def handler(rows: Sequence[Resource], admit: Admit) -> Handler:
    """Serve rows alone. Who may ask is for `admit` to say: the server in front has authenticated somebody."""
    registry = Registry(rows)
    openapi = OpenApi(registry)

    async def answered(request: Request) -> Response:
        try:
            return await _routed(registry, openapi, admit, request)
        except status.StatusError as error:
            return Response(status=error.code, body=error.encode(), headers=error.headers)

    return answered


async def _routed(registry: Registry, openapi: OpenApi, admit: Admit, request: Request) -> Response:
    parts = paths.segments(request.path)
    address = paths.parse(parts)
    found = registry.find(address.group, address.version, address.plural) if address is not None else None
    view = found.views.get(address.subresource) if found is not None and address is not None else None
    if address is not None and found is not None and view is not None:
        await admit(request, address)
        return answer(request, address, found, view)
    await admit(request, None)
    responses.only_get(request)
    if parts == ["apis"] and discovery.wants_aggregated(request.headers.get("accept", "")):
        return Response(
            body=bodies.encode(discovery.aggregated(registry, core=False)), content_type=discovery.AGGREGATED
        )
    tree = _document(registry, openapi, parts)
    if tree is None:
        raise status.no_such_path(request.path[:200])
    return Response(body=tree if isinstance(tree, bytes) else bodies.encode(tree))


def _document(registry: Registry, openapi: OpenApi, parts: list[str]) -> Tree | bytes | None:
    match parts:
        case ["apis"]:
            return discovery.group_list(registry)
        case ["apis", group]:
            return discovery.group(registry, group)
        case ["apis", group, version]:
            return discovery.resource_list(registry, group, version)
        case ["openapi", "v3"]:
            return openapi.index()
        case ["openapi", "v3", "apis", group, version]:
            found = openapi.document(group, version)
            return found[0] if found is not None else None
    return None
