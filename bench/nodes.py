"""Cycles while nodes change: how long one takes, by the number of nodes.

    python -m bench nodes [--sizes=1000,10000] [--cycles=2000] [--rate=100] [--json=FILE]

Nodes are in racks of 8 and blocks of 64, and thirty ClusterQueues place Workloads of ten pods on them. Between two
cycles one node changes: it becomes unready or ready again, gets more or less capacity, moves to another rack, is
deleted or comes back; Workloads end, and others take their place. With `--rate` changes a second, a cycle follows each
change. A cycle is the change, the ends and new Workloads that are put before it, and the decisions, in CPU time of
this process. The last column is the ratio of the largest size to the smallest.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from bench.decisions import NAMESPACE, NOW, Size, build, nodes_of

from kubemachinery import meta
from pykueue.api import kube, kueue
from pykueue.core.decision import Admit, Preempt
from pykueue.state.world import World

SMALLEST = ("--sizes=64,128", "--cycles=40")
QUEUES, PENDING, RUNNING_CYCLES = 6, 100, 30
CPUS_PER_NODE, SHARE_OF_QUOTA = 96, 0.9
TARGETS = {"cycle P99 ms": ("at most", 50.0)}

Figures = dict[str, float]


@dataclass
class Churn:
    """The nodes of a world, of which one changes at a time."""

    world: World
    nodes: dict[str, kube.Node]
    rng: random.Random = field(default_factory=lambda: random.Random(3))
    gone: deque[kube.Node] = field(default_factory=deque)
    _names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._names = list(self.nodes)

    def change(self) -> None:
        kind = self.rng.randrange(4)
        if kind == 3 and len(self.gone) > 20:
            self._put(self.gone.popleft())
            return
        node = self.nodes[self.rng.choice(self._names)]
        if kind == 3:
            del self.nodes[node.metadata.name]
            self._names = list(self.nodes)
            self.gone.append(node)
            self.world.drop(node)
        else:
            self._put((self._ready, self._resized, self._moved)[kind](node))

    def _put(self, node: kube.Node) -> None:
        if node.metadata.name not in self.nodes:
            self._names.append(node.metadata.name)
        self.nodes[node.metadata.name] = node
        self.world.put(node, NOW)

    def _ready(self, node: kube.Node) -> kube.Node:
        other = "False" if node.status.conditions[0].status == "True" else "True"
        conditions = (kube.NodeCondition(type="Ready", status=other),)
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))

    def _resized(self, node: kube.Node) -> kube.Node:
        allocatable = {"cpu": str(self.rng.choice((64, 96, 128))), "pods": "110"}
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=allocatable))

    def _moved(self, node: kube.Node) -> kube.Node:
        other = self.nodes[self.rng.choice(self._names)].metadata.labels
        labels = {**other, "kubernetes.io/hostname": node.metadata.name}
        return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))


def measure(nodes: int, cycles: int, rate: int) -> Figures:
    quota = str(int(nodes * CPUS_PER_NODE * SHARE_OF_QUOTA) // (5 * QUEUES))
    world, another = build(Size(5, QUEUES, PENDING, cpu=quota, nodes=nodes))
    churn = Churn(world, {node.metadata.name: node for node in nodes_of(nodes)})
    while world.decide(NOW):
        pass
    gc.collect()
    gc.freeze()
    times: list[float] = []
    admitted = 0
    ending: deque[list[str]] = deque()
    for number in range(cycles):
        now = NOW + number * meta.SECOND // rate
        started = time.process_time()
        churn.change()
        for key in ending.popleft() if len(ending) > RUNNING_CYCLES else ():
            if (held := world.reservations.get(key)) is not None:
                world.drop(_ended(key, held.local_queue))
                world.put(another(held.local_queue), now)
        decisions = world.decide(now)
        times.append(time.process_time() - started)
        admits = [each.workload for each in decisions if isinstance(each, Admit)]
        victims = [target.key for each in decisions if isinstance(each, Preempt) for target in each.targets]
        admitted += len(admits)
        ending.append(admits + victims or _some(world, churn.rng))
    gc.unfreeze()
    times.sort()
    return {
        "nodes": float(nodes),
        "admitted": float(admitted),
        "cycle P50 ms": times[len(times) // 2] * 1e3,
        "cycle P99 ms": times[min(len(times) - 1, len(times) * 99 // 100)] * 1e3,
        "cycle longest ms": times[-1] * 1e3,
    }


def _some(world: World, rng: random.Random) -> list[str]:
    held = list(world.reservations)
    return [rng.choice(held)] if held else []


def _ended(key: str, local_queue: str) -> kueue.Workload:
    return kueue.Workload(
        metadata=meta.ObjectMeta(name=key.partition("/")[2], namespace=NAMESPACE),
        spec=kueue.WorkloadSpec(queue_name=local_queue),
    )


def table(runs: list[Figures]) -> str:
    lines = [f"{'figure':20}{'must':>16}" + f"{'':>14}" * len(runs) + f"{'ratio':>9}"]
    for name in runs[0]:
        must = " ".join(map(str, TARGETS.get(name, ())))
        ratio = f"{runs[-1][name] / runs[0][name]:9.2f}" if runs[0][name] else ""
        lines.append(f"{name:20}{must:>16}" + "".join(f"{run[name]:14,.2f}" for run in runs) + ratio)
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000", help="numbers of nodes")
    parser.add_argument("--cycles", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=100, help="changes of nodes a second")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    given = parser.parse_args(arguments)
    runs = [measure(int(size), given.cycles, given.rate) for size in given.sizes.split(",")]
    print(table(runs))
    if given.json:
        given.json.write_text(json.dumps(runs, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
