"""Discovery: resource names of kinds, as the API server publishes them.

The plural of a kind, and whether its objects live in namespaces, cannot be derived from the name of the kind: a
CustomResourceDefinition chooses both. The discovery document of a group version lists them.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError, NoSuchKind
from kubemachinery.client.transport import ApiRequest
from kubemachinery.kinds import Kind, Scope


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = True


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Resource] = []


_read: Final = msgspec.json.Decoder(_Resources).decode


class Discovery:
    """Resolves kinds without a plural through discovery. Results are cached; failures are not."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._found: dict[tuple[str, str], Kind] = {}

    async def resolved(self, kind: Kind) -> Kind:
        """The kind with its plural and scope. Raises `NoSuchKind` where the server serves none of that name."""
        if kind.plural:
            return kind
        key = (kind.api_version, kind.kind)
        if key not in self._found:
            self._found[key] = await self._discovered(kind)
        return self._found[key]

    def forget(self, kind: Kind) -> None:
        """Drop the cached result: a CRD that was replaced may have another plural."""
        self._found.pop((kind.api_version, kind.kind), None)

    async def _discovered(self, kind: Kind) -> Kind:
        root = "/apis" if kind.group else "/api"
        response = await self._client.request(ApiRequest("GET", f"{root}/{kind.api_version}"))
        try:
            listed = _read(response.body).resources
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the discovery document of {kind.api_version} cannot be read: {error}"
            raise ApiError(response.status, "InternalError", message) from None
        for resource in listed:
            # A subresource such as `flows/status` is listed under the kind of its object.
            if resource.kind == kind.kind and "/" not in resource.name:
                scope = Scope.NAMESPACED if resource.namespaced else Scope.CLUSTER
                return replace(kind, plural=resource.name, scope=scope)
        raise NoSuchKind(404, "NotFound", f"the server serves no kind {kind.kind} in {kind.api_version}")
