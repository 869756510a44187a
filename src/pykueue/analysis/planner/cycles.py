"""Scheduling cycles over a case: a number of them, or until nothing changes.

Between two cycles, evicted Workloads are assumed to have stopped and to be pending again, which releases their quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubemachinery import codec, conditions
from kubemachinery.meta import Nanoseconds
from pykueue import calendars, wording
from pykueue.analysis.planner.case import Case
from pykueue.api import kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.api.quota_schedule import QuotaSchedule
from pykueue.calendars import CalendarError
from pykueue.core.decision import Admit, Decision, Evict, Preempt
from pykueue.lifecycle import states
from pykueue.projection import SchedulerCase
from pykueue.state import admission, workload_info
from pykueue.state.intake import is_watched
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.quota_windows import ScheduledWindows
from pykueue.state.quota_withdrawal import Withdrawal
from pykueue.state.world import World


class SchedulingPlan(msgspec.Struct):
    """The decisions of the cycles in order, and the state after them."""

    world: World
    workloads: Mapping[str, kueue.Workload]  # as they were given
    cycles: list[list[Decision]] = msgspec.field(default_factory=list)
    admissions: dict[str, dict[str, Any]] = msgspec.field(
        default_factory=dict
    )  # the admission of every held reservation, as in the status
    by_hostname_prefix: bool = True  # how `admissions` write topology assignments
    withdrawn: tuple[Withdrawal, ...] = ()  # evicted before the first cycle: a window takes their quota
    loop: PreemptionLoop | None = None  # the first preemption loop of the cycles
    is_stable: bool = False  # the last cycle changed nothing, or there was nothing to decide

    @property
    def unstable_because(self) -> str:
        """Why there is no final state; empty if there is one."""
        if self.loop is not None and not self.is_stable:
            seen = f"repeated {self.loop.rounds} times in {wording.counted(len(self.cycles), 'cycle')}"
            return f"preemption loop: {self.loop.sentence()}; {seen}"
        return "" if self.is_stable else f"decisions still change after {wording.counted(len(self.cycles), 'cycle')}"

    @property
    def decisions(self) -> Iterator[Decision]:
        return (decision for cycle in self.cycles for decision in cycle)


def world_of(case: Case, now: Nanoseconds, *, departures: bool = False) -> World:
    """The scheduler's state after all objects were added, with the windows of QuotaSchedules while the gate is on."""
    world = scheduler_case(case, departures=departures).world(now)
    if QUOTA_CALENDAR in case.configured.on:
        world.set_windows(windows_of(case, now), now)
    return world


QUOTA_CALENDAR: Final = "QuotaCalendar"
BUDGETS: Final = "Budgets"


def windows_of(case: Case, now: Nanoseconds, horizon: Nanoseconds = calendars.HORIZON) -> tuple[ScheduledWindows, ...]:
    """The windows of the QuotaSchedules of a case. One of a server that cannot be read has no effect, as in a manager;
    `lint` reports it. Those of files were validated when they were read."""
    found = []
    for each in case.extensions:
        if isinstance(each, QuotaSchedule):
            with suppress(CalendarError):
                found.append(calendars.scheduled_windows(each, now, horizon))
    return tuple(found)


def scheduler_case(case: Case, *, departures: bool = False) -> SchedulerCase:
    """The case without its jobs and notices, as the scheduler reads it."""
    configured = case.configured
    return SchedulerCase(
        tuple(filter(is_watched, case.objects)),
        # A plan always detects loops: it would not end otherwise.
        policy=replace(configured.policy, departures=departures, loop_detection=True),
        accounting=configured.accounting,
        profile=configured.profile,
        lifecycle=configured.jobs.lifecycle,
    )


# A bound, if cycles continue without a repeated preemption.
CYCLES_MAX: Final = 10_000


class Progress(Enum):
    """The effect of a cycle."""

    MOVED = "a Workload was admitted or evicted, or others are tried next"
    STILL = "nothing changed, and another cycle would change nothing"
    OVER = "no Workload was left to decide on"
    REPEATS = "preemption loop: Workloads preempt each other in turns, without end"


def _always() -> bool:
    return True


def plan(
    case: Case,
    now: Nanoseconds,
    *,
    cycles: int = 1,
    until_stable: bool = False,
    departures: bool = False,
    may_go_on: Callable[[], bool] = _always,
) -> SchedulingPlan:
    """Run `cycles` cycles; with `until_stable`, stop at the first that changes nothing, or at a preemption loop, which
    is then in `loop`.

    `may_go_on` is called before every further cycle; if it returns False, the plan is not `is_stable`. Without
    `departures` the decisions follow Kueue's rules exactly; with them, those of this program's manager.
    """
    made = begin(case, now, departures=departures)
    for _ in range(cycles):
        progress = advance(made, now)
        made.is_stable = progress in (Progress.OVER, Progress.STILL)
        if progress is Progress.OVER or (until_stable and progress is not Progress.MOVED) or not may_go_on():
            break
    return made


def settle(case: Case, now: Nanoseconds, may_go_on: Callable[[], bool] = _always) -> SchedulingPlan:
    """The plan of a manager: cycles until one changes nothing, or decisions repeat."""
    return plan(case, now, cycles=CYCLES_MAX, until_stable=True, departures=True, may_go_on=may_go_on)


def begin(case: Case, now: Nanoseconds, *, departures: bool = False) -> SchedulingPlan:
    """A plan before its first cycle."""
    workloads = {states.key(thing): thing for thing in case.objects if isinstance(thing, kueue.Workload)}
    by_prefix = case.configured.jobs.lifecycle.encode_by_hostname_prefix
    made = SchedulingPlan(world_of(case, now, departures=departures), workloads, by_hostname_prefix=by_prefix)
    if made.world.windows.schedules:
        made.world.settle(now)
        made.withdrawn = tuple(made.world.withdrawals(now))
    for withdrawal in made.withdrawn:
        made.world.mark_evicted(withdrawal.workload)
    for key, workload in workloads.items():
        if workload.status.admission is not None and workload_info.holds_quota(workload):
            made.admissions[key] = codec.to_tree(workload.status.admission)
    return made


def advance(made: SchedulingPlan, now: Nanoseconds) -> Progress:
    """Run one more cycle. Workloads evicted in the previous one have stopped."""
    if made.cycles:
        _stop_evicted(made, now)
    made.world.settle(now)  # the Workloads it requeues are active from here on
    before = _in_line(made.world)
    decisions = made.world.decide(now)
    if made.cycles and not decisions:
        return Progress.OVER
    made.cycles.append(decisions)
    _record(made, decisions)
    found = made.world.take_new_loops()
    if found:
        made.loop = made.loop or found[0]
        if not made.world.policy.loop_guard:  # it delays the next round
            return Progress.REPEATS
    if any(isinstance(decision, (Admit, Preempt, Evict)) for decision in decisions):
        return Progress.MOVED
    # A cycle without admission or eviction requeues no Workload: an equal count means the same Workloads.
    return Progress.STILL if _in_line(made.world) == before else Progress.MOVED


def _in_line(world: World) -> int:
    return sum(queue.active_count for queue in world.queues.values())


def _record(made: SchedulingPlan, decisions: Iterable[Decision]) -> None:
    for decision in decisions:
        if isinstance(decision, Admit):
            made.admissions[decision.workload] = admission.tree(
                decision.cluster_queue, decision.pod_sets, by_hostname_prefix=made.by_hostname_prefix
            )
            made.world.confirm(decision.workload)  # nothing is written, so there is no response to wait for


def _stop_evicted(made: SchedulingPlan, now: Nanoseconds) -> None:
    for key in sorted(key for key, held in made.world.reservations.items() if held.evicted):
        made.world.put(_stopped(made.workloads[key]), now)
        made.admissions.pop(key, None)


# Conditions of a Workload that holds quota, or is requeued after an eviction.
_OF_A_STAY: Final = (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED, WorkloadCondition.REQUEUED)


def _stopped(workload: kueue.Workload) -> kueue.Workload:
    """The Workload after its eviction: without its reservation, and pending."""
    over = conditions.without(workload.status.conditions, *_OF_A_STAY)
    status = msgspec.structs.replace(workload.status, admission=None, conditions=over, unhealthy_nodes=())
    return msgspec.structs.replace(workload, status=status)
