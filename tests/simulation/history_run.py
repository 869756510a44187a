"""Runs of a system with a history from a seed: jobs come, are preempted, deactivated and deleted, while managers are
stopped and killed, watches are lost, and the disk is full. A judge reads every revision; the records are compared."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from history.recorded_world import WORKLOADS, RecordedWorld, chosen_settings, recorded_server
from kubemachinery import http_messages
from kubemachinery.client.errors import ApiError
from kubemachinery.meta import SECOND, parse_time
from kubeserver.assembly import Embedded
from pykueue.api import kueue, registry
from pykueue.controllers.assembly import Manager
from pykueue.history.documents import JobRecord
from simulation.engine.revisions import Violation
from simulation.history_judge import HistoryJudge, JudgedWorkload
from simulation.judged_journal import JudgedJournal

CLUSTER_QUEUES = registry.ALL.of(kueue.ClusterQueue)
PRIORITY_CLASSES = registry.ALL.of(kueue.WorkloadPriorityClass)
_ACTIONS = (
    "submit",
    "submit",
    "submit",
    "urgent",
    "cancel",
    "delete",
    "deactivate",
    "restart",
    "kill",
    "disk",
    "watches",
    "vanish",
)
_STEPS = 30
# So long after a change it is recorded: a watch that was lost is back, and the store was tried again.
_SETTLED_SECONDS = 60


class _Network:
    """The line between the server and its clients: watches end, and the next ones have missed revisions."""

    def __init__(self, embedded: Embedded) -> None:
        self._handle = embedded.server.handle_as
        self._streams: set[asyncio.Task[None]] = set()
        self._is_down = False
        self._stale: set[str] = set()  # paths whose next watch from a revision is refused
        embedded.server.handle_as = self._answered  # type: ignore[method-assign]

    async def _answered(self, user: Any, request: http_messages.Request) -> http_messages.Response:
        is_watch = request.first("watch") in ("1", "true") and request.path.endswith("workloads")
        if is_watch and self._is_down:
            return http_messages.Response(503, _status(503, "ServiceUnavailable"))
        if is_watch and request.path in self._stale and request.first("resourceVersion") not in ("", "0"):
            self._stale.discard(request.path)
            return http_messages.Response(410, _status(410, "Expired"))
        response = await self._handle(user, request)
        if is_watch and response.stream is not None:
            response.stream = self._cut(response.stream)
        return response

    def _cut(self, stream: http_messages.Stream) -> http_messages.Stream:
        async def until_dropped(write: Any) -> None:
            sent: asyncio.Task[None] = asyncio.ensure_future(stream(write))
            self._streams.add(sent)
            try:
                await asyncio.wait({sent})
            finally:
                self._streams.discard(sent)
                sent.cancel()

        return until_dropped

    async def lose_watches(self, seconds: float) -> None:
        """End the watches of Workloads, refuse new ones for a time, and then those that continue from before."""
        self._is_down = True
        self._stale.add("/apis/kueue.x-k8s.io/v1beta2/workloads")
        for stream in list(self._streams):
            stream.cancel()
        await asyncio.sleep(seconds)
        self._is_down = False


def _status(code: int, reason: str) -> bytes:
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    )


class HistoryRun:
    """One run. `violations` are where the records differ from the judge."""

    def __init__(self, seed: int, made: RecordedWorld, judge: HistoryJudge) -> None:
        self._rng = random.Random(seed)
        self._made = made
        self._judge = judge
        self._network = _Network(made.embedded)
        self._stack = AsyncExitStack()
        self._manager: Manager | None = None
        self._jobs: list[str] = []
        self._is_full = False
        self.violations: list[Violation] = []
        self.happened: Counter[str] = Counter()

    async def play(self) -> None:
        rng, made = self._rng, self._made
        async with self._stack:
            await self._start()
            await made.api.patch(
                CLUSTER_QUEUES, "default", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
            )
            high = {"apiVersion": kueue.API_VERSION, "kind": "WorkloadPriorityClass", "value": 10}
            await made.api.create(PRIORITY_CLASSES, {**high, "metadata": {"name": "high"}})
            for _ in range(_STEPS):
                await self._act(rng.choice(_ACTIONS))
                await asyncio.sleep(rng.choice((0.5, 1.5, 7.25, 20.0, 40.0)))
                if rng.random() < 0.2:
                    await self._compare()
            self._set_disk(full=False)
            await asyncio.sleep(_SETTLED_SECONDS)
            await self._compare(at_end=True)

    async def _act(self, what: str) -> None:
        rng, made = self._rng, self._made
        self.happened[what] += 1
        match what:
            case "submit" | "urgent":
                name = f"job-{self.happened['submit'] + self.happened['urgent']}"
                more = {"priority_class": "high"} if what == "urgent" else {}
                await made.submit(name, rng.choice((5, 60, 200)), cpu=rng.choice((1, 3, 6)), **more)
                self._jobs.append(name)
            case "cancel" if self._jobs:
                await made.client.cancel(self._jobs.pop(rng.randrange(len(self._jobs))))
            case "delete" | "deactivate":
                found = [
                    msgspec.json.decode(each)["metadata"]["name"] for each in (await made.api.list(WORKLOADS)).items
                ]
                if found:
                    name = rng.choice(sorted(found))
                    with suppress(ApiError):
                        if what == "delete":
                            await made.api.delete(WORKLOADS, name, "default")
                        else:
                            await made.api.patch(WORKLOADS, name, {"spec": {"active": False}}, "default")
            case "vanish":  # killed right after a Workload is gone
                await self._act("delete")
                await asyncio.sleep(rng.choice((0.05, 0.2, 0.5)))
                await self._restart(1.0, kill=True)
            case "restart" | "kill":
                await self._restart(rng.choice((0.0, 3.0, 60.0)), kill=what == "kill")
            case "disk":
                self._set_disk(full=not self._is_full)
            case "watches":
                await self._network.lose_watches(rng.choice((2.0, 15.0)))

    def _set_disk(self, *, full: bool) -> None:
        """A full disk: the store refuses every write."""
        recorder = self._manager.history if self._manager is not None else None
        store = recorder._store if recorder is not None else None
        if store is not None:
            self._is_full = full
            store._connection.execute(f"PRAGMA query_only = {'ON' if full else 'OFF'}")

    # --- Managers -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._manager = await self._stack.enter_async_context(self._made.manager())

    async def _restart(self, gap: float, *, kill: bool) -> None:
        manager, self._manager = self._manager, None
        assert manager is not None
        recorder = manager.history
        assert recorder is not None
        if self._is_full or recorder._is_failing:
            # What only the memory has is lost with the manager; here the disk has space again before that.
            self._manager = manager
            self._set_disk(full=False)
            self._manager = None
            await asyncio.sleep(12)
        if kill:
            recorder._unsaved.clear()  # what was not stored is lost
        await self._stack.pop_all().aclose()
        await asyncio.sleep(gap)
        await self._start()

    # --- Comparing ----------------------------------------------------------------------------------------------------

    async def _compare(self, *, at_end: bool = False) -> None:
        """Hold the records against the judge [HI-L1]."""
        recorder = self._manager.history if self._manager is not None else None
        if recorder is None or self._is_full or recorder._is_failing:
            return
        found = {each.metadata.name: each for each in await self._made.client.history()}
        now = self._made.clock.now() // SECOND
        for uid, judged in self._judge.known.items():
            if not at_end and judged.changed + _SETTLED_SECONDS > now:
                continue
            record = found.get(uid)
            if record is None:
                self._fail(judged, "has no record")
            elif record.state == "Unknown":
                self._fail(judged, "disappeared before its end was stored")
            elif record.inexact:
                self.happened["inexact"] += 1
            else:
                self._compare_one(record, judged, now)
        if at_end:
            self.happened["compared"] += len(found)
            self.happened["attempts"] += sum(len(each.attempts) for each in found.values())
            self.happened["evicted"] += sum(each.reason == "Preempted" for r in found.values() for each in r.attempts)

    def _compare_one(self, record: JobRecord, judged: JudgedWorkload, now: int) -> None:
        attempts = [
            (_seconds(each.reserved), _seconds(each.admitted), _seconds(each.released), each.reason)
            for each in record.attempts
        ]
        wanted = [each.times() for each in judged.attempts]
        if attempts != wanted:
            self._fail(judged, f"attempts {attempts} and not {wanted}")
        ended = _seconds(record.ended), record.state if record.ended else ""
        if ended != (judged.ended, judged.outcome):
            self._fail(judged, f"ended {ended} and not {(judged.ended, judged.outcome)}")
        if _seconds(record.submitted) != judged.submitted:
            self._fail(judged, f"submitted {record.submitted}")
        used = sum(
            (_milli(part.amount)) * ((_seconds(part.end) or now) - (_seconds(part.start) or 0))
            for each in record.attempts
            for part in each.usage
            if each.admitted is not None and part.resource == "cpu" and part.start >= each.admitted
        )
        if used != judged.milli_seconds(now):
            self._fail(judged, f"used {used} and not {judged.milli_seconds(now)}")

    def _fail(self, judged: JudgedWorkload, what: str) -> None:
        self.violations.append(Violation("HI-L1", 0, judged.name, what))


def _seconds(text: str | None) -> int | None:
    return None if text is None else parse_time(text) // SECOND


def _milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


async def run(seed: int, path: Path) -> tuple[list[Violation], Counter[str]]:
    """The violations of a run, and how often what happened."""
    judge, chosen = HistoryJudge(), chosen_settings()
    async with recorded_server(chosen, JudgedJournal(judge)) as (embedded, clock):
        played = HistoryRun(seed, RecordedWorld(embedded, clock, path / f"history-{seed}.db", chosen), judge)
        await played.play()
    return played.violations, played.happened
