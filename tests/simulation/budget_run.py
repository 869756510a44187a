"""Runs of a system with a Budget from a seed: jobs come and go, managers are stopped and killed, the disk is full, the
clock jumps ahead or back, a day ends. A judge reads every revision; accounts and answers are compared with it at many moments."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from controllers.budget_world import CHECKS, WORKLOADS, BudgetWorld, budget, budget_world
from kubemachinery import meta
from kubemachinery.client.errors import ApiError
from kubemachinery.meta import SECOND
from pykueue.api import kueue, registry
from pykueue.controllers.assembly import Manager
from simulation.budget_judge import BudgetJudge
from simulation.engine.revisions import Violation
from simulation.judged_journal import JudgedJournal

LOCAL_QUEUES = registry.ALL.of(kueue.LocalQueue)
# 0.1 core hours, in milli core seconds.
LIMIT = 360_000
_BEGIN, _END = -400, 150
_ACTIONS = ("submit", "submit", "submit", "cancel", "restart", "kill", "wait")
FAULTS = ("disk", "clock")
BACK = ("back", "back", "clock")


class BudgetRun:
    """One run. `violations` are what the judge found."""

    def __init__(self, seed: int, made: BudgetWorld, judge: BudgetJudge, faults: Sequence[str] = ()) -> None:
        self._rng = random.Random(seed)
        self._made = made
        self._judge = judge
        self._faults = faults
        self._stack = AsyncExitStack()
        self._manager: Manager | None = None
        self._jobs: list[str] = []
        self._submitted = 0
        # A check of another controller, so that time passes between reservation and admission.
        self._has_slow_check = self._rng.random() < 0.6
        self._full_until = float("-inf")  # the time of the event loop until which the disk is full
        self.compared = self.full_disks = self.jumps = self.steps_back = 0

    async def play(self) -> None:
        rng, made = self._rng, self._made
        async with self._stack:
            await self._start()
            spec = {"per": "LocalQueue", "whenSpent": rng.choice(("LetRun", "LetRun", "Evict"))}
            if self._has_slow_check:
                await self._install_slow_check()
            await made.install(budget(**spec), others=("slow",) if self._has_slow_check else ())
            self._judge.created(made.clock.now() // SECOND)
            await made.api.create(LOCAL_QUEUES, _queue("second"))
            # Half of the runs restart over midnight, so that no manager sees the day end.
            restarts_over_midnight = rng.random() < 0.5
            while made.now < _END:
                await self._act()
                if self._has_slow_check:
                    await self._answer_slow_check()
                pause = rng.choice((1.5, 7.25, 20.0, 28.0))
                if made.now < 0 <= made.now + pause:
                    await self._pass_midnight(restarts_over_midnight)
                else:
                    await asyncio.sleep(pause)
                self._compare()
            await self._stop(kill=False)

    async def _act(self) -> None:
        rng, made = self._rng, self._made
        match rng.choice((*_ACTIONS, *self._faults)):
            case "submit":
                self._submitted += 1
                name = f"job-{self._submitted}"
                queue = rng.choice(("default", "default", "second"))
                seconds, cpu = rng.choice((20, 90, 200, 700)), rng.choice((1, 1, 2, 3))
                await made.submit(name, seconds, cpu=cpu, queue=queue)
                self._jobs.append(name)
            case "cancel" if self._jobs and rng.random() < 0.5:
                await made.client.cancel(self._jobs.pop(rng.randrange(len(self._jobs))))
            case "restart" | "kill" as how:
                if rng.random() < 0.4:
                    await self._restart(rng.choice((0.0, 3.0, 25.0)), kill=how == "kill")
            case "disk":
                self._fill_disk(rng.choice((12.0, 40.0)))
            case "clock":
                step = rng.choice((1.0, 5.0, 30.0))
                if not made.now < 0 <= made.now + step + 2:
                    made.clock.wrong_by_seconds += step
                    self.jumps += 1
            case "back":
                self._compare()  # the accounts have seen the time from which the clock goes back
                made.clock.wrong_by_seconds -= rng.choice((2.0, 30.0, 90.0))
                self.steps_back += 1
            case _:
                pass

    def _fill_disk(self, seconds: float) -> None:
        """The store refuses every write for a time."""
        recorder = self._manager.history if self._manager is not None else None
        store = recorder._store if recorder is not None else None
        if store is None:
            return
        store._connection.execute("PRAGMA query_only = ON")
        self._full_until = asyncio.get_running_loop().time() + seconds
        asyncio.get_running_loop().call_later(seconds, store._connection.execute, "PRAGMA query_only = OFF")
        self.full_disks += 1

    async def _disk_has_space(self) -> None:
        """Wait until the store is written again: what only the memory has would be lost with the manager."""
        await asyncio.sleep(max(0.0, self._full_until + 6 - asyncio.get_running_loop().time()))

    async def _install_slow_check(self) -> None:
        tree = {"apiVersion": kueue.API_VERSION, "kind": "AdmissionCheck", "metadata": {"name": "slow"}}
        await self._made.api.create(CHECKS, {**tree, "spec": {"controllerName": "example.com/slow"}})
        active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
        status = {"conditions": [{**active, "lastTransitionTime": self._written_now()}]}
        await self._made.api.patch(CHECKS, "slow", {"status": status}, subresource="status")

    async def _answer_slow_check(self) -> None:
        """Answer Ready to some of the Workloads with quota."""
        for tree in await self._made.all(WORKLOADS):
            entries = tree.get("status", {}).get("admissionChecks", [])
            if "admission" not in tree.get("status", {}) or self._rng.random() < 0.4:
                continue
            answered = [
                {**each, "state": "Ready", "lastTransitionTime": self._written_now()}
                if each["name"] == "slow"
                else each
                for each in entries
            ]
            metadata = {"resourceVersion": tree["metadata"]["resourceVersion"]}
            patch = {"metadata": metadata, "status": {"admissionChecks": answered}}
            with suppress(ApiError):
                await self._made.api.patch(
                    WORKLOADS, tree["metadata"]["name"], patch, tree["metadata"]["namespace"], subresource="status"
                )

    def _written_now(self) -> str:
        return meta.format_time(self._made.clock.now())

    async def _pass_midnight(self, restarts: bool) -> None:
        if restarts:
            await self._stop(kill=self._rng.random() < 0.5)
            await self._made.until(1)
            await self._start()
            await asyncio.sleep(2)
        else:
            await self._made.until(3)
        self._compare()
        # Those that waited for this day are back in the queue.
        at = self._judge.latest(self._made.clock.now() // SECOND)
        for group in self._judge.waits_in_vain(at):
            self._judge.violations.append(Violation("BU4", 0, group, "a Workload waits although hours are left"))

    # --- Managers -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._judge.started(self._made.clock.now() // SECOND)
        self._manager = await self._stack.enter_async_context(self._made.manager())

    async def _stop(self, *, kill: bool) -> None:
        await self._disk_has_space()
        manager, self._manager = self._manager, None
        if kill and manager is not None and manager.history is not None:
            # What was not stored is lost.
            manager.history._unsaved.clear()
        await self._stack.pop_all().aclose()

    async def _restart(self, gap: float, *, kill: bool) -> None:
        if self._made.now < 0 <= self._made.now + gap + 2:
            return
        await self._stop(kill=kill)
        await asyncio.sleep(gap)
        await self._start()
        await asyncio.sleep(1)

    # --- Comparing ----------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Hold the accounts of the manager against the judge [BU-L1], [BU-L5], [BU11]."""
        budgets = self._manager.budgets if self._manager is not None else None
        book = budgets.books.get("cpu") if budgets is not None else None
        if book is None:
            return
        at, groups = self._judge.latest(self._made.clock.now() // SECOND), sorted(self._judge.groups())
        self._judge.looked(book.accounts.now, {group: book.accounts.spent((group, "cpu")) // 1000 for group in groups})
        for group in groups:
            key = (group, "cpu")
            found = book.accounts.spent(key) // 1000, book.ledger.allowance(key) // 1000
            wanted = self._judge.spent(group, at), self._judge.allowance(group, at)
            self.compared += 1
            for law, one, other in zip(("BU-L1", "BU-L5"), found, wanted, strict=True):
                if one != other:
                    self._judge.violations.append(Violation(law, 0, group, f"{one} and not {other} at {at}"))


def _queue(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    spec = {"clusterQueue": "default"}
    return {"apiVersion": kueue.API_VERSION, "kind": "LocalQueue", "metadata": metadata, "spec": spec}


async def run(seed: int, path: Path, faults: Sequence[str] = ()) -> tuple[list[Violation], int, dict[str, int]]:
    """The violations of a run, how many amounts were compared, and how often each answer was given and faults
    happened."""
    judge = BudgetJudge("check-cpu", LIMIT)
    async with budget_world(path / f"history-{seed}.db", JudgedJournal(judge), _BEGIN) as made:
        played = BudgetRun(seed, made, judge, faults)
        await played.play()
    happened = {"full disks": played.full_disks, "jumps": played.jumps, "steps back": played.steps_back}
    return judge.violations, played.compared, {**judge.answers, **happened}
