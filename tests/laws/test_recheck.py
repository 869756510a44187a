"""What holds whenever a reservation is evaluated again (KEP-993): its preemption targets are legal at that moment.

Legality is judged here by an oracle of its own. It reads the objects that were put last, in the words of the API, and
shares no code with the search for targets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kubemachinery import meta
from laws.random_clusters import NOW, POLICIES, ClusterCase, QueueCase, QuotaCase, WorkloadCase, clusters, figures
from pykueue.api import kueue
from pykueue.core.decision import Admit
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.state.world import World

CHECK = "c"


def check() -> kueue.AdmissionCheck:
    return kueue.AdmissionCheck(
        metadata=meta.ObjectMeta(name=CHECK),
        spec=kueue.AdmissionCheckSpec(
            controller_name="example.com/check", preemption_policy="AfterCheckPassedOrOnDemand"
        ),
        status=kueue.AdmissionCheckStatus(conditions=(meta.Condition(type="Active", status="True"),)),
    )


def behind_check(queue: QueueCase) -> kueue.ClusterQueue:
    """The queue, with a check that defers preemption."""
    thing = queue.thing()
    rules = (kueue.AdmissionCheckStrategyRule(name=CHECK),)
    spec = msgspec.structs.replace(
        thing.spec, admission_checks_strategy=kueue.AdmissionChecksStrategy(admission_checks=rules)
    )
    return msgspec.structs.replace(thing, spec=spec)


@dataclass
class Oracle:
    """The objects as they are now, and whether the preemption policies of the API allow a preemption."""

    queues: dict[str, QueueCase]
    parents: dict[str, str]  # of cohorts
    held: dict[str, WorkloadCase]  # by key; those that hold quota

    def root(self, queue: str) -> str:
        cohort = self.queues[queue].cohort
        if not cohort:
            return f"queue {queue}"
        while self.parents.get(cohort):
            cohort = self.parents[cohort]
        return cohort

    def usage(self, queue: str, flavor: str) -> int:
        return sum(each.cpu for each in self.held.values() if (each.queue, each.flavor) == (queue, flavor))

    def nominal(self, queue: str, flavor: str) -> int:
        quotas = self.queues[queue].quotas
        place = int(flavor.removeprefix("f"))
        return quotas[place].nominal if place < len(quotas) else 0

    def illegal(self, target: WorkloadCase, preemptor: WorkloadCase) -> str:
        """Why the policy does not allow to evict the target for the preemptor; empty where it does."""
        own = target.queue == preemptor.queue
        spec = self.queues[preemptor.queue]
        policy = spec.within if own else spec.reclaim
        if policy == "Never":
            return "the policy is Never"
        is_lower = target.priority < preemptor.priority
        is_newer = target.priority == preemptor.priority and target.created < preemptor.created
        if policy == "LowerPriority" and not is_lower:
            return "its priority is not lower"
        if policy == "LowerOrNewerEqualPriority" and not (is_lower or is_newer):
            return "its priority is neither lower, nor equal with a later time"
        if target.flavor != preemptor.flavor:
            return "it uses another flavor"
        if not own and self.root(target.queue) != self.root(preemptor.queue):
            return "its queue is in another tree"
        flavor = target.flavor or ""
        if not own and self.usage(target.queue, flavor) <= self.nominal(target.queue, flavor):
            return "its queue does not borrow"
        return ""


@st.composite
def changes(draw: st.DrawFn, queues: Iterable[str], workloads: Iterable[int]) -> list[tuple[str, object, object]]:
    """What may happen between a reservation and its last check: a field of an object, and its new value."""
    numbers, names = sorted(workloads), sorted(queues)
    of_workload = st.tuples(st.just("priority"), st.sampled_from(numbers), st.integers(0, 4))
    gone = st.tuples(st.just("gone"), st.sampled_from(numbers), st.none())
    of_queue = st.one_of(
        st.tuples(st.just("within"), st.sampled_from(names), st.sampled_from(POLICIES[:3])),
        st.tuples(st.just("reclaim"), st.sampled_from(names), st.sampled_from(POLICIES)),
        st.tuples(st.just("cohort"), st.sampled_from(names), st.sampled_from(["", "implicit", "elsewhere"])),
        st.tuples(st.just("nominal"), st.sampled_from(names), st.integers(0, 8)),
    )
    return draw(st.lists(st.one_of(of_workload, of_workload, gone, of_queue), max_size=4))


def _reserved(case: ClusterCase) -> tuple[World, dict[str, WorkloadCase], list[str]]:
    """A cluster in which Workloads reserve with deferred preemptions where they can: it, its Workloads with quota, and the
    keys of those that assume targets."""
    world = World(case.policy)
    world.put(check(), NOW)
    for thing in case.things():
        world.put(thing, NOW)
    for queue in case.queues:
        world.put(behind_check(queue), NOW)
    by_key = {each.key: each for each in case.workloads}
    held = {each.key: each for each in case.workloads if each.flavor is not None}
    assuming = []
    for _ in range(4):
        for decision in world.decide(NOW):
            if isinstance(decision, Admit):
                flavor = decision.pod_sets[0].flavors.get("cpu")
                held[decision.workload] = replace(by_key[decision.workload], flavor=flavor)
                if decision.assumed_targets:
                    assuming.append(decision.workload)
                world.confirm(decision.workload)
    return world, held, assuming


@st.composite
def crowded(draw: st.DrawFn) -> ClusterCase:
    """Queues whose quota is taken, and Workloads that may preempt for theirs."""
    cohort = draw(st.sampled_from(["", "implicit", "co0"]))
    cohorts = (("co0", "", QuotaCase(0, None, None)),) if cohort == "co0" else ()
    queues = tuple(
        QueueCase(
            f"q{n}",
            cohort,
            (QuotaCase(draw(st.integers(1, 6)), None, None),),
            draw(st.sampled_from(POLICIES[1:3])),
            draw(st.sampled_from(POLICIES[1:])),
            strict=False,
        )
        for n in range(draw(st.integers(1, 3)))
    )
    sizes, names = st.integers(1, 4), [queue.name for queue in queues]
    left = sum(queue.quotas[0].nominal for queue in queues)
    holders: list[WorkloadCase] = []
    while left > 0:
        cpu = min(left, draw(sizes))
        left -= cpu
        name = draw(st.sampled_from(names))
        holders.append(WorkloadCase(len(holders), name, cpu, draw(st.integers(0, 2)), draw(st.integers(0, 5)), "f0"))
    asking = tuple(
        WorkloadCase(len(holders) + n, draw(st.sampled_from(names)), draw(sizes), 3, draw(st.integers(0, 5)))
        for n in range(draw(st.integers(1, 3)))
    )
    return ClusterCase(cohorts, queues, (*holders, *asking), draw(st.booleans()))


@settings(max_examples=200)
@given(st.data(), crowded() | clusters())
def test_targets_of_a_reservation_are_legal_when_they_are_evicted(data: st.DataObject, case: ClusterCase) -> None:
    world, held, assuming = _reserved(case)
    event("assumes targets" if assuming else "assumes none")
    if not assuming:
        return
    oracle = Oracle(
        {queue.name: queue for queue in case.queues}, {name: parent for name, parent, _ in case.cohorts}, held
    )
    numbers = {each.number: key for key, each in held.items()}
    for what, which, value in data.draw(changes(oracle.queues, numbers)):
        _happen(world, oracle, numbers, what, which, value)
    for key in assuming:
        if key in oracle.held:
            _judge(world, oracle, key)


def _happen(world: World, oracle: Oracle, numbers: dict[int, str], what: str, which: object, value: object) -> None:
    if what in ("priority", "gone"):
        key = numbers[which]  # type: ignore[index]
        if key not in oracle.held:
            return
        if what == "gone":
            world.drop(oracle.held.pop(key).thing())
            return
        oracle.held[key] = replace(oracle.held[key], priority=value)  # type: ignore[arg-type]
        world.put(oracle.held[key].thing(), NOW)
        return
    queue = oracle.queues[which]  # type: ignore[index]
    if what == "nominal":
        quotas = (replace(queue.quotas[0], nominal=value), *queue.quotas[1:])  # type: ignore[arg-type]
        queue = replace(queue, quotas=quotas)
    else:
        queue = replace(queue, **{what: value})  # type: ignore[arg-type]
    oracle.queues[queue.name] = queue
    world.put(behind_check(queue), NOW)


def _judge(world: World, oracle: Oracle, key: str) -> None:
    result = world.recheck(key, NOW)
    event(type(result).__name__)
    preemptor = oracle.held[key]
    match result:
        case HoldsAfter(victims):
            assert victims
            for victim in victims:
                why = oracle.illegal(oracle.held[victim.key], preemptor)
                assert not why, f"{victim.key} is evicted for {key}, though {why}"
            # The quota that the answer counts on is not counted twice.
            assert world.recheck(key, NOW) == result
        case Holds():
            assert world.reservations[key].assumed_targets == {}
        case Lost():
            before = figures(world)
            assert world.recheck(key, NOW) == result
            assert figures(world) == before
