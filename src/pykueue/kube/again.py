"""Doing again what can be done again: a read, and a write that is conditional on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

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


def _may_pass(error: KubeError) -> bool:
    if isinstance(error, Unanswered | Conflict | AlreadyExists):
        return True
    return isinstance(error, ApiError) and (error.code >= 500 or error.code == 429)
