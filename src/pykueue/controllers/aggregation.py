"""The visibility API behind the API server of a cluster: its APIService, and which client certificates are trusted.

In a cluster, requests come through the installed Service. A manager beside a cluster has no Service that points to its
machine; but a Service can be an external name, and the API server, on the same machine, reaches it by loopback.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from kubemachinery import status, unstructured
from kubemachinery.client import errors
from kubemachinery.client.delegated_auth import (
    CONFIG_MAP_NAME,
    CONFIG_MAP_NAMESPACE,
    DelegatedAuthorizer,
    RequestHeaderConfig,
)
from kubemachinery.client.retry import create_or_update, retry_transient
from kubemachinery.http_messages import Request
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.serving.paths import ResourcePath
from kubemachinery.unstructured import Tree
from pykueue.api import kube, registry
from pykueue.observe import visibility

log = logging.getLogger(__name__)

API_SERVICE: Final = Kind(
    "apiregistration.k8s.io", "APIService", "apiservices", (Version("v1", storage=True),), Scope.CLUSTER
)
SERVICE_BESIDE: Final = f"{visibility.SERVICE}-beside"
_SERVICE: Final = Kind("", "Service", "services", (Version("v1", storage=True),))
_CONFIG_MAP: Final = registry.KUBERNETES.of(kube.ConfigMap)
_LOOPBACK: Final = "127.0.0.1"


class Aggregated:
    """Registers the visibility API with the API server, and reads how the API server authenticates itself."""

    def __init__(
        self,
        authorizer: DelegatedAuthorizer,
        tls: ssl.SSLContext,
        namespace: str,
        groups: Sequence[tuple[str, str]],
        *,
        beside: bool,
    ) -> None:
        """`groups` are the API groups that are served, each with its version."""
        self._client = authorizer.client
        self._tls = tls
        self._namespace = namespace
        self._groups = groups
        self._beside = beside
        self._authorizer = authorizer
        self._reported: set[str] = set()
        self.port = visibility.SERVICE_PORT
        # The API server has a client certificate; other clients may authenticate with a token.
        tls.verify_mode = ssl.CERT_OPTIONAL

    async def renew(self) -> None:
        """Read how the API server authenticates itself; its certificate authority may change at runtime."""
        front = await self._read_config()
        if front.authorities and front.authorities != self._authorizer.request_header.authorities:
            try:
                self._tls.load_verify_locations(cadata=front.authorities)
            except ssl.SSLError as error:
                self._warn(f"the client certificate authority of the API server cannot be read: {error}")
                front = RequestHeaderConfig()
        if not front.authorities:
            # Beside a cluster only this machine can connect, and its users may read what is shown.
            front = replace(front, trusts_any_client=self._beside)
            clients = "every program of this machine can" if self._beside else "no client can"
            self._warn(f"the API server has no client certificate authority: {clients} read the visibility API")
        self._authorizer.request_header = front

    async def _read_config(self) -> RequestHeaderConfig:
        try:
            found = await self._client.find(_CONFIG_MAP, CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE)
        except errors.ApiError as error:
            if error.code != 403:
                raise
            self._warn(str(error))
            return RequestHeaderConfig()
        return RequestHeaderConfig.from_config_map(unstructured.texts(unstructured.get(found, "data")))

    def _warn(self, sentence: str) -> None:
        """Log a problem once: it is found again at every look."""
        if sentence not in self._reported:
            self._reported.add(sentence)
            log.warning("%s", sentence)

    async def register(self, authority: bytes) -> list[str]:
        """Write the APIService and its Service; return what had to be changed."""
        service, port = (SERVICE_BESIDE, self.port) if self._beside else (visibility.SERVICE, visibility.SERVICE_PORT)
        try:
            if self._beside:
                await retry_transient(self._name_this_machine)
            return [
                f"{API_SERVICE.kind} {wanted['metadata']['name']}"
                for wanted in visibility.api_services(self._groups, self._namespace, service, port, ca=authority)
                if await retry_transient(partial(create_or_update, self._client, API_SERVICE, wanted, "spec"))
            ]
        except errors.ApiError as error:
            # An API server that passes nothing on, or rights of an older installation: all else must go on.
            if error.code not in (403, 404):
                raise
            self._warn(f"the API server cannot be led to the visibility API: {error}")
            return []

    async def _name_this_machine(self) -> None:
        if await self._client.find(_SERVICE, SERVICE_BESIDE, self._namespace) is None:
            metadata = {"name": SERVICE_BESIDE, "namespace": self._namespace}
            spec = {"type": "ExternalName", "externalName": _LOOPBACK}
            await self._client.create(
                _SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
            )

    async def admit(self, request: Request, address: ResourcePath | None) -> None:
        """Authorize a request, or raise the refusal."""
        refusal = await self._authorizer.denial(request, _wanted(request, address))
        if refusal is None:
            return
        if refusal.code == 403:
            group, plural, name = (address.group, address.plural, address.name) if address else ("", "", request.path)
            raise status.forbidden(group, plural, name[:200], refusal.message)
        reason = {401: "Unauthorized"}.get(refusal.code, "ServiceUnavailable")
        raise status.StatusError(refusal.code, reason, refusal.message)


def _wanted(request: Request, address: ResourcePath | None) -> Tree:
    """Return the attributes of a request for a SubjectAccessReview."""
    reading = "list" if address is not None and not address.name else "get"
    verb = {"GET": reading, "HEAD": reading}.get(request.method, request.method.lower())
    if address is None:
        return {"nonResourceAttributes": {"path": request.path, "verb": verb}}
    attributes: Mapping[str, Any] = {
        "group": address.group,
        "version": address.version,
        "resource": address.plural,
        "subresource": address.subresource,
        "namespace": address.namespace,
        "name": address.name,
        "verb": verb,
    }
    return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
