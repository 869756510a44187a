"""Writes why Workloads are pending, throttled.

Admissions come first. A reason is written while no admission is being written, or after some seconds: under load most
reasons are outdated before they could be read, and only the last one of each Workload is kept. While Workloads are
admitted, few reasons are written per second, and in a rush fewer (`background_writes`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from kubemachinery import conditions, turns
from kubemachinery.client.client import RateLimiter
from kubemachinery.client.errors import Fenced, Invalid, KubeError, NotFound
from kubemachinery.client.informer import ObjectKey
from kubemachinery.clock import Clock
from pykueue.api.conditions import QuotaReservedReason
from pykueue.controllers.background_writes import BackgroundWrites
from pykueue.controllers.workload_writer import WorkloadWriter, revision
from pykueue.controllers.world_feed import key_of
from pykueue.controllers.write_tasks import WriteTasks, logging_errors
from pykueue.core.decision import Decision, Preempt, Requeue, Wait
from pykueue.lifecycle import pending_status, states
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.observe import decision_messages
from pykueue.observe.events import SCHEDULER
from pykueue.state import admission
from pykueue.state.world import World

log = logging.getLogger(__name__)

_WRITERS_MAX: Final = 4
_ADMISSION_TIMEOUT_SECONDS: Final = 3.0
# Reasons per second, and so many at once, until no Workload has been admitted for a second.
_RATE_UNDER_LOAD: Final = 10.0
_BURST_UNDER_LOAD: Final = 20
_LOAD_SECONDS: Final = 1.0
_COALESCE_SECONDS: Final = 0.005
# A queue that was restarted has many Workloads, and the first of them are admitted before reasons are written.
_POSTPONED_SECONDS: Final = 0.1
_FIRST_RETRY_SECONDS: Final = 0.1
_LONGEST_RETRY_SECONDS: Final = 5.0


class PendingStatusWriter:
    """Writes the QuotaReserved condition of pending Workloads."""

    def __init__(
        self,
        world: World,
        writer: WorkloadWriter,
        options: LifecycleOptions,
        clock: Clock,
        tasks: WriteTasks,
        background: BackgroundWrites,
    ) -> None:
        self._world = world
        self._writer = writer
        self._options = options
        self._clock = clock
        self._tasks = tasks
        self._background = background
        self._admissions = 0
        self._no_admission_in_flight = asyncio.Event()
        self._no_admission_in_flight.set()
        self._admitted_at = -math.inf  # in seconds of the event loop
        self._rate = RateLimiter(_RATE_UNDER_LOAD, _BURST_UNDER_LOAD)
        self._pending_status: dict[str, Preempt | Wait] = {}  # the last decision by Workload, not written yet
        self._writing_status: dict[str, Preempt | Wait] = {}  # what is being written
        self._status_writers = 0
        self._postponed: dict[ObjectKey, None] = {}  # in the order in which they may be written
        self._postponed_writers = 0
        # Awaited when a reason that was postponed may be written: they write it.
        self.on_permitted: list[Callable[[ObjectKey], Awaitable[None]]] = []

    @property
    def is_admitting(self) -> bool:
        """Whether Workloads are being admitted, or were a moment ago."""
        ended = asyncio.get_running_loop().time() - self._admitted_at
        return bool(self._admissions) or ended < _LOAD_SECONDS

    def admission_started(self) -> None:
        """Hold back reasons: an admission is being written."""
        self._admissions += 1
        self._no_admission_in_flight.clear()

    def admission_ended(self) -> None:
        self._admissions -= 1
        self._admitted_at = asyncio.get_running_loop().time()
        if not self._admissions:
            self._no_admission_in_flight.set()

    def queue(self, decision: Preempt | Wait) -> None:
        """Queue the write of the reason why a Workload is pending."""
        self.supersede(decision)
        self._pending_status[decision.workload] = decision
        if self._status_writers < min(_WRITERS_MAX, len(self._pending_status)):
            self._status_writers += 1
            self._tasks.track(self._write_statuses())

    def postpone(self, key: ObjectKey) -> None:
        """Await `on_permitted` when the reason of a Workload, which another controller writes, may be written.

        The reason of a decision that is still to be written is more precise, and its write wakes that controller.
        """
        if (self._pending_status or self._writing_status) and (
            (name := str(key)) in self._pending_status or name in self._writing_status
        ):
            return
        self._postponed[key] = None
        if self._postponed_writers < min(_WRITERS_MAX, len(self._postponed)):
            self._postponed_writers += 1
            self._tasks.track(self._permit_postponed())

    async def _permit_postponed(self) -> None:
        turn = turns.current()
        try:
            await asyncio.sleep(_POSTPONED_SECONDS)
            while self._postponed:
                await self._pause_for_admissions()
                await self._pay()
                if self._postponed:  # no decision came meanwhile
                    key = next(iter(self._postponed))
                    del self._postponed[key]
                    for observer in self.on_permitted:
                        await observer(key)
                await turn.end_if_used_up()
        finally:
            self._postponed_writers -= 1

    def supersede(self, newer: Decision) -> None:
        """Drop the reason that is not written yet, because there is a newer decision.

        A scan that continues at the next flavor decides twice in a row. The first reason, that the flavor before has no
        topology placement, is not worth a write, but an Event reports what was tried.
        """
        before = self._pending_status.pop(newer.workload, None)
        if self._postponed:
            self._postponed.pop(key_of(newer.workload), None)
        if before is None or before.reason is not QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED:
            return
        workload = self._writer.current(key_of(newer.workload))
        if workload is not None and not (isinstance(newer, Wait) and newer.reason is before.reason):
            message = conditions.truncated(decision_messages.sentence(before))
            event = pending_status.failed_attempt_event(before.reason, message, self._options)
            self._writer.emit(workload, event, SCHEDULER)

    def write_blocked(self, decision: Decision) -> None:
        """Write that a Workload is pending until the pods of admitted Workloads are ready."""
        self._tasks.start(self._write_blocked(decision))

    async def _write_statuses(self) -> None:
        try:
            # A scan that continues at the next flavor decides twice in a row; the last decision counts.
            await asyncio.sleep(_COALESCE_SECONDS)
            while self._pending_status:
                await self._pause_for_admissions()
                if self._pending_status:
                    decision = self._pending_status.pop(next(iter(self._pending_status)))
                    await logging_errors(self._write_status_with_retry(decision))
        finally:
            self._status_writers -= 1

    async def _pause_for_admissions(self) -> None:
        """Return when no admission is being written, or after some seconds."""
        if self._no_admission_in_flight.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_ADMISSION_TIMEOUT_SECONDS):
                await self._no_admission_in_flight.wait()

    async def _pay(self) -> None:
        """Wait, if Workloads are being admitted, until one more reason may be written."""
        if self.is_admitting:
            await self._rate.take()
        await self._background.take()

    async def _write_status_with_retry(self, decision: Preempt | Wait) -> None:
        """Write a reason. The Workload is not decided about again before something changes, so a write that fails is
        repeated, unless there is a newer reason."""
        name = decision.workload
        self._writing_status[name] = decision
        pause = _FIRST_RETRY_SECONDS
        try:
            while self._writing_status.get(name) is decision and name not in self._pending_status:
                try:
                    if await self._write_status(decision):
                        await self._pay()
                    return
                except (Fenced, NotFound, Invalid):
                    raise
                except KubeError as error:
                    log.info("%s: the reason why it is pending could not be written and is retried: %s", name, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_RETRY_SECONDS)
        finally:
            if self._writing_status.get(name) is decision:
                del self._writing_status[name]

    async def _write_status(self, decision: Preempt | Wait) -> bool:
        """Write a reason; return whether there was something to write."""
        gated = isinstance(decision, Wait) and decision.requeue is Requeue.PREEMPTION_GATED
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            pending = self._world.pending_workload(decision.workload)
            if (
                workload is None
                or pending is None
                or states.is_reserved(workload)
                or self._world.is_assumed(decision.workload)
            ):
                return False
            requested = admission.requests(pending.shape)
            message = conditions.truncated(decision_messages.sentence(decision))
            changes = pending_status.wait(
                workload, decision.reason, message, requested, self._options, now, gated=gated
            )
            made = await self._writer.workload(workload, changes, SCHEDULER, now, low_priority=True)
            return made != revision(workload)

    async def _write_blocked(self, decision: Decision) -> None:
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is not None and not states.is_reserved(workload):
                reason = QuotaReservedReason.WAITING_FOR_PODS_READY
                message = "waiting for all admitted workloads to be in PodsReady condition"
                requested = workload.status.resource_requests
                changes = pending_status.wait(
                    workload, reason, message, requested, self._options, now, emit_event=False
                )
                await self._writer.workload(workload, changes, SCHEDULER, now)
