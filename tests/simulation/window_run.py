"""Runs of a system with QuotaSchedules and planned backfill from a seed: Workloads come and end within their limits,
windows begin and end, managers are stopped and started. A judge reads every revision."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from typing import Any

from controllers.test_clock import kind, leading
from controllers.test_quota_schedules import Site, target
from kubemachinery.client.errors import ApiError
from kubemachinery.meta import SECOND, format_time
from pykueue.testing.virtual_loop import VirtualClock
from simulation.engine.revisions import Violation
from simulation.judged_journal import JudgedJournal
from simulation.window_judge import WindowJudge
from virtual import server

QUOTAS = {"plan": 8, "evict": 6}
GATES: dict[str, object] = {"featureGates": {"QuotaCalendar": True, "PlannedBackfill": True}}
MINUTES = 70
TICK_SECONDS = 20


class ScheduledRun:
    """One run. The ClusterQueue `plan` has backfill and windows that are known from the begin; `evict` has windows with
    `onStart: Evict`."""

    def __init__(self, rng: random.Random, made: Site, judge: WindowJudge, approach: str) -> None:
        self._rng = rng
        self._made = made
        self._judge = judge
        self._approach = approach
        self._stack = AsyncExitStack()
        self._ends: dict[str, int] = {}  # when a Workload that holds quota ends by itself
        self._lengths: dict[str, int] = {}
        self._number = 0

    @property
    def _now(self) -> int:
        return self._made.clock.now() // SECOND

    async def play(self) -> None:
        rng = self._rng
        await self._install()
        end = self._now + MINUTES * 60
        async with self._stack:
            await self._start()
            while self._now < end:
                if rng.random() < 0.25 and self._now < end - 1_500:
                    await self._submit()
                if rng.random() < 0.03:
                    await self._restart(rng.choice((1, 1, 1, 100)))
                await asyncio.sleep(TICK_SECONDS)
                await self._end_runs()
                self._judge.look(self._now)
            await self._stack.pop_all().aclose()
        self._judge.manage(None)

    async def _install(self) -> None:
        rng, made = self._rng, self._made
        await made.create("ResourceFlavor", "plain", {})
        mode = rng.choice(("EASY", "Conservative"))
        # In a BestEffortFIFO queue a Workload that is planned later may be ahead in order, which is a cause [BF8].
        await made.queue("plan", QUOTAS["plan"], queueingStrategy="StrictFIFO")
        marks = {"pykueue.io/backfill": mode}
        await made.client.patch(kind("ClusterQueue"), "plan", {"metadata": {"annotations": marks}})
        await made.queue("evict", QUOTAS["evict"])
        for number in range(4):
            entry: dict[str, Any] = rng.choice(({"nominalQuota": rng.randrange(7)}, {"change": rng.randrange(-4, 3)}))
            spec = {"onStart": "Evict"} if number % 2 else {"approach": self._approach}
            start = rng.randrange(5, 50)
            await made.schedule(
                f"s{number}",
                start,
                start + rng.randrange(3, 25),
                target("evict" if number % 2 else "plan", **entry),
                **spec,
            )

    async def _submit(self) -> None:
        rng = self._rng
        self._number += 1
        if rng.random() < 0.7:
            limit = rng.choice((300, 600, 900, 1_800))
            name = f"w{self._number:03}-{rng.choice((1, 2, 3, 4, 6, 8))}"
            self._lengths[name] = rng.randrange(60, limit - 2 * TICK_SECONDS)
            await self._made.workload(
                name, cpu=int(name.split("-")[1]), queue="plan", maximumExecutionTimeSeconds=limit
            )
        else:
            name = f"w{self._number:03}-{rng.choice((1, 2))}"
            self._lengths[name] = rng.randrange(600, 3_000)
            await self._made.workload(name, cpu=int(name.split("-")[1]), queue="evict", priority=rng.randrange(3))

    async def _end_runs(self) -> None:
        """Finish the Workloads whose time has come, and delete those that are evicted: their jobs have stopped."""
        for name in self._judge.running():
            if self._now >= self._ends.setdefault(name, self._now + self._lengths[name]):
                with suppress(ApiError):
                    await self._finish(name)
        for name in self._judge.stopping():
            with suppress(ApiError):
                await self._made.client.delete(kind("Workload"), name, "default")

    async def _finish(self, name: str) -> None:
        client, row = self._made.client, kind("Workload")
        tree = await client.get(row, name, "default")
        done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        done["lastTransitionTime"] = format_time(self._made.clock.now())
        found = [each for each in tree["status"]["conditions"] if each["type"] != "Finished"]
        patch = {
            "metadata": {"resourceVersion": tree["metadata"]["resourceVersion"]},
            "status": {"conditions": [*found, done]},
        }
        await client.patch(row, name, patch, "default", subresource="status")

    async def _start(self, after: int = 0) -> None:
        await self._stack.enter_async_context(leading(self._made.client, self._made.clock, GATES))
        self._judge.manage(self._now, after=after)

    async def _restart(self, gap: int) -> None:
        await self._stack.pop_all().aclose()
        self._judge.manage(None)
        for _ in range(gap // TICK_SECONDS):
            await asyncio.sleep(TICK_SECONDS)
            await self._end_runs()
        await asyncio.sleep(gap % TICK_SECONDS)
        await self._start(gap if gap > 1 else 0)


async def run(seed: int) -> tuple[list[Violation], dict[str, int]]:
    """The violations of a run, and how often what they are about happened."""
    rng = random.Random(seed)
    approach = rng.choice(("EndBefore", "EndBefore", "Ignore"))
    judge = WindowJudge(QUOTAS, keeps_free=approach == "EndBefore")
    async with server(JudgedJournal(judge)) as client:
        made = Site(client, VirtualClock(asyncio.get_running_loop()))
        await ScheduledRun(rng, made, judge, approach).play()
    return judge.violations, judge.counted
