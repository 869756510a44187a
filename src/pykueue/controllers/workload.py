"""One Workload at a time: evaluates `lifecycle.step` and writes the result.

A Workload with an assumed reservation is left alone until that is settled.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND
from pykueue.api import kueue
from pykueue.controllers.informers import Informers
from pykueue.controllers.scheduler import Scheduler
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.lifecycle import checks, pending_status, states, variants
from pykueue.lifecycle.facts import KnownFailure, LifecycleOptions, WorkloadFacts
from pykueue.lifecycle.step import LifecycleStep, step
from pykueue.observe.events import WORKLOADS

_WORKERS: Final = 8
_VICTIMS_PAUSE: Final = 5 * SECOND
# What is due for a finished Workload depends on the Workload alone.
_NO_FACTS: Final = WorkloadFacts()


class WorkloadController:
    def __init__(
        self,
        informers: Informers,
        scheduler: Scheduler,
        writer: WorkloadWriter,
        options: LifecycleOptions,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._informers = informers
        self._scheduler = scheduler
        self._writer = writer
        self._options = options
        self._clock = clock
        self._chance = rng
        self._may_write_reason: set[ObjectKey] = set()
        self.loop: Controller[ObjectKey] = Controller("workload", self._reconcile, rng, workers=_WORKERS)
        informers.workloads.add_handler(self._seen)
        informers.local_queues.add_handler(self._local_queue_seen)
        informers.cluster_queues.add_handler(self._cluster_queue_seen)
        informers.checks.add_handler(self._check_seen)
        informers.flavors.add_handler(self._flavor_seen)
        scheduler.applier.on_settled.append(self.loop.add)
        scheduler.applier.on_reason_permitted.append(self._permit_reason)

    # --- Events that add keys -----------------------------------------------------------------------------------------

    def _seen(self, change: InformerEvent[kueue.Workload]) -> None:
        if change.new is not None:
            self.loop.add(change.key, priority=change.priority)
        else:
            self.loop.queue.cancel_delay(change.key)
            self._may_write_reason.discard(change.key)

    def _local_queue_seen(self, change: InformerEvent[kueue.LocalQueue]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or not _stops_alike(old, new):
            queue = new or old
            workloads = self._informers.workloads.by_index("queue", str(change.key))
            self._add(workloads, (queue.spec.cluster_queue or "") if queue else "")

    def _cluster_queue_seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        old, new = change.old, change.new
        if (
            old is None
            or new is None
            or not _stops_alike(old, new)
            or old.spec.admission_checks_strategy != new.spec.admission_checks_strategy
            or old.status.conditions != new.status.conditions
        ):
            self._add_of(change.key.name)

    def _check_seen(self, change: InformerEvent[kueue.AdmissionCheck]) -> None:
        """Queue the Workloads of ClusterQueues that list the check: its delay, policy or activity may have changed."""
        for cluster_queue in self._informers.cluster_queues.values():
            strategy = cluster_queue.spec.admission_checks_strategy
            if strategy is not None and any(rule.name == change.key.name for rule in strategy.admission_checks):
                self._add_of(cluster_queue.metadata.name)

    def _flavor_seen(self, change: InformerEvent[kueue.ResourceFlavor]) -> None:
        """Queue the Workloads of ClusterQueues that use a created or deleted flavor: they become active or inactive."""
        if change.old is not None and change.new is not None:
            return
        for cluster_queue in self._informers.cluster_queues.values():
            names = (flavor.name for group in cluster_queue.spec.resource_groups for flavor in group.flavors)
            if change.key.name in names:
                self._add_of(cluster_queue.metadata.name)

    def _add_of(self, cluster_queue: str) -> None:
        self._add(self._informers.workloads_of(cluster_queue), cluster_queue)

    def _add(self, found: Iterable[tuple[ObjectKey, kueue.Workload]], cluster_queue: str) -> None:
        """Queue Workloads of a queue that changed. For those that only wait, of which there may be many, at most the
        reason why they are pending changes: they are evaluated when it may be written [CY26].

        A manager that does not lead takes nothing from its queue, so that all its Workloads are queued."""
        queue = self._informers.cluster_queues.get(cluster_queue)
        changes_only_reasons = queue is None or not (
            queue.spec.admission_checks_strategy or queue.spec.concurrent_admission_policy
        )
        postpone, queued = self._scheduler.applier.postpone_reason, self.loop.queue
        for key, workload in found:
            if not (changes_only_reasons and states.only_waits(workload)):
                queued.add(key)
            elif key not in queued:
                postpone(key)

    # --- What it does -------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ObjectKey) -> float | None:
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None or self._scheduler.world.is_assumed(str(key)):
                return None
            due = self._due(key, workload)
            now = self._clock.now()
            if self._can_wait(key, workload, due):
                self._scheduler.applier.postpone_reason(key)
            else:
                self._may_write_reason.discard(key)
                if due.changes:
                    await self._writer.workload(workload, due.changes, WORKLOADS, now)
            if due.wake_at is None:
                return None
            return max(0.0, (due.wake_at - now) / SECOND)

    def _can_wait(self, key: ObjectKey, workload: kueue.Workload, due: LifecycleStep) -> bool:
        """Whether the write only has a reason why the Workload is pending: others are admitted first."""
        return (
            pending_status.is_only_reason(due.changes)
            and key not in self._may_write_reason
            and not states.is_reserved(workload)
            and self._scheduler.applier.is_admitting
        )

    async def _permit_reason(self, key: ObjectKey) -> None:
        if self._informers.workloads.get(key.name, key.namespace) is not None:
            self._may_write_reason.add(key)
            # Beside the workers: the turn of the writer keeps two from evaluating it at the same time.
            await self.loop.reconcile_once(key)

    def _due(self, key: ObjectKey, workload: kueue.Workload) -> LifecycleStep:
        facts = self._facts(key, workload)
        now, jitter = self._clock.now(), self._chance.random()
        due = step(workload, facts, self._options, now, jitter=jitter)
        if not due.recheck and (due.changes or not _preemptions_are_due(workload, facts)):
            return due
        rechecked = self._scheduler.recheck(str(key))
        if isinstance(rechecked, HoldsAfter):
            self._scheduler.preempt(str(key), rechecked.targets)
        if rechecked is None or isinstance(rechecked, HoldsAfter):
            # The end of a target wakes it. The pause is for an eviction that could not be written.
            again = now + _VICTIMS_PAUSE
            return replace(due, wake_at=again if due.wake_at is None else min(due.wake_at, again))
        if not due.recheck:
            return due
        lost = rechecked.why if isinstance(rechecked, Lost) else ""
        known = replace(facts, reservation_holds=isinstance(rechecked, Holds), reservation_lost=lost)
        return step(workload, known, self._options, now, jitter=jitter)

    def _facts(self, key: ObjectKey, workload: kueue.Workload) -> WorkloadFacts:
        if states.is_finished(workload):
            return _NO_FACTS
        problem, known = "", None
        if not states.is_reserved(workload):
            world, name = self._scheduler.world, str(key)
            problem, known = world.problem(name), world.inadmissible_class_reason(name)
        return WorkloadFacts(
            local_queue=self._informers.local_queue_facts(workload),
            cluster_queue=self._informers.cluster_queue_facts(self._informers.cluster_queue_of(workload)),
            problem=problem,
            known_failure=None if known is None else KnownFailure(known),
            is_variant=self._options.concurrent_admission and variants.parent_of(workload) is not None,
            is_parent=self._options.concurrent_admission and variants.is_parent(workload),
        )


def _preemptions_are_due(workload: kueue.Workload, facts: WorkloadFacts) -> bool:
    """Whether preemptions are due for a Workload that holds quota and waits for checks (KEP-993)."""
    queue = facts.cluster_queue
    if queue is None or not queue.checks:
        return False
    waits = states.is_reserved(workload) and not states.is_admitted(workload) and not states.is_evicted(workload)
    return waits and checks.defers(workload, queue) and checks.may_preempt(workload, queue)


def _stops_alike(old: kueue.LocalQueue | kueue.ClusterQueue, new: kueue.LocalQueue | kueue.ClusterQueue) -> bool:
    return (old.spec.stop_policy, old.metadata.deletion_timestamp) == (
        new.spec.stop_policy,
        new.metadata.deletion_timestamp,
    )
