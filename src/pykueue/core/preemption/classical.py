"""Victims without fair sharing (§6): by closeness to the quota first, then by priority.

Three groups of candidates. *Hierarchy* candidates hold quota that the preemptor is closer to in the tree than they are;
they can be taken even if the preemptor then borrows. *Priority* candidates are in no worse a position; they can be
taken while borrowing only where `borrowWithinCohort` says so, and otherwise only if the preemptor ends without
borrowing. The third group is the preemptor's own queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from itertools import chain
from typing import NamedTuple

from pykueue.api.conditions import PreemptedReason
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import quota
from pykueue.core.cohort import QuotaNode
from pykueue.core.preemption.search import PreemptionTarget, TargetSearch
from pykueue.core.workload import Reservation


class PreemptionVariant(Enum):
    """§6.3 On what terms a candidate may be taken."""

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
    own = [
        Candidate(reservation, PreemptionVariant.WITHIN_QUEUE, ())
        for reservation in search.candidates(search.queue, search.queue.spec.preemption.within_cluster_queue)
    ]
    hierarchy, priority = _elsewhere(search)
    if search.is_hopeless(candidate.reservation for candidate in chain(own, hierarchy, priority)):
        return []
    groups = [_in_order(search, group) for group in (hierarchy, priority, own)]
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


def _attempts(search: TargetSearch, *, has_hierarchy: bool, has_others: bool) -> tuple[bool, ...]:
    """§6.5 Whether to try with borrowing allowed, without, or both, and in which order."""
    preemption = search.queue.spec.preemption
    node = search.queue.node
    if not has_others:
        return (True,)
    if not preemption.borrow_within_cohort:
        if any(node.usage[number] >= node.subtree[number] for number in search.contested):
            return (True,)
        if not has_hierarchy:
            return (False, True)
    return (True, False)


def _is_valid(search: TargetSearch, candidate: Candidate, *, borrowing: bool) -> bool:
    """[PR5] Judged on the state as it is now: earlier victims may have brought a candidate's queue within its quota."""
    if candidate.variant is PreemptionVariant.WITHIN_QUEUE:
        return True
    if borrowing and candidate.variant is PreemptionVariant.RECLAIM_WITHOUT_BORROWING:
        return False
    return all(quota.is_borrowing_any(node, search.contested) for node in candidate.between)


def _elsewhere(search: TargetSearch) -> tuple[list[Candidate], list[Candidate]]:
    """§6.2 Candidates of other queues, collected on the way from the preemptor's cohort up to the root.

    As soon as the request fits in some subtree on the way, everything collected above it is a hierarchy candidate.
    """
    hierarchy: list[Candidate] = []
    priority: list[Candidate] = []
    policy = search.queue.spec.preemption.reclaim_within_cohort
    node = search.queue.node
    if policy is PreemptionPolicy.NEVER:
        return hierarchy, priority
    has_advantage, rest = quota.fits_in_subtree(node, search.requests)
    below: QuotaNode = node
    for cohort in node.ancestors:
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


def _over_quota(cohort: QuotaNode, visited: QuotaNode, contested: frozenset[int]) -> Iterator[tuple[QuotaNode, ...]]:
    """[PR3] Queues under the cohort that exceed their quota, with everything between them and the cohort doing so too;
    each as (queue, ..., child of the cohort). The part already visited is left out."""
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
