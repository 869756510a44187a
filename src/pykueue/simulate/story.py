"""One seed from beginning to end: a world is built, chaos, healing, quiet; a restart that must change nothing; the end.

seconds 0-60   people submit, stop, change and delete; faults strike; the manager crashes and comes back
healing        faults stop. Long-running work goes on, so somebody waits; everything must come to rest
restart        a new manager on the same store: it must admit nothing, and write nothing
the end        long-running work may end: now everything that fits its queue must have had its turn
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pykueue import app, settings
from pykueue.clock import Clock
from pykueue.controllers.assembly import Manager
from pykueue.kube.client import Client
from pykueue.simulate import checkers, worlds
from pykueue.simulate.faults import Stormy, Weather
from pykueue.simulate.loop import Stuck, VirtualClock, VirtualLoop
from pykueue.simulate.players import Players
from pykueue.simulate.revisions import Mark, Violation
from pykueue.simulate.server import Server

QUIET_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 1800.0


@dataclass(slots=True)
class Report:
    """What became of one seed."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)  # what happened in it, so that nobody tests nothing
    revisions: int = 0
    digest: str = ""
    trace: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        return f"python -m pykueue.simulate --replay {self.seed}"


def run(seed: int, weather: Mapping[str, float] | None = None) -> Report:
    """The story of a seed. The same seed tells the same story. `weather` is for faults of one's own choice."""
    report = Report(seed)
    handler = _Errors(report)
    root = logging.getLogger("pykueue")
    level, propagate = root.level, root.propagate
    root.addHandler(handler)
    root.setLevel(logging.ERROR)
    root.propagate = False
    collecting = gc.isenabled()
    gc.disable()
    try:
        with contextlib.suppress(Stuck), asyncio.Runner(loop_factory=VirtualLoop) as runner:
            story = Story(seed, report, VirtualClock(runner.get_loop()), weather)
            try:
                runner.run(story.tell())
            except Stuck as error:
                runner.get_loop().set_exception_handler(lambda loop, context: None)
                report.violations.append(Violation("L6", 0, "", f"time stands still: {error}"))
            story.judge()
    finally:
        if collecting:
            gc.enable()
        root.removeHandler(handler)
        root.setLevel(level)
        root.propagate = propagate
    return report


class Story:
    def __init__(self, seed: int, report: Report, clock: Clock, rates: Mapping[str, float] | None) -> None:
        self._report = report
        self._clock = clock
        # One stream of chance for each part, so that a change in one does not shift the others.
        self._chances = {part: random.Random(f"{seed} {part}") for part in ("world", "weather", "server", "manager")}
        self._settings = settings.defaults()
        self.world = worlds.draw(self._chances["world"])
        self.weather = Weather.drawn(self._chances["weather"])
        if rates is not None:
            self.weather.rates = dict(rates)
        self.server = Server(clock, self._chances["server"])
        self.history = self.server.history
        self.history.listeners.append(self._stored)
        self.players = Players(
            self.world, Client(self.server.transport(), self._chances["server"]), self.history, clock
        )
        self._transport: Stormy | None = None
        self._managing: asyncio.Task[None] | None = None
        self._last_write = 0.0
        self._marks: list[Mark] = []

    def _stored(self, stored: object) -> None:
        self._last_write = asyncio.get_running_loop().time()

    # --- Telling ------------------------------------------------------------------------------------------------------

    async def tell(self) -> None:
        await self.server.embedded.start()
        await self.players.build()
        self._begin()
        acting = asyncio.create_task(self.players.act())
        await self._chaos()
        await acting
        self.weather.heal()
        self._note("the weather is fine again")
        await self._rest("healed")
        await self._restart()
        await self._rest("restarted")
        self.players.let_long_ones_end()
        await self._rest("ended")
        await self._crash()
        await self.players.close()
        await self.server.embedded.close()

    async def _chaos(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < worlds.CHAOS_SECONDS:
            await asyncio.sleep(1.0)
            if self.weather.strikes("crash"):
                await asyncio.sleep(self.weather.chance.uniform(0.0, 1.0))
                await self._restart(self.weather.chance.choice((0.0, 0.5, 5.0)))
            if self.weather.strikes("history gone") and self._transport is not None:
                await self.server.compact()
                self._transport.drop_watches()

    async def _rest(self, name: str) -> None:
        """Wait until nothing has been written for a while. One who never comes to rest writes in circles."""
        loop = asyncio.get_running_loop()
        start, self._last_write = loop.time(), loop.time()
        while loop.time() - self._last_write < QUIET_SECONDS:
            if loop.time() - start > LONGEST_SECONDS:
                self._report.violations.append(Violation("L6", 0, "", f"no rest after {name}: writes go on and on"))
                break
            await asyncio.sleep(1.0)
        self._marks.append(Mark(name, len(self.history.stored)))
        self._note(f"at rest: {name}")

    # --- The manager --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        transport = self._transport = Stormy(
            self.server.transport(), self.weather, keeps_events=self._report.seed % 4 == 0
        )
        chance = self._chances["manager"]
        manager = Manager(Client(transport, chance), app.manager_choices(self._settings), self._clock, chance)
        self._managing = asyncio.create_task(_manage(manager))

    async def _crash(self) -> None:
        """Gone between two instructions: nothing more of it arrives, whatever it does while it falls."""
        assert self._transport is not None
        assert self._managing is not None
        self._transport.crash()
        if self._managing.done() and not self._managing.cancelled() and (error := self._managing.exception()):
            self._report.violations.append(Violation("alive", 0, "", f"the manager ended by itself: {error!r}"))
        self._managing.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await self._managing

    async def _restart(self, pause: float = 0.0) -> None:
        await self._crash()
        self._note("the manager is gone")
        await asyncio.sleep(pause)
        self._begin()
        self._note("a new manager begins")

    def _note(self, line: str) -> None:
        self.players.trace.append(f"{asyncio.get_running_loop().time():9.3f} -- {line}")

    # --- Judging ------------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        report = self._report
        found = checkers.judge(self.history.stored, self._marks)
        report.violations += found.violations
        report.seen = found.seen
        report.faults = self.weather.fired
        report.revisions = len(self.history.stored)
        report.digest = self.history.digest()
        report.trace = sorted((*self.players.trace, *found.trace), key=lambda line: float(line[:9]))


async def _manage(manager: Manager) -> None:
    async with manager.reading():
        await manager.lead()


class _Errors(logging.Handler):
    """A promise that was broken is told to the log; here it breaks the story."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        reason = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._report.violations.append(Violation("promise", 0, "", f"{record.getMessage()}{reason}"))
