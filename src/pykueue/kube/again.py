"""Doing again what can be done again: a read, and a write that is conditional on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pykueue.api.kinds import Kind
from pykueue.kube.client import Client, Tree
from pykueue.kube.errors import AlreadyExists, ApiError, Conflict, KubeError, Unanswered

log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0


async def until_done(attempt: Callable[[], Awaitable[T]], *, attempts: int = 10) -> T:
    """The outcome of the first attempt that is answered for good.

    For what looks before it writes: after a conflict, a lost answer or a server in trouble the next attempt finds what
    became of the last one. What the server refuses is refused at once, and what never works raises in the end.
    """
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except KubeError as error:
            if not _may_pass(error):
                raise
            log.info("trying again: %s", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    return await attempt()


async def put(client: Client, kind: Kind, wanted: Tree, field: str) -> bool:
    """Whether the object had to be created or changed. Only `field` is ours; labels and the like are not."""
    metadata = wanted["metadata"]
    found = await client.find(kind, metadata["name"], metadata.get("namespace", ""))
    if found is None:
        await client.create(kind, wanted)
        return True
    if found.get(field) == wanted[field]:
        return False
    await client.replace(kind, {**found, field: wanted[field]})
    return True


def _may_pass(error: KubeError) -> bool:
    if isinstance(error, Unanswered | Conflict | AlreadyExists):
        return True
    return isinstance(error, ApiError) and (error.code >= 500 or error.code == 429)
