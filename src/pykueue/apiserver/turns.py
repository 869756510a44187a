"""Long work in slices: nobody holds the event loop for longer than a moment, however long a list is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

# How long one may go on while others wait, and how many steps are taken between two looks at the clock.
TURN_SECONDS: Final = 0.005
SLICE: Final = 50

T = TypeVar("T")


async def slices(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """The parts of a list, one after the other; in between, others get their turn where it is due."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    for start in range(0, len(items), SLICE):
        if loop.time() - since > TURN_SECONDS:
            await asyncio.sleep(0)
            since = loop.time()
        yield items[start : start + SLICE]
