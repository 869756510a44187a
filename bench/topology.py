"""What it costs to find places for pods: per decision, per what-if, and to grow the tree.

    python -m bench topology [--json=FILE] [--rounds=N]

Two clusters, 640 and 5,000 nodes, in blocks, racks and hosts, two thirds in use. Every request is placed and booked as
a cycle would (`decide`), and asked again where nothing changed (`again`). The what-if is a victim taken away, the
question asked, and the victim put back. Times are medians in microseconds; the last column is the ratio of the large
cluster to the small one. Never a test: a slow machine is not a broken one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path

from pykueue.core.topology import (
    HOSTNAME,
    DomainPods,
    PlacedPods,
    PlacementRequest,
    SliceLayer,
    TopologyCache,
    TopologyFlavor,
    TopologyNode,
    TopologyPlacement,
    TopologyRequest,
    TopologyRequestMode,
    place,
)

BLOCK, RACK = "example.com/block", "example.com/rack"
FLAVOR = TopologyFlavor("gpus", "racks", (BLOCK, RACK, HOSTNAME), (("pool", "gpus"),))
GIB = 2**30
POD = (("cpu", 4_000), ("memory", 16 * GIB), ("nvidia.com/gpu", 1))
HOSTS_PER_RACK, RACKS_PER_BLOCK = 16, 8

REQUESTS = {
    "required rack, 32 pods": (32, TopologyRequest(TopologyRequestMode.REQUIRED, RACK)),
    "preferred rack, 32 pods": (32, TopologyRequest(TopologyRequestMode.PREFERRED, RACK)),
    "preferred rack, 200 pods (several blocks)": (200, TopologyRequest(TopologyRequestMode.PREFERRED, RACK)),
    "unconstrained, 8 pods": (8, TopologyRequest()),
    "unconstrained, 100 pods": (100, TopologyRequest()),
    "required block, slices of 8 per rack, 64 pods": (
        64,
        TopologyRequest(TopologyRequestMode.REQUIRED, BLOCK, (SliceLayer(RACK, 8),)),
    ),
    "required rack, 1,000 pods (does not fit)": (1_000, TopologyRequest(TopologyRequestMode.REQUIRED, RACK)),
}


def cluster(size: int) -> TopologyCache:
    """Nodes of 8 GPUs, of which every third is empty, every third half full and every third full but for one."""
    topology_cache = TopologyCache()
    for number in range(size):
        rack = number // HOSTS_PER_RACK
        labels = {
            "pool": "gpus",
            BLOCK: f"b{rack // RACKS_PER_BLOCK:03}",
            RACK: f"r{rack:04}",
            HOSTNAME: f"n{number:05}",
        }
        allocatable = {"cpu": 64_000, "memory": 512 * GIB, "nvidia.com/gpu": 8, "pods": 110}
        topology_cache.put_node(TopologyNode(f"n{number:05}", labels, allocatable))
    topology_cache.put_flavor(FLAVOR)
    topology_cache.book(usage(f"n{number:05}", (0, 4, 7)[number % 3]) for number in range(size) if number % 3)
    return topology_cache


def usage(host: str, count: int) -> PlacedPods:
    return PlacedPods(FLAVOR.name, POD, TopologyPlacement((HOSTNAME,), (DomainPods((host,), count),)))


def median_microseconds(work: Callable[[], object], rounds: int, after: Callable[[], object] = lambda: None) -> float:
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        after()
    return statistics.median(times) * 1e6


def measure(size: int, rounds: int) -> dict[str, float]:
    topology_cache = cluster(size)
    figures = {"grow the tree": median_microseconds(lambda: _grow(topology_cache), min(rounds, 20))}
    victims = [(usage(f"n{number:05}", 4),) for number in range(1, size, 3)]
    for name, (count, level) in REQUESTS.items():
        request = PlacementRequest("main", FLAVOR.name, count, POD, level)
        figures[f"{name}: first"] = _first(topology_cache, request)
        figures[f"{name}: decide"] = _decide(topology_cache, request, rounds)
        figures[f"{name}: again"] = median_microseconds(partial(place, topology_cache, [request]), rounds)
    tight = PlacementRequest("main", FLAVOR.name, 120, POD, TopologyRequest(TopologyRequestMode.REQUIRED, RACK))
    figures["victim gone, asked, undone"] = _what_if(topology_cache, victims, tight, rounds)
    figures["mark, 1 assume, undo"] = _undo(topology_cache, victims[0])
    return figures


def _grow(topology_cache: TopologyCache) -> None:
    topology_cache.drop_flavor(FLAVOR.name)
    topology_cache.put_flavor(FLAVOR)
    topology_cache.domains(FLAVOR.name)


def _first(topology_cache: TopologyCache, request: PlacementRequest) -> float:
    """The first request of its sort: every leaf is looked at."""

    def forget() -> None:
        domains = topology_cache.domains(FLAVOR.name)
        assert domains is not None
        domains.counts_cache().kept.clear()

    forget()
    return median_microseconds(lambda: place(topology_cache, [request]), 15, forget)


def _decide(topology_cache: TopologyCache, request: PlacementRequest, rounds: int) -> float:
    """Place and reserve capacity, as a cycle does; it is released between rounds."""
    marks: list[int] = []

    def decide() -> None:
        marks.append(topology_cache.mark())
        outcome = place(topology_cache, [request])
        topology_cache.assume(PlacedPods(FLAVOR.name, POD, placement) for placement in outcome.placements.values())

    return median_microseconds(decide, rounds, lambda: topology_cache.undo(marks.pop()))


def _what_if(
    topology_cache: TopologyCache, victims: Sequence[Sequence[PlacedPods]], request: PlacementRequest, rounds: int
) -> float:
    turn = cycle(victims)

    def ask() -> None:
        mark = topology_cache.mark()
        topology_cache.remove(next(turn))
        place(topology_cache, [request], explain=False)
        topology_cache.undo(mark)

    return median_microseconds(ask, rounds)


def _undo(topology_cache: TopologyCache, victim: Sequence[PlacedPods]) -> float:
    def try_out() -> None:
        mark = topology_cache.mark()
        topology_cache.assume(victim)
        topology_cache.undo(mark)

    return median_microseconds(try_out, 200)


SMALLEST = ("--rounds=3",)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench topology", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=200)
    options, _ = parser.parse_known_args(arguments)
    small, large = (measure(size, options.rounds) for size in (640, 5_000))
    print(f"{'microseconds, median':60} {'640 nodes':>10} {'5,000 nodes':>12} {'ratio':>7}")
    for name, figure in small.items():
        print(f"{name:60} {figure:10.1f} {large[name]:12.1f} {large[name] / figure:7.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"640": small, "5000": large}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
