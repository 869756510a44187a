"""Whether a Workload would be admitted with some changes, decided by the scheduler on a copy of the objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.analysis import planner
from pykueue.analysis.object_changes import ObjectChange, indexed
from pykueue.analysis.planner import Case, Progress, SchedulingPlan
from pykueue.api import kueue
from pykueue.core import quota
from pykueue.core.amounts import Amount
from pykueue.core.decision import Admit
from pykueue.core.queue import PreemptionPolicies
from pykueue.lifecycle import states
from pykueue.state import workload_info
from pykueue.state.preemption_loops import PreemptionLoop

Question: TypeAlias = tuple[str, ...]
"""The descriptions of changes, which identify them."""

# Costs in Workloads read: of a decision, and the number of preemption candidates that cost as much as one Workload.
_DECISION_COSTS: Final = 8
_LOOKED_AT_FOR_ONE: Final = 24


class SearchBudgetExhausted(Exception):
    """A search has spent its budget."""


class SearchBudget(msgspec.Struct):
    """The budget of a search, counted in Workloads read and not in seconds, so that results do not depend on the
    machine."""

    limit: int | None = None
    spent: int = 0

    @property
    def is_spent(self) -> bool:
        return self.limit is not None and self.spent > self.limit

    def spend(self, steps: int) -> None:
        self.spent += steps
        if self.is_spent:
            raise SearchBudgetExhausted


@dataclass(slots=True)
class Trial:
    """A Workload in a case, with the results of earlier trials."""

    case: Case
    target: str
    now: Nanoseconds
    effort: SearchBudget = field(default_factory=SearchBudget)
    _answers: dict[Question, bool] = field(default_factory=dict, init=False)
    _latest: tuple[Question, SchedulingPlan] | None = field(default=None, init=False)

    def admits(self, parts: Sequence[ObjectChange] = ()) -> bool:
        """Whether the Workload gets quota with these changes, after any number of cycles and evictions."""
        question = _question(parts)
        if question not in self._answers:
            self.run(parts)
        return self._answers[question]

    def run(self, parts: Sequence[ObjectChange] = ()) -> SchedulingPlan:
        """Run cycles until the Workload has quota, or nothing changes."""
        made, now = self.begin(parts)
        for _ in range(planner.CYCLES_MAX):
            progress = planner.advance(made, now)
            self.effort.spend(_cost(made))
            if self.is_in(made) or progress is not Progress.MOVED:
                break
        question = _question(parts)
        self._answers[question] = self.is_in(made)
        if self._answers[question]:
            self._latest = question, made
        return made

    def loop_ahead(self) -> PreemptionLoop | None:
        """The preemption loop that the scheduler runs into if no object changes; None if it settles.

        Raises SearchBudgetExhausted if the budget does not suffice.
        """
        made, now = self.begin()
        while planner.advance(made, now) is Progress.MOVED:
            self.effort.spend(_cost(made))
        return made.loop

    def begin(self, parts: Sequence[ObjectChange] = ()) -> tuple[SchedulingPlan, Nanoseconds]:
        now = max(self.now, *(part.later_than() for part in parts)) if parts else self.now
        made = planner.begin(changed(self.case, parts), now, departures=True)
        self.effort.spend(len(made.workloads))
        return made, now

    def is_in(self, made: SchedulingPlan) -> bool:
        held = made.world.reservations.get(self.target)
        return held is not None and not held.evicted

    def spare(self, parts: Sequence[ObjectChange], flavor: str, resource: str) -> tuple[Amount, Amount]:
        """The unused quota of its queue after changes that admit the Workload: the most, without the others admitted in
        the same cycle, and the least, with them."""
        question = _question(parts)
        made = self._latest[1] if self._latest is not None and self._latest[0] == question else self.run(parts)
        reservations = made.world.reservations
        node = made.world.snapshot().queues[reservations[self.target].cluster_queue].node
        left = quota.balance(node, node.tree.number(flavor, resource))
        taken = sum(
            amount
            for decision in made.cycles[-1]
            if isinstance(decision, Admit) and decision.workload != self.target
            for pair, amount in reservations[decision.workload].usage
            if (pair.flavor, pair.resource) == (flavor, resource)
        )
        return left + taken, left

    def alone(self) -> Trial:
        """The trial without other pending Workloads: faster, and what does not suffice there hardly ever suffices."""
        return Trial(without_rivals(self.case, self.target), self.target, self.now, self.effort)


def _question(parts: Sequence[ObjectChange]) -> Question:
    return tuple(part.sentence() for part in parts)


def _cost(made: SchedulingPlan) -> int:
    """The cost of the last cycle."""
    queues = made.world.snapshot().queues
    searched = [
        decision
        for decision in made.cycles[-1]
        if not isinstance(decision, Admit)
        and decision.cluster_queue in queues
        and queues[decision.cluster_queue].spec.preemption != PreemptionPolicies()
    ]
    looks = len(searched) * len(made.world.reservations)
    return _DECISION_COSTS * len(made.cycles[-1]) + looks // _LOOKED_AT_FOR_ONE


def changed(case: Case, parts: Iterable[ObjectChange]) -> Case:
    """The case with these changes applied."""
    objects = indexed(case.objects)
    for part in parts:
        part.apply(objects)
    return case.with_objects(objects.values())


def narrowed(case: Case, target: str) -> Case:
    """The case without unrelated cohort trees.

    Trees are independent, except if their flavors share nodes: then all are kept.
    """
    world = planner.world_of(case, 0)
    world.settle(0)
    workload = world.pending_workload(target)
    held = world.reservations.get(target)
    name = held.cluster_queue if held is not None else workload.cluster_queue if workload is not None else ""
    if name not in world.cluster_queues or any(isinstance(thing, kueue.Topology) for thing in case.objects):
        return case
    near = {name, *world.tree_queues(name)}
    leads_there = {
        (thing.metadata.namespace, thing.metadata.name)
        for thing in case.objects
        if isinstance(thing, kueue.LocalQueue) and thing.spec.cluster_queue in near
    }

    def belongs(thing: object) -> bool:
        match thing:
            case kueue.ClusterQueue():
                return thing.metadata.name in near
            case kueue.LocalQueue():
                return thing.spec.cluster_queue in near
            case kueue.Workload():
                if workload_info.holds_quota(thing) and thing.status.admission is not None:
                    return thing.status.admission.cluster_queue in near
                return (thing.metadata.namespace, thing.spec.queue_name) in leads_there
        return True

    return case.with_objects(thing for thing in case.objects if belongs(thing))


def without_rivals(case: Case, target: str) -> Case:
    """The case without other pending Workloads."""

    def competes(thing: object) -> bool:
        return (
            isinstance(thing, kueue.Workload) and not workload_info.holds_quota(thing) and states.key(thing) != target
        )

    return case.with_objects(thing for thing in case.objects if not competes(thing))
