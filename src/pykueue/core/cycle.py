"""The scheduling cycle: heads in, decisions out (rules CY, see docs/rules/scheduling.md).

    nominate    each head alone, against the same snapshot: flavors, preemption targets, a placement on the nodes
    order       which entry is processed first
    process     one by one, on a snapshot that fills up: admit, preempt, defer, reserve capacity, or skip

A cycle changes no Workload and leaves the snapshot as it was. What it learned about a head, the position at which the
next scan of its flavors continues included, is part of the decision; `state` stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypedDict

import msgspec

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import amounts, deferred_preemption, ordering, quota, variants
from pykueue.core.assignment import Assignment, FlavorAssignmentMode
from pykueue.core.cohort import CohortTree
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
from pykueue.core.planned_starts import DropConflict, PlanConflict, PlannedStarts
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import PreemptionTarget
from pykueue.core.queue import UsageByNumber
from pykueue.core.screening import HeadScreen, Screened
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.timeline import ENDLESS
from pykueue.core.topology import PlacedPods
from pykueue.core.workload import AssignedPodSet, Reservation, ScanPosition, WorkloadInfo

# Messages for entries that lost to an earlier entry of the cycle. The first two are Kueue's, the last two are ours.
_OVERLAP: Final = "Workload has overlapping preemption targets with another workload"
_NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
_STILL_HELD: Final = "Its quota is still used by workloads that are being preempted"
_LEFT_OUT: Final = "Another workload of the ClusterQueue was processed first in this cycle"


NO_PLANS: Final[Mapping[CohortTree, PlannedStarts]] = MappingProxyType({})
"""The planned starts of a cycle without any."""


class NominationRefusal(msgspec.Struct, frozen=True):
    """Why a head is refused without an assignment ([CY9])."""

    reason: QuotaReservedReason
    message: str
    requeue: Requeue = Requeue.GENERIC


class Head(msgspec.Struct, frozen=True, eq=False):
    """A Workload for the cycle to decide. `refusal` is set where `state` already found it inadmissible (namespace
    selector, invalid requests). `is_preemptor`: targets were issued for it, and it waits for them ([QU6]). `spared`:
    keys of Workloads that it must not preempt ([FS22])."""

    workload: WorkloadInfo
    is_preemptor: bool = False
    refusal: NominationRefusal | None = None
    spared: frozenset[str] = frozenset()


class _Fits(Enum):
    YES = auto()
    NO_QUOTA = auto()
    NO_PLACE = auto()


class _Learned(TypedDict):
    """What processing an entry found out beside the decision itself; see `Decision`."""

    scan_position: ScanPosition | None
    rank: Rank
    recomputation: Recomputation | None
    skips_preemption: bool


class CycleEntry(msgspec.Struct, eq=False):
    """A head after nomination: what it would get, and the preemption targets that make it possible.

    Processing replaces `assignment` and `targets` where an earlier entry invalidated them.
    """

    head: Head
    workload: WorkloadInfo  # of the head
    queue: Queue
    assignment: Assignment
    targets: list[PreemptionTarget]
    placed: tuple[PlacedPods, ...] = ()
    keeps_scan_position: bool = True  # off: the next scan starts at the first flavor ([FL23])
    rank: Rank = ()  # its place in the order without fair sharing
    recomputation: Recomputation | None = None
    skips_preemption: bool = False
    _recorded: tuple[Assignment, tuple[AssignedPodSet, ...]] | None = None

    @property
    def is_preemptor(self) -> bool:
        return self.head.is_preemptor

    @property
    def level(self) -> int:
        return self.assignment.level

    @property
    def scan_position(self) -> ScanPosition | None:
        """Where the next scan of its flavors continues; None: at the first flavor."""
        return self.assignment.scan_position if self.keeps_scan_position else None

    def learned(self) -> _Learned:
        """The fields of its decision that `state` stores and metrics count. Read when the decision is made: what
        changes them is found out before."""
        return {
            "scan_position": self.scan_position,
            "rank": self.rank,
            "recomputation": self.recomputation,
            "skips_preemption": self.skips_preemption,
        }

    def recorded(self) -> tuple[AssignedPodSet, ...]:
        """The content of `status.admission`. Read once processing does not change the assignment any more."""
        if self._recorded is None or self._recorded[0] is not self.assignment:
            self._recorded = self.assignment, self.assignment.recorded()
        return self._recorded[1]

    def quota_usage(self) -> UsageByNumber:
        """What it adds to the quota in use: nothing in a second pass, whose reservation counts already ([CY2])."""
        return {} if self.workload.reservation is not None else self.assignment.usage


def run(
    snapshot: Snapshot,
    heads: Iterable[Head],
    policy: SchedulingPolicy,
    now: Nanoseconds,
    plans: Mapping[CohortTree, PlannedStarts] = NO_PLANS,
    *,
    explains: bool = True,
) -> list[Decision]:
    """Decide every head and return the decisions in the order in which the heads were processed, then those that were
    not processed. The snapshot and the Workloads are afterwards as they were. Without `explains`, most heads that wait
    get neither the exact reason nor an explanation.

    A head whose evaluation raises an exception is removed, and the cycle starts over without it: because nothing was
    changed, the other heads get the decisions that they would get if it did not exist.
    """
    remaining, failed = list(heads), list[Decision]()
    while True:
        try:
            return [*Cycle(snapshot, policy, now, plans, explains=explains).run(remaining), *failed]
        except _EvaluationFailed as failure:
            remaining = [head for head in remaining if head is not failure.head]
            failed.append(_failed(failure))


class _EvaluationFailed(Exception):
    """The evaluation of this head raised an exception, which is the cause of this one."""

    def __init__(self, head: Head) -> None:
        super().__init__(head.workload.key)
        self.head = head


def _failed(failure: _EvaluationFailed) -> Decision:
    workload, error = failure.head.workload, failure.__cause__
    message = f"Evaluation failed ({type(error).__name__}: {error}). The workload is skipped until it changes"
    decision = _not_admitted(workload, QuotaReservedReason.PENDING_EVALUATION, Requeue.SET_ASIDE, message)
    return replace(decision, failure=error)


def _not_admitted(
    workload: WorkloadInfo,
    reason: QuotaReservedReason,
    requeue: Requeue,
    message: str,
    entry: CycleEntry | None = None,
) -> Wait | SecondPassFailed:
    """The decision for a Workload that gets nothing in this cycle: it waits; a second pass keeps its reservation and
    is repeated. Without an entry it was not nominated, and its scan position is unchanged."""
    explanation = () if entry is None else entry.assignment.explanation()
    learned = _not_nominated(workload) if entry is None else entry.learned()
    if workload.reservation is not None:
        return SecondPassFailed(
            workload=workload.key,
            cluster_queue=workload.cluster_queue,
            explanation=explanation,
            message=message,
            **learned,
        )
    return Wait(
        workload=workload.key,
        cluster_queue=workload.cluster_queue,
        explanation=explanation,
        reason=reason,
        requeue=requeue,
        message=message,
        **learned,
    )


def _not_nominated(workload: WorkloadInfo) -> _Learned:
    return {"scan_position": workload.scan_position, "rank": (), "recomputation": None, "skips_preemption": False}


@lru_cache(maxsize=10_000)
def _screened(key: str, cluster_queue: str) -> Wait:
    """The decision for a Workload that can only wait: its next walk over the flavors starts at the first one. A run
    ahead makes the same one many times."""
    return Wait(
        workload=key,
        cluster_queue=cluster_queue,
        reason=QuotaReservedReason.WAITING_FOR_QUOTA,
        requeue=Requeue.PREEMPTION_NO_CANDIDATES,
    )


class Cycle:
    """One cycle. The snapshot is written on while it runs, and restored at its end."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: SchedulingPolicy,
        now: Nanoseconds,
        plans: Mapping[CohortTree, PlannedStarts] = NO_PLANS,
        *,
        explains: bool = True,
    ) -> None:
        self.plans = plans  # by tree; trees without planned starts have none
        # Owners of planned starts are known by their explanations.
        self.screen = None if explains or plans else HeadScreen(snapshot, policy, now)
        self.snapshot = snapshot
        self.policy = policy
        self.now = now
        self.nominator = Nominator(snapshot, policy, now)
        self.issued: dict[str, Reservation] = {}  # targets that entries of this cycle preempt now
        self.deferred: dict[str, Reservation] = {}  # targets that an entry of this cycle preempts once checks passed
        # Capacity kept for entries that have to wait; it counts as used for every later entry.
        self.claims: list[tuple[Queue, UsageByNumber, tuple[PlacedPods, ...]]] = []

    def run(self, heads: Iterable[Head]) -> list[Decision]:
        mark = self.snapshot.mark()
        self.snapshot.topology_cache.begin_cycle()
        try:
            return self._run(heads)
        finally:
            self.snapshot.undo(mark)
            for plans in self.plans.values():
                plans.undo()

    def _run(self, heads: Iterable[Head]) -> list[Decision]:
        refused: list[Decision] = []
        entries: list[CycleEntry] = []
        for head in heads:
            try:
                found = self._nominated(head)
            except Exception as error:
                raise _EvaluationFailed(head) from error
            if isinstance(found, CycleEntry):
                entries.append(found)
            else:
                refused.append(found)
        decided: dict[str, Decision] = {}
        for entry in self._in_order(entries):
            try:
                decided[entry.workload.key] = self._process(entry)
            except Exception as error:
                raise _EvaluationFailed(entry.head) from error
        left_out = [self._left_out(entry) for entry in entries if entry.workload.key not in decided]
        return [*decided.values(), *left_out, *refused]

    def _in_order(self, entries: Sequence[CycleEntry]) -> Iterator[CycleEntry]:
        """The entries in the order of processing: fixed beforehand, or, with fair sharing, found entry by entry,
        because every admission changes the shares."""
        if self.policy.is_fair:
            return ordering.tournament(entries, self.policy, self.snapshot)
        for entry in entries:
            entry.rank = ordering.classical_rank(entry, self.policy)
        return iter(sorted(entries, key=lambda entry: entry.rank))

    # Nomination.

    def _nominated(self, head: Head) -> CycleEntry | Decision:
        """The entry of a head, or the decision for one that is refused without an assignment."""
        workload = head.workload
        refusal = self._refusal(head)
        if refusal is not None:
            return _not_admitted(workload, self._reported_reason(refusal.reason), refusal.requeue, refusal.message)
        queue = self.snapshot.queues[workload.cluster_queue]
        if self.screen is not None and not head.spared:
            screened = self.screen.nominate(workload, queue, is_preemptor=head.is_preemptor)
            if isinstance(screened, Assignment):
                return CycleEntry(head, workload, queue, screened, [])
            if screened is Screened.CAN_ONLY_WAIT:
                return _screened(workload.key, workload.cluster_queue)
        assignment, targets = self.nominator.find(workload, queue, workload.scan_position, spared=head.spared)
        return CycleEntry(head, workload, queue, assignment, targets)

    def _refusal(self, head: Head) -> NominationRefusal | None:
        """Why the head is not nominated, None where it is ([CY9])."""
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
                QuotaReservedReason.PENDING_EVALUATION, "The variants of the workload compete for quota in its place"
            )
        return head.refusal

    # Processing.

    def _process(self, entry: CycleEntry) -> Decision:
        """Decide one entry: the first reason against it, otherwise what it gets ([CY13])."""
        if self.policy.concurrent_admission and variants.better_sibling(entry.workload, entry.queue) is not None:
            why = "A more favorable variant is already admitted"
            return self._skip(entry, why, QuotaReservedReason.PENDING_EVALUATION)
        fits = self._refresh(entry)
        refused = self._unassigned(entry) or self._overtaken(entry, fits)
        if refused is None and self.plans:
            refused = self._delaying(entry)
        return refused or self._granted(entry)

    def _unassigned(self, entry: CycleEntry) -> Decision | None:
        """The decision for an entry that has no flavors, or none that it could use now; None for any other."""
        workload, mode = entry.workload, entry.assignment.mode
        if self.policy.node_replacement_fail_fast and has_lost_node(workload) and mode is not FlavorAssignmentMode.FIT:
            nodes = workload.details.unhealthy_nodes
            return Evict(workload=workload.key, cluster_queue=entry.queue.name, nodes=nodes, **entry.learned())
        if mode is FlavorAssignmentMode.NO_FIT:
            return self._wait(entry, entry.assignment.reason or QuotaReservedReason.NO_MATCHING_FLAVOR, Requeue.NO_FIT)
        if mode is FlavorAssignmentMode.PREEMPT:
            if not entry.targets:
                self._reserve_capacity(entry)
                return self._wait(entry, QuotaReservedReason.WAITING_FOR_QUOTA, Requeue.PREEMPTION_NO_CANDIDATES)
            has_gates = self.policy.concurrent_admission or self.policy.orchestrated_preemption
            if has_gates and workload.details.has_closed_gate:
                entry.keeps_scan_position = False
                why = "Workload requires preemption, but it's gated"
                return self._wait(entry, QuotaReservedReason.ADMISSION_GATED, Requeue.PREEMPTION_GATED, why)
        if mode is FlavorAssignmentMode.DEFERRED_FIT:
            # It needs the quota that targets of an earlier entry will release. Without the claim a later entry could
            # take that quota, and this one would preempt again in the next cycle.
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
        """The decision for an entry that lost its preemption targets or its quota to an earlier entry; None for any
        other."""
        if self._has_taken_targets(entry):
            entry.skips_preemption = True
            return self._skip(entry, _OVERLAP)
        if fits is not _Fits.YES:
            entry.skips_preemption = entry.assignment.mode is FlavorAssignmentMode.PREEMPT
            return self._skip(entry, _NO_LONGER_FITS)
        # W2: `fits` counts the quota of issued targets as free, but those Workloads still run. Only an entry that waits
        # for them may count on it; one that is admitted now would overbook the nodes.
        must_fit_now = (
            entry.assignment.mode is FlavorAssignmentMode.FIT and bool(self.issued) and self.policy.departures
        )
        if must_fit_now and self._fits_beside_targets(entry) is not _Fits.YES:
            return self._skip(entry, f"{_NO_LONGER_FITS}. {_STILL_HELD}")
        return None

    def _delaying(self, entry: CycleEntry) -> Decision | None:
        """The decision for an entry that fits now and would delay a planned start, or that would exceed a quota which
        will be lowered; None for any other. Preemptors are not bound by planned starts ([BF7]), also when they fit
        because their targets are gone; they must not preempt for a start that lowered quota forbids ([QS6]). What may
        start counts for later entries of the cycle."""
        plans = self.plans.get(entry.queue.node.tree)
        workload, usage, mode = entry.workload, entry.quota_usage(), entry.assignment.mode
        if plans is None or workload.reservation is not None:
            return None
        is_limited = workload.limit is not None and is_admitted(workload, entry.queue, entry.recorded())
        end = workload.limit.end(self.now - self.now % SECOND) if workload.limit is not None and is_limited else ENDLESS
        conflict: PlanConflict | DropConflict | None = None
        if mode is FlavorAssignmentMode.FIT and not entry.is_preemptor:
            conflict = plans.conflict(self.snapshot, workload, entry.queue, usage, end, self.now)
        elif plans.timeline.has_drops:
            targets = (target.reservation.key for target in entry.targets)
            conflict = plans.drop_conflict(workload, usage, end, self.now, targets)
        elif mode is not FlavorAssignmentMode.FIT:
            return None
        if conflict is None:
            plans.assume(workload, usage, end)
            return None
        has_checks = workload.limit is not None and not is_limited
        message = conflict.message(workload.limit, has_checks=has_checks)
        waiting = self._wait(entry, QuotaReservedReason.WAITING_FOR_QUOTA, Requeue.PLANNED, message)
        assert isinstance(waiting, Wait), "a second pass is not asked"
        return replace(waiting, advice="" if has_checks else conflict.advice(workload.limit, self.now))

    def _granted(self, entry: CycleEntry) -> Decision:
        """The decision for an entry that fits, now or once its targets are evicted. What it gets is used from here on
        for every later entry."""
        workload, mode = entry.workload, entry.assignment.mode
        targets = tuple(
            TargetWorkload(
                target.reservation.key, target.reservation.cluster_queue, target.reason, target.reservation.evicted
            )
            for target in entry.targets
            if target.reason is not None
        )
        if mode is FlavorAssignmentMode.PREEMPT and deferred_preemption.may_wait(
            workload, entry.queue, entry.recorded()
        ):
            self._share_usage_with_targets(entry)
            self.snapshot.assume(entry.queue, entry.quota_usage().items(), entry.placed)
            return self._admit(entry, assumed_targets=targets)
        for target in entry.targets:
            self.issued[target.reservation.key] = target.reservation
        if mode is FlavorAssignmentMode.PREEMPT:
            entry.keeps_scan_position = False
            self._claim(entry, entry.quota_usage())
            return self._preempt(entry, targets)
        self.snapshot.assume(entry.queue, entry.quota_usage().items(), entry.placed)
        sibling = variants.worse_sibling(workload, entry.queue) if self.policy.concurrent_admission else None
        if sibling is not None:
            return self._migrate(entry, sibling)
        return self._admit(entry)

    def _refresh(self, entry: CycleEntry) -> _Fits:
        """Recompute the assignment where earlier entries took its targets or its placement; whether it fits then
        ([CY14])."""
        is_shared = any(target.reservation.key in self.issued for target in entry.targets)
        recomputes_targets = self._has_taken_targets(entry) and self.policy.recompute_on_overlap
        fits = self._fits(entry)
        if recomputes_targets:
            mark = self.snapshot.mark()
            # Targets that will be evicted anyway are treated as ended: their quota is free to plan with, and a second
            # entry must not name them as its own.
            for target in self.issued.values():
                self.snapshot.remove(target)
            with self.snapshot.treating_as_ended((*self.issued, *self.deferred)):
                self._recompute(entry)
            self.snapshot.undo(mark)
            # It fits only because the targets of an earlier entry will end, so it has to wait for them.
            if is_shared and entry.assignment.mode is FlavorAssignmentMode.FIT:
                entry.assignment.set_mode(FlavorAssignmentMode.DEFERRED_FIT)
        elif fits is _Fits.NO_PLACE and self.policy.recompute_placement:
            self._recompute(entry)
        else:
            return fits
        fits = self._fits(entry)
        if recomputes_targets:
            entry.recomputation = self._recomputation(entry, fits)
        return fits

    def _has_taken_targets(self, entry: CycleEntry) -> bool:
        """Whether an earlier entry of this cycle preempts one of its targets, now or once checks have passed."""
        return any(t.reservation.key in self.issued or t.reservation.key in self.deferred for t in entry.targets)

    def _recomputation(self, entry: CycleEntry, fits: _Fits) -> Recomputation:
        if entry.assignment.mode is FlavorAssignmentMode.DEFERRED_FIT:
            return Recomputation.DEFERRED_FIT
        if entry.targets and fits is _Fits.YES and not self._has_taken_targets(entry):
            return Recomputation.NEW_TARGETS
        return Recomputation.SKIPPED

    def _recompute(self, entry: CycleEntry) -> None:
        """Assign again from the first flavor, but never another flavor than the one nominated: the entry's place in the
        order was decided by it ([CY6])."""
        pinned = entry.assignment.pinned()
        entry.assignment, entry.targets = self.nominator.find(
            entry.workload, entry.queue, None, pinned or None, entry.head.spared
        )

    def _fits(self, entry: CycleEntry) -> _Fits:
        """Whether it fits with the targets issued so far, and its own, removed ([CY1])."""
        entry.placed = entry.assignment.placed(entry.queue, entry.workload.reservation, self.snapshot.topology_cache)
        if not self.issued and not entry.targets:
            return self._fits_now(entry)
        removed = dict(self.issued)
        removed.update((target.reservation.key, target.reservation) for target in entry.targets)
        mark = self.snapshot.mark()
        own = entry.queue.node.tree
        for reservation in removed.values():
            # Targets in other trees release no quota here, only capacity on nodes.
            if reservation.placed or self.snapshot.queues[reservation.cluster_queue].node.tree is own:
                self.snapshot.remove(reservation)
        fits = self._fits_now(entry)
        self.snapshot.undo(mark)
        return fits

    def _fits_beside_targets(self, entry: CycleEntry) -> _Fits:
        """Whether it fits while the targets of other entries still run (W2). What those entries will get does not
        count: they wait."""
        mark = self.snapshot.mark()
        for queue, usage, placed in self.claims:
            self.snapshot.withdraw(queue, usage.items(), placed)
        for target in entry.targets:
            self.snapshot.remove(target.reservation)
        fits = self._fits_now(entry)
        self.snapshot.undo(mark)
        return fits

    def _fits_now(self, entry: CycleEntry) -> _Fits:
        """Whether the entry fits on the snapshot as it is."""
        if any(amount > quota.available(entry.queue.node, n) for n, amount in entry.quota_usage().items()):
            return _Fits.NO_QUOTA
        if entry.placed and not self.snapshot.topology_cache.fits(entry.placed):
            return _Fits.NO_PLACE
        return _Fits.YES

    def _reserve_capacity(self, entry: CycleEntry) -> None:
        """Keep capacity for a head that found no targets, where its ClusterQueue cannot always reclaim: otherwise
        smaller Workloads of the cohort could take whatever becomes free, for ever ([CY8])."""
        spec, node = entry.queue.spec, entry.queue.node
        plans = self.plans.get(node.tree) if self.plans else None
        if plans is not None and entry.workload.key in plans.plans:
            return  # its planned start protects it beyond this cycle ([BF9])
        if spec.preemption.can_always_reclaim and not (self.policy.preemptors_first and entry.is_preemptor):
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

    def _claim(self, entry: CycleEntry, usage: UsageByNumber) -> None:
        """Count usage that the entry will have as used, for all later entries of the cycle."""
        self.claims.append((entry.queue, usage, entry.placed))
        self.snapshot.assume(entry.queue, usage.items(), entry.placed)

    def _share_usage_with_targets(self, entry: CycleEntry) -> None:
        """From now on the entry and its deferred targets count together, as the larger of the two ([CY19]). No other
        entry of the cycle may have the same targets: their quota is promised once."""
        targets = [target.reservation for target in entry.targets]
        self.deferred.update((target.key, target) for target in targets)
        for target, hidden in deferred_preemption.hide(entry.queue, entry.quota_usage(), targets):
            queue = self.snapshot.queues[target.cluster_queue]
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
            reason=self._reported_reason(QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS),
            migrates=sibling.key,
            **entry.learned(),
        )

    def _admit(self, entry: CycleEntry, assumed_targets: tuple[TargetWorkload, ...] = ()) -> Admit:
        workload, assignment = entry.workload, entry.assignment
        pod_sets = entry.recorded()
        before = workload.reservation
        # A second pass changes nothing about targets that leave later: until they have ended it is not admitted.
        waits_for_targets = bool(assumed_targets or (before is not None and before.assumed_targets))
        old = next((target.reservation for target in entry.targets if target.reason is None), None)
        return Admit(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=assignment.explanation(),
            pod_sets=pod_sets,
            placed=assignment.placed(entry.queue, None, self.snapshot.topology_cache),
            is_admitted=not waits_for_targets and is_admitted(workload, entry.queue, pod_sets),
            was_admitted=before is not None and before.admitted,
            is_second_pass=before is not None,
            replaces_node=bool(workload.details.unhealthy_nodes) and before is not None,
            replaces=old.key if old is not None else "",
            borrowing_level=assignment.level,
            assumed_targets=assumed_targets,
            **entry.learned(),
        )

    def _preempt(self, entry: CycleEntry, targets: tuple[TargetWorkload, ...]) -> Decision:
        reason = QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS
        waiting = self._wait(entry, reason, Requeue.PENDING_PREEMPTION)
        if isinstance(waiting, SecondPassFailed):
            return replace(waiting, targets=targets)
        return Preempt(
            workload=entry.workload.key,
            cluster_queue=entry.queue.name,
            explanation=waiting.explanation,
            reason=waiting.reason,
            targets=targets,
            **entry.learned(),
        )

    def _skip(
        self, entry: CycleEntry, message: str, reason: QuotaReservedReason = QuotaReservedReason.WAITING_FOR_QUOTA
    ) -> Decision:
        """Requeue an entry that lost to an earlier one: its scan of the flavors continues where it was, unless the gate
        FlavorFungibilityPreserveScanProgress is off ([CY3])."""
        if not self.policy.preserve_scan_progress:
            entry.keeps_scan_position = False
        return self._wait(entry, reason, Requeue.FAILED_AFTER_NOMINATION, message)

    def _wait(
        self, entry: CycleEntry, reason: QuotaReservedReason, requeue: Requeue, message: str = ""
    ) -> Wait | SecondPassFailed:
        return _not_admitted(entry.workload, self._reported_reason(reason), requeue, message, entry)

    def _left_out(self, entry: CycleEntry) -> Decision:
        """The decision for an entry that the order did not reach: fair sharing takes one entry per ClusterQueue."""
        return self._wait(
            entry,
            QuotaReservedReason.PENDING_EVALUATION,
            Requeue.GENERIC,
            _LEFT_OUT if all(not pod_set.findings for pod_set in entry.assignment.pod_sets) else "",
        )

    def _reported_reason(self, reason: QuotaReservedReason) -> QuotaReservedReason:
        """The reason as the condition reports it: Pending where precise reasons are switched off."""
        return reason if self.policy.precise_reasons else QuotaReservedReason.PENDING


def is_admitted(workload: WorkloadInfo, queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> bool:
    """Whether a Workload with this assignment is admitted at once: every check that its flavors require is listed,
    every check listed is Ready, and no placement is outstanding ([CY17])."""
    checks = workload.details.checks
    if queue.spec.checks and not deferred_preemption.required_checks(queue, pod_sets) <= {each.name for each in checks}:
        return False
    return (not checks or workload.details.all_checks_ready) and not any(
        pod_set.is_placement_pending for pod_set in pod_sets
    )
