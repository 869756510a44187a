"""Planned starts in the state: which pending Workloads get one, when it is moved or withdrawn, and who is retried then.

Exists only with the gates PlannedBackfill or QuotaCalendar. A cohort tree has an entry here while it has planned
starts, or while windows of QuotaSchedules will take quota that Workloads must have released before (`approach:
EndBefore`). Every change of a planned start is recorded as a `PlanChange` for Events, annotations and metrics. Plans
are not stored: a new process computes them from the objects, and keeps dates that were announced (rules BF).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from kubemachinery.meta import HOUR, SECOND, Nanoseconds
from pykueue.api.backfill import MOST_PLANNED
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import QueueingStrategy
from pykueue.core import ordering, planned_starts
from pykueue.core.cohort import CohortTree
from pykueue.core.decision import Admit, Decision, Requeue, Wait
from pykueue.core.planned_starts import PlannedStart, PlannedStarts, WithdrawalCause, differs_noticeably
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.snapshot import Queue
from pykueue.core.timeline import ENDLESS, WINDOWS_KNOWN, TimedUsage
from pykueue.core.workload import NO_DETAILS, Reservation, WorkloadInfo
from pykueue.state import quota_changes
from pykueue.state.pending_index import PendingIndex
from pykueue.state.scheduling_scope import SchedulingScopes
from pykueue.state.structure import Structure

_REFRESH: Final[Nanoseconds] = SECOND
"""Dates of one tree are searched again at most this often ([TL8])."""

_REFRESH_SHARE: Final = 100
"""And at most this many times until the first of them comes."""

_MOST_WAITING: Final = 64
"""Of how many waiting Workloads of a ClusterQueue it is known whether a later one was admitted before them."""


class PlanEvent(StrEnum):
    """What happened to a planned start."""

    PLANNED = "Planned"
    REPLANNED = "Replanned"
    KEPT = "Kept"
    WITHDRAWN = "Withdrawn"
    BACKFILLED = "Backfilled"  # this Workload was admitted before one with a planned start


class PlanChange(NamedTuple):
    """A change of a planned start, for Events, the annotation and metrics. `date` is None where it has none now."""

    event: PlanEvent
    workload: str
    cluster_queue: str
    date: Nanoseconds | None = None
    cause: WithdrawalCause | None = None
    is_expected: bool = False


class _Waiting(NamedTuple):
    workload: WorkloadInfo
    was_passed: bool


class Planning:
    """The planned starts of all cohort trees."""

    def __init__(
        self, structure: Structure, pending: PendingIndex, scopes: SchedulingScopes, policy: SchedulingPolicy
    ) -> None:
        self.plans: dict[CohortTree, PlannedStarts] = {}
        self._structure = structure
        self._pending = pending
        self._scopes = scopes
        self._policy = policy
        self._number = 0
        self._changes: list[PlanChange] = []
        self._timers: list[tuple[Nanoseconds, str]] = []  # when the tree of a ClusterQueue is to be tried again
        self._waiting: dict[str, dict[str, _Waiting]] = {}  # of BestEffortFIFO queues: tried, and not planned yet
        self._announced: dict[str, Nanoseconds] = {}  # dates of annotations that no plan was made for yet
        self._used: set[CohortTree] = set()  # usage was added since plans were compared with it
        self._improvable: set[CohortTree] = set()  # usage has ended since dates were searched
        self._refresh_at: dict[CohortTree, Nanoseconds] = {}
        self._admitted: dict[CohortTree, list[tuple[str, bool]]] = {}  # by the last cycle: ClusterQueue, preempted
        self._seen_windows = self._seen_trees = 0  # the versions that the timelines were built from
        self._seen_at: Nanoseconds = 0
        self._seen_queues: Mapping[str, Queue] | None = None  # those that the plans were compared with

    # Queries.

    def plan_of(self, key: str) -> PlannedStart | None:
        """Return the planned start of a Workload."""
        return next((plans.plans[key] for plans in self.plans.values() if key in plans.plans), None)

    def in_queue(self, cluster_queue: str) -> list[PlannedStart]:
        """Return the planned starts of a ClusterQueue, in the order in which they were made."""
        found = self._of(cluster_queue)
        return list(found.in_queue(cluster_queue)) if found is not None else []

    def has_plans(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue has planned starts."""
        found = self._of(cluster_queue)
        return found is not None and bool(found.in_queue(cluster_queue))

    def has_places(self, cluster_queue: str) -> bool:
        """Whether the next Workload of a StrictFIFO queue would get a planned start, too: they are given in order."""
        queue = self._structure.snapshot.queues.get(cluster_queue)
        if queue is None or queue.spec.backfill is None or queue.spec.strategy is not QueueingStrategy.STRICT_FIFO:
            return False
        return len(self.in_queue(cluster_queue)) < queue.spec.backfill.depth

    def take_changes(self) -> list[PlanChange]:
        """Return and clear what happened since the last call."""
        changes, self._changes = self._changes, []
        return changes

    @property
    def next_wake(self) -> Nanoseconds | None:
        return self._timers[0][0] if self._timers else None

    def _of(self, cluster_queue: str) -> PlannedStarts | None:
        queue = self._structure.queue(cluster_queue)
        return self.plans.get(queue.node.tree) if queue is not None else None

    # Usage, reported by `Structure`.

    def used(self, queue: Queue, reservation: Reservation) -> None:
        """Count a reservation that was added or changed."""
        plans = self.plans.get(queue.node.tree)
        if plans is not None:
            plans.use(reservation)
            self._used.add(plans.tree)

    def released(self, queue: Queue, key: str) -> None:
        """Remove a reservation that has ended."""
        plans = self.plans.get(queue.node.tree)
        if plans is not None:
            plans.release(key)
            self._improvable.add(plans.tree)

    def announced(self, key: str, date: Nanoseconds | None) -> None:
        """Record the date that the annotation of a Workload shows when it is first seen: it was planned by an earlier
        process ([BF10])."""
        if date is not None:
            self._announced[key] = date

    # Before a cycle.

    def settle(self, now: Nanoseconds) -> None:
        """Bring the plans up to date with trees, Workloads and usage; a change retries parked Workloads ([TL9])."""
        while self._timers and self._timers[0][0] <= now:
            _, cluster_queue = heapq.heappop(self._timers)
            self._release(cluster_queue)
        self._rebuild(now)
        self._follow_windows(now)
        self._adopt(now)
        for plans in list(self.plans.values()):
            if plans.timeline.pass_drops(now):
                self._release_tree(plans.tree)
            self._check_owners(plans, now)
            self._check_limits(plans, now)
            if plans.tree in self._used:
                self._check_dates(plans, now)
            if plans.tree in self._improvable:
                self._improve(plans, now)
            if not plans.plans and not plans.timeline.has_drops:
                del self.plans[plans.tree]

    def _follow_windows(self, now: Nanoseconds) -> None:
        """Give the timelines the windows that are to come: after a change of the windows, in trees that were built
        since, and after the clock was set back. Workloads that were refused because of other windows are retried."""
        windows = self._structure.windows
        has_new_windows = windows.version != self._seen_windows or now < self._seen_at
        has_new_trees = self._structure.tree_version != self._seen_trees
        self._seen_windows, self._seen_trees, self._seen_at = windows.version, self._structure.tree_version, now
        if has_new_windows:
            for tree, plans in list(self.plans.items()):
                self._move(plans, now)
                self._release_tree(tree)
        if has_new_windows or has_new_trees:
            ending = [each for each in windows.schedules if each.ends_before]
            for tree in list(self._structure.trees()) if ending else ():
                of_tree = quota_changes.owners(tree)
                if tree not in self.plans and any(quota_changes.concerns(each, of_tree) for each in ending):
                    self._open(tree, now)

    def _move(self, plans: PlannedStarts, now: Nanoseconds) -> None:
        """Make the plans again on the present trees and with the present windows, in the order in which they were made;
        dates that are not possible there change."""
        del self.plans[plans.tree]
        for plan in sorted(plans.plans.values(), key=lambda plan: plan.number):
            queue = self._structure.snapshot.queues.get(plan.queue)
            if queue is None or queue.spec.backfill is None:
                self._withdrawn(plan, WithdrawalCause.QUOTA_CHANGED)
            else:
                moved_to = self._open(queue.node.tree, now)
                self._replan(moved_to, plan, WithdrawalCause.QUOTA_CHANGED, now, number=plan.number)

    def _rebuild(self, now: Nanoseconds) -> None:
        """Move the plans of trees that were rebuilt to the new trees; dates that are not possible there change."""
        queues = self._structure.snapshot.queues
        if queues is self._seen_queues:  # they are read and put into trees together
            return
        for tree, plans in list(self.plans.items()):
            current = next((queue for name in tree.queues if (queue := self._structure.queue(name))), None)
            if current is not None and current.node.tree is tree and self._enables(plans):
                continue
            self._move(plans, now)
        self._seen_queues = queues

    def _enables(self, plans: PlannedStarts) -> bool:
        """Whether every ClusterQueue with a plan still enables backfill."""
        queues = self._structure.snapshot.queues
        return all(
            plan.queue in queues and queues[plan.queue].spec.backfill is not None for plan in plans.plans.values()
        )

    def _adopt(self, now: Nanoseconds) -> None:
        """Plan the Workloads that have an announced date, in the order of the dates, before any other Workload could
        take what they wait for ([BF10])."""
        if not self._announced:
            return
        announced, self._announced = self._announced, {}
        # Numbers are in queue order, as the plans were made: an owner that is ahead of another is no newcomer.
        pending = [workload for key in announced if (workload := self._pending.pending(key)) is not None]
        numbers = {workload.key: self._next_number() for workload in sorted(pending, key=ordering.in_queue)}
        for key, date in sorted(announced.items(), key=lambda item: (item[1], item[0])):
            workload = self._pending.pending(key)
            queue = self._structure.snapshot.queues.get(workload.cluster_queue) if workload is not None else None
            if workload is None or queue is None or queue.spec.backfill is None or not _may_be_planned(workload, now):
                self._changes.append(PlanChange(PlanEvent.WITHDRAWN, key, workload.cluster_queue if workload else ""))
                continue
            options, is_expected = self._options(workload, queue, now)
            if options and len(self.in_queue(queue.name)) < queue.spec.backfill.depth:
                plans = self._open(queue.node.tree, now)
                self._check_limits(plans, now)
                plan = plans.plan(numbers[key], workload, queue, options, now, is_expected=is_expected, kept_date=date)
                if plan.is_barred:
                    plans.withdraw(key)
                    self._withdrawn(plan, WithdrawalCause.QUOTA_CHANGED)
                else:
                    self._record(plan, date, WithdrawalCause.USAGE_CHANGED, now)

    def _check_owners(self, plans: PlannedStarts, now: Nanoseconds) -> None:
        """Withdraw or repeat the plans of Workloads that are not pending any more, or that changed."""
        for plan in list(plans.plans.values()):
            workload = self._pending.pending(plan.key)
            if workload is plan.workload and _may_be_planned(workload, now):
                continue
            if workload is None or workload.cluster_queue != plan.queue or not _may_be_planned(workload, now):
                plans.withdraw(plan.key)
                self._withdrawn(plan, WithdrawalCause.OWNER_CHANGED)
            elif _is_same(workload, plan.workload):
                plans.refresh_owner(workload)
            else:
                self._replan(plans, plan, WithdrawalCause.OWNER_CHANGED, now)

    def _check_limits(self, plans: PlannedStarts, now: Nanoseconds) -> None:
        """Count reservations that outlived their hard end as endless ([BF8])."""
        overdue = plans.timeline.overdue(now)
        for key in overdue:
            plans.timeline.add_use(key, plans.timeline.uses[key]._replace(end=ENDLESS))
        if overdue:
            self._repeat_broken(plans, WithdrawalCause.LIMIT_EXCEEDED, now)

    def _check_dates(self, plans: PlannedStarts, now: Nanoseconds) -> None:
        self._used.discard(plans.tree)
        admitted = self._admitted.pop(plans.tree, [])
        for plan in plans.broken():
            cause = WithdrawalCause.USAGE_CHANGED
            for cluster_queue, preempted in admitted:
                cause = (
                    WithdrawalCause.PREEMPTION
                    if preempted
                    else WithdrawalCause.AHEAD_IN_ORDER
                    if cluster_queue == plan.queue
                    else WithdrawalCause.NOMINAL_USE
                )
            self._replan(plans, plan, cause, now)

    def _repeat_broken(self, plans: PlannedStarts, cause: WithdrawalCause, now: Nanoseconds) -> None:
        for plan in plans.broken():
            self._replan(plans, plan, cause, now)

    def _improve(self, plans: PlannedStarts, now: Nanoseconds) -> None:
        """Search for earlier dates, from time to time: an old date stays valid ([TL7], [TL8])."""
        waiting = [plan for plan in plans.plans.values() if plan.date is None or plan.date > now]
        first = min((plan.date for plan in waiting if plan.date is not None), default=now)
        refreshed = self._refresh_at.get(plans.tree, 0)
        if refreshed <= now < refreshed + max(_REFRESH, (first - now) // _REFRESH_SHARE):
            return
        self._improvable.discard(plans.tree)
        self._refresh_at[plans.tree] = now
        for plan in waiting:
            self._advance(plans, plan, now)

    def _advance(self, plans: PlannedStarts, plan: PlannedStart, now: Nanoseconds) -> None:
        """Move a plan to an earlier date, if there is one. A Workload that fits now keeps its plan. A date that would
        not be announced is not taken: after a restart others would be planned around the old one ([BF10])."""
        queue = self._structure.snapshot.queues[plan.queue]
        options, _ = self._options(plan.workload, queue, now)
        claim, projection = plans.timeline.claims.get(plan.key), plans.timeline.built_projection(plan.key)
        if options:
            new = plans.plan(plan.number, plan.workload, queue, options, now, is_expected=plan.is_expected)
            if new.date is not None and (
                plan.date is None or (new.date < plan.date and differs_noticeably(new.date, plan.date, now))
            ):
                self._record(new, plan.date, None, now)
                return
            if new.is_barred and plan.date is None:
                plans.withdraw(plan.key)
                self._withdrawn(plan, WithdrawalCause.QUOTA_CHANGED)
                return
        plans.restore(plan, claim, projection)

    # After a cycle.

    def decided(self, decision: Decision, workload: WorkloadInfo | None, now: Nanoseconds) -> None:
        """Plan a head that has to wait, and record an admission. Called before a head that waits is requeued."""
        if workload is None:
            return
        queue = self._structure.snapshot.queues.get(decision.cluster_queue)
        if queue is None:
            return
        if isinstance(decision, Admit) and not decision.is_second_pass:
            self._note_admission(workload, queue, preempted=self._is_preemptor(workload))
        elif (
            isinstance(decision, Wait)
            and (_waits_for_quota(decision) or self._may_wait_for_window(decision))
            and queue.spec.backfill is not None
            and _may_be_planned(workload, now)
        ):
            self._consider(workload, queue, now)

    def _may_wait_for_window(self, decision: Wait) -> bool:
        """Whether a Workload exceeds the quota of now, and a window to come may have more."""
        return decision.reason is QuotaReservedReason.EXCEEDS_MAX_QUOTA and bool(self._structure.windows.schedules)

    def _is_preemptor(self, workload: WorkloadInfo) -> bool:
        queue = self._pending.queues.get(workload.cluster_queue)
        return queue is not None and queue.is_preemptor(workload)

    def _note_admission(self, workload: WorkloadInfo, queue: Queue, *, preempted: bool) -> None:
        waiting = self._waiting.get(queue.name)
        if waiting is not None:
            waiting.pop(workload.key, None)
            for key, each in waiting.items():
                if not each.was_passed and planned_starts.precedes(each.workload, workload, queue):
                    waiting[key] = each._replace(was_passed=True)
                    if queue.spec.backfill is not None:  # it may be planned now
                        self._wake_at(each.workload.queue_time + queue.spec.backfill.plan_after, queue.name)
        plans = self.plans.get(queue.node.tree)
        if plans is None:
            return
        kept = plans.withdraw(workload.key)
        if kept is not None:
            self._changes.append(PlanChange(PlanEvent.KEPT, kept.key, kept.queue, kept.date))
            self._improvable.add(plans.tree)
            self._release(queue.name)
        else:
            for plan in plans.in_queue(queue.name):
                if planned_starts.precedes(plan.workload, workload, queue):
                    self._changes.append(PlanChange(PlanEvent.BACKFILLED, workload.key, queue.name))
                    break
        self._admitted.setdefault(plans.tree, []).append((queue.name, preempted))

    def _consider(self, workload: WorkloadInfo, queue: Queue, now: Nanoseconds) -> None:
        """Plan a Workload that was tried, does not fit and found no preemption targets, if it is its turn ([BF1])."""
        settings = queue.spec.backfill
        assert settings is not None
        plans = self.plans.get(queue.node.tree)
        if plans is not None and workload.key in plans.plans:
            return
        own = sorted(self.in_queue(queue.name), key=lambda plan: plan.number)
        behind = [plan for plan in own if planned_starts.precedes(workload, plan.workload, queue)]
        is_strict = queue.spec.strategy is QueueingStrategy.STRICT_FIFO
        if len(own) - len(behind) >= settings.depth or not (is_strict or self._has_waited(workload, queue, now)):
            return
        if plans is not None and len(plans.plans) - len(behind) >= MOST_PLANNED:
            return
        options, is_expected = self._options(workload, queue, now)
        if not options:
            return
        plans = self._open(queue.node.tree, now)
        self._check_limits(plans, now)
        for plan in behind:  # a newcomer ahead of them in order takes precedence
            plans.withdraw(plan.key)
        plan = plans.plan(self._next_number(), workload, queue, options, now, is_expected=is_expected)
        self._waiting.get(queue.name, {}).pop(workload.key, None)
        if plan.is_barred or (plan.date is None and not is_strict and not self._may_drain(workload, queue, now)):
            plans.withdraw(workload.key)
        else:
            self._record(plan, None, None, now, is_new=True)
        places = settings.depth - len(self.in_queue(queue.name))
        for index, plan in enumerate(behind):
            if index < places:
                self._replan(plans, plan, WithdrawalCause.AHEAD_IN_ORDER, now)
            else:
                self._withdrawn(plan, WithdrawalCause.AHEAD_IN_ORDER)

    def _has_waited(self, workload: WorkloadInfo, queue: Queue, now: Nanoseconds) -> bool:
        """Whether a Workload of a BestEffortFIFO queue has waited long enough, and a later one was admitted meanwhile.
        Otherwise it is tried again when the time has passed."""
        settings = queue.spec.backfill
        assert settings is not None
        waiting = self._waiting.setdefault(queue.name, {})
        before = waiting.get(workload.key)
        if before is None and len(waiting) < _MOST_WAITING:
            waiting[workload.key] = _Waiting(workload, was_passed=False)
        elif before is not None and before.workload is not workload:
            waiting[workload.key] = before._replace(workload=workload)
        due = workload.queue_time + settings.plan_after
        if now < due:
            self._wake_at(due, queue.name)
            return False
        return before is not None and before.was_passed

    def _may_drain(self, workload: WorkloadInfo, queue: Queue, now: Nanoseconds) -> bool:
        """Whether quota may be kept idle for a Workload of a BestEffortFIFO queue that has no date ([BF3])."""
        settings = queue.spec.backfill
        assert settings is not None
        self._waiting.setdefault(queue.name, {})[workload.key] = _Waiting(workload, was_passed=True)
        if settings.drain_after is None:
            return False
        due = workload.queue_time + settings.drain_after
        if now < due:
            self._wake_at(due, queue.name)
        return now >= due

    # Plans.

    def _open(self, tree: CohortTree, now: Nanoseconds) -> PlannedStarts:
        """Return the plans of a tree; its timeline has every reservation of the tree, and the windows to come."""
        found = self.plans.get(tree)
        if found is None:
            changes = quota_changes.quota_changes(self._structure, tree, now)
            # Windows are expanded once a day: so much of what is known may have passed since.
            found = self.plans[tree] = PlannedStarts(tree, self._policy, changes, now + WINDOWS_KNOWN - 24 * HOUR)
            for name in tree.queues:
                member = self._structure.queue(name)
                for reservation in member.reservations.values() if member is not None else ():
                    found.use(reservation)
        return found

    def _replan(
        self,
        plans: PlannedStarts,
        plan: PlannedStart,
        cause: WithdrawalCause,
        now: Nanoseconds,
        *,
        number: int | None = None,
    ) -> None:
        """Search for a new date at once ([BF8]). With a `number`, it counts as made when it was made first."""
        queue = self._structure.snapshot.queues[plan.queue]
        workload = self._pending.pending(plan.key)
        if workload is None:
            plans.withdraw(plan.key)
            self._withdrawn(plan, cause)
            return
        options, is_expected = self._options(workload, queue, now)
        if not options:
            plans.withdraw(plan.key)
            self._withdrawn(plan, cause)
            return
        kept_date = plan.date if cause is WithdrawalCause.QUOTA_CHANGED else None
        new = plans.plan(
            number or self._next_number(),
            workload,
            queue,
            options,
            now,
            is_expected=is_expected,
            kept_date=kept_date,
        )
        if new.is_barred:
            plans.withdraw(plan.key)
            self._withdrawn(plan, cause)
        else:
            self._record(new, plan.date, cause, now)

    def _record(
        self,
        plan: PlannedStart,
        before: Nanoseconds | None,
        cause: WithdrawalCause | None,
        now: Nanoseconds,
        *,
        is_new: bool = False,
    ) -> None:
        if plan.date is not None:
            self._wake_at(plan.date, plan.queue)
            self._wake_at(plan.date + SECOND, plan.queue)
        if not is_new and plan.date == before:
            return
        event = PlanEvent.PLANNED if is_new else PlanEvent.REPLANNED
        is_later = not is_new and (plan.date is None or (before is not None and plan.date > before))
        self._changes.append(
            PlanChange(event, plan.key, plan.queue, plan.date, cause if is_later else None, plan.is_expected)
        )
        self._release(plan.queue)

    def _withdrawn(self, plan: PlannedStart, cause: WithdrawalCause | None) -> None:
        self._changes.append(PlanChange(PlanEvent.WITHDRAWN, plan.key, plan.queue, None, cause))
        tree = self._tree(plan.queue)
        if tree is not None:
            self._improvable.add(tree)
        self._release(plan.queue)

    def _tree(self, cluster_queue: str) -> CohortTree | None:
        queue = self._structure.queue(cluster_queue)
        return queue.node.tree if queue is not None else None

    def _options(
        self, workload: WorkloadInfo, queue: Queue, now: Nanoseconds
    ) -> tuple[list[planned_starts.PlannedUsage], bool]:
        def could_fit_later(usage: planned_starts.PlannedUsage) -> bool:
            if not self._structure.windows.schedules:
                return False
            return self._open(queue.node.tree, now).timeline.could_fit_later(TimedUsage(queue.name, usage))

        return planned_starts.usage_options(self._structure.snapshot, self._policy, workload, queue, could_fit_later)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _wake_at(self, time: Nanoseconds, cluster_queue: str) -> None:
        if (time, cluster_queue) not in self._timers:
            heapq.heappush(self._timers, (time, cluster_queue))

    def _release_tree(self, tree: CohortTree) -> None:
        self._scopes.release(tuple(tree.queues)[:1])

    def _release(self, cluster_queue: str) -> None:
        """Retry the parked Workloads of the tree: a plan changed, or its date has come ([TL9])."""
        self._scopes.release((cluster_queue,))


def _waits_for_quota(decision: Wait) -> bool:
    """Whether only used quota keeps the Workload waiting, and it found nothing to preempt ([BF1])."""
    if decision.requeue is Requeue.NO_FIT:  # without a right to preempt at all
        return decision.reason in (QuotaReservedReason.WAITING_FOR_QUOTA, QuotaReservedReason.PENDING)
    return decision.requeue in (Requeue.PREEMPTION_NO_CANDIDATES, Requeue.PLANNED)


def _is_same(workload: WorkloadInfo, before: WorkloadInfo) -> bool:
    """Whether nothing changed that the plan of a Workload depends on."""
    return (
        workload.shape is before.shape
        and workload.priority == before.priority
        and workload.queue_time == before.queue_time
        and workload.limit == before.limit
        and workload.details.allowed_flavors == before.details.allowed_flavors
    )


def _may_be_planned(workload: WorkloadInfo, now: Nanoseconds) -> bool:
    """Whether a Workload may have a planned start at all: no elastic slice or variant, no failed check or closed gate,
    and no backoff ([BF1], [BF13])."""
    details = workload.details
    return (
        workload.reservation is None
        and workload.may_compete(now)
        and (
            details is NO_DETAILS
            or not (details.replaces or details.parent_uid or details.has_failed_checks or details.has_closed_gate)
        )
    )
