"""The algorithm on one page: heads in, decisions out (§5).

    nominate    each head alone, against the same picture: flavors, victims, a place on the nodes
    order       who is processed first
    process     one by one on a picture that fills up: admit, preempt, defer, reserve, or skip

A cycle changes no Workload and leaves the snapshot as it was. What it learned about a head, the position at which the
next scan of its flavors continues included, is part of the decision; `state` stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from kubemachinery.meta import Nanoseconds
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import amounts, deferred_preemption, ordering, quota, variants
from pykueue.core.assignment import Assignment, FlavorAssignmentMode
from pykueue.core.decision import (
    Admit,
    Decision,
    Evict,
    Preempt,
    Rank,
    Recomputation,
    Requeue,
    SecondPassFailed,
    TargetWorkload,
    Wait,
)
from pykueue.core.nomination import Nominator, has_lost_node
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import PreemptionTarget
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import PlacedPods
from pykueue.core.workload import AssignedPodSet, Reservation, ScanPosition, WorkloadInfo

# What Kueue writes of entries that lost to an earlier entry of the cycle; the last two are ours.
_OVERLAP: Final = "Workload has overlapping preemption targets with another workload"
_NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
_STILL_HELD: Final = "Its quota is still used by workloads that are being preempted"
_LEFT_OUT: Final = "Another workload of the ClusterQueue was processed first in this cycle"


@dataclass(frozen=True, slots=True)
class NominationRefusal:
    """Why a head is not even nominated (§5.2)."""

    reason: QuotaReservedReason
    message: str
    requeue: Requeue = Requeue.GENERIC


@dataclass(frozen=True, slots=True)
class Head:
    """A Workload that the cycle is to decide. `refusal` is what is known against it beforehand (namespace, limits)."""

    workload: WorkloadInfo
    is_preemptor: bool = False
    refusal: NominationRefusal | None = None


class _Fits(Enum):
    YES = auto()
    NO_QUOTA = auto()
    NO_PLACE = auto()


@dataclass(slots=True)
class CycleEntry:
    """A head after nomination."""

    head: Head
    queue: Queue
    assignment: Assignment
    targets: list[PreemptionTarget]
    placed: tuple[PlacedPods, ...] = ()
    keeps_scan_position: bool = True  # of where the search for flavors stopped
    rank: Rank = ()  # where the order without fair sharing put it
    recomputation: Recomputation | None = None
    skips_preemption: bool = False

    @property
    def workload(self) -> WorkloadInfo:
        return self.head.workload

    @property
    def is_preemptor(self) -> bool:
        return self.head.is_preemptor

    @property
    def level(self) -> int:
        return self.assignment.level

    @property
    def scan_position(self) -> ScanPosition | None:
        """Where the next scan of its flavors continues; None: at the first."""
        return self.assignment.scan_position if self.keeps_scan_position else None

    def quota_usage(self) -> Mapping[int, int]:
        """[CY2] A reservation counts already."""
        return {} if self.workload.reservation is not None else self.assignment.usage


def run(snapshot: Snapshot, heads: Iterable[Head], policy: SchedulingPolicy, now: Nanoseconds) -> list[Decision]:
    """Decide every head and return the decisions in the order in which the heads were processed, then those that were
    not processed. The snapshot and the Workloads are afterwards as they were.

    A head whose evaluation raises an exception is set aside, and the cycle starts over without it: because nothing was
    changed, the other heads get the decisions that they would get if it did not exist.
    """
    sound, set_aside = list(heads), list[Decision]()
    while True:
        try:
            return [*Cycle(snapshot, policy, now).run(sound), *set_aside]
        except _Unjudged as failure:
            sound = [head for head in sound if head is not failure.head]
            set_aside.append(_set_aside(failure))


class _Unjudged(Exception):
    """Judging this head came to a bad end; the cause says how."""

    def __init__(self, head: Head) -> None:
        super().__init__(head.workload.key)
        self.head = head


@contextmanager
def _judging(head: Head) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _Unjudged(head) from error


def _set_aside(failure: _Unjudged) -> Decision:
    workload, error = failure.head.workload, failure.__cause__
    message = f"could not be judged ({type(error).__name__}: {error}) and is left out until it changes"
    if workload.reservation is not None:
        return SecondPassFailed(
            workload=workload.key,
            cluster_queue=workload.cluster_queue,
            scan_position=workload.scan_position,
            failure=error,
            message=message,
        )
    return Wait(
        workload=workload.key,
        cluster_queue=workload.cluster_queue,
        scan_position=workload.scan_position,
        failure=error,
        reason=QuotaReservedReason.PENDING_EVALUATION,
        requeue=Requeue.SET_ASIDE,
        message=message,
    )


class Cycle:
    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, now: Nanoseconds) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.now = now
        self.nominator = Nominator(snapshot, policy, now)
        self.issued: dict[str, Reservation] = {}  # victims of this cycle so far
        self.vanished: dict[str, Reservation] = {}  # those that are to be preempted later, by somebody of this cycle
        self.claims: list[tuple[Queue, Mapping[int, int], tuple[PlacedPods, ...]]] = []  # of entries that have to wait

    def run(self, heads: Iterable[Head]) -> list[Decision]:
        mark = self.snapshot.mark()
        try:
            return self._run(heads)
        finally:
            self.snapshot.undo(mark)

    def _run(self, heads: Iterable[Head]) -> list[Decision]:
        refused: list[Decision] = []
        entries: list[CycleEntry] = []
        for head in heads:
            with _judging(head):
                refusal = self._refusal(head)
            if refusal is not None:
                refused.append(self._refuse(head, refusal))
                continue
            queue = self.snapshot.queues[head.workload.cluster_queue]
            with _judging(head):
                assignment, targets = self.nominator.find(head.workload, queue, head.workload.scan_position)
            entries.append(CycleEntry(head, queue, assignment, targets))
        decided: dict[str, Decision] = {}
        for entry in self._in_order(entries):
            with _judging(entry.head):
                decision = self._process(entry)
            decided[entry.workload.key] = replace(
                decision,
                scan_position=entry.scan_position,
                rank=entry.rank,
                recomputation=entry.recomputation,
                skips_preemption=entry.skips_preemption,
            )
        left_out = [
            replace(self._left_out(entry), scan_position=entry.scan_position)
            for entry in entries
            if entry.workload.key not in decided
        ]
        return [*decided.values(), *left_out, *refused]

    def _in_order(self, entries: Sequence[CycleEntry]) -> Iterator[CycleEntry]:
        if self.policy.is_fair:
            return ordering.tournament(entries, self.policy, self.snapshot)
        for entry in entries:
            entry.rank = ordering.classical_rank(entry, self.policy)
        return iter(sorted(entries, key=lambda entry: entry.rank))

    # Nomination.

    def _refusal(self, head: Head) -> NominationRefusal | None:
        workload = head.workload
        if workload.details.has_failed_checks:
            return NominationRefusal(QuotaReservedReason.PENDING_EVALUATION, "The workload has failed admission checks")
        name = workload.cluster_queue
        if name in self.snapshot.inactive:
            return NominationRefusal(QuotaReservedReason.SUSPENDED, f"ClusterQueue {name} is inactive")
        if name not in self.snapshot.queues:
            return NominationRefusal(QuotaReservedReason.MISCONFIGURED, f"ClusterQueue {name} not found")
        if self.policy.concurrent_admission and variants.is_unmarked_parent(workload, self.snapshot.queues[name]):
            # It is about to be marked as a parent. Until the mark is seen, it must not take quota itself.
            return NominationRefusal(
                QuotaReservedReason.PENDING_EVALUATION, "its variants compete for quota in its place"
            )
        return head.refusal

    # Processing.

    def _process(self, entry: CycleEntry) -> Decision:
        """§5.6, step by step: what is against it, and otherwise what it gets."""
        if self.policy.concurrent_admission and variants.better_sibling(entry.workload, entry.queue) is not None:
            why = "A more favorable variant is already admitted"
            return self._skip(entry, why, QuotaReservedReason.PENDING_EVALUATION)
        fits = self._refresh(entry)
        return self._unassigned(entry) or self._overtaken(entry, fits) or self._granted(entry)

    def _unassigned(self, entry: CycleEntry) -> Decision | None:
        """It has no flavors, or none that it could have now."""
        workload, mode = entry.workload, entry.assignment.mode
        if self.policy.node_replacement_fail_fast and has_lost_node(workload) and mode is not FlavorAssignmentMode.FIT:
            return Evict(workload=workload.key, cluster_queue=entry.queue.name, nodes=workload.details.unhealthy_nodes)
        if mode is FlavorAssignmentMode.NO_FIT:
            return self._wait(entry, entry.assignment.reason or QuotaReservedReason.NO_MATCHING_FLAVOR, Requeue.NO_FIT)
        if mode is FlavorAssignmentMode.PREEMPT:
            if not entry.targets:
                self._reserve_claim(entry)
                return self._wait(entry, QuotaReservedReason.WAITING_FOR_QUOTA, Requeue.PREEMPTION_NO_CANDIDATES)
            has_gates = self.policy.concurrent_admission or self.policy.orchestrated_preemption
            if has_gates and workload.details.has_closed_gate:
                entry.keeps_scan_position = False
                why = "Workload requires preemption, but it's gated"
                return self._wait(entry, QuotaReservedReason.ADMISSION_GATED, Requeue.PREEMPTION_GATED, why)
        if mode is FlavorAssignmentMode.DEFERRED_FIT:
            entry.keeps_scan_position = False
            self._claim(entry, entry.quota_usage())
            return self._wait(
                entry,
                QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS,
                Requeue.PENDING_PREEMPTION,
                f"{_OVERLAP}, but will fit after these preemptions complete",
            )
        return None

    def _overtaken(self, entry: CycleEntry, fits: _Fits) -> Decision | None:
        """An earlier entry of this cycle took its preemption targets or its quota."""
        if self._has_taken_targets(entry):
            entry.skips_preemption = True
            return self._skip(entry, _OVERLAP)
        if fits is not _Fits.YES:
            entry.skips_preemption = entry.assignment.mode is FlavorAssignmentMode.PREEMPT
            return self._skip(entry, _NO_LONGER_FITS)
        must_fit_now = (
            entry.assignment.mode is FlavorAssignmentMode.FIT and bool(self.issued) and self.policy.departures
        )
        if must_fit_now and self._fits_beside_victims(entry) is not _Fits.YES:
            return self._skip(entry, f"{_NO_LONGER_FITS}. {_STILL_HELD}")
        return None

    def _granted(self, entry: CycleEntry) -> Decision:
        """Room is made for it, or it gets the room there is."""
        workload, mode = entry.workload, entry.assignment.mode
        victims = tuple(
            TargetWorkload(
                target.reservation.key, target.reservation.cluster_queue, target.reason, target.reservation.evicted
            )
            for target in entry.targets
            if target.reason is not None
        )
        if mode is FlavorAssignmentMode.PREEMPT and deferred_preemption.may_wait(
            workload, entry.queue, entry.assignment.recorded()
        ):
            self._hide(entry)
            self.snapshot.assume(entry.queue, entry.quota_usage().items(), entry.placed)
            return self._admit(entry, assumes=victims)
        for target in entry.targets:
            self.issued[target.reservation.key] = target.reservation
        if mode is FlavorAssignmentMode.PREEMPT:
            entry.keeps_scan_position = False
            self._claim(entry, entry.quota_usage())
            return self._preempt(entry, victims)
        self.snapshot.assume(entry.queue, entry.quota_usage().items(), entry.placed)
        sibling = variants.worse_sibling(workload, entry.queue) if self.policy.concurrent_admission else None
        if sibling is not None:
            return self._migrate(entry, sibling)
        return self._admit(entry)

    def _refresh(self, entry: CycleEntry) -> _Fits:
        """§5.7 Assign anew where earlier entries took the victims or the place; whether it fits then."""
        is_shared = any(target.reservation.key in self.issued for target in entry.targets)
        recomputes_targets = self._has_taken_targets(entry) and self.policy.recompute_on_overlap
        fits = self._fits(entry)
        if recomputes_targets:
            mark = self.snapshot.mark()
            for victim in self.issued.values():
                self.snapshot.remove(victim)
            with self.snapshot.treating_as_ended((*self.issued, *self.vanished)):
                self._assign_anew(entry)
            self.snapshot.undo(mark)
            if is_shared and entry.assignment.mode is FlavorAssignmentMode.FIT:
                entry.assignment.set_mode(FlavorAssignmentMode.DEFERRED_FIT)
        elif fits is _Fits.NO_PLACE and self.policy.recompute_placement:
            self._assign_anew(entry)
        else:
            return fits
        fits = self._fits(entry)
        if recomputes_targets:
            entry.recomputation = self._recomputation(entry, fits)
        return fits

    def _has_taken_targets(self, entry: CycleEntry) -> bool:
        """Whether an earlier entry of this cycle preempts one of its targets, now or once checks have passed."""
        return any(t.reservation.key in self.issued or t.reservation.key in self.vanished for t in entry.targets)

    def _recomputation(self, entry: CycleEntry, fits: _Fits) -> Recomputation:
        if entry.assignment.mode is FlavorAssignmentMode.DEFERRED_FIT:
            return Recomputation.DEFERRED_FIT
        if entry.targets and fits is _Fits.YES and not self._has_taken_targets(entry):
            return Recomputation.NEW_TARGETS
        return Recomputation.SKIPPED

    def _assign_anew(self, entry: CycleEntry) -> None:
        """[CY6] From the first flavor, but never to another flavor than the one nominated."""
        pinned = entry.assignment.pinned()
        entry.assignment, entry.targets = self.nominator.find(entry.workload, entry.queue, None, pinned or None)

    def _fits(self, entry: CycleEntry) -> _Fits:
        """[CY1] With the victims issued so far, and its own, gone."""
        entry.placed = entry.assignment.placed(entry.queue, entry.workload.reservation, self.snapshot.fleet)
        gone = dict(self.issued)
        gone.update((target.reservation.key, target.reservation) for target in entry.targets)
        mark = self.snapshot.mark()
        own = entry.queue.node.tree
        for reservation in gone.values():
            # Victims in other trees free no quota here, only room on nodes.
            if reservation.placed or self.snapshot.queues[reservation.cluster_queue].node.tree is own:
                self.snapshot.remove(reservation)
        fits = self._has_room(entry)
        self.snapshot.undo(mark)
        return fits

    def _fits_beside_victims(self, entry: CycleEntry) -> _Fits:
        """W2: whoever is admitted at once must have room while the victims of others still run. What those others are
        to get does not count: they wait."""
        mark = self.snapshot.mark()
        for queue, usage, placed in self.claims:
            self.snapshot.withdraw(queue, usage.items(), placed)
        for target in entry.targets:
            self.snapshot.remove(target.reservation)
        fits = self._has_room(entry)
        self.snapshot.undo(mark)
        return fits

    def _has_room(self, entry: CycleEntry) -> _Fits:
        """Whether the entry fits on the picture as it stands."""
        if any(amount > quota.available(entry.queue.node, n) for n, amount in entry.quota_usage().items()):
            return _Fits.NO_QUOTA
        if entry.placed and not self.snapshot.fleet.fits(entry.placed):
            return _Fits.NO_PLACE
        return _Fits.YES

    def _reserve_claim(self, entry: CycleEntry) -> None:
        """[CY8] A queue that cannot count on reclaiming keeps others off what its head is waiting for."""
        spec, node = entry.queue.spec, entry.queue.node
        if spec.preemption.can_always_reclaim and not (self.policy.prioritize_preemptors and entry.is_preemptor):
            return
        claim = {}
        for number, amount in entry.quota_usage().items():
            used, nominal = node.usage[number], node.subtree[number]
            if entry.level == 0:
                claim[number] = max(0, min(amount, amounts.subtract(nominal, used)))
            elif node.borrowing_limit[number] == amounts.UNLIMITED:
                claim[number] = amount
            else:
                limit = amounts.add(nominal, node.borrowing_limit[number])
                claim[number] = min(amount, amounts.subtract(limit, used))
                if self.policy.departures:
                    claim[number] = max(0, claim[number])  # W16
        self._claim(entry, claim)

    def _claim(self, entry: CycleEntry, usage: Mapping[int, int]) -> None:
        """Room that the entry is to get, kept from everybody behind it for the rest of the cycle."""
        self.claims.append((entry.queue, usage, entry.placed))
        self.snapshot.assume(entry.queue, usage.items(), entry.placed)

    def _hide(self, entry: CycleEntry) -> None:
        """From now on the victims and their successor count together; and nobody else in this cycle may have them."""
        victims = [target.reservation for target in entry.targets]
        self.vanished.update((victim.key, victim) for victim in victims)
        for victim, hidden in deferred_preemption.hide(entry.queue, entry.quota_usage(), victims):
            queue = self.snapshot.queues[victim.cluster_queue]
            number = queue.node.tree.number
            self.snapshot.withdraw(queue, [(number(*pair), amount) for pair, amount in hidden.items()])

    # Decisions.

    def _migrate(self, entry: CycleEntry, sibling: Reservation) -> Decision:
        workload = entry.workload
        if not variants.may_migrate(workload, entry.queue):
            return self._wait(
                entry,
                QuotaReservedReason.PENDING_EVALUATION,
                Requeue.GENERIC,
                "Target flavor is below LastAcceptableFlavorName",
            )
        entry.keeps_scan_position = False
        return Preempt(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=entry.assignment.explanation(),
            reason=self._told(QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS),
            migrates=sibling.key,
        )

    def _admit(self, entry: CycleEntry, assumes: tuple[TargetWorkload, ...] = ()) -> Admit:
        workload, assignment = entry.workload, entry.assignment
        pod_sets = assignment.recorded()
        old = next((target.reservation for target in entry.targets if target.reason is None), None)
        return Admit(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=assignment.explanation(),
            pod_sets=pod_sets,
            placed=assignment.placed(entry.queue, None, self.snapshot.fleet),
            is_admitted=not assumes and is_admitted(workload, entry.queue, pod_sets),
            was_admitted=workload.reservation is not None and workload.reservation.admitted,
            is_second_pass=workload.reservation is not None,
            replaces_node=bool(workload.details.unhealthy_nodes) and workload.reservation is not None,
            replaces=old.key if old is not None else "",
            borrowing_level=assignment.level,
            assumed_targets=assumes,
        )

    def _preempt(self, entry: CycleEntry, victims: tuple[TargetWorkload, ...]) -> Decision:
        workload = entry.workload
        if workload.reservation is not None:
            return SecondPassFailed(
                workload=workload.key,
                cluster_queue=entry.queue.name,
                explanation=entry.assignment.explanation(),
                targets=victims,
                message="",
            )
        return Preempt(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=entry.assignment.explanation(),
            reason=self._told(QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS),
            targets=victims,
        )

    def _skip(
        self, entry: CycleEntry, message: str, reason: QuotaReservedReason = QuotaReservedReason.WAITING_FOR_QUOTA
    ) -> Decision:
        """[CY3] Straight back into the queue; the scan goes on where it was, unless that is switched off."""
        if not self.policy.preserve_scan_progress:
            entry.keeps_scan_position = False
        return self._wait(entry, reason, Requeue.FAILED_AFTER_NOMINATION, message)

    def _wait(self, entry: CycleEntry, reason: QuotaReservedReason, requeue: Requeue, message: str = "") -> Decision:
        workload = entry.workload
        if workload.reservation is not None:
            return SecondPassFailed(
                workload=workload.key,
                cluster_queue=entry.queue.name,
                explanation=entry.assignment.explanation(),
                message=message,
            )
        return Wait(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=entry.assignment.explanation(),
            reason=self._told(reason),
            requeue=requeue,
            message=message,
        )

    def _refuse(self, head: Head, refusal: NominationRefusal) -> Decision:
        workload = head.workload
        if workload.reservation is not None:
            return SecondPassFailed(
                workload=workload.key,
                cluster_queue=workload.cluster_queue,
                scan_position=workload.scan_position,
                message=refusal.message,
            )
        return Wait(
            workload=workload.key,
            cluster_queue=workload.cluster_queue,
            scan_position=workload.scan_position,
            reason=self._told(refusal.reason),
            requeue=refusal.requeue,
            message=refusal.message,
        )

    def _left_out(self, entry: CycleEntry) -> Decision:
        """An entry that the order never came to: fair sharing takes one of each queue."""
        return self._wait(
            entry,
            QuotaReservedReason.PENDING_EVALUATION,
            Requeue.GENERIC,
            _LEFT_OUT if all(not pod_set.findings for pod_set in entry.assignment.pod_sets) else "",
        )

    def _told(self, reason: QuotaReservedReason) -> QuotaReservedReason:
        return reason if self.policy.precise_reasons else QuotaReservedReason.PENDING


def is_admitted(workload: WorkloadInfo, queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> bool:
    """§10.2 Whether nothing is left to wait for: every check that its flavors require is listed, every check listed is
    Ready, and no placement is outstanding."""
    return (
        deferred_preemption.required_checks(queue, pod_sets) <= {check.name for check in workload.details.checks}
        and workload.details.all_checks_ready
        and not any(pod_set.delayed == "Pending" and pod_set.placement is None for pod_set in pod_sets)
    )
