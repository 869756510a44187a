"""Tests on a loop whose time jumps: times are exact on any machine."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec

from msgspec.structs import replace

from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubeserver.assembly import Embedded
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.storage.sqlite import MemoryJournal
from pykueue.testing.installed_server import installed
from pykueue.testing.virtual_loop import VirtualClock, VirtualLoop

P = ParamSpec("P")


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        installed()  # on a loop of its own, and only once
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(asyncio.sleep(3600))  # no machine starts anything at its very first moment
            runner.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def server(journal: MemoryJournal | None = None, **parts: Any) -> AsyncIterator[ApiClient]:
    """A client of an embedded server that lives by the loop's own time."""
    usual, loaded = installed()
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(7)
    authenticator = authentication.Authenticator({}, ())
    embedded = Embedded(
        replace(usual, **parts),
        journal or MemoryJournal(),
        authenticator,
        clock,
        rng,
        ServerInfo("test"),
        loaded=loaded,
    )
    await embedded.start()
    try:
        yield ApiClient(LocalTransport(partial(embedded.server.handle_as, authentication.ADMIN)), rng)
    finally:
        await embedded.close()
