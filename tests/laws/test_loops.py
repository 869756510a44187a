"""Preemption loops are exactly the cycles of states that an independent search finds, and the guard ends them.

The search reads the state of a cluster that nothing changes from outside, step by step: a state that returns, with a
preemption in between, is a cycle. It does not use the detector. Most clusters come to rest; the quotas and sizes
below make cycles frequent enough (`test_search_finds_cycles`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import SECOND
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.api import kube, kueue
from pykueue.core.decision import Admit, Preempt, Wait
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.core.workload import AssignedPodSet, Reservation
from pykueue.state import admission, preemption_loops
from pykueue.state.preemption_loops import DELAY_MAX, LoopDetector
from pykueue.state.troubles import PASSED_MIN, StarvationRules, starving, starving_count
from pykueue.state.world import World

# As Kueue decides: the rules that end preemptions under fair sharing are off.
AS_KUEUE: Final = SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy), preemption_progress=False)
STEPS_MAX: Final = 400
SEEDS: Final = range(400)


def cluster(seed: int) -> ClusterCase:
    """Two or three ClusterQueues of one cohort that reclaim from each other, and three to five Workloads."""
    rng = random.Random(seed)
    queues = tuple(
        QueueCase(f"q{n}", "c", (QuotaCase(rng.randint(2, 5), None, None),), "LowerPriority", "Any", strict=False)
        for n in range(rng.randint(2, 3))
    )
    workloads = tuple(
        WorkloadCase(n, rng.choice(queues).name, rng.randint(2, 7), rng.choice((0, 10)), rng.randint(0, 5))
        for n in range(rng.randint(3, 5))
    )
    return ClusterCase((), queues, workloads, fair=True)


class ClosedCluster:
    """A cluster that nothing changes from outside. Evicted Workloads stop before the next decision."""

    def __init__(self, case: ClusterCase, policy: SchedulingPolicy) -> None:
        self.world = World(policy)
        self.workloads: dict[str, kueue.Workload] = {}
        self.now = NOW
        self._evicting: list[str] = []
        self._revision = 0
        for thing in case.things():
            if isinstance(thing, kueue.Workload):
                self._put(thing)
            else:
                self.world.put(thing, NOW)
        self.world.settle(NOW)

    def step(self) -> list[Any]:
        """Let evicted Workloads stop, decide once, and carry it out; the decisions."""
        for key in self._evicting:
            self._set_status(key, None, "Requeued")
        self._evicting = []
        decisions = self.world.decide(self.now)
        for decision in decisions:
            if isinstance(decision, Admit):
                given = admission.typed(decision.cluster_queue, decision.pod_sets)
                self._set_status(decision.workload, given, "QuotaReserved", "Admitted")
            elif isinstance(decision, Preempt):
                for target in decision.targets:
                    if not target.already_evicted:
                        held = self.workloads[target.key].status.admission
                        self._set_status(target.key, held, "QuotaReserved", "Admitted", "Evicted")
                        self._evicting.append(target.key)
        return decisions

    @property
    def state(self) -> Any:
        """Everything that the next step depends on, read without the detector."""
        return (
            tuple(sorted((key, held.usage, held.evicted) for key, held in self.world.reservations.items())),
            tuple(
                (
                    name,
                    queue.preemptor,
                    queue.sticky,
                    tuple(sorted((each.key, each.resumes_at) for each in queue.active())),
                    tuple(sorted((each.key, each.resumes_at) for each in queue.parked())),
                )
                for name, queue in sorted(self.world.queues.items())
            ),
            tuple(self._evicting),
        )

    def _put(self, workload: kueue.Workload) -> None:
        self._revision += 1
        metadata = msgspec.structs.replace(workload.metadata, resource_version=str(self._revision))
        found = msgspec.structs.replace(workload, metadata=metadata)
        self.workloads[f"{metadata.namespace}/{metadata.name}"] = found
        self.world.put(found, self.now)

    def _set_status(self, key: str, given: kueue.Admission | None, *types: str) -> None:
        since = meta.format_time(NOW)
        conditions = tuple(
            meta.Condition(type=each, status="True", reason=each, last_transition_time=since) for each in types
        )
        status = kueue.WorkloadStatus(admission=given, conditions=conditions)
        self._put(msgspec.structs.replace(self.workloads[key], status=status))


@dataclass(frozen=True)
class StateCycle:
    """States that return: the step of the first, and how many there are."""

    begin: int
    period: int


def search(case: ClusterCase) -> StateCycle | None:
    """The cycle of states of a closed cluster; None if it comes to rest. Detection is off."""
    closed = ClosedCluster(case, replace(AS_KUEUE, loop_detection=False))
    seen: dict[Any, int] = {}
    preempts: list[bool] = []
    for number in range(STEPS_MAX):
        state = closed.state
        if state in seen:
            return StateCycle(seen[state], number - seen[state]) if any(preempts[seen[state] :]) else None
        seen[state] = number
        decisions = closed.step()
        preempts.append(any(isinstance(each, Preempt) for each in decisions))
    raise AssertionError(f"neither rest nor cycle within {STEPS_MAX} steps")


def searched() -> Iterator[tuple[int, ClusterCase, StateCycle | None]]:
    for seed in SEEDS:
        case = cluster(seed)
        yield seed, case, search(case)


@pytest.fixture(scope="module")
def found() -> list[tuple[int, ClusterCase, StateCycle | None]]:
    return list(searched())


def test_search_finds_cycles(found: list[tuple[int, ClusterCase, StateCycle | None]]) -> None:
    cycles = sum(cycle is not None for _, _, cycle in found)
    assert 5 <= cycles < len(SEEDS)


def test_loops_are_the_cycles_of_states(found: list[tuple[int, ClusterCase, StateCycle | None]]) -> None:
    """[LG-L1] and [LG-L2]: no loop is reported in a cluster that comes to rest; every cycle within its fourth round."""
    for seed, case, cycle in found:
        closed = ClosedCluster(case, AS_KUEUE)
        steps = STEPS_MAX // 4 if cycle is None else cycle.begin + 4 * cycle.period
        for _ in range(steps):
            closed.step()
        assert bool(closed.world.take_new_loops()) == (cycle is not None), f"seed {seed}: {cycle}"


def test_detection_changes_no_decision(found: list[tuple[int, ClusterCase, StateCycle | None]]) -> None:
    """[LG-L3]"""
    for seed, case, cycle in found:
        if cycle is not None or seed % 10 == 0:
            clusters = [ClosedCluster(case, replace(AS_KUEUE, loop_detection=on)) for on in (True, False)]
            for _ in range(60):
                assert clusters[0].step() == clusters[1].step()


def test_guarded_clusters_come_to_rest(found: list[tuple[int, ClusterCase, StateCycle | None]]) -> None:
    """[LG-L4]: at every instant the guarded cluster comes to rest, and no preemption is delayed by more than ten
    minutes. Without a cycle the guard changes nothing."""
    for seed, case, cycle in found:
        if cycle is None:
            if seed % 10 == 0:
                pair = [ClosedCluster(case, replace(AS_KUEUE, loop_guard=on)) for on in (True, False)]
                for _ in range(60):
                    assert pair[0].step() == pair[1].step()
            continue
        guarded = ClosedCluster(case, replace(AS_KUEUE, loop_guard=True))
        delayed = 0
        for _ in range(14):
            for _ in range(STEPS_MAX):
                if not guarded.step():
                    break
            else:
                raise AssertionError(f"seed {seed}: no rest")
            due = guarded.world.next_wake()
            if due is None:  # another Workload took the place of the delayed one, for good
                break
            delayed += 1
            assert guarded.now < due <= guarded.now + DELAY_MAX
            guarded.now = due
        assert delayed, f"seed {seed}"


def test_outside_change_ends_every_delay(found: list[tuple[int, ClusterCase, StateCycle | None]]) -> None:
    for _, case, cycle in found:
        if cycle is not None:
            guarded = ClosedCluster(case, replace(AS_KUEUE, loop_guard=True))
            while guarded.world.next_wake() is None:
                guarded.step()
            late = WorkloadCase(99, case.queues[0].name, 1, -10, 0).thing()
            guarded._put(late)
            decisions = guarded.step()
            assert not any(isinstance(each, Wait) and "is delayed until" in each.message for each in decisions)


# --- Pods that a controller creates again [LG3] -----------------------------------------------------------------------


class PodCluster(ClosedCluster):
    """The same cluster with a single pod as each Workload. An evicted pod is deleted, and another one created."""

    def __init__(self, case: ClusterCase, policy: SchedulingPolicy) -> None:
        self._generation = 0
        super().__init__(case, policy)

    def _put(self, workload: kueue.Workload) -> None:
        if not workload.metadata.owner_references:
            workload = self._pod(workload, chr(ord("a") + int(workload.metadata.uid[1:])) * 3)
        super()._put(workload)

    def _pod(self, workload: kueue.Workload, name: str) -> kueue.Workload:
        self._generation += 1
        full = f"{name}-x{self._generation:04d}"
        owner = meta.OwnerReference(api_version="v1", kind="Pod", name=full, uid=full, controller=True)
        metadata = msgspec.structs.replace(
            workload.metadata, name=f"{full}-0a1b2", uid=f"u{self._generation}", owner_references=(owner,)
        )
        return msgspec.structs.replace(workload, metadata=metadata)

    def _set_status(self, key: str, given: kueue.Admission | None, *types: str) -> None:
        if types != ("Requeued",):
            super()._set_status(key, given, *types)
            return
        evicted = self.workloads.pop(key)
        self.world.drop(evicted)
        bare = msgspec.structs.replace(evicted, status=kueue.WorkloadStatus())
        self._put(self._pod(bare, evicted.metadata.name.partition("-")[0]))


def test_loops_of_pods_that_are_created_again_are_likely(
    found: list[tuple[int, ClusterCase, StateCycle | None]],
) -> None:
    for seed, case, cycle in found:
        closed = PodCluster(case, AS_KUEUE)
        steps = STEPS_MAX // 4 if cycle is None else cycle.begin + 6 * cycle.period
        for _ in range(steps):
            closed.step()
        loops = closed.world.take_new_loops()
        assert bool(loops) == (cycle is not None), f"seed {seed}: {cycle}"
        assert all(loop.is_likely for loop in loops), f"seed {seed}"


# --- Pods of Workloads [LG1] ------------------------------------------------------------------------------------------


class RunningCluster(ClosedCluster):
    """The same cluster with a pod on a node for each admitted Workload, and, with `is_placed`, a ClusterQueue in the
    cohort whose placements depend on what the pods on nodes use."""

    def __init__(self, case: ClusterCase, policy: SchedulingPolicy, labels: dict[str, str], *, is_placed: bool) -> None:
        self._labels = labels
        super().__init__(case, policy)
        if is_placed:
            level = kueue.TopologyLevel(node_label="kubernetes.io/hostname")
            quota = kueue.ResourceQuota(name="cpu", nominal_quota="1")
            flavors = (kueue.FlavorQuotas(name="placed", resources=(quota,)),)
            name = meta.ObjectMeta(name="placed")
            ready = kube.NodeCondition(type="Ready", status="True")
            for thing in (
                kube.Node(
                    metadata=meta.ObjectMeta(name="n1", labels={"kubernetes.io/hostname": "n1"}),
                    status=kube.NodeStatus(allocatable={"cpu": "9", "pods": "9"}, conditions=(ready,)),
                ),
                kueue.Topology(metadata=name, spec=kueue.TopologySpec(levels=(level,))),
                kueue.ResourceFlavor(metadata=name, spec=kueue.ResourceFlavorSpec(topology_name="placed")),
                kueue.ClusterQueue(
                    metadata=name,
                    spec=kueue.ClusterQueueSpec(
                        cohort_name="c",
                        namespace_selector=meta.LabelSelector(),
                        resource_groups=(kueue.ResourceGroup(covered_resources=("cpu",), flavors=flavors),),
                    ),
                ),
            ):
                self.world.put(thing, NOW)
            self.world.settle(NOW)

    def _set_status(self, key: str, given: kueue.Admission | None, *types: str) -> None:
        super()._set_status(key, given, *types)
        namespace, _, name = key.partition("/")
        metadata = meta.ObjectMeta(name=f"{name}-pod", namespace=namespace, labels=self._labels)
        pod = kube.Pod(metadata=metadata, spec=kube.PodSpec(node_name="n1"))
        if types[-1] == "Admitted":
            self.world.put(pod, self.now)
        elif types[-1] == "Requeued":
            self.world.drop(pod)


@pytest.mark.parametrize(
    ("labels", "is_placed", "finds"),
    [
        ({"kueue.x-k8s.io/podset": "main"}, True, True),
        ({}, False, True),
        ({}, True, False),
    ],
    ids=["pods of Workloads", "no placements depend on pods", "other pods that placements depend on"],
)
def test_pods_of_workloads_are_no_outside_changes(
    found: list[tuple[int, ClusterCase, StateCycle | None]], labels: dict[str, str], is_placed: bool, finds: bool
) -> None:
    """Pods start and stop as a consequence of decisions: loops are found although pods run [LG-L2]."""
    cycles = [(seed, case, cycle) for seed, case, cycle in found if cycle is not None]
    assert cycles
    for seed, case, cycle in cycles:
        running = RunningCluster(case, AS_KUEUE, labels, is_placed=is_placed)
        for _ in range(cycle.begin + 4 * cycle.period):
            running.step()
        assert bool(running.world.take_new_loops()) == finds, f"seed {seed}"


# --- Starvation [LG-L5] -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_starving_workloads_are_those_that_a_list_of_all_starts_gives(seed: int) -> None:
    rng = random.Random(seed)
    case = ClusterCase(
        (), (QueueCase("q0", "", (QuotaCase(4, None, None),), "Never", "Never", strict=False),), (), fair=False
    )
    closed = ClosedCluster(case, SchedulingPolicy())
    starts: list[tuple[int, int, int]] = []  # priority, queued, started
    queued: dict[str, tuple[int, int]] = {}
    for number in range(120):
        closed.now += 600 * SECOND
        size = 4 if rng.random() < 0.1 else rng.randint(1, 2)
        created = (NOW - closed.now) // SECOND
        workload = WorkloadCase(number, "q0", size, rng.choice((0, 0, 5)), created)
        closed._put(workload.thing())
        queued[workload.key] = workload.priority, NOW - created * SECOND
        for decision in closed.step():
            if isinstance(decision, Admit):
                starts.append((*queued.pop(decision.workload), closed.now))
        # One always runs, so that those of the whole quota wait, and others pass them.
        for key in [key for key in sorted(closed.world.reservations)[:-1] if rng.random() < 0.6]:
            closed.world.drop(closed.workloads[key])
    # Of some Workloads there was a forecast, with its P90 so long after the submission.
    forecasts = {
        key: since + rng.randint(0, 8) * 3600 * SECOND for key, (_, since) in queued.items() if rng.random() < 0.5
    }
    rules = StarvationRules(after=24 * 3600 * SECOND // 8, first_p90=forecasts.get)
    passed_over = {
        key: closed.now - since
        for key, (priority, since) in queued.items()
        if closed.now - since > rules.after
        and sum((p < priority and at > since) or (p == priority and q > since) for p, q, at in starts) >= PASSED_MIN
    }
    assert passed_over
    expected = {
        key for key, waited in passed_over.items() if waited > 3 * (forecasts.get(key, queued[key][1]) - queued[key][1])
    }
    assert {each.workload for each in starving(closed.world, "q0", closed.now, rules)} == expected
    assert starving_count(closed.world, "q0", closed.now, rules) == len(expected)


# --- Planted bugs: each breaks a law -----------------------------------------------------------------------------------


def _without_amounts(patch: pytest.MonkeyPatch) -> None:
    """The fingerprint knows the Workloads, and not what they use."""

    def reserved(self: LoopDetector, reservation: Reservation) -> None:
        before = self._fingerprints.get(reservation.cluster_queue, 0)
        self._fingerprints[reservation.cluster_queue] = before ^ hash(reservation.key)

    patch.setattr(LoopDetector, "reserved", reserved)


def _without_outside_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoopDetector, "changed", lambda self, cluster_queue=None: None)


def _without_wake(patch: pytest.MonkeyPatch) -> None:
    """No scheduling cycle runs when a delay is over."""
    patch.setattr(LoopDetector, "take_due", lambda self, now: iter(()))


def _delays_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preemption_loops, "DELAY_MAX", 10 * DELAY_MAX)


def _after_the_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preemption_loops, "ROUNDS", 1)


def _other_amounts_are_no_loop(_: object) -> None:
    """A Workload that is admitted with fewer pods each time makes progress [LG1]."""
    detector = LoopDetector()
    for cpu in range(5):
        assigned = AssignedPodSet("main", cpu, {"cpu": "f0"}, (("cpu", cpu),))
        held = Reservation("ns/b", "b", "q0", "q0", (assigned,))
        detector.reserved(held)
        detector.preempted(("q0",), "q0", "ns/a", ("ns/b",), NOW)
        detector.released(held)
    assert detector.take_new() == []


def test_reservations_of_other_amounts_are_no_loop() -> None:
    _other_amounts_are_no_loop(())


@pytest.mark.parametrize(
    ("plant", "law"),
    [
        (_without_amounts, _other_amounts_are_no_loop),
        (_without_outside_changes, test_outside_change_ends_every_delay),
        (_without_wake, test_guarded_clusters_come_to_rest),
        (_delays_without_end, test_guarded_clusters_come_to_rest),
        (_after_the_first, test_loops_are_the_cycles_of_states),
    ],
    ids=lambda each: each.__name__.strip("_"),
)
def test_planted_bug_breaks_a_law(
    plant: Callable[[pytest.MonkeyPatch], None],
    law: Callable[[Any], None],
    found: list[tuple[int, ClusterCase, StateCycle | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        law(found)
