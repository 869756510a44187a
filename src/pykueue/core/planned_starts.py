"""Planned starts of one cohort tree: their dates, and which Workloads they bind (rules BF, see docs/rules/time.md).

A Workload that has to wait gets a *planned start*: the latest time at which it starts, because everything in its way
has a hard end. Later Workloads may start before it as long as it still fits at its date (backfill). A planned start
without a date claims whatever its Workload waits for.

`PlannedStarts` is pure state: `pykueue.state` decides when a Workload is planned, and reports usage that begins or
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, product
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import Nanoseconds
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import amounts, eligibility, fair_sharing, ordering, quota
from pykueue.core.amounts import Amount
from pykueue.core.cohort import CohortTree
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import FlavorResource, FlavorResourceNumber
from pykueue.core.resource_order import in_visiting_order
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.timeline import (
    ENDLESS,
    WINDOWS_KNOWN,
    Candidate,
    Claim,
    MayPreempt,
    Projection,
    QuotaChange,
    RunLimit,
    TimedUsage,
    Timeline,
    TimelineConflict,
    stop_allowance,
)
from pykueue.core.workload import Reservation, WorkloadInfo

PlannedUsage = tuple[tuple[FlavorResourceNumber, Amount], ...]

_MOST_FLAVOR_CHOICES: Final = 16
"""How many combinations of flavors are considered for one date."""


class WithdrawalCause(StrEnum):
    """Why a planned start was withdrawn or moved to a later date ([BF8])."""

    AHEAD_IN_ORDER = "AheadInOrder"
    NOMINAL_USE = "NominalUse"
    PREEMPTION = "Preemption"
    QUOTA_CHANGED = "QuotaChanged"
    LIMIT_EXCEEDED = "LimitExceeded"
    OWNER_CHANGED = "OwnerChanged"
    USAGE_CHANGED = "UsageChanged"


class PlannedStart(msgspec.Struct, frozen=True):
    """The planned start of one pending Workload. `number` is the order in which plans were made. `date` is None where
    usage in its way has no hard end ([BF3]). `is_expected`: its placement on nodes is not planned ([BF11])."""

    number: int
    workload: WorkloadInfo
    queue: str
    usage: PlannedUsage
    date: Nanoseconds | None
    is_expected: bool = False
    is_barred: bool = False  # it has no date because quota is lowered again and again, whatever ends ([QS6])

    @property
    def key(self) -> str:
        return self.workload.key


def differs_noticeably(date: Nanoseconds, before: Nanoseconds, now: Nanoseconds) -> bool:
    """Whether a date has moved by more than a minute and a tenth of the time left ([BF10]). Smaller moves are not
    announced."""
    return abs(date - before) > max(meta.MINUTE, (date - now) // 10)


class PlanConflict(NamedTuple):
    """The planned start that a Workload which fits must not delay ([BF4])."""

    plan: PlannedStart
    at: Nanoseconds | None  # it may start with a hard end at or before this time; None: with none

    def message(self, limit: RunLimit | None, *, has_checks: bool = False) -> str:
        """Why the Workload waits. It does not depend on the present time: conditions would change all the time."""
        if self.at is None:
            return (
                f"The workload requests quota that workload {self.plan.key} waits for, "
                "whose start has no date because usage in its way has no run-time limit"
            )
        word = "expected" if self.plan.is_expected else "planned"
        own = f"its run-time limit is {_short(limit.time)}" if limit is not None else "it has no run-time limit"
        if has_checks:
            own = _OPEN_END
        return (
            f"The workload would delay workload {self.plan.key}, whose start is {word} for "
            f"{meta.format_time(self.at)}: {own}"
        )

    def advice(self, limit: RunLimit | None, now: Nanoseconds) -> str:
        """What would let the Workload start now; empty where nothing of its own would."""
        return _limit_until(self.at, limit, now) if self.at is not None else ""


class DropConflict(NamedTuple):
    """The lowering of quota at which a Workload that fits now would hold more than is left ([QS6])."""

    at: Nanoseconds
    pair: FlavorResource
    amount: Amount
    change: str  # what lowers the quota

    def message(self, limit: RunLimit | None, *, has_checks: bool = False) -> str:
        """Why the Workload waits. It does not depend on the present time."""
        if has_checks:
            own = _OPEN_END
        elif limit is None:
            own = "no run-time limit"
        else:
            own = f"run-time limit {_short(limit.time)}"
            if limit.time > WINDOWS_KNOWN:
                own += f", longer than the {_short(WINDOWS_KNOWN)} for which windows are known"
        return (
            f"The workload would still use {amounts.text(self.pair.resource, self.amount)} {self.pair.resource} of"
            f" flavor {self.pair.flavor} when {self.change} at {meta.format_time(self.at)} ({own})"
        )

    def advice(self, limit: RunLimit | None, now: Nanoseconds) -> str:
        """What would let the Workload start now; empty where nothing of its own would."""
        return _limit_until(self.at, limit, now)


_OPEN_END: Final = "its end is open until its admission checks are ready"


def _limit_until(at: Nanoseconds, limit: RunLimit | None, now: Nanoseconds) -> str:
    left = at - now - (limit.allowance if limit is not None else stop_allowance((None,)))
    return f"a run-time limit of at most {_short(left - left % meta.SECOND)}" if left >= meta.SECOND else ""


def _short(duration: Nanoseconds) -> str:
    """A duration without parts that are zero: `4h`, `1h30m`."""
    text = meta.format_duration(duration)
    for unit, tail in (("m", "0s"), ("h", "0m")):
        if text.endswith(unit + tail):
            text = text.removesuffix(tail)
    return text


class PlannedStarts:
    """The planned starts of one tree, on its timeline."""

    def __init__(
        self,
        tree: CohortTree,
        policy: SchedulingPolicy,
        changes: Sequence[QuotaChange] = (),
        known_until: Nanoseconds = ENDLESS,
    ) -> None:
        self.tree = tree
        self.timeline = Timeline(tree, changes=changes, known_until=known_until)
        self.plans: dict[str, PlannedStart] = {}  # by owner, in the order in which they were made
        self._policy = policy
        self._by_queue: dict[str, list[PlannedStart]] | None = None  # until a plan changes
        self._undated: list[PlannedStart] = []  # of the plans in `_by_queue`
        self._assumed: list[tuple[str, TimedUsage]] = []  # admissions of the running cycle
        self._counted: list[tuple[str, TimedUsage | None]] = []  # those on the timeline, with the use before each

    # Usage.

    def use(self, reservation: Reservation) -> None:
        """Count a reservation of the tree, in place of what it used before."""
        self.timeline.add_use(reservation.key, _timed(reservation))

    def release(self, key: str) -> None:
        self.timeline.remove_use(key)

    def assume(self, workload: WorkloadInfo, usage: Mapping[int, Amount], end: Nanoseconds) -> None:
        """Count an admission of the running cycle for its later entries."""
        self._assumed.append((workload.key, _candidate_use(workload, usage, end)))

    def _count_assumed(self) -> None:
        """Put what the cycle assumes on the timeline. Most entries ask nothing that depends on it."""
        for key, use in self._assumed:
            self._counted.append((key, self.timeline.uses.get(key)))
            self.timeline.add_use(key, use)
        self._assumed.clear()

    def undo(self) -> None:
        """Remove what the cycle assumed."""
        self._assumed.clear()
        for key, before in reversed(self._counted):
            self.timeline.remove_use(key)
            if before is not None:
                self.timeline.add_use(key, before)
        self._counted.clear()

    # Plans.

    def in_queue(self, cluster_queue: str) -> Sequence[PlannedStart]:
        """The planned starts of a ClusterQueue, in the order in which they were made."""
        return self._grouped().get(cluster_queue, ())

    def _grouped(self) -> dict[str, list[PlannedStart]]:
        if self._by_queue is None:
            self._by_queue = {}
            for plan in self.plans.values():
                self._by_queue.setdefault(plan.queue, []).append(plan)
            self._undated = [plan for plan in self.plans.values() if plan.date is None]
        return self._by_queue

    def _put(self, plan: PlannedStart) -> None:
        self.plans[plan.key] = plan
        self._by_queue = None

    def plan(
        self,
        number: int,
        workload: WorkloadInfo,
        queue: Queue,
        options: Sequence[PlannedUsage],
        now: Nanoseconds,
        *,
        is_expected: bool = False,
        kept_date: Nanoseconds | None = None,
    ) -> PlannedStart:
        """Plan the start of a Workload: at the earliest date over its flavors, the first in the list on a tie ([BF2]).
        `kept_date` is a date that was announced before: it stays where it is possible ([BF10])."""
        self.withdraw(workload.key)
        best: tuple[Nanoseconds, PlannedUsage, bool] | None = None
        for usage in options:
            if self._is_blocked_by_undated(workload, queue, usage, number, now):
                continue
            for reclaims in (True, False) if self._may_reclaim(queue) else (False,):
                date = self._date(workload, queue, usage, now, kept_date, reclaims=reclaims)
                # It was just tried in vain: a date that has come counts on preemptions or placements that were not
                # possible. It is announced only if it was announced before.
                is_possible = date is not None and (date > now or kept_date is not None)
                if date is not None and is_possible and (best is None or date < best[0]):
                    best = date, usage, reclaims
        if best is None:
            is_barred = self.timeline.has_drops and self._has_date_despite_drops(workload, queue, options, now)
            plan = PlannedStart(number, workload, queue.name, options[0], None, is_expected, is_barred)
        else:
            date, usage, reclaims = best
            plan = PlannedStart(number, workload, queue.name, usage, date, is_expected)
            self._claim(plan, queue, date, reclaims=reclaims)
        self._put(plan)
        return plan

    def _has_date_despite_drops(
        self, workload: WorkloadInfo, queue: Queue, options: Sequence[PlannedUsage], now: Nanoseconds
    ) -> bool:
        """Whether the Workload would have a date if no quota had to be released before it is lowered."""
        return any(
            self.timeline.earliest(workload.key, queue.name, usage, workload.limit, now, despite_drops=True) is not None
            for usage in options
        )

    def restore(self, plan: PlannedStart, claim: Claim | None, projection: Projection | None) -> None:
        """Put back a planned start as it was before another date was searched, with the tree at its date if that was
        built. No other claim and no usage may have changed since."""
        self.withdraw(plan.key)
        self._put(plan)
        if claim is not None:
            self.timeline.add_claim(claim, projection)

    def withdraw(self, key: str) -> PlannedStart | None:
        """Remove and return the planned start of a Workload, if it has one."""
        self.timeline.remove_claim(key)
        self._by_queue = None
        return self.plans.pop(key, None)

    def refresh_owner(self, workload: WorkloadInfo) -> None:
        """Take a newer value of an owner whose plan is the same."""
        self._put(replace(self.plans[workload.key], workload=workload))

    def broken(self) -> list[PlannedStart]:
        """The planned starts whose Workload does not fit at its date any more."""
        return [
            plan for plan in self.plans.values() if plan.date is not None and not self.timeline.fits_at_date(plan.key)
        ]

    def _claim(self, plan: PlannedStart, queue: Queue, date: Nanoseconds, *, reclaims: bool) -> None:
        limit = plan.workload.limit
        end = limit.end(date) if limit is not None else ENDLESS
        use = TimedUsage(queue.name, plan.usage, end, plan.workload.priority, plan.workload.queue_time)
        may_preempt = self._preemptible(plan.workload, queue, plan.usage, reclaims=reclaims)
        self.timeline.add_claim(Claim(plan.key, use, date, may_preempt, within_nominal=reclaims))

    def _date(
        self,
        workload: WorkloadInfo,
        queue: Queue,
        usage: PlannedUsage,
        now: Nanoseconds,
        kept_date: Nanoseconds | None,
        *,
        reclaims: bool,
    ) -> Nanoseconds | None:
        may_preempt = self._preemptible(workload, queue, usage, reclaims=reclaims)
        found = self.timeline.earliest(
            workload.key, queue.name, usage, workload.limit, now, may_preempt, within_nominal=reclaims
        )
        if found is None or kept_date is None or found >= kept_date:
            return found
        # Announced dates fit beside each other in whatever order they are read; earlier ones may not.
        kept = self.timeline.earliest(
            workload.key, queue.name, usage, workload.limit, kept_date, may_preempt, within_nominal=reclaims
        )
        return kept if kept == kept_date else found

    def _preemptible(
        self, owner: WorkloadInfo, queue: Queue, usage: PlannedUsage, *, reclaims: bool
    ) -> MayPreempt | None:
        """Which usage the owner of a plan could preempt at its date ([BF7]); None if it may not preempt, because it
        requests more than nominal quota and may not preempt while borrowing ([FL14])."""
        policies = queue.spec.preemption
        may_borrow = policies.borrow_within_cohort or (
            self._policy.is_fair and policies.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )
        if not may_borrow and any(amount > queue.node.subtree[number] for number, amount in usage):
            return None
        return _preemptible(owner, queue, reclaims=reclaims)

    def _may_reclaim(self, queue: Queue) -> bool:
        reclaim = queue.spec.preemption.reclaim_within_cohort
        return not self._policy.is_fair and queue.node.parent is not None and reclaim is not PreemptionPolicy.NEVER

    def _is_blocked_by_undated(
        self, workload: WorkloadInfo, queue: Queue, usage: PlannedUsage, number: int, now: Nanoseconds
    ) -> bool:
        """Whether the Workload gets no date because an undated plan before it claims the same flavor-resources."""
        own = PlannedStart(number, workload, queue.name, usage, None)
        return any(
            plan.date is None
            and plan.number < number
            and shares_flavor_resource(plan.usage, usage)
            and self._binds(plan, workload, queue, dict(usage), own, None, now)
            for plan in self.plans.values()
        )

    # Candidates.

    def conflict(
        self,
        snapshot: Snapshot,
        workload: WorkloadInfo,
        queue: Queue,
        usage: Mapping[int, Amount],
        end: Nanoseconds,
        now: Nanoseconds,
    ) -> PlanConflict | DropConflict | None:
        """The planned start that the admission of a Workload which fits would delay, or the lowering of quota that it
        would exceed; None: it may be admitted."""
        self._grouped()
        if not self._undated and not self.timeline.has_moment_before(end):
            return None
        self._count_assumed()
        own = self.plans.get(workload.key)
        use = _candidate_use(workload, self._with_replaced(workload, usage), end)
        for plan in self._undated:
            if shares_flavor_resource(plan.usage, use.usage) and self._binds(
                plan, workload, queue, usage, own, snapshot, now
            ):
                return PlanConflict(plan, None)

        def binds(claim: Claim) -> bool:
            return self._binds(self.plans[claim.owner], workload, queue, usage, own, snapshot, now)

        found = self.timeline.allows(Candidate(workload.key, use, (workload.details.replaces,)), now, binds)
        if found is not None and found.owner:
            return PlanConflict(self.plans[found.owner], found.at)
        return self._as_drop(found, use)

    def drop_conflict(
        self,
        workload: WorkloadInfo,
        usage: Mapping[int, Amount],
        end: Nanoseconds,
        now: Nanoseconds,
        targets: Iterable[str],
    ) -> DropConflict | None:
        """The lowering of quota that a Workload would exceed which fits once its preemption targets are evicted."""
        self._count_assumed()
        use = _candidate_use(workload, self._with_replaced(workload, usage), end)
        ended = (workload.details.replaces, *targets)
        return self._as_drop(self.timeline.exceeded_drop(Candidate(workload.key, use, ended), now), use)

    def _as_drop(self, found: TimelineConflict | None, use: TimedUsage) -> DropConflict | None:
        if found is None:
            return None
        return DropConflict(found.at, self.tree.pairs[found.number], dict(use.usage)[found.number], found.change)

    def _with_replaced(self, workload: WorkloadInfo, usage: Mapping[int, Amount]) -> Mapping[int, Amount]:
        """The whole usage of an elastic slice: what it has more than the one it replaces, and what that one has."""
        old = self.timeline.uses.get(workload.details.replaces)
        if old is None:
            return usage
        total = dict(old.usage)
        for number, amount in usage.items():
            total[number] = amounts.add(total.get(number, 0), amount)
        return total

    def _binds(
        self,
        plan: PlannedStart,
        workload: WorkloadInfo,
        queue: Queue,
        usage: Mapping[int, Amount],
        own: PlannedStart | None,
        snapshot: Snapshot | None,
        now: Nanoseconds,
    ) -> bool:
        """Whether a candidate must not delay a planned start ([BF6], [BF7]). `own` is the candidate's own plan."""
        if plan.key == workload.key:
            return False
        if own is not None and own.number < plan.number and (plan.date is None or _is_due(own, now)):
            # Undated plans bind in the order in which they were made, or two of them would wait for each other; and an
            # owner whose date has come is not held up by plans that were made around it.
            return False
        if plan.date is None and own is not None and own.date is not None:
            return False  # the date was given before the undated claim
        if plan.queue == queue.name:
            is_newcomer = own is None or own.number > plan.number
            if is_newcomer and precedes(workload, plan.workload, queue):
                return False
        elif not _borrows(queue, usage) or not self._exceeds_share_of(plan, queue, usage, snapshot):
            return False
        claim = self.timeline.claims.get(plan.key)
        may_preempt = claim.may_preempt if claim is not None else None
        return may_preempt is None or not may_preempt(_candidate_use(workload, usage, ENDLESS))

    def _exceeds_share_of(
        self, plan: PlannedStart, queue: Queue, usage: Mapping[int, Amount], snapshot: Snapshot | None
    ) -> bool:
        """With fair sharing: whether the candidate's ClusterQueue has a larger share after its admission than that of
        the plan's owner after its own ([BF6]). Without: always."""
        if not self._policy.is_fair or snapshot is None:
            return True
        owners = snapshot.queues.get(plan.queue)
        if owners is None:
            return False
        return _share_with(snapshot, queue, tuple(usage.items())) > _share_with(snapshot, owners, plan.usage)


def _is_due(plan: PlannedStart, now: Nanoseconds) -> bool:
    return plan.date is not None and plan.date <= now


def _share_with(snapshot: Snapshot, queue: Queue, usage: PlannedUsage) -> tuple[bool, float]:
    mark = snapshot.mark()
    snapshot.assume(queue, usage)
    share = fair_sharing.dominant_resource_share(queue.node).rank
    snapshot.undo(mark)
    return share


def _timed(reservation: Reservation) -> TimedUsage:
    return TimedUsage(
        reservation.cluster_queue,
        reservation.usage_by_number,
        reservation.hard_end,
        reservation.priority,
        reservation.queue_time,
    )


def _candidate_use(workload: WorkloadInfo, usage: Mapping[int, Amount], end: Nanoseconds) -> TimedUsage:
    return TimedUsage(workload.cluster_queue, tuple(usage.items()), end, workload.priority, workload.queue_time)


def _borrows(queue: Queue, usage: Mapping[int, Amount]) -> bool:
    return any(amount > 0 and quota.borrows_with(queue.node, number, amount) for number, amount in usage.items())


def shares_flavor_resource(a: PlannedUsage, b: PlannedUsage) -> bool:
    """Whether two Workloads use a flavor-resource in common."""
    used = {number for number, amount in a if amount > 0}
    return any(amount > 0 and number in used for number, amount in b)


def precedes(workload: WorkloadInfo, other: WorkloadInfo, queue: Queue) -> bool:
    """Whether a Workload comes before another of the same ClusterQueue in queue order ([QU21])."""
    usage = queue.local_usage
    if usage is not None:
        first, second = (usage(f"{each.namespace}/{each.local_queue}") for each in (workload, other))
        if first != second:
            return first < second
    return ordering.in_queue(workload) < ordering.in_queue(other)


def _preemptible(owner: WorkloadInfo, queue: Queue, *, reclaims: bool) -> MayPreempt | None:
    """Which usage the owner of a plan could preempt at its date: in its own ClusterQueue by priority, and, where it is
    within nominal quota then (`reclaims`), that of other ClusterQueues ([BF7])."""
    policies = queue.spec.preemption
    within, reclaim = policies.within_cluster_queue, policies.reclaim_within_cohort
    if within is PreemptionPolicy.NEVER and not reclaims:
        return None
    name, priority, queue_time = queue.name, owner.priority, owner.queue_time

    def may_preempt(use: TimedUsage) -> bool:
        policy = within if use.queue == name else reclaim if reclaims else PreemptionPolicy.NEVER
        match policy:
            case PreemptionPolicy.ANY:
                return True
            case PreemptionPolicy.LOWER_PRIORITY:
                return use.priority < priority
            case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                return use.priority < priority or (use.priority == priority and use.queue_time > queue_time)
        return False

    return may_preempt


def usage_options(
    snapshot: Snapshot,
    policy: SchedulingPolicy,
    workload: WorkloadInfo,
    queue: Queue,
    could_fit_later: Callable[[PlannedUsage], bool] = lambda usage: False,
) -> tuple[list[PlannedUsage], bool]:
    """What the Workload could use, one entry for each choice of flavors in which it could fit an idle tree, now or
    after a change of quota; and whether one of the flavors has a topology ([BF1], [BF2], [BF11]). All pod sets use the
    same flavor of a resource group."""
    total = dict(_requests(workload, queue, policy))
    groups = list(dict.fromkeys(queue.group_of[resource] for resource in total))
    choices: list[list[str]] = []
    for group in groups:
        pod_sets = [
            pod_set
            for pod_set in workload.shape.pod_sets
            if any(resource in group.resources for resource, _ in pod_set.requests) or amounts.PODS in group.resources
        ]
        allowed = workload.details.allowed_flavors
        choices.append(
            [
                flavor
                for flavor in group.flavors
                if (allowed is None or flavor in allowed)
                and eligibility.obstacle(snapshot, policy, queue, flavor, group, pod_sets) is None
            ]
        )
    options: list[PlannedUsage] = []
    has_topology = False
    for chosen in islice(product(*choices), _MOST_FLAVOR_CHOICES):
        flavor_of = dict(zip(groups, chosen, strict=True))
        usage = tuple(
            (queue.node.tree.number(flavor_of[queue.group_of[resource]], resource), amount)
            for resource, amount in total.items()
        )
        fits_idle = all(amount <= queue.node.potential[number] for number, amount in usage)
        if usage and (fits_idle or could_fit_later(usage)):
            options.append(usage)
            has_topology |= any(snapshot.topology_cache.has_flavor(flavor) for flavor in chosen)
    return options, has_topology


def _requests(workload: WorkloadInfo, queue: Queue, policy: SchedulingPolicy) -> Iterator[tuple[str, Amount]]:
    """The full requests of the Workload for resources that its ClusterQueue has quota for."""
    total: dict[str, Amount] = {}
    for pod_set in workload.shape.pod_sets:
        requests = dict(pod_set.requests)
        if amounts.PODS in queue.group_of:
            requests[amounts.PODS] = pod_set.count
        for resource, amount in requests.items():
            if resource in queue.group_of:
                total[resource] = amounts.add(total.get(resource, 0), amount)
    yield from in_visiting_order(total)
