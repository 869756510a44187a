"""Balanced placement: the same number of slices on every domain, as far as that goes, over as few domains as suffice.

Sets of siblings are compared by their *threshold*: the number of slices that every domain used would get at least. In
a set, domains too small for its threshold are pruned; the best set has the largest threshold, then the fewest domains.
Of that set the smallest group of domains that suffices is used; each gets the threshold, and the rest is distributed in
order of capacity. Whenever a step fails, best fit is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pykueue.core.topology import domain_counts
from pykueue.core.topology.domain_counts import Counts, DomainCounts
from pykueue.core.topology.domain_selection import SliceRequest, by_capacity
from pykueue.core.topology.leaf_distribution import DomainShare, descend


class _Use(NamedTuple):
    """What filling domains greedily, largest first, would use."""

    domains: int
    leader_domain: int | None  # the domain that hosts the leader
    last: int | None  # the last domain used without one


class _Candidate(NamedTuple):
    """A set of siblings at the requested level, with everything too small for its threshold pruned."""

    counted: DomainCounts
    siblings: Sequence[int]
    threshold: int
    used: int


def spread(counted: DomainCounts, level: int, request: SliceRequest) -> list[DomainShare] | None:
    """Even shares for a *preferred* request; None: best fit is used instead."""
    best: _Candidate | None = None
    for siblings in _sibling_sets(counted, level):
        candidate = _candidate(counted, level, siblings, request, best.threshold if best else 0)
        if candidate is not None and (best is None or _is_better(candidate, best)):
            best = candidate
    if best is None or best.threshold <= 0:
        return None
    domains: Sequence[int] = best.siblings
    if level < counted.measure.slice_level:
        chosen = _smallest_group(best.counted, level, domains, request, _by_evenness(best.counted, level))
        if chosen is None:
            return None
        domains = [child for domain in chosen for child in counted.tree.children(level, domain)]
        level += 1
    shares = _hand_out(best.counted, level, domains, request, best.threshold)
    return shares and descend(best.counted, level, shares, request)


def _sibling_sets(counted: DomainCounts, level: int) -> Iterable[Sequence[int]]:
    """The children of every domain one level up, or all domains of the top."""
    if level == 0:
        return [range(len(counted.tree.paths[0]))]
    return [counted.tree.children(level - 1, parent) for parent in range(len(counted.tree.paths[level - 1]))]


def _is_better(candidate: _Candidate, best: _Candidate) -> bool:
    return (candidate.threshold, -candidate.used) > (best.threshold, -best.used)


def _candidate(
    counted: DomainCounts, level: int, siblings: Sequence[int], request: SliceRequest, at_least: int
) -> _Candidate | None:
    """The set with its threshold; None where it does not hold everything or cannot be better than the best so far."""
    looked_at, domains = level, siblings
    if level < counted.measure.slice_level:
        looked_at = level + 1
        domains = [child for domain in siblings for child in counted.tree.children(level, domain)]
    use = _greedy(counted, looked_at, domains, request)
    if use is None:
        return None
    counts = counted.level(looked_at)
    thresholds = [_threshold(counts, use, request.slices)]
    if counted.measure.has_leader and use.last is not None:
        # Where the even share leaves no capacity for the leader, a threshold that counts the leader may still work.
        thresholds.append(min(thresholds[0], counts.slices_led[use.last]))
    for threshold in dict.fromkeys(thresholds):
        if threshold < max(at_least, 1):
            return None
        pruned = _pruned(counted, level, siblings, threshold)
        after = _greedy(pruned, level, siblings, request)
        if after is not None:
            return _Candidate(pruned, siblings, threshold, after.domains)
    return None


def _threshold(counts: Counts, use: _Use, slices: int) -> int:
    figures = [slices // use.domains]
    if use.leader_domain is not None:
        figures.append(counts.slices_led[use.leader_domain])
    if use.last is not None:
        figures.append(counts.slices[use.last])
    return min(figures)


def _greedy(counted: DomainCounts, level: int, domains: Iterable[int], request: SliceRequest) -> _Use | None:
    """How many domains it takes, the leader's first and then the largest; None where they do not suffice."""
    counts, scores = counted.level(level), counted.scores_at(level)
    left, used, leader_domain, last = request.slices, 0, None, None
    if counted.measure.has_leader:
        leader_domain, *domains = by_capacity(domains, counts, scores, best_fit=True, led=True)
        if not counts.hosts_leader(leader_domain):
            return None
        left -= counts.slices_led[leader_domain]
        used = 1
    for domain in by_capacity(domains, counts, scores, best_fit=True):
        if left <= 0 or not counts.slices[domain]:
            break
        left -= counts.slices[domain]
        used += 1
        last = domain
    return _Use(used, leader_domain, last) if left <= 0 and used else None


def _pruned(counted: DomainCounts, level: int, siblings: Sequence[int], threshold: int) -> DomainCounts:
    """A copy in which siblings and their children that hold less than the threshold hold nothing."""
    pruned = counted.copy()
    # What is left is summed pod by pod: inner layers govern how shares go down, not how even they are.
    singly = replace(counted.measure, multiples=(1,) * len(counted.measure.multiples))
    if level < counted.tree.finest:
        for sibling in siblings:
            for child in counted.tree.children(level, sibling):
                _prune(pruned, level + 1, child, threshold)
        for below in range(counted.tree.finest - 1, level - 1, -1):
            domains = [d for sibling in siblings for d in _descendants(counted, level, sibling, below)]
            domain_counts.roll_up(counted.tree, singly, below, pruned.level(below), pruned.level(below + 1), domains)
    for sibling in siblings:
        _prune(pruned, level, sibling, threshold)
    return pruned


def _prune(counted: DomainCounts, level: int, domain: int, threshold: int) -> None:
    counts = counted.level(level)
    if counts.slices[domain] < threshold:
        _clear(counted, level, domain, with_workers=True)
    elif counts.hosts_leader(domain) and counts.slices_led[domain] < threshold:
        _clear(counted, level, domain, with_workers=False)


def _clear(counted: DomainCounts, level: int, domain: int, *, with_workers: bool) -> None:
    """Set the counts of the leader, and with `with_workers` of the workers, to zero from here down to the leaves."""
    for below in range(level, counted.tree.finest + 1):
        counts = counted.level(below)
        columns = [counts.pods_led, counts.slices_led, counts.leader]
        if with_workers:
            columns += [counts.pods, counts.slices]
        for descendant in _descendants(counted, level, domain, below):
            for column in columns:
                if column:
                    column[descendant] = 0


def _descendants(counted: DomainCounts, level: int, domain: int, below: int) -> range:
    first, end = domain, domain + 1
    for starts in counted.tree.first_child[level:below]:
        first, end = starts[first], starts[end]
    return range(first, end)


def _by_evenness(counted: DomainCounts, level: int) -> Callable[[int], tuple[float, ...]]:
    """The order of domains: leader and capacity first, then the domain whose children are filled most evenly."""
    counts, children = counted.level(level), counted.level(level + 1).pods

    def entropy(domain: int) -> float:
        pods = [children[child] for child in counted.tree.children(level, domain) if children[child]]
        total = sum(pods)
        return -math.fsum(count / total * math.log2(count / total) for count in pods)

    return lambda d: (-int(counts.hosts_leader(d)), -counts.slices_led[d], -entropy(d), d)


def _smallest_group(
    counted: DomainCounts,
    level: int,
    domains: Iterable[int],
    request: SliceRequest,
    order: Callable[[int], tuple[float, ...]],
) -> list[int] | None:
    """As few domains as the greedy choice needs, with as little spare capacity as possible; the first such group in
    order."""
    domains = list(domains)
    use = _greedy(counted, level, domains, request)
    if use is None:
        return None
    counts = counted.level(level)
    # groups[i] maps (leader still to place, pods still to place) to the first group of i domains that leaves just that.
    groups: list[dict[tuple[bool, int], list[int]]] = [{} for _ in range(use.domains + 1)]
    groups[0][counted.measure.has_leader, request.slices * counted.measure.slice_size] = []
    for domain in sorted(domains, key=order):
        for size in range(use.domains, 0, -1):
            for (leader, pods), group in sorted(groups[size - 1].items()):
                if not leader and pods <= 0:
                    continue
                if leader and counts.hosts_leader(domain):
                    groups[size].setdefault((False, pods - counts.pods_led[domain]), [*group, domain])
                if counts.slices[domain]:
                    groups[size].setdefault((leader, pods - counts.pods[domain]), [*group, domain])
    complete = {pods: group for (leader, pods), group in groups[-1].items() if not leader and pods <= 0}
    return complete[max(complete)] if complete else None


def _hand_out(
    counted: DomainCounts, level: int, domains: Sequence[int], request: SliceRequest, threshold: int
) -> list[DomainShare] | None:
    """The threshold for every domain, and the rest in order of capacity."""
    group = _smallest_group(counted, level, domains, request, lambda domain: (domain,))
    if group is None or request.slices < len(group) * threshold:
        return None
    counts, size = counted.level(level), counted.measure.slice_size
    rest = request.slices - len(group) * threshold
    has_leader = counted.measure.has_leader
    shares: list[DomainShare] = []
    for domain in by_capacity(group, counts, counted.scores_at(level), best_fit=True, led=True):
        held = counts.slices_led[domain] if has_leader else counts.slices[domain]
        extra = min(held - threshold, rest) if has_leader or rest > 0 else 0
        rest -= extra
        shares.append(DomainShare(domain, (threshold + extra) * size, has_leader))
        has_leader = False
    return None if rest > 0 or has_leader else shares
