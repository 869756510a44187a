"""A manager as a process of the simulation: it can crash, stand still, lose its lease, and see a wrong clock."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import Informer
from kubemachinery.client.leader_election import LeaderElectionConfig, LeaderElector
from kubemachinery.client.transport import Transport
from pykueue.controllers.assembly import Manager, ManagerOptions
from pykueue.jobs.kinds import JobKinds
from pykueue.testing.virtual_loop import Process, VirtualClock
from simulation.engine.faults import FaultPlan, FaultyTransport

TERMS: Final = LeaderElectionConfig(name="pykueue", namespace="default", retry_period_seconds=4.0)
_COMES_BACK_SECONDS: Final = 1.0


class Member:
    """One of the managers of a run, with the same name after every restart."""

    def __init__(
        self,
        name: str,
        server: Transport,
        fault_plan: FaultPlan,
        options: ManagerOptions,
        rng: random.Random,
        *,
        is_alone: bool,
        keeps_events: bool,
        order_rng: random.Random | None,
    ) -> None:
        self.name = name
        self.clock = VirtualClock(asyncio.get_running_loop())
        self._server = server
        self._fault_plan = fault_plan
        self._options = options
        self._chance = rng
        self._is_alone = is_alone
        self._keeps_events = keeps_events
        self._order_rng = order_rng  # draws the order in which informers start; None: as they are listed
        self._lives = 0
        self._process = Process()
        self.transport = FaultyTransport(server, fault_plan)
        self._living: asyncio.Task[None] | None = None
        self._manager: Manager | None = None

    def begin(self) -> None:
        self.transport = FaultyTransport(self._server, self._fault_plan, keeps_events=self._keeps_events)
        self._process = Process()
        self._living = self._process.start(self._live())

    async def _live(self) -> None:
        """One manager after another: one that loses its lease ends, and is started again."""
        while True:
            self._lives += 1
            client, identity = ApiClient(self.transport, self._chance), f"{self.name}-{self._lives}"
            # A process has a table of kinds of its own, which also holds the kinds that are not served now.
            options = replace(self._options, kinds=JobKinds(self._options.kinds))
            if self._is_alone:
                manager = Manager(client, options, self.clock, self._chance, instance=identity)
                self._manager = manager
                async with manager.reading(self._start_order):
                    await manager.lead()
            else:
                election = LeaderElector(client, self.clock, TERMS, identity)
                manager = Manager(client, options, self.clock, self._chance, instance=identity, election=election)
                self._manager = manager
                async with manager.reading(self._start_order):
                    await election.run(manager.take_over)
            await asyncio.sleep(_COMES_BACK_SECONDS)

    def _start_order(self, informers: Sequence[Informer[Any]]) -> Sequence[Informer[Any]]:
        return informers if self._order_rng is None else self._order_rng.sample(informers, len(informers))

    async def differences(self) -> list[str]:
        """The differences between its state and one built from a fresh list."""
        return (await self._manager.auditor.look() or []) if self._manager is not None else []

    @property
    def is_standing_still(self) -> bool:
        return self._process.is_stopped

    def stand_still(self) -> None:
        self._process.stop()

    def go_on(self) -> None:
        self._process.go_on()

    async def crash(self) -> str:
        """Gone between two instructions: nothing more of it arrives, whatever it does while it falls.

        Returns what it had died of before, if it had.
        """
        assert self._living is not None
        self.transport.crash()
        self.go_on()
        died = ""
        if self._living.done() and not self._living.cancelled() and (error := self._living.exception()):
            died = f"the manager ended by itself: {error!r}"
        self._living.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await self._living
        return died
