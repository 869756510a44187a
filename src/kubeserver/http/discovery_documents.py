"""The root document, discovery in both forms, OpenAPI, and the list of limits."""

from __future__ import annotations

from collections.abc import Iterable

from kubemachinery import status
from kubemachinery.http_messages import Request, Response
from kubemachinery.serving import discovery, negotiation
from kubeserver.http import responses
from kubeserver.protocol import bodies
from kubeserver.registry import discovery as registry_discovery
from kubeserver.registry import openapi, unsupported
from kubeserver.registry.openapi import OpenApi
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Tree


class DiscoveryEndpoints:
    """Serves the documents that are no objects."""

    def __init__(self, registry: Registry, openapi: OpenApi) -> None:
        self._registry = registry
        self._openapi = openapi

    def answer(self, request: Request, parts: list[str], beside: Iterable[str]) -> Response | None:
        """Return the document at a path; None where there is none. `beside` are paths that other handlers serve."""
        match parts:
            case ["api"] | ["apis"]:
                return self._discovery(request, core=parts == ["api"])
            case ["apis", group]:
                return _listed(request, discovery.group(self._groups(), group))
            case ["api", version]:
                return _listed(request, discovery.resource_list(self._groups(), "", version))
            case ["apis", group, version]:
                return _listed(request, discovery.resource_list(self._groups(), group, version))
            case ["openapi", "v3", *rest]:
                return self._open_api(request, rest)
            case ["openapi", "v2"] if openapi.reads_only_v2_protobuf(request.headers.get("accept", "")):
                responses.only_reading(request)
                return Response(body=openapi.V2_WITHOUT_KINDS, content_type=openapi.V2_PROTOBUF)
            case [".well-known", "embedded-limits"]:
                responses.only_reading(request)
                return responses.json(unsupported.document())
            case [""]:
                responses.only_reading(request)
                return responses.json({"paths": self._paths(beside)})
        return None

    def _groups(self) -> discovery.Groups:
        return registry_discovery.groups(self._registry)

    def _paths(self, beside: Iterable[str]) -> list[str]:
        found = ["/.well-known/embedded-limits", "/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3"]
        for group, versions in self._registry.groups().items():
            if group:
                found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return sorted([*found, *beside, "/readyz", "/version"])

    def _discovery(self, request: Request, *, core: bool) -> Response:
        if core:
            responses.only_get(request)
        else:
            responses.only_reading(request)
        accept = request.headers.get("accept", "")
        whole = discovery.wants_aggregated(accept)
        if not whole:
            negotiation.negotiate(accept)
        kind = discovery.AGGREGATED if whole else bodies.JSON
        # Each form has a tag of its own, and a 304 names the form: kubectl's cache keeps one answer for each path.
        headers = {"ETag": f'"{self._registry.etag}{"-v2" if whole else ""}"', "Vary": "Accept"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status=304, content_type=kind, headers=headers)
        if whole:
            tree = discovery.aggregated(self._groups(), core=core)
        elif core:
            tree = discovery.versions(request.headers.get("host", "localhost"))
        else:
            tree = discovery.group_list(self._groups())
        return Response(body=bodies.encode(tree), content_type=kind, headers=headers)

    def _open_api(self, request: Request, rest: list[str]) -> Response:
        match rest:
            case []:
                responses.only_reading(request)
                return responses.json(self._openapi.index())
            case ["api", version]:
                found = self._openapi.document("", version)
            case ["apis", group, version]:
                found = self._openapi.document(group, version)
            case _:
                found = None
        if found is None:
            raise status.no_such_path(request.path[:200])
        responses.only_reading(request)
        body, digest = found
        headers = {"ETag": f'"{digest}"', "Vary": "Accept"}
        if request.first("hash") == digest:
            # The address names the content, so it can be kept for ever.
            headers["Cache-Control"] = "public, immutable, max-age=31536000"
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status=304, headers=headers)
        return Response(body=body, headers=headers)


def _listed(request: Request, tree: Tree | None) -> Response:
    if tree is None:
        raise status.no_such_path(request.path[:200])
    negotiation.negotiate(request.headers.get("accept", ""))
    responses.only_get(request)
    return responses.json(tree)
