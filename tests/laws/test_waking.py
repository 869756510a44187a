"""Requeueing by event: a Workload that is not evaluated again would get the same result, and one that could be admitted
is evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, clusters, quotas
from pykueue.core.decision import Admit, Decision, Preempt
from pykueue.state.scheduling_scope import SchedulingScopes
from pykueue.state.world import World

SMALL = settings(max_examples=80)


@dataclass(frozen=True)
class Step:
    """What happens next: a Workload is submitted, ends or changes its priority; a queue gets another quota, or
    moves."""

    kind: str
    number: int
    quota: QuotaCase


steps = st.lists(
    st.builds(Step, st.sampled_from(["submit", "end", "hurry", "quota", "move"]), st.integers(0, 11), quotas),
    max_size=10,
)


class History:
    """One cluster through a series of steps. Evicted Workloads stop, one by one, and are pending again."""

    def __init__(self, case: ClusterCase) -> None:
        self.case = case
        self.queues = list(case.queues)
        self.there = {n: w for n, w in enumerate(case.workloads) if n % 3 != 2 or w.flavor is not None}
        self.scopes = SchedulingScopes()
        self.world: World = replace(case, workloads=tuple(self.there.values())).world(self.scopes)

    def take(self, step: Step) -> None:
        workloads = self.case.workloads
        match step.kind:
            case "submit" if step.number < len(workloads) and step.number not in self.there:
                self.there[step.number] = workloads[step.number]
                self.world.put(workloads[step.number].thing(), NOW)
            case "end" if step.number in self.there:
                self.world.drop(self.there.pop(step.number).thing())
            case "hurry" if step.number in self.there and self.there[step.number].key not in self.world.reservations:
                self.there[step.number] = replace(self.there[step.number], priority=9)
                self.world.put(self.there[step.number].thing(), NOW)
            case "quota":
                queue = self.queues[step.number % len(self.queues)]
                self._change(queue, replace(queue, quotas=(step.quota, *queue.quotas[1:])))
            case "move":
                queue, other = self.queues[step.number % len(self.queues)], self.queues[0]
                self._change(queue, replace(queue, cohort="" if queue.cohort == other.cohort else other.cohort))

    def _change(self, queue: QueueCase, into: QueueCase) -> None:
        self.queues[self.queues.index(queue)] = into
        self.world.put(into.thing(), NOW)

    def stop_one(self) -> bool:
        """Stop one evicted Workload; whether there was one."""
        for workload in self.there.values():
            held = self.world.reservations.get(workload.key)
            if held is not None and held.evicted:
                self.world.confirm(workload.key)
                self.world.put(replace(workload, flavor=None).thing(), NOW)
                return True
        return False

    def decide(self, enough: int | None = None) -> list[Decision]:
        return self.world.decide(NOW, enough=enough)

    def decide_all_heads(self) -> list[Decision]:
        """One cycle of all heads, whether or not anything changed for them, as in Kueue."""
        self.world.settle(NOW)
        self.scopes.regroup([self.world.queues])
        for name in self.world.queues:
            self.scopes.invalidate(name)
        return self.decide()

    def settle(self, enough: int | None = None) -> list[Decision]:
        """Run cycles until there is nothing more to decide and no Workload to stop."""
        made: list[Decision] = []
        for _ in range(500):
            decisions = self.decide(enough)
            made += decisions
            if not decisions and not self.stop_one():
                return made
        raise AssertionError("still deciding after 500 cycles")


def effects(decisions: list[Decision]) -> list[tuple[str, ...]]:
    """The effects of decisions on other Workloads. A Wait has none."""
    found: list[tuple[str, ...]] = []
    for decision in decisions:
        if isinstance(decision, Admit):
            found.append(("admit", decision.workload))
        elif isinstance(decision, Preempt):
            fresh = [target.key for target in decision.targets if not target.already_evicted]
            if fresh:
                found.append(("preempt", decision.workload, *fresh))
    return sorted(found)


@SMALL
@given(clusters(), steps)
def test_one_pass_over_what_changed_equals_a_cycle_of_all_heads(case: ClusterCase, steps: list[Step]) -> None:
    """Cycle by cycle, evaluating only where something changed, tree by tree, has the same effects as evaluating all
    heads."""
    some, all_heads = History(case), History(case)
    for step in (*steps, None):
        for _ in range(500):
            decisions, of_all = some.decide(), all_heads.decide_all_heads()
            assert effects(decisions) == effects(of_all)
            assert len(decisions) <= len(of_all)
            if not decisions and (some.stop_one(), all_heads.stop_one()) == (False, False):
                break
        else:
            raise AssertionError("still deciding after 500 cycles")
        assert some.world.reservations.keys() == all_heads.world.reservations.keys()
        if step is not None:
            some.take(step)
            all_heads.take(step)


@SMALL
@given(clusters(), steps)
def test_deciding_in_small_batches_has_the_same_effects_as_deciding_at_once(
    case: ClusterCase, steps: list[Step]
) -> None:
    at_once, in_batches = History(case), History(case)
    for step in (*steps, None):
        assert effects(at_once.settle()) == effects(in_batches.settle(enough=1))
        if step is not None:
            at_once.take(step)
            in_batches.take(step)


@SMALL
@given(clusters(), steps)
def test_requeueing_all_admits_no_workload_that_events_did_not_requeue(case: ClusterCase, steps: list[Step]) -> None:
    history = History(case)
    history.settle()
    for step in steps:
        history.take(step)
        history.settle()
    history.world.retry_all()
    assert effects(history.settle()) == []
