"""Under fair sharing, preemptions end: without outside changes every cluster becomes stable, and the number of evictions
has a bound ([FS21], [FS22])."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubemachinery import meta, yaml_documents
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase, clusters
from pykueue.analysis import planner
from pykueue.analysis.planner import SchedulingPlan
from pykueue.api import kueue
from pykueue.core import cycle
from pykueue.core.cycle import Head
from pykueue.core.decision import Admit, Preempt
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.state import admission
from pykueue.state.preemption_order import REPEATS_MAX
from pykueue.state.world import World

BOTH = tuple(FairSharingStrategy)
LIVELOCKS = sorted((Path(__file__).parents[1] / "state" / "loops").glob("livelock-*.yaml"))


def bound(workloads: int) -> int:
    """How many evictions there may be between two outside changes."""
    return REPEATS_MAX * workloads * (workloads - 1) // 2


@dataclass
class ClosedCluster:
    """A cluster that nothing changes from outside: decisions are carried out, and evicted Workloads stop one by one, in
    an order that the seed chooses."""

    case: ClusterCase
    policy: SchedulingPolicy
    rng: random.Random
    preemptions: Counter[tuple[str, str]] = field(default_factory=Counter)
    evicting: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.policy)
        self.workloads: dict[str, kueue.Workload] = {}
        self._revisions = itertools.count(1)
        for thing in self.case.things():
            if isinstance(thing, kueue.Workload):
                self._put(thing)
            else:
                self.world.put(thing, NOW)
        self.world.settle(NOW)

    def is_stable_within(self, steps: int) -> bool:
        return any(not self._step() for _ in range(steps))

    def _step(self) -> bool:
        """Decide once, or let an evicted Workload stop; whether anything happened."""
        happened = False
        for decision in self.world.decide(NOW):
            if isinstance(decision, Admit):
                happened = True
                found = admission.typed(decision.cluster_queue, decision.pod_sets)
                self._set_status(decision.workload, found, "QuotaReserved", "Admitted")
            elif isinstance(decision, Preempt):
                for target in decision.targets:
                    if not target.already_evicted:
                        happened = True
                        self.preemptions[decision.workload, target.key] += 1
                        held = self.workloads[target.key].status.admission
                        self._set_status(target.key, held, "QuotaReserved", "Admitted", "Evicted")
                        self.evicting.append(target.key)
        if self.evicting and (not happened or self.rng.random() < 0.5):
            stopped = self.evicting.pop(self.rng.randrange(len(self.evicting)))
            self._set_status(stopped, None, "Requeued")
            happened = True
        return happened

    def _put(self, workload: kueue.Workload) -> None:
        metadata = msgspec.structs.replace(workload.metadata, resource_version=str(next(self._revisions)))
        found = msgspec.structs.replace(workload, metadata=metadata)
        self.workloads[f"{metadata.namespace}/{metadata.name}"] = found
        self.world.put(found, NOW)

    def _set_status(self, key: str, found: kueue.Admission | None, *types: str) -> None:
        since = meta.format_time(NOW)
        conditions = tuple(
            meta.Condition(type=type_, status="True", reason=type_, last_transition_time=since) for type_ in types
        )
        status = kueue.WorkloadStatus(admission=found, conditions=conditions)
        self._put(msgspec.structs.replace(self.workloads[key], status=status))


strategies = st.sampled_from([BOTH, BOTH[:1], BOTH[1:]])


@given(clusters(), strategies, st.integers(0, 1000))
def test_preemptions_end_and_are_bounded(case: ClusterCase, chosen: tuple[FairSharingStrategy, ...], seed: int) -> None:
    cluster = ClosedCluster(case, SchedulingPolicy(fair_sharing=chosen), random.Random(seed))
    workloads = len(case.workloads)
    # A step carries out decisions or stops a Workload: evictions, as many stops, and as many admissions again.
    assert cluster.is_stable_within(3 * bound(workloads) + 2 * workloads + 2)
    assert cluster.preemptions.total() <= bound(workloads)
    assert max(cluster.preemptions.values(), default=0) <= REPEATS_MAX
    assert not any((target, preemptor) in cluster.preemptions for preemptor, target in cluster.preemptions)


def planned(path: Path, *, departures: bool, progress: bool = True) -> SchedulingPlan:
    case = planner.read(yaml_documents.read(path))
    policy = replace(case.configured.policy, preemption_progress=progress)
    case = replace(case, configured=replace(case.configured, policy=policy))
    return planner.plan(case, NOW, cycles=planner.CYCLES_MAX, until_stable=True, departures=departures)


@pytest.mark.parametrize("path", LIVELOCKS, ids=lambda path: path.stem)
def test_livelocks_end_in_the_manager_and_go_on_under_the_rules_of_kueue(path: Path) -> None:
    assert planned(path, departures=True).is_stable
    assert planned(path, departures=False).loop is not None
    assert planned(path, departures=True, progress=False).loop is not None


@pytest.mark.parametrize(
    ("spared", "evicted", "preempts"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_spared_workload_is_a_target_only_while_it_is_being_evicted(
    spared: bool, evicted: bool, preempts: bool
) -> None:
    quota = QuotaCase(4, None, None)
    low = WorkloadCase(0, "q", 4, 0, 1, "f0")
    high = WorkloadCase(1, "q", 4, 1, 0)
    case = ClusterCase(
        (), (QueueCase("q", "co", (quota,), "LowerPriority", "Any", strict=False),), (low, high), fair=True
    )
    world = case.world()
    world.reservations[low.key].evicted = evicted
    [workload] = world.queues["q"].active()
    head = Head(workload, spared=frozenset((low.key,)) if spared else frozenset())
    [decision] = cycle.run(world.snapshot(), [head], case.policy, NOW)
    targets = [target.key for target in decision.targets] if isinstance(decision, Preempt) else []
    assert targets == ([low.key] if preempts else [])
