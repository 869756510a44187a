"""A server with simulated pods on a virtual clock, whose manager keeps a history in a file."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubeserver.assembly import Embedded
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings
from kubeserver.storage.sqlite import Durability, MemoryJournal
from pykueue import settings
from pykueue.api import config, kueue, registry
from pykueue.app import options
from pykueue.app.embedded_manager import RunnerName, embedded_manager, embedded_runner
from pykueue.app.server import managed_parts
from pykueue.client.client import AsyncClient
from pykueue.controllers.assembly import Manager
from pykueue.controllers.history_recorder import inline_worker
from pykueue.testing import MACHINE
from pykueue.testing.installed_server import installed
from pykueue.testing.virtual_loop import VirtualClock
from virtual import virtual_time

WORKLOADS = registry.ALL.of(kueue.Workload)

W = TypeVar("W")


def chosen_settings(**gates: bool) -> settings.Settings:
    on = {"WorkloadHints": True, **gates}
    return settings.load({"apiVersion": config.V1BETA2, "kind": config.KIND, "featureGates": on}, "test")


class RecordedWorld:
    """A server, its clock and its clients. `manager` runs a manager; one after another may do so."""

    def __init__(self, embedded: Embedded, clock: VirtualClock, path: Path, chosen: settings.Settings) -> None:
        self.embedded = embedded
        self.clock = clock
        self.path = path
        self.chosen = chosen
        self.api = ApiClient(LocalTransport(partial(embedded.server.handle_as, authentication.ADMIN)), random.Random(3))
        self.client = AsyncClient(namespace="default", api_client=self.api, clock=clock)

    @asynccontextmanager
    async def manager(self, **history: Any) -> AsyncIterator[Manager]:
        kept = options.history_options(self.chosen, self.path, worker=lambda: inline_worker, **history)
        async with embedded_manager(self.embedded, self.chosen, self.clock, random.Random(5), history=kept) as manager:
            await asyncio.sleep(1)
            yield manager

    async def submit(self, name: str, seconds: int, cpu: int = 1, **more: Any) -> None:
        await self.client.submit(["sleep", str(seconds)], name=name, cpu=cpu, **more)


@asynccontextmanager
async def recorded_server(
    chosen: settings.Settings,
    journal: MemoryJournal | None = None,
    set_clock: Callable[[VirtualClock], None] | None = None,
) -> AsyncIterator[tuple[Embedded, VirtualClock]]:
    """The server and its pods. `set_clock` is called before the first object is created."""
    usual, loaded = installed()
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(7)
    if set_clock is not None:
        set_clock(clock)
    own = managed_parts(chosen, MACHINE)
    parts = replace(usual, plugins=own.plugins, initial=(*usual.initial, *own.first))
    embedded = Embedded(
        parts,
        journal or MemoryJournal(),
        authentication.Authenticator({}, ()),
        clock,
        rng,
        ServerInfo("test"),
        loaded=loaded,
    )
    await embedded.start()
    place = ServerSettings(data_dir=Path(), durability=Durability.MEMORY)
    try:
        async with embedded_runner(embedded, RunnerName.SIMULATED, place, MACHINE, clock, rng):
            yield embedded, clock
    finally:
        await embedded.close()


def scenario_in(
    world: Callable[[Path], AbstractAsyncContextManager[W]],
) -> Callable[[Callable[[W], Awaitable[None]]], Callable[[Path], None]]:
    """A decorator for a test in a world of its own, on virtual time."""

    def decorated(test: Callable[[W], Awaitable[None]]) -> Callable[[Path], None]:
        @virtual_time
        async def run(tmp_path: Path) -> None:
            async with world(tmp_path / "history.db") as made:
                await test(made)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorated
