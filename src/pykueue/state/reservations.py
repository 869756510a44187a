"""Workloads that hold quota, and preemption targets that leave later.

A deferred preemption (KEP-993) leaves its targets where they are, beside the preemptor that already has their quota.
They count together, as the larger of the two: what of a target counts as its preemptor's is *hidden*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core import deferred_preemption
from pykueue.core.decision import Admit
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import PreemptionTarget
from pykueue.core.queue import FlavorResource
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost, recheck
from pykueue.core.timeline import ENDLESS
from pykueue.core.workload import Reservation, WorkloadInfo
from pykueue.state.preemption_loops import LoopDetector
from pykueue.state.scheduling_scope import SchedulingScopes
from pykueue.state.structure import Structure


def _hard_end(workload: WorkloadInfo, decision: Admit, before: Reservation | None, now: Nanoseconds) -> Nanoseconds:
    """When the quota of a decided reservation is back at the latest. Until it is admitted, no limit counts ([TL1])."""
    if before is not None and before.admitted:
        return before.hard_end
    return workload.limit.end(now - now % SECOND) if workload.limit is not None and decision.is_admitted else ENDLESS


class Reservations:
    """All reservations."""

    def __init__(self, structure: Structure, scopes: SchedulingScopes, loops: LoopDetector) -> None:
        self.held: dict[str, Reservation] = {}
        self._structure = structure
        self._scopes = scopes
        self._loops = loops
        self._unblocked: set[str] = set()

    def put(self, reservation: Reservation) -> Reservation:
        """Put a reservation as its object shows it. One that equals the known value keeps that value."""
        before = self.held.get(reservation.key)
        if before is not None and before.is_like(reservation):
            before.shape = reservation.shape
            if before.hard_end != reservation.hard_end:
                self._structure.set_hard_end(before, reservation.hard_end)
            self._structure.note_update(before.cluster_queue)
            return before
        self._replace(before, reservation)
        if before is not None:
            self._scopes.invalidate(before.cluster_queue)
            if before.usage != reservation.usage or before.priority != reservation.priority:
                self._give_back(before)
        return reservation

    def assume(self, workload: WorkloadInfo, decision: Admit, now: Nanoseconds) -> None:
        """Count a decided reservation from now on; after a second pass it replaces the one before."""
        before = self.held.get(workload.key)
        reservation = Reservation(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=decision.cluster_queue,
            local_queue=workload.local_queue,
            pod_sets=decision.pod_sets,
            priority=workload.priority,
            queue_time=workload.queue_time,
            # As its status will have it.
            reserved_at=before.reserved_at if before is not None else now - now % SECOND,
            evicted=before is not None and before.evicted,
            admitted=decision.is_admitted,
            placed=decision.placed,
            parent_uid=workload.details.parent_uid,
            variant_flavor=workload.details.variant_flavor,
            shape=workload.shape,
            assumed_targets={victim.key: victim.reason for victim in decision.assumed_targets},
            hard_end=_hard_end(workload, decision, before, now),
        )
        self._replace(before, reservation)
        if before is None:
            self._invalidate(self._hide_victims(reservation))

    def restore(self, reservation: Reservation) -> None:
        """Count a reservation again that was ended for one that was not stored."""
        reservation.assumed_targets, reservation.hidden = {}, {}
        self._replace(None, reservation)

    def end(self, key: str) -> None:
        """Remove a reservation. Workloads of its cohort tree may fit now; if it was placed on nodes, of all trees."""
        reservation = self.held.pop(key)
        self._invalidate(self._show_victims(reservation))
        self._release(reservation)
        for successor in reservation.hidden:
            self._unblocked.add(successor)
            held = self.held.get(successor)
            if held is not None:  # the remaining targets may hide more behind it now
                self._invalidate(self._show_victims(held))
                # If this one reserves quota again, no preemptor waits for it.
                held.assumed_targets = {who: why for who, why in held.assumed_targets.items() if who != key}
                self._invalidate(self._hide_victims(held))
        self._give_back(reservation)

    def mark_evicted(self, key: str) -> None:
        self.held[key].evicted = True
        self._scopes.invalidate(self.held[key].cluster_queue)

    def recheck(self, key: str, policy: SchedulingPolicy, now: Nanoseconds) -> Holds | HoldsAfter | Lost:
        """Evaluate whether a reservation still holds, and which targets it needs gone.

        The targets assumed so far count for themselves while the question is answered, and those of the answer are
        assumed from then on: one that is no legal target any more, or not needed, is released from the assumption.
        """
        held = self.held[key]
        assumed = held.assumed_targets
        leaving = [
            PreemptionTarget(victim, reason)
            for who, reason in assumed.items()
            if (victim := self.held.get(who)) is not None
            and victim.evicted
            and victim.cluster_queue in self._structure.snapshot.queues
        ]
        before = self._hidden_behind(held)
        self._show_victims(held)
        queue = self._structure.queue(held.cluster_queue)
        preemptors = [
            (waiting, hidden)
            for who, hidden in held.hidden.items()
            if who in self.held and (waiting := self._structure.queue(self.held[who].cluster_queue)) is not None
        ]
        result = recheck(self._structure.snapshot, queue, held, policy, now, leaving, preemptors)
        if not isinstance(result, Lost):
            victims = result.targets if isinstance(result, HoldsAfter) else ()
            held.assumed_targets = {each.key: each.reason for each in victims}
        self._hide_victims(held)
        after = self._hidden_behind(held)
        # A result that changes no usage invalidates nothing: this runs every few seconds while targets stop.
        for who in sorted(before.keys() | after.keys()):
            if before.get(who) != after.get(who):
                self._scopes.invalidate(self.held[who].cluster_queue)
        return result

    @property
    def has_unblocked(self) -> bool:
        """Whether `take_unblocked` would return a reservation."""
        return bool(self._unblocked)

    def take_unblocked(self) -> set[str]:
        """Return and clear the reservations that lost one of their assumed targets since the last call."""
        unblocked, self._unblocked = self._unblocked, set()
        return unblocked

    def _replace(self, before: Reservation | None, reservation: Reservation) -> None:
        """Reserve, in place of the same Workload's reservation if it has one. Deferred preemptions stay as they are: a
        target that is forgotten here would stay hidden behind its preemptor for ever, and its quota be given twice."""
        if before is not None:
            reservation.assumed_targets, reservation.hidden = before.assumed_targets, before.hidden
            self._structure.release(before)
            self._loops.replaced(before, reservation)
        else:
            self._loops.reserved(reservation)
        self.held[reservation.key] = reservation
        self._structure.reserve(reservation)
        self._scopes.invalidate(reservation.cluster_queue)

    def _release(self, reservation: Reservation) -> None:
        self._structure.release(reservation)
        self._loops.released(reservation)

    def _give_back(self, reservation: Reservation) -> None:
        """Retry inadmissible Workloads of its cohort tree, and of the trees that share its nodes [QU24]."""
        self._scopes.release((reservation.cluster_queue,))
        if reservation.placed:
            flavors = self._structure.snapshot.topology_cache.flavors_using(reservation.placed)
            self._scopes.release(self._structure.topology_queues(flavors))

    def _hide_victims(self, reservation: Reservation) -> list[Reservation]:
        """Victims that are to go later count together with their successor, as the larger of the two. Those that count
        otherwise now."""
        victims = [self.held[key] for key in reservation.assumed_targets if key in self.held]
        queue = self._structure.queue(reservation.cluster_queue)
        if queue is None or not victims:
            return []
        for victim, amounts in deferred_preemption.hide(queue, dict(reservation.usage_by_number), victims):
            victim.hidden[reservation.key] = amounts
            self._structure.recount(victim)
        return victims

    def _show_victims(self, reservation: Reservation) -> list[Reservation]:
        """They count for themselves again: their successor is gone, or asked whether it needs them. Those that count
        otherwise now."""
        victims = [self.held[key] for key in reservation.assumed_targets if key in self.held]
        shown = [victim for victim in victims if victim.hidden.pop(reservation.key, None) is not None]
        for victim in shown:
            self._structure.recount(victim)
        return shown

    def _hidden_behind(self, successor: Reservation) -> dict[str, Mapping[FlavorResource, int]]:
        """What of each victim counts as its successor's."""
        victims = (self.held[key] for key in successor.assumed_targets if key in self.held)
        return {each.key: each.hidden[successor.key] for each in victims if successor.key in each.hidden}

    def _invalidate(self, victims: Iterable[Reservation]) -> None:
        for victim in victims:
            self._scopes.invalidate(victim.cluster_queue)
