"""Preemption targets without fair sharing (rules PR): by closeness to the quota first, then by priority.

There are three groups of candidates. *Hierarchy* candidates hold quota that the preemptor is closer to in the tree than
they are; they can be targets even if the preemptor then borrows. *Priority* candidates are in no worse a position; they
can be targets while the preemptor borrows only where `borrowWithinCohort` allows it, and otherwise only if it ends
without borrowing. The third group is the preemptor's own ClusterQueue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import NamedTuple

from pykueue.api.conditions import PreemptedReason
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import amounts, quota
from pykueue.core.amounts import Amount
from pykueue.core.cohort import QuotaNode
from pykueue.core.preemption.search import PreemptionTarget, TargetSearch
from pykueue.core.queue import FlavorResourceNumber
from pykueue.core.snapshot import Queue
from pykueue.core.workload import Reservation


class PreemptionVariant(Enum):
    """On what terms a candidate may become a target ([PR8])."""

    WITHIN_QUEUE = auto()
    RECLAIM = auto()
    RECLAIM_WITHOUT_BORROWING = auto()
    RECLAIM_WHILE_BORROWING = auto()


_REASONS = {
    PreemptionVariant.WITHIN_QUEUE: PreemptedReason.IN_CLUSTER_QUEUE,
    PreemptionVariant.RECLAIM: PreemptedReason.IN_COHORT_RECLAMATION,
    PreemptionVariant.RECLAIM_WITHOUT_BORROWING: PreemptedReason.IN_COHORT_RECLAMATION,
    PreemptionVariant.RECLAIM_WHILE_BORROWING: PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
}


class Candidate(NamedTuple):
    reservation: Reservation
    variant: PreemptionVariant
    between: tuple[QuotaNode, ...]  # the candidate's queue and the cohorts below the one it shares with the preemptor


def find(search: TargetSearch) -> list[PreemptionTarget]:
    """The targets for the Workload; empty where no permitted set of targets makes it fit. The snapshot is restored."""
    own = [
        Candidate(reservation, PreemptionVariant.WITHIN_QUEUE, ())
        for reservation in search.candidates(search.queue, search.queue.spec.preemption.within_cluster_queue)
    ]
    hierarchy, priority = _candidates_of_others(search, [candidate.reservation for candidate in own])
    if search.is_hopeless(candidate.reservation for candidate in chain(own, hierarchy, priority)):
        return []
    groups = [_in_order(search, group) for group in (hierarchy, priority, own)]
    # Those that are being evicted come first, whatever their group: to take them costs nothing more.
    candidates = [
        candidate
        for evicted in (True, False)
        for group in groups
        for candidate in group
        if candidate.reservation.evicted is evicted
    ]
    mark = search.snapshot.mark()
    for borrowing in _attempts(search, has_hierarchy=bool(hierarchy), has_others=bool(hierarchy or priority)):
        targets: list[PreemptionTarget] = []
        for candidate in candidates:
            # Asked in the state that the targets before it leave: a queue that borrowed may be within its quota by now.
            if not _is_valid(search, candidate, borrowing=borrowing):
                continue
            search.snapshot.remove(candidate.reservation)
            targets.append(PreemptionTarget(candidate.reservation, _REASONS[candidate.variant]))
            if search.fits(borrowing=borrowing):
                targets = search.fill_back(targets, borrowing=borrowing)
                search.snapshot.undo(mark)
                return targets
        search.snapshot.undo(mark)
    return []


def is_hopeless(search: TargetSearch) -> bool:
    """Whether not even all candidates together release what is requested."""
    own = search.candidates(search.queue, search.queue.spec.preemption.within_cluster_queue)
    hierarchy, priority = _candidates_of_others(search, own)
    others = (candidate.reservation for candidate in chain(hierarchy, priority))
    return search.is_hopeless(chain(own, others))


def reclaimable_queues(queue: Queue, number: FlavorResourceNumber, amount: Amount) -> Iterator[QuotaNode]:
    """The other ClusterQueues whose reservations are candidates for an amount of one flavor-resource, as far as quota
    decides it ([PR3], [PR4]): `_candidates_of_others` without the reservations."""
    rules, node = queue.spec.preemption, queue.node
    if rules.reclaim_within_cohort is PreemptionPolicy.NEVER or node.parent is None:
        return
    contested = (number,)
    has_advantage, rest = not quota.borrows_with(node, number, amount), amount
    takes_priority = rules.borrow_within_cohort or not _has_used_up(node, contested)
    below = node
    for cohort in node.ancestors:
        if has_advantage or takes_priority:
            yield from (between[0] for between in _over_quota(cohort, below, contested))
        rest = max(0, amounts.subtract(rest, quota.headroom(below, number)))
        has_advantage = has_advantage or not quota.borrows_with(cohort, number, rest)
        below = cohort


def _attempts(search: TargetSearch, *, has_hierarchy: bool, has_others: bool) -> tuple[bool, ...]:
    """Whether to try with borrowing allowed, without, or both, and in which order ([PR10])."""
    preemption = search.queue.spec.preemption
    node = search.queue.node
    if not has_others:
        return (True,)
    if not preemption.borrow_within_cohort:
        if _has_used_up(node, search.contested):
            return (True,)
        if not has_hierarchy:
            return (False, True)
    return (True, False)


def _has_used_up(node: QuotaNode, contested: Iterable[int]) -> bool:
    return any(node.usage[number] >= node.subtree[number] for number in contested)


def _is_valid(search: TargetSearch, candidate: Candidate, *, borrowing: bool) -> bool:
    """Whether the candidate may still be a target: those before it may have brought its ClusterQueue within its quota
    ([PR5])."""
    if candidate.variant is PreemptionVariant.WITHIN_QUEUE:
        return True
    if borrowing and candidate.variant is PreemptionVariant.RECLAIM_WITHOUT_BORROWING:
        return False
    return all(quota.is_borrowing_any(node, search.contested) for node in candidate.between)


def _can_end_within_quota(search: TargetSearch, own: Sequence[Reservation]) -> bool:
    """Whether the preemptor can end without borrowing: its ClusterQueue holds no more than its quota once all of its
    own candidates are removed. Candidates of other ClusterQueues do not change what it holds."""
    node = search.queue.node
    for number, amount in search.requests.items():
        if quota.borrows_with(node, number, amount):
            freed = sum(freed for each in own for used, freed in each.usage_by_number if used == number)
            if amounts.add(amounts.subtract(node.usage[number], freed), amount) > node.subtree[number]:
                return False
    return True


def _candidates_of_others(search: TargetSearch, own: Sequence[Reservation]) -> tuple[list[Candidate], list[Candidate]]:
    """The hierarchy and the priority candidates of other ClusterQueues, collected on the way from the preemptor's
    cohort up to the root ([PR4]).

    As soon as the request fits in some subtree on the way, everything collected above it is a hierarchy candidate: that
    quota belongs to the preemptor's side of the tree.
    """
    hierarchy: list[Candidate] = []
    priority: list[Candidate] = []
    policy = search.queue.spec.preemption.reclaim_within_cohort
    node = search.queue.node
    if policy is PreemptionPolicy.NEVER:
        return hierarchy, priority
    has_advantage, rest = quota.fits_in_subtree(node, search.requests)
    # A preemptor that has used up its quota is tried with borrowing only ([PR10]), and one that cannot end within its
    # quota succeeds with borrowing only. Priority candidates are then valid only where borrowing preemptors may take
    # them. In a full cohort most searches are of this kind, and would remove every candidate in turn for nothing.
    takes_priority = search.queue.spec.preemption.borrow_within_cohort or (
        not _has_used_up(node, search.contested) and _can_end_within_quota(search, own)
    )
    below: QuotaNode = node
    for cohort in node.ancestors:
        if has_advantage or takes_priority:
            found = hierarchy if has_advantage else priority
            for between in _over_quota(cohort, below, search.contested):
                queue = search.snapshot.queues[between[0].name]
                found.extend(
                    Candidate(reservation, _variant(search, reservation, has_advantage=has_advantage), between)
                    for reservation in search.candidates(queue, policy)
                )
        fits, rest = quota.fits_in_subtree(cohort, rest)
        has_advantage = has_advantage or fits
        below = cohort
    return hierarchy, priority


def _over_quota(cohort: QuotaNode, visited: QuotaNode, contested: Collection[int]) -> Iterator[tuple[QuotaNode, ...]]:
    """The ClusterQueues under the cohort that exceed their quota, as does every cohort between; each as (queue, ...,
    child of the cohort). The part already visited is left out ([PR3])."""
    for child in quota.borrowing(cohort.cohorts, contested):
        if child is not visited:
            for path in _over_quota(child, visited, contested):
                yield (*path, child)
    for queue in quota.borrowing(cohort.queues, contested):
        if queue is not visited:
            yield (queue,)


def _variant(search: TargetSearch, candidate: Reservation, *, has_advantage: bool) -> PreemptionVariant:
    if has_advantage:
        return PreemptionVariant.RECLAIM
    preemption = search.queue.spec.preemption
    threshold = preemption.max_priority_threshold
    if (
        not preemption.borrow_within_cohort
        or candidate.priority >= search.workload.priority
        or (threshold is not None and candidate.priority > threshold)
    ):
        return PreemptionVariant.RECLAIM_WITHOUT_BORROWING
    return PreemptionVariant.RECLAIM_WHILE_BORROWING


def _in_order(search: TargetSearch, candidates: list[Candidate]) -> list[Candidate]:
    by_key = {candidate.reservation.key: candidate for candidate in candidates}
    return [by_key[reservation.key] for reservation in search.ordered(c.reservation for c in candidates)]
