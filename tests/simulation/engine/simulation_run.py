"""One seed from beginning to end: setup, chaos, healing, quiescence; a restart that must change nothing; the end.

chaos          users submit, stop, change and delete; faults are injected; managers crash, pause and restart
healing        faults stop. Long-running jobs continue, so Workloads are pending; all writes must cease
restart        new managers on the same store: they must admit nothing, and write nothing
taking over    new managers once more, and a new Workload: they must decide soon
the end        long-running jobs may finish: now every Workload that fits its queue must have run
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery import turns
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubeserver.admission.chain import AdmissionHook
from kubeserver.assembly import FindObjects
from pykueue import settings
from pykueue.app import options
from pykueue.app.server import managed_parts
from pykueue.controllers.assembly import ManagerOptions
from pykueue.testing.installed_server import installed
from pykueue.testing.virtual_loop import Stuck, VirtualClock, VirtualLoop
from simulation.engine import checkers, setup, traits, user_actions
from simulation.engine.cluster import Autoscaler, Crews, Kubelet
from simulation.engine.faults import TROUBLES, FaultPlan, Kill
from simulation.engine.managers import Member
from simulation.engine.operators import OPERATORS
from simulation.engine.owners import CheckController, JobController, Owners, Stage
from simulation.engine.replica_controllers import ReplicaControllers
from simulation.engine.revisions import CHATTER, Mark, Stored, Violation
from simulation.engine.server import Disk, Server, WebhookState
from simulation.engine.stored_state import LEASE_SECONDS
from simulation.engine.users import Users

# Longer than any pause that the product makes between two tries, a lease included.
QUIET_SECONDS: Final = 70.0
LONGEST_SECONDS: Final = 900.0
_HOUR_SECONDS: Final = 3600.0
_PARTS: Final = ("traits", "later traits", "world", "weather", "later weather", "server", "disk", "people", "owners")
_PLAYERS: Final = (Owners, JobController, CheckController, Kubelet, Autoscaler, *OPERATORS)
# A lost lease and a full disk are logged as errors; here they are expected. Logger and prefix of the message.
_EXPECTED: Final = {"kubemachinery.client.leader_election": "", "kubeserver.storage.objects": "a commit failed, "}


@dataclass(slots=True)
class Report:
    """The result of one seed."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    traits: frozenset[str] = frozenset()
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)  # what happened, so that a run without events is noticed
    longest_wait_seconds: float = 0.0  # for which a Workload that fits was overtaken
    revisions: int = 0
    writes: int = 0  # of the managers
    kill: Kill | None = None
    digest: str = ""
    trace: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        kill = "" if self.kill is None else f" --kill-at {self.kill}"
        return f"python -m simulation.engine --replay {self.seed}{kill}"


def run(
    seed: int,
    rates: Mapping[str, float] | None = None,
    also: Collection[str] = (),
    kill: Kill | None = None,
) -> Report:
    """Run a seed. The same seed gives the same run.

    `rates` and `also` are for faults and traits of one's own choice. A run with a `kill` has no other faults.
    """
    report = Report(seed, kill=kill)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _errors_recorded(report), contextlib.suppress(Stuck), asyncio.Runner(loop_factory=VirtualLoop) as runner:
            simulation = SimulationRun(seed, report, VirtualClock(runner.get_loop()), {} if kill else rates, also)
            try:
                runner.run(simulation.execute())
            except Stuck as error:
                runner.get_loop().set_exception_handler(lambda loop, context: None)
                report.violations.append(Violation("L6", 0, "", f"time stands still: {error}"))
            simulation.check_history()
    finally:
        if collecting:
            gc.enable()
    return report


def killed_at_every_write(seed: int, step: int = 1, first: int = 1) -> Iterator[Report]:
    """Run a seed without faults, repeatedly: each time its manager is killed at another of its writes,
    once just before it and once just after."""
    writes = run(seed, {}).writes
    for write in range(first, writes + 1, step):
        for is_after in (False, True):
            yield run(seed, kill=Kill(write, is_after))


class _Over(Exception):
    """Something is so wrong that nothing else can be asked any more."""


class SimulationRun:
    def __init__(
        self,
        seed: int,
        report: Report,
        clock: VirtualClock,
        rates: Mapping[str, float] | None,
        also: Collection[str],
    ) -> None:
        self._report = report
        self._clock = clock
        self._seed = seed
        # One stream of chance for each part, so that a change in one does not shift the others.
        self._chances = {part: random.Random(f"{seed} {part}") for part in _PARTS}
        drawn = traits.draw(self._chances["traits"], self._chances["later traits"])
        self.traits = report.traits = drawn | frozenset(also)
        self.configuration = traits.configuration(self.traits, self._chances["traits"])
        self.world = setup.draw(self._chances["world"], self.traits)
        self.actions = user_actions.draw(self._chances["world"], self.traits, self.world)
        self.fault_plan = FaultPlan.drawn(self._chances["weather"], self._chances["later weather"])
        if rates is not None:
            self.fault_plan.rates = dict(rates)
        self.fault_plan.kill = report.kill
        self._installed = installed()
        self._trace: list[str] = []
        self._marks: list[Mark] = []
        self._last_write = 0.0
        self._under_way: set[asyncio.Task[None]] = set()
        self._restarting = asyncio.Lock()

    # --- Phases -------------------------------------------------------------------------------------------------------

    async def execute(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="pykueue-")) if "disk" in self.traits else None
        try:
            await self._execute(folder)
        finally:
            if folder is not None:
                shutil.rmtree(folder)

    async def _execute(self, folder: Path | None) -> None:
        if "short turns" in self.traits:
            turns.limit(asyncio.get_running_loop(), -1)
        plugins, choices = _configured(msgspec.json.encode(self.configuration))
        choices.kinds.not_served.clear()  # an earlier run of the configuration may have left some
        self.server = Server(
            self._installed, self._clock, self._chances["server"], plugins, folder, Disk(self._chances["disk"])
        )
        self.server.history.listeners.append(self._stored)
        client = ApiClient(self.server, self._chances["people"])
        stage = Stage(
            self.world,
            client,
            self._clock,
            self._chances["owners"],
            self._note,
            # A run of an hour exceeds every timeout for pods, also the default one.
            watches_pods="pods ready" in self.traits or "hour fast" in self.fault_plan.rates,
        )
        played = [player(stage, self.server.history) for player in _PLAYERS]
        users = Users(self.world, self.actions, client, self._note)
        crews = Crews(stage, self.server.history, users.wants)
        replicas = ReplicaControllers(stage, self.server.history)
        await self.server.start()
        await users.build()
        self.members = self._drawn_members(choices)
        for member in self.members:
            member.begin()
        acting = asyncio.create_task(users.act())
        dying = asyncio.create_task(self._bring_back_killed())
        with contextlib.suppress(_Over):
            await self._chaos()
            await self._heal(stage)
            await acting
            if self.fault_plan.fired["hour fast"]:
                await asyncio.sleep(_HOUR_SECONDS)
            await self._rest("healed")
            for member in self.members:
                await self._restart(member)
            await self._rest("restarted")
            self.fault_plan.lag_seconds = 0.0  # what counts is how long the manager takes, not what it reads
            for member in self.members:
                await self._restart(member)
            self.fault_plan.counts_writes = False  # to be killed now would cost another lease
            await self._probe(users)
            await asyncio.sleep(LEASE_SECONDS)
            self.fault_plan.counts_writes = True
            stage.long_may_end.set()
            await self._rest("ended")
        acting.cancel()
        dying.cancel()
        for member in self.members:
            await self._crash(member)
        for player in (*played, crews, replicas):
            await player.close()
        await self.server.close()

    async def _probe(self, users: Users) -> None:
        try:
            await users.probe()
        except KubeError as error:
            self._report.violations.append(Violation("S11", 0, "", f"nothing is taken though all is well: {error}"))
            raise _Over from error

    def _drawn_members(self, choices: ManagerOptions) -> list[Member]:
        names = ("a", "b") if "two managers" in self.traits else ("a",)
        return [
            Member(
                name,
                self.server,
                self.fault_plan,
                choices,
                random.Random(f"{self._seed} manager {name}"),
                is_alone=len(names) == 1,
                keeps_events=self._seed % 8 == 0,
                order_rng=random.Random(f"{self._seed} order {name}") if "informer order" in self.traits else None,
            )
            for name in names
        ]

    async def _chaos(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < setup.CHAOS_SECONDS:
            await asyncio.sleep(1.0)
            for name, strike in _STRIKES.items():
                if self.fault_plan.strikes(name):
                    await asyncio.sleep(self.fault_plan.rng.uniform(0.0, 1.0))
                    await strike(self, self.fault_plan.rng.choice(self.members))

    async def _heal(self, stage: Stage) -> None:
        self.fault_plan.end()
        stage.is_calm = True
        for task in self._under_way:
            task.cancel()
        self.server.webhooks = WebhookState.OPEN
        self.server.disk.is_full = False
        for member in self.members:
            member.go_on()
            member.transport.reconnect()
            member.clock.wrong_by_seconds = 0.0
        self._note("-- the faults are over")

    async def _rest(self, name: str) -> None:
        """Wait until nothing has been written for a while. One who never comes to rest writes in circles."""
        loop = asyncio.get_running_loop()
        start, self._last_write = loop.time(), loop.time()
        while loop.time() - self._last_write < QUIET_SECONDS:
            if loop.time() - start > LONGEST_SECONDS:
                self._report.violations.append(Violation("L6", 0, "", f"never {name}: writes go on and on"))
                raise _Over
            await asyncio.sleep(1.0)
        for member in self.members:
            for difference in await member.differences():
                self._report.violations.append(Violation("L4", 0, member.name, difference))
        self._marks.append(Mark(name, len(self.server.history.stored)))
        self._note(f"-- at rest: {name}")

    def _stored(self, stored: Stored) -> None:
        is_sample = "admission fair sharing" in self.traits and stored.resource.startswith("localqueues.")
        if stored.resource not in CHATTER and not is_sample:
            self._last_write = asyncio.get_running_loop().time()

    def _note(self, line: str) -> None:
        self._trace.append(f"{asyncio.get_running_loop().time():9.3f} {line}")

    # --- Troubles -----------------------------------------------------------------------------------------------------

    async def _crash(self, member: Member) -> None:
        died = await member.crash()
        if died:
            self._report.violations.append(Violation("alive", 0, member.name, died))

    async def _restart(self, member: Member, pause: float = 0.0) -> None:
        async with self._restarting:
            await self._crash(member)
            self._note(f"-- manager {member.name} is gone")
            await asyncio.sleep(pause)
            member.begin()
            self._note(f"-- manager {member.name} begins again")

    async def _bring_back_killed(self) -> None:
        while True:
            killed = await self.fault_plan.killed.get()
            for member in self.members:
                if member.transport is killed:
                    await self._restart(member)

    async def _strike_crash(self, member: Member) -> None:
        await self._restart(member, self.fault_plan.rng.choice((0.0, 0.5, 5.0)))

    async def _strike_pause(self, member: Member) -> None:
        seconds = self.fault_plan.rng.uniform(1.0, 30.0)
        self._note(f"-- manager {member.name} stands still for {seconds:.1f} seconds")
        member.stand_still()
        self._later(seconds, member.go_on)

    async def _strike_cut_off(self, member: Member) -> None:
        seconds = self.fault_plan.rng.uniform(1.0, 30.0)
        self._note(f"-- manager {member.name} is cut off for {seconds:.1f} seconds")
        member.transport.cut_off()
        self._later(seconds, member.transport.reconnect)

    async def _strike_clock(self, member: Member) -> None:
        self._set_clock(member, self.fault_plan.rng.uniform(-60.0, 60.0))

    async def _strike_hour(self, member: Member, seconds: float) -> None:
        self._set_clock(member, seconds)
        self._later(self.fault_plan.rng.uniform(1.0, 20.0), lambda: self._set_clock(member, 0.0))

    def _set_clock(self, member: Member, wrong_by_seconds: float) -> None:
        member.clock.wrong_by_seconds = wrong_by_seconds
        self._note(f"-- the clock of manager {member.name} is wrong by {member.clock.wrong_by_seconds:.1f} seconds")

    async def _strike_history(self, member: Member) -> None:
        await self.server.compact()
        for each in self.members:
            each.transport.drop_watches()
        self._note("-- the history is gone")

    async def _strike_server(self, member: Member) -> None:
        await self.server.kill()
        self._note("-- the server was killed and is back")
        if self.server.lost:
            raise _Over

    async def _strike_disk(self, member: Member) -> None:
        seconds = self.fault_plan.rng.uniform(0.5, 15.0)
        self._note(f"-- the disk is full for {seconds:.1f} seconds")
        self.server.disk.is_full = True
        self._later(seconds, lambda: setattr(self.server.disk, "is_full", False))

    async def _strike_webhooks(self, state: WebhookState) -> None:
        self.server.webhooks = state
        self._note(f"-- webhooks: {state.name.lower()}")
        self._later(self.fault_plan.rng.uniform(1.0, 10.0), lambda: setattr(self.server, "webhooks", WebhookState.OPEN))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            act()

        task = asyncio.create_task(wait())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    # --- Judging ------------------------------------------------------------------------------------------------------

    def check_history(self) -> None:
        report, history = self._report, self.server.history
        found = checkers.check_history(history.stored, self._marks, self.configuration)
        report.violations += [
            Violation("S11", 0, about, "differs after the server came back") for about in self.server.lost
        ]
        report.violations += [Violation("S11", 0, "the disk is full", what) for what in self.server.wrong]
        report.violations += found.violations
        report.seen = found.seen
        report.longest_wait_seconds = found.longest_wait_seconds
        report.faults = self.fault_plan.fired
        report.revisions = len(history.stored)
        report.writes = self.fault_plan.writes
        report.digest = history.digest()
        report.trace = sorted((*self._trace, *found.trace), key=lambda line: float(line[:9]))


_STRIKES: Final[Mapping[str, Callable[[SimulationRun, Member], Awaitable[None]]]] = {
    "crash": SimulationRun._strike_crash,
    "history gone": SimulationRun._strike_history,
    "pause": SimulationRun._strike_pause,
    "clock set": SimulationRun._strike_clock,
    "server killed": SimulationRun._strike_server,
    "webhooks down": lambda simulation, _: simulation._strike_webhooks(WebhookState.DOWN),
    "webhooks missing": lambda simulation, _: simulation._strike_webhooks(WebhookState.MISSING),
    "cut off": SimulationRun._strike_cut_off,
    "hour slow": lambda simulation, member: simulation._strike_hour(member, -_HOUR_SECONDS),
    "hour fast": lambda simulation, member: simulation._strike_hour(member, _HOUR_SECONDS),
    "disk full": SimulationRun._strike_disk,
}
assert _STRIKES.keys() == TROUBLES.keys()


@lru_cache(maxsize=256)
def _configured(configuration: bytes) -> tuple[Callable[[FindObjects], Sequence[AdmissionHook]], ManagerOptions]:
    """The webhooks and manager options of a configuration. Many runs share one."""
    chosen = settings.load(msgspec.json.decode(configuration))
    # A manager that cannot read its objects in time ends, and its cluster starts it again; here it goes on trying.
    return managed_parts(chosen).plugins, replace(options.manager_options(chosen), sync_timeout_seconds=None)


@contextlib.contextmanager
def _errors_recorded(report: Report) -> Iterator[None]:
    """A broken invariant is logged; here it is a violation."""
    handler = _Errors(report)
    root = logging.getLogger("pykueue")
    level, propagate = root.level, root.propagate
    root.addHandler(handler)
    root.setLevel(logging.ERROR)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        root.propagate = propagate


class _Errors(logging.Handler):
    def __init__(self, report: Report) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.name not in _EXPECTED or not message.startswith(_EXPECTED[record.name]):
            reason = f": {record.exc_info[1]!r}" if record.exc_info else ""
            self._report.violations.append(Violation("promise", 0, "", f"{message}{reason}"))
