"""Cycles over a case: the memory of all its objects, decided as often as asked, or until nothing changes any more.

Between two cycles only this is assumed: evicted Workloads have stopped and are pending again, which is what makes room
for those that wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import msgspec

from kubemachinery import codec, conditions, meta
from kubemachinery.meta import Nanoseconds
from pykueue.analysis.planner.case import DEFAULT, Case
from pykueue.api import kube, kueue, labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.core.decision import Admit, Decision, Evict, Preempt
from pykueue.lifecycle import states
from pykueue.state import admission, workload_info
from pykueue.state.intake import is_watched
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.world import World


@dataclass(slots=True)
class SchedulingPlan:
    """What came of the cycles: the decisions in order, and the world they left."""

    world: World
    workloads: Mapping[str, kueue.Workload]  # as they were given
    cycles: list[list[Decision]] = field(default_factory=list)
    admissions: dict[str, dict[str, Any]] = field(default_factory=dict)  # every reservation held, as its status says it
    by_hostname_prefix: bool = True  # how `admissions` write topology assignments
    loop: PreemptionLoop | None = None  # the first preemption loop that the cycles ran into
    is_stable: bool = False  # the last cycle changed nothing, or there was nothing to decide

    @property
    def unstable_because(self) -> str:
        """Why there is no final state to show, as a sentence without its subject; empty where there is one."""
        if self.loop is not None:
            seen = f"repeated {self.loop.rounds} times in {len(self.cycles)} cycles"
            return f"preemption loop: {self.loop.sentence()}; {seen}"
        return "" if self.is_stable else f"decisions still change after {len(self.cycles)} cycles"

    @property
    def decisions(self) -> Iterator[Decision]:
        return (decision for cycle in self.cycles for decision in cycle)


def world_of(case: Case, now: Nanoseconds, *, departures: bool = False) -> World:
    """The memory as it is once all objects have been seen."""
    configured = case.configured
    policy = replace(configured.policy, departures=departures)
    world = World(policy, accounting=configured.accounting, profile=configured.profile)
    # Every server has this one; who gives another of the name overrules it.
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=DEFAULT, labels={labels.NAMESPACE_NAME: DEFAULT})), now)
    for thing in filter(is_watched, case.objects):
        world.put(thing, now)
    return world


# A bound, should cycles go on without the same preemption coming again.
CYCLES_MAX: Final = 10_000


class Progress(Enum):
    """What one more cycle came to."""

    MOVED = "somebody was let in, had to go, or will be tried next"
    STILL = "nothing changed, and nothing would in another cycle"
    OVER = "nobody was left to decide about"
    REPEATS = "Workloads preempt each other in turns, and would do so for ever"


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
    """Decide: so many cycles, or as many as it takes until a cycle changes nothing (at most `cycles`), or until
    Workloads preempt each other in turns: then no cycle ever changes nothing, and `loop` says which they are.

    `may_go_on` is asked before every further cycle; where it says no, the plan is not `is_stable`.
    Without `departures` the decisions are Kueue's to the letter; with them they are those of this program's manager.
    """
    made = begin(case, now, departures=departures)
    for _ in range(cycles):
        progress = advance(made, now)
        made.is_stable = progress in (Progress.OVER, Progress.STILL)
        if progress is Progress.OVER or (until_stable and progress is not Progress.MOVED) or not may_go_on():
            break
    return made


def settle(case: Case, now: Nanoseconds, may_go_on: Callable[[], bool] = _always) -> SchedulingPlan:
    """What a manager would come to: as many cycles as it takes until one changes nothing, or decisions repeat."""
    return plan(case, now, cycles=CYCLES_MAX, until_stable=True, departures=True, may_go_on=may_go_on)


def begin(case: Case, now: Nanoseconds, *, departures: bool = False) -> SchedulingPlan:
    """A plan before its first cycle."""
    workloads = {states.key(thing): thing for thing in case.objects if isinstance(thing, kueue.Workload)}
    by_prefix = case.configured.jobs.lifecycle.encode_by_hostname_prefix
    made = SchedulingPlan(world_of(case, now, departures=departures), workloads, by_hostname_prefix=by_prefix)
    for key, workload in workloads.items():
        if workload.status.admission is not None and workload_info.holds_quota(workload):
            made.admissions[key] = codec.to_tree(workload.status.admission)
    return made


def advance(made: SchedulingPlan, now: Nanoseconds) -> Progress:
    """One more cycle; those evicted in the one before have stopped by now."""
    if made.cycles:
        _stop_evicted(made, now)
    made.world.settle(now)  # whoever that wakes is in line from here on
    before = _in_line(made.world)
    decisions = made.world.decide(now)
    if made.cycles and not decisions:
        return Progress.OVER
    made.cycles.append(decisions)
    _record(made, decisions)
    found = made.world.take_new_loops()
    if found:
        made.loop = made.loop or found[0]
        return Progress.REPEATS
    if any(isinstance(decision, (Admit, Preempt, Evict)) for decision in decisions):
        return Progress.MOVED
    # A cycle that only refuses brings nobody back in line: as many as before are the same as before.
    return Progress.STILL if _in_line(made.world) == before else Progress.MOVED


def _in_line(world: World) -> int:
    return sum(queue.active_count for queue in world.queues.values())


def _record(made: SchedulingPlan, decisions: Iterable[Decision]) -> None:
    for decision in decisions:
        if isinstance(decision, Admit):
            made.admissions[decision.workload] = admission.tree(
                decision.cluster_queue, decision.pod_sets, by_hostname_prefix=made.by_hostname_prefix
            )
            made.world.confirm(decision.workload)  # nothing is written, so there is no answer to wait for


def _stop_evicted(made: SchedulingPlan, now: Nanoseconds) -> None:
    for key in sorted(key for key, held in made.world.reservations.items() if held.evicted):
        made.world.put(_stopped(made.workloads[key]), now)
        made.admissions.pop(key, None)


# What a Workload says while it holds quota, or comes back from an eviction.
_OF_A_STAY: Final = (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED, WorkloadCondition.REQUEUED)


def _stopped(workload: kueue.Workload) -> kueue.Workload:
    """The Workload once its eviction is over: without its reservation, and back in its queue."""
    over = conditions.without(workload.status.conditions, *_OF_A_STAY)
    status = msgspec.structs.replace(workload.status, admission=None, conditions=over, unhealthy_nodes=())
    return msgspec.structs.replace(workload, status=status)
