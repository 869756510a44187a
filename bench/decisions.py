"""How many Workload decisions per second the scheduler makes, by size of the cluster.

    python -m bench decisions [--json=FILE] [--seconds=S] [--only=NAME] [--profile]

A decision is one head in one cycle. Every case is driven the same way: a cycle, then the Workloads admitted some
cycles ago ends, so that quota keeps coming free; a fresh Workload takes the place of each that left. Only `decide` is
on the clock (processor time of this process, so that a busy machine does not count); taking in what changed is
shown apart.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import msgspec

from kubemachinery import meta
from pykueue.api import kube, kueue
from pykueue.core.decision import Admit, Preempt
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.state.world import World

NOW = meta.parse_time("2026-01-01T00:00:00Z")
NAMESPACE = "team"
# As in the public baseline of this field: how many of each class, cpu each, and priority.
CLASSES = ((350, "1", 50), (100, "5", 100), (50, "20", 200))


def cluster_queue(name: str, cohort: str, cpu: str = "20", borrowing: str | None = "100") -> kueue.ClusterQueue:
    quota = kueue.ResourceQuota(name="cpu", nominal_quota=cpu, borrowing_limit=borrowing)
    return kueue.ClusterQueue(
        metadata=meta.ObjectMeta(name=name),
        spec=kueue.ClusterQueueSpec(
            cohort_name=cohort,
            namespace_selector=meta.LabelSelector(),
            resource_groups=(
                kueue.ResourceGroup(
                    covered_resources=("cpu",), flavors=(kueue.FlavorQuotas(name="default", resources=(quota,)),)
                ),
            ),
            preemption=kueue.ClusterQueuePreemption(reclaim_within_cohort="Any", within_cluster_queue="LowerPriority"),
        ),
    )


def local_queue(name: str, leads_to: str) -> kueue.LocalQueue:
    return kueue.LocalQueue(
        metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE), spec=kueue.LocalQueueSpec(cluster_queue=leads_to)
    )


def workload(number: int, queue: str, cpu: str, priority: int) -> kueue.Workload:
    created = meta.format_time(NOW + number * meta.SECOND)
    container = kube.Container(name="c", resources=kube.ResourceRequirements(requests={"cpu": cpu}))
    return kueue.Workload(
        metadata=meta.ObjectMeta(
            name=f"w{number}", namespace=NAMESPACE, uid=f"u{number:08}", generation=1, creation_timestamp=created
        ),
        spec=kueue.WorkloadSpec(
            queue_name=queue,
            priority=priority,
            pod_sets=(
                kueue.PodSet(
                    name="main",
                    count=1,
                    template=kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,))),
                ),
            ),
        ),
    )


def with_reservation(pending: kueue.Workload, queue: str, cpu: str) -> kueue.Workload:
    assigned = kueue.PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, resource_usage={"cpu": cpu})
    reserved = meta.Condition(
        type="QuotaReserved", status="True", reason="QuotaReserved", last_transition_time=meta.format_time(NOW)
    )
    status = kueue.WorkloadStatus(
        admission=kueue.Admission(cluster_queue=queue, pod_set_assignments=(assigned,)), conditions=(reserved,)
    )
    return msgspec.structs.replace(pending, status=status)


@dataclass(frozen=True)
class Size:
    cohorts: int
    queues: int  # per cohort
    pending: int  # per queue
    admitted: int = 0  # in all, on top
    fair: bool = False
    cpu: str = "20"
    nodes: int = 0  # with these, pods are placed: blocks of 8 racks of 8 hosts

    def scaled(self, share: float) -> Size:
        """The same world with this share of its queues, Workloads and nodes; at least one of whatever it has."""

        def some(count: int) -> int:
            return max(1, round(count * share)) if count else 0

        return replace(
            self,
            queues=some(self.queues),
            pending=some(self.pending),
            admitted=some(self.admitted),
            nodes=some(self.nodes),
        )


def nodes_of(count: int) -> Iterator[kube.Node]:
    for number in range(count):
        labels = {
            "example.com/block": f"b{number // 64}",
            "example.com/rack": f"r{number // 8}",
            "kubernetes.io/hostname": f"n{number:05}",
        }
        yield kube.Node(
            metadata=meta.ObjectMeta(name=f"n{number:05}", labels=labels),
            status=kube.NodeStatus(
                allocatable={"cpu": "96", "pods": "110"},
                conditions=(kube.NodeCondition(type="Ready", status="True"),),
            ),
        )


def in_racks(one: kueue.Workload) -> kueue.Workload:
    """The same as ten pods that would like to be in one rack."""
    request = kueue.PodSetTopologyRequest(preferred="example.com/rack")
    pod_set = msgspec.structs.replace(one.spec.pod_sets[0], count=10, topology_request=request)
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, pod_sets=(pod_set,)))


Made: TypeAlias = tuple[World, Callable[[str], kueue.Workload]]


def build(size: Size) -> Made:
    """The world, and a maker of further Workloads for a queue."""
    policy = SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy)) if size.fair else SchedulingPolicy()
    world = World(policy)
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), NOW)
    levels = ("example.com/block", "example.com/rack", "kubernetes.io/hostname")
    topology = kueue.TopologySpec(levels=tuple(kueue.TopologyLevel(node_label=level) for level in levels))
    world.put(kueue.Topology(metadata=meta.ObjectMeta(name="racks"), spec=topology), NOW)
    flavor = kueue.ResourceFlavorSpec(topology_name="racks" if size.nodes else "")
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default"), spec=flavor), NOW)
    for node in nodes_of(size.nodes):
        world.put(node, NOW)
    rng = random.Random(1)
    pool = [row[1:] for row in CLASSES for _ in range(row[0])]
    number = 0

    def another(queue: str) -> kueue.Workload:
        nonlocal number
        number += 1
        made = workload(number, queue, *rng.choice(pool))
        return in_racks(made) if size.nodes else made

    names = [f"c{c}-q{q}" for c in range(size.cohorts) for q in range(size.queues)]
    for name in names:
        world.put(cluster_queue(name, name.partition("-")[0], size.cpu), NOW)
        world.put(local_queue(name, name), NOW)
    for n in range(size.admitted):
        number += 1
        queue = names[n % len(names)]
        world.put(with_reservation(workload(number, queue, "1", 10), queue, "1"), NOW)
    for _ in range(size.pending):
        for name in names:
            world.put(another(name), NOW)
    world.settle(NOW)
    return world, another


@dataclass
class Figures:
    name: str
    decisions: int
    decisions_per_second: float
    microseconds_per_decision: float
    decisions_per_admission: float
    cycles: int
    admitted: int
    preempted: int
    upkeep_microseconds_per_change: float
    build_seconds: float


def drive(name: str, make: Callable[[], Made], seconds: float) -> Figures:
    started = time.process_time()
    world, another = make()
    built = time.process_time() - started
    gc.collect()
    gc.freeze()
    running: deque[list[Admit]] = deque()
    decisions = cycles = admitted = preempted = changes = 0
    deciding = upkeep = 0.0
    while deciding < seconds:
        t0 = time.process_time()
        outcome = world.decide(NOW + cycles * meta.SECOND)
        t1 = time.process_time()
        deciding += t1 - t0
        cycles += 1
        decisions += len(outcome)
        admits = [d for d in outcome if isinstance(d, Admit)]
        admitted += len(admits)
        running.append(admits)
        gone: list[str] = []
        for decision in outcome:
            if isinstance(decision, Preempt):
                gone += [victim.key for victim in decision.targets if not victim.already_evicted]
        preempted += len(gone)
        if len(running) > 3:
            gone += [d.workload for d in running.popleft()]
        for key in gone:
            held = world.reservations.get(key)
            if held is not None:
                done = kueue.Workload(
                    metadata=meta.ObjectMeta(name=key.partition("/")[2], namespace=NAMESPACE),
                    spec=kueue.WorkloadSpec(queue_name=held.local_queue),
                )
                world.drop(done)
                world.put(another(held.local_queue), NOW)
                changes += 2
        upkeep += time.process_time() - t1
        if not (outcome or gone or any(running)):
            break
    gc.unfreeze()
    return Figures(
        name=name,
        decisions=decisions,
        decisions_per_second=decisions / max(deciding, 1e-9),
        microseconds_per_decision=deciding / max(decisions, 1) * 1e6,
        decisions_per_admission=decisions / max(admitted, 1),
        cycles=cycles,
        admitted=admitted,
        preempted=preempted,
        upkeep_microseconds_per_change=upkeep / max(changes, 1) * 1e6,
        build_seconds=built,
    )


WORLDS = {
    "5 cohorts x 6 queues x 500": Size(5, 6, 500),
    "the same, fair sharing": Size(5, 6, 500, fair=True),
    "1 cohort x 100 queues x 50": Size(1, 100, 50),
    "10 cohorts x 100 queues x 50": Size(10, 100, 50),
    "1 queue, 100000 pending": Size(1, 1, 100_000),
    "5 x 6 queues, 640 nodes in racks": Size(5, 6, 100, cpu="2000", nodes=640),
    "5 x 6 queues, 5000 nodes in racks": Size(5, 6, 100, cpu="16000", nodes=5000),
    "5 x 6 queues, 50000 admitted": Size(5, 6, 100, admitted=50_000, cpu="2000"),
}

SMALLEST = ("--seconds=0.05", "--share=0.02")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to decide in each world")
    parser.add_argument("--share", type=float, default=1.0, help="how much of each world's queues, Workloads and nodes")
    parser.add_argument("--only", default="", help="worlds whose name contains this")
    parser.add_argument("--profile", action="store_true", help="also print where the time goes")
    given = parser.parse_args(arguments)
    profile = cProfile.Profile()
    if given.profile:
        profile.enable()
    figures = [
        drive(name, partial(build, size.scaled(given.share)), given.seconds)
        for name, size in WORLDS.items()
        if given.only in name
    ]
    profile.disable()
    print(
        f"{'world':32} {'decisions/s':>12} {'us/decision':>12} {'per admission':>13} {'admitted':>9} {'preempted':>9} "
        f"{'us/change':>10}"
    )
    for f in figures:
        print(
            f"{f.name:32} {f.decisions_per_second:12,.0f} {f.microseconds_per_decision:12.1f} "
            f"{f.decisions_per_admission:13.1f} {f.admitted:9} {f.preempted:9} {f.upkeep_microseconds_per_change:10.1f}"
        )
    by_name = {f.name: f for f in figures}
    one, ten = by_name.get("1 cohort x 100 queues x 50"), by_name.get("10 cohorts x 100 queues x 50")
    if one and ten:
        ratio = ten.microseconds_per_decision / one.microseconds_per_decision
        print(f"cost per decision, 1,000 queues in 10 cohorts against 100 in 1: {ratio:.2f}")
    if given.json:
        given.json.write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n")
    if given.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)
    return 0


if __name__ == "__main__":
    sys.exit(main())
