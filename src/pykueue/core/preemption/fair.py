"""Preemption targets under fair sharing ([FS11] to [FS19]): from the ClusterQueue with the largest share, as long as
the result is fair.

The preemptor's request is counted in its ClusterQueue during the whole search, because the shares that are compared are
those after its admission. Only the test whether it fits takes it out for a moment: counted twice, nothing would fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api.conditions import PreemptedReason
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import fair_sharing, quota
from pykueue.core.amounts import Amount
from pykueue.core.cohort import QuotaNode
from pykueue.core.policy import FairSharingStrategy
from pykueue.core.preemption.search import PreemptionTarget, TargetSearch
from pykueue.core.queue import FlavorResourceNumber
from pykueue.core.snapshot import Queue
from pykueue.core.workload import Reservation


def find(search: TargetSearch) -> list[PreemptionTarget]:
    """The targets for the Workload; empty where no fair set of targets makes it fit. The snapshot is restored."""
    found = _candidates(search)
    if search.is_hopeless(found):
        return []
    candidates = search.ordered(found)
    snapshot = search.snapshot
    mark = snapshot.mark()
    snapshot.assume(search.queue, search.requests.items())
    targets = _Selection(search).run(candidates)
    if targets is None:
        snapshot.undo(mark)
        return []
    # From here on as in the classical search: the request is not in the snapshot, and spare targets are given back.
    snapshot.withdraw(search.queue, search.requests.items())
    targets = search.fill_back(targets, borrowing=True)
    snapshot.undo(mark)
    return targets


def _candidates(search: TargetSearch) -> list[Reservation]:
    """The candidates of the own ClusterQueue, and of every ClusterQueue of the tree that borrows a contested
    flavor-resource ([FS11])."""
    preemption = search.queue.spec.preemption
    found = search.candidates(search.queue, preemption.within_cluster_queue)
    if search.queue.node.parent is None or preemption.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return found
    for node in search.queue.node.root.subtree_queues():
        if node is not search.queue.node and quota.is_borrowing_any(node, search.contested):
            found += search.candidates(search.snapshot.queues[node.name], preemption.reclaim_within_cohort)
    return found


def reclaimable_queues(queue: Queue, number: FlavorResourceNumber, amount: Amount) -> Iterator[QuotaNode]:
    """The other ClusterQueues whose reservations are candidates for one flavor-resource, as far as quota decides it
    ([FS11]); the amount does not matter."""
    if queue.node.parent is None or queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return
    for node in queue.node.root.subtree_queues():
        if node is not queue.node and node.usage[number] > node.subtree[number]:
            yield node


class _Selection:
    """One selection of targets: those found so far, and the candidates that did not pass the first strategy."""

    def __init__(self, search: TargetSearch) -> None:
        self.search = search
        self.targets: list[PreemptionTarget] = []
        self.retry_candidates: list[Reservation] = []

    def run(self, candidates: list[Reservation]) -> list[PreemptionTarget] | None:
        first, *more = self.search.policy.fair_sharing
        if self._first_pass(candidates, first) or (more and self._second_pass()):
            return self.targets
        return None

    def _take(self, reservation: Reservation, reason: PreemptedReason) -> bool:
        """Make the reservation a target; whether the Workload fits now."""
        self.search.snapshot.remove(reservation)
        self.targets.append(PreemptionTarget(reservation, reason))
        return self._fits()

    def _fits(self) -> bool:
        """Whether the Workload fits. Its request is counted in the snapshot already, so it is withdrawn for the test
        ([FS17])."""
        search = self.search
        mark = search.snapshot.mark()
        search.snapshot.withdraw(search.queue, search.requests.items())
        fits = search.fits(borrowing=True)
        search.snapshot.undo(mark)
        return fits

    def _first_pass(self, candidates: list[Reservation], strategy: FairSharingStrategy) -> bool:
        """Select targets by the first strategy, queue by queue in the order of shares; whether the Workload fits."""
        search = self.search
        own = search.queue.node
        # [FS14] Tested once, with the request counted: a ClusterQueue that stays within its nominal quota reclaims what
        # is its own, whatever the shares are.
        is_entitled = search.policy.preempt_within_nominal and not quota.is_borrowing_any(own, search.contested)
        order = _ClusterQueueOrder(search, candidates)
        for node in order:
            waiting = order.waiting[node.name]
            if node is own:
                if self._take(waiting.pop(0), PreemptedReason.IN_CLUSTER_QUEUE):
                    return True
                continue
            if is_entitled:
                if self._take(waiting.pop(0), PreemptedReason.IN_COHORT_RECLAMATION):
                    return True
                continue
            # [FS13] Shares are comparable only between children of one cohort, so the preemptor and the target are
            # represented by their ancestors right below the lowest cohort that they have in common.
            mine, theirs = _siblings_below_common_cohort(own, node)
            preemptor, before = fair_sharing.dominant_resource_share(mine), fair_sharing.dominant_resource_share(theirs)
            while waiting:
                candidate = waiting.pop(0)
                if strategy is FairSharingStrategy.LESS_THAN_INITIAL_SHARE:
                    passes = preemptor.rank < before.rank
                else:
                    passes = preemptor.rank <= self._share_without(candidate, node, theirs)
                if not passes:
                    self.retry_candidates.append(candidate)
                    continue
                if self._take(candidate, PreemptedReason.IN_COHORT_FAIR_SHARING):
                    return True
                break  # the shares have changed: another ClusterQueue may have the largest one now
        return False

    def _share_without(self, candidate: Reservation, node: QuotaNode, theirs: QuotaNode) -> tuple[bool, float]:
        snapshot = self.search.snapshot
        mark = snapshot.mark()
        snapshot.withdraw(snapshot.queues[node.name], candidate.usage_by_number)
        rank = fair_sharing.dominant_resource_share(theirs).rank
        snapshot.undo(mark)
        return rank

    def _second_pass(self) -> bool:
        """Select among the candidates that the first strategy left, by the share before the target is removed: at most
        one candidate of each ClusterQueue ([FS19])."""
        order = _ClusterQueueOrder(self.search, self.retry_candidates)
        own = self.search.queue.node
        for node in order:
            candidate = order.waiting[node.name].pop(0)
            mine, theirs = _siblings_below_common_cohort(own, node)
            if fair_sharing.dominant_resource_share(mine).rank < fair_sharing.dominant_resource_share(
                theirs
            ).rank and self._take(candidate, PreemptedReason.IN_COHORT_FAIR_SHARING):
                return True
            order.pruned.add(node)
        return False


class _ClusterQueueOrder:
    """Which ClusterQueue to take a target from next: down from the root, always into the child with the largest share
    ([FS12]).

    The order is found step by step, because every target changes shares. A ClusterQueue that no longer borrows, or that
    has no candidates left, is pruned for good; so is a cohort that no longer borrows, unless the preemptor is below it:
    the shares of its children may still be unfair.
    """

    def __init__(self, search: TargetSearch, candidates: list[Reservation]) -> None:
        self.search = search
        self.waiting: dict[str, list[Reservation]] = {}
        for candidate in candidates:
            self.waiting.setdefault(candidate.cluster_queue, []).append(candidate)
        self.pruned: set[QuotaNode] = set()

    def __iter__(self) -> Iterator[QuotaNode]:
        own = self.search.queue.node
        root = own.root
        if own.parent is None:
            while own not in self.pruned and self.waiting.get(own.name):
                yield own
            return
        while root not in self.pruned:
            node = self._descend(root)
            if node is not None:
                yield node

    def _descend(self, cohort: QuotaNode) -> QuotaNode | None:
        queue, queue_rank = self._largest_queue(cohort)
        child, child_rank = self._largest_cohort(cohort)
        if child is not None and child_rank >= queue_rank:  # the cohort wins ties
            return self._descend(child)
        if queue is None:
            self.pruned.add(cohort)
        return queue

    def _largest_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, tuple[bool, float]]:
        best: QuotaNode | None = None
        best_rank = fair_sharing.LESS_THAN_ANY
        for queue in cohort.queues:
            if queue in self.pruned:
                continue
            share = fair_sharing.dominant_resource_share(queue)
            if not self.waiting.get(queue.name) or not (share.is_borrowing or queue is self.search.queue.node):
                self.pruned.add(queue)
            elif best is None or share.rank > best_rank:
                best, best_rank = queue, share.rank
            elif share.rank == best_rank and self._offers_first(queue, best):
                best = queue
        return best, best_rank

    def _offers_first(self, queue: QuotaNode, other: QuotaNode) -> bool:
        first, second = self.waiting[queue.name][0], self.waiting[other.name][0]
        return self.search.ordered((first, second), by_local_usage=False)[0] is first

    def _largest_cohort(self, cohort: QuotaNode) -> tuple[QuotaNode | None, tuple[bool, float]]:
        best: QuotaNode | None = None
        best_rank = fair_sharing.LESS_THAN_ANY
        for child in cohort.cohorts:
            if child in self.pruned:
                continue
            share = fair_sharing.dominant_resource_share(child)
            if not share.is_borrowing and child not in self.search.queue.node.ancestors:
                self.pruned.add(child)
            elif best is None or share.rank > best_rank:
                best, best_rank = child, share.rank
        return best, best_rank


def _siblings_below_common_cohort(own: QuotaNode, target: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """Of the lowest cohort that holds both ClusterQueues, the child that leads to each of them ([FS13])."""
    shared = next(ancestor for ancestor in target.ancestors if ancestor in own.ancestors)
    return _child_towards(own, shared), _child_towards(target, shared)


def _child_towards(node: QuotaNode, ancestor: QuotaNode) -> QuotaNode:
    return next(step for step in (node, *node.ancestors) if step.parent is ancestor)
