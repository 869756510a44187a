"""Writes of the server's own controllers, through the same verbs as those of clients, so that finalizers hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kubemachinery import status
from kubeserver.protocol import authentication
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Tree
from kubeserver.registry.write_context import WriteContext
from kubeserver.storage.sqlite import StoreKey
from kubeserver.write.rest import Rest

# The number of concurrent deletions; concurrent writes share a commit.
TOGETHER: Final = 64
_MANAGER: Final = "embedded-collector"


class LoopbackClient:
    """A client of this server inside its process, with the identity of the server."""

    def __init__(self, registry: Registry, rest: Rest) -> None:
        self._registry = registry
        self._rest = rest

    async def create(self, resource: str, namespace: str, tree: Tree) -> None:
        await self._rest.create(self._context(StoreKey(resource, namespace, "")), tree)

    async def modify(self, key: StoreKey, alter: Callable[[Tree], None], subresource: str = "") -> None:
        await self._rest.modify(self._context(key, subresource), alter)

    async def delete(self, key: StoreKey, options: Tree) -> None:
        await self._rest.delete(self._context(key), options)

    async def delete_all(self, keys: Iterable[StoreKey]) -> None:
        """Begin the deletion of all of these. An object that does not exist any more is skipped."""
        pending = list(keys)
        for start in range(0, len(pending), TOGETHER):
            await asyncio.gather(*(self._delete_quietly(key) for key in pending[start : start + TOGETHER]))

    async def _delete_quietly(self, key: StoreKey) -> None:
        try:
            await self.delete(key, {"propagationPolicy": "Background"})
        except status.StatusError as error:
            if error.code != 404:
                raise

    def _context(self, key: StoreKey, subresource: str = "") -> WriteContext:
        resource = self._registry.stored_as(key.resource)
        if resource is None:
            raise status.not_found("", key.resource, key.name)
        return WriteContext(
            resource=resource,
            user=authentication.SYSTEM,
            namespace=key.namespace,
            name=key.name,
            subresource=subresource,
            manager=_MANAGER,
            validation="Ignore",
        )
