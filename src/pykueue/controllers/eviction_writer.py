"""Writes the evictions that the scheduler decides: preemption targets, variants that migrate, failed nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kubemachinery.client.errors import Conflict
from kubemachinery.client.informer import ObjectKey
from kubemachinery.clock import Clock
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason
from pykueue.controllers.background_writes import BackgroundWrites
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.controllers.world_feed import WorldFeed, key_of
from pykueue.controllers.write_tasks import WriteTasks
from pykueue.core.decision import Evict, Preempt, TargetWorkload
from pykueue.lifecycle import eviction, states
from pykueue.lifecycle.workload_changes import Changes, EmitEvent, EventType
from pykueue.observe import decision_messages
from pykueue.observe.events import SCHEDULER
from pykueue.state.world import World

_REFUSED_PAUSE_SECONDS: Final = 1.0


class EvictionWriter:
    """Writes every eviction once. `wake` starts another cycle."""

    def __init__(
        self,
        world: World,
        feed: WorldFeed,
        writer: WorkloadWriter,
        clock: Clock,
        tasks: WriteTasks,
        background: BackgroundWrites,
        wake: Callable[[], None],
    ) -> None:
        self._world = world
        self._feed = feed
        self._writer = writer
        self._clock = clock
        self._tasks = tasks
        self._background = background
        self._wake = wake
        self._evicting: set[str] = set()

    def preempt(self, target: TargetWorkload, preemptor: str, cluster_queue: str, *, while_pending: bool) -> None:
        """Evict a preemption target for a Workload of a ClusterQueue, unless it is being evicted."""
        if target.already_evicted or target.key in self._evicting:
            return
        self._evicting.add(target.key)
        self._start(self._preempt(target, preemptor, cluster_queue, while_pending=while_pending))

    def migrate(self, decision: Preempt) -> None:
        """Evict the admitted variant on a less favorable flavor (ConcurrentAdmission), unless it is being evicted."""
        if decision.migrates not in self._evicting:
            self._evicting.add(decision.migrates)
            self._start(self._migrate(decision))

    def withdraw(self, key: str, message: str) -> None:
        """Evict a Workload because a window of a QuotaSchedule lowers its quota, unless it is being evicted [QS7]."""
        if key not in self._evicting:
            self._evicting.add(key)
            self._start(self._withdraw(key, message))

    def evict_for_node_failure(self, decision: Evict) -> None:
        """Evict a Workload whose failed node cannot be replaced."""
        message = decision_messages.sentence(decision)
        self._start(self._evict_for_node_failure(decision.workload, message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.decision_started()
        self._tasks.start(work)

    async def _preempt(self, target: TargetWorkload, name: str, cluster_queue: str, *, while_pending: bool) -> None:
        try:
            preemptor = self._writer.current(key_of(name))
            paths = (self._world.cohort_path(queue) for queue in (cluster_queue, target.cluster_queue))
            message = eviction.preemption_message(preemptor, target.reason, *paths)
            preemptee = self._writer.current(key_of(target.key))
            priorities = "; ".join(
                f"{role} effective priority: {self._priority(workload)}"
                for role, workload in (("preemptor", preemptor), ("preemptee", preemptee))
            )

            def preempted(workload: kueue.Workload, now: int) -> Changes:
                if while_pending and not self._is_needed(target.key, name):
                    self._feed.put_current(key_of(target.key))
                    self._wake()
                    return ()
                return eviction.preempt(workload, target.reason, message, now, note=f"{message}; {priorities}")

            if await self._write(key_of(target.key), preempted) and preemptor is not None:
                uid = preemptee.metadata.uid if preemptee is not None else ""
                what = f"Preempted workload {target.key} (UID: {uid}) in ClusterQueue {target.cluster_queue}"
                event = EmitEvent(EventType.NORMAL, "PreemptedWorkload", f"{what}; {priorities}")
                self._writer.emit(preemptor, event, SCHEDULER)
        finally:
            self._evicting.discard(target.key)

    def _is_needed(self, target: str, preemptor: str) -> bool:
        """Whether an eviction that waited for its turn is still to be written [CY25]. Quota that was released meanwhile
        may have admitted the preemptor, and a target whose admission was taken back may have been admitted again."""
        held = self._world.reservations.get(target)
        return held is not None and held.evicted and self._world.pending_workload(preemptor) is not None

    def _priority(self, workload: kueue.Workload | None) -> str:
        """Return the effective priority with its two parts."""
        base = (workload.spec.priority or 0) if workload is not None else 0
        effective = self._world.priority(workload) if workload is not None else 0
        return f"{effective} (base: {base}, boost: {effective - base})"

    async def _migrate(self, decision: Preempt) -> None:
        try:
            better = self._writer.current(key_of(decision.workload))
            uid = better.metadata.uid if better is not None else ""
            why = "due to migration to more favorable resource flavor"
            message = f"Evicted to accommodate a workload (UID: {uid}) {why}"

            def evicted(workload: kueue.Workload, now: int) -> Changes:
                if states.is_evicted(workload):
                    return ()
                return eviction.evict(workload, EvictedReason.FLAVOR_MIGRATION, message, now)

            await self._write(key_of(decision.migrates), evicted)
        finally:
            self._evicting.discard(decision.migrates)

    async def _withdraw(self, name: str, message: str) -> None:
        def evicted(workload: kueue.Workload, now: int) -> Changes:
            if states.is_evicted(workload):
                return ()
            return eviction.evict(workload, EvictedReason.QUOTA_WITHDRAWN, message, now)

        try:
            await self._write(key_of(name), evicted)
        finally:
            self._evicting.discard(name)

    async def _evict_for_node_failure(self, name: str, message: str) -> None:
        await self._write(
            key_of(name), lambda workload, now: eviction.evict(workload, EvictedReason.NODE_FAILURES, message, now)
        )

    async def _write(self, key: ObjectKey, changes: Callable[[kueue.Workload, int], Changes]) -> bool:
        """Write an eviction; whether there was anything to evict.

        The Workload counts as evicted until it is put into the scheduler's state again, and is not decided about. After
        an error it is put once there is a newer version, or after a pause: on the same version the same would be
        decided, and refused, at once.
        """
        workload: kueue.Workload | None = None
        try:
            async with self._writer.turn(key):
                workload, now = self._writer.current(key), self._clock.now()
                # Its reservation may have been released, or it may have finished, before this turn.
                if workload is None or not states.is_reserved(workload) or states.is_finished(workload):
                    return False
                if not (made := changes(workload, now)):
                    return False
                await self._writer.workload(workload, made, SCHEDULER, now)
                return True
        except Exception as error:
            if not isinstance(error, Conflict) or not await self._writer.has_newer(key, workload):
                await asyncio.sleep(_REFUSED_PAUSE_SECONDS)
            self._feed.put_current(key)
            self._wake()
            raise
