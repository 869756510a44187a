"""Applies decisions: reservations and evictions are written, and pending Workloads get the reason why they are pending.

A decision is in the scheduler's state before it is written, so the next cycle counts it. Writes run concurrently, up to
a bound; admissions come first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from kubemachinery.client.informer import Informer, ObjectKey
from kubemachinery.clock import Clock
from pykueue.api import kueue
from pykueue.controllers.background_writes import BackgroundWrites
from pykueue.controllers.eviction_writer import EvictionWriter
from pykueue.controllers.pending_status_writer import PendingStatusWriter
from pykueue.controllers.reservation_writer import FactsOf, ReservationWriter
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.controllers.world_feed import WorldFeed, key_of
from pykueue.controllers.write_tasks import WriteTasks
from pykueue.core.decision import Admit, Decision, Evict, Preempt, SecondPassFailed, TargetWorkload, Wait
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import EmitEvent, EventType
from pykueue.observe import decision_messages
from pykueue.observe.events import SCHEDULER
from pykueue.state.world import World


class DecisionApplier:
    """Applies every decision of the scheduler. `wake` starts another cycle."""

    def __init__(
        self,
        world: World,
        feed: WorldFeed,
        workloads: Informer[kueue.Workload],
        writer: WorkloadWriter,
        options: LifecycleOptions,
        clock: Clock,
        cluster_queue_facts: FactsOf,
        wake: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._tasks = WriteTasks()
        writer.on_answered.append(self._tasks.answered)
        self.background = BackgroundWrites(lambda: self._tasks.is_full)
        self._status = PendingStatusWriter(world, writer, options, clock, self._tasks, self.background)
        self._evictions = EvictionWriter(world, feed, writer, clock, self._tasks, self.background, wake)
        self._reservations = ReservationWriter(
            world, feed, workloads, writer, options, clock, cluster_queue_facts, wake, self._status.queue
        )

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return self._tasks.idle

    @property
    def is_full(self) -> bool:
        """Whether as many decisions are being written as may be at once."""
        return self._tasks.is_full

    @property
    def on_settled(self) -> list[Callable[[ObjectKey], None]]:
        """Called when an assumed reservation is settled, or when a preemption target that it waits for is gone."""
        return self._reservations.on_settled

    async def wait_for_slot(self) -> None:
        """Return when one more write can start."""
        await self._tasks.wait_for_slot()

    async def close(self) -> None:
        """Cancel the writes that are running."""
        await self._tasks.close()

    def apply(self, decision: Decision) -> None:
        """Start to write a decision."""
        match decision:
            case Admit():
                self._admit(decision)
            case Preempt():
                self.preempt(decision.targets, decision.workload, decision.cluster_queue, while_pending=True)
                if decision.migrates:
                    self._evictions.migrate(decision)
                self._status.queue(decision)
            case Wait():
                self._status.queue(decision)
            case SecondPassFailed():
                self.preempt(decision.targets, decision.workload, decision.cluster_queue)
                self._emit_second_pass_failed(decision)
            case Evict():
                self._evictions.evict_for_node_failure(decision)

    def preempt(
        self,
        targets: Iterable[TargetWorkload],
        preemptor: str,
        cluster_queue: str,
        *,
        while_pending: bool = False,
    ) -> None:
        """Evict preemption targets for a Workload of a ClusterQueue, each once. With `while_pending`, an eviction is
        not written any more once the preemptor is not pending."""
        for target in targets:
            self._evictions.preempt(target, preemptor, cluster_queue, while_pending=while_pending)

    def withdraw(self, key: str, message: str) -> None:
        """Evict a Workload whose quota a window of a QuotaSchedule takes."""
        self._evictions.withdraw(key, message)

    @property
    def is_admitting(self) -> bool:
        """Whether Workloads are being admitted, or were a moment ago."""
        return self._status.is_admitting

    @property
    def on_reason_permitted(self) -> list[Callable[[ObjectKey], Awaitable[None]]]:
        """Awaited when a reason that was postponed may be written without delaying admissions."""
        return self._status.on_permitted

    def postpone_reason(self, key: ObjectKey) -> None:
        """Postpone the reason why a Workload is pending until `on_reason_permitted`."""
        self._status.postpone(key)

    def release(self, key: ObjectKey) -> None:
        """Release an assumed reservation that is not written."""
        self._reservations.release(key)

    def settled(self, key: ObjectKey) -> None:
        """Call the observers of `on_settled`."""
        self._reservations.settled(key)

    def block(self, decision: Decision) -> None:
        """Write that a Workload is pending until the pods of admitted Workloads are ready."""
        self._status.write_blocked(decision)

    def _admit(self, decision: Admit) -> None:
        decided_on = self._writer.current(key_of(decision.workload))
        if decided_on is not None:
            self._status.supersede(decision)
            self.background.decision_started()
            self._status.admission_started()
            task = self._tasks.start(self._reservations.admit(decision, decided_on))
            task.add_done_callback(lambda ended: self._status.admission_ended())

    def _emit_second_pass_failed(self, decision: SecondPassFailed) -> None:
        workload = self._writer.current(key_of(decision.workload))
        if workload is not None:
            event = EmitEvent(EventType.WARNING, "SecondPassFailed", decision_messages.sentence(decision))
            self._writer.emit(workload, event, SCHEDULER)
