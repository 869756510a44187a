"""How much memory a Workload takes in the memory of the manager: pending ones, and such as hold quota.

    python -m bench memory [--json=FILE] [--workloads=N]

Counted is what the world keeps once the object it was read from is let go, as it is between two watch events.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from pathlib import Path

from bench import decisions
from bench.decisions import NAMESPACE, NOW

from kubemachinery import meta
from pykueue.api import kube, kueue
from pykueue.state.world import World

CLASSES = decisions.CLASSES


def empty_world() -> World:
    world = World()
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), NOW)
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")), NOW)
    world.put(decisions.cluster_queue("q", "c"), NOW)
    world.put(decisions.local_queue("q", "q"), NOW)
    world.settle(NOW)
    return world


def measure(count: int, *, holding: bool, alike: bool) -> float:
    """Bytes per Workload, over `count` of them."""
    world = empty_world()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        cpu = "1" if alike else f"{number + 1}m"
        thing = decisions.workload(number, "q", cpu, 0)
        world.put(decisions.with_reservation(thing, "q", cpu) if holding else thing, NOW)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / count


SMALLEST = ("--workloads=200",)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--workloads", type=int, default=20_000)
    given = parser.parse_args(arguments)
    figures = {
        "pending, all of one shape": measure(given.workloads, holding=False, alike=True),
        "pending, each a shape of its own": measure(given.workloads, holding=False, alike=False),
        "holding quota": measure(given.workloads, holding=True, alike=True),
    }
    print(f"{'Workloads':36} {'bytes each':>12}")
    for name, size in figures.items():
        print(f"{name:36} {size:12,.0f}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
