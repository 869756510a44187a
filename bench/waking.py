"""The cost of the scheduler in a drain with slow writes and jobs: evaluations per admission.

    python -m bench waking [--json=FILE] [--share=S] [--latency=MS] [--detection=PAIRS]

The baseline load of this field (5 cohorts x 6 queues x 500 Workloads, or a share of it) on a virtual clock: a decision
is written after a while, a victim stops after another, and the watch brings all of it back; after every event the
world is asked to decide, as a manager asks it. Most events change nothing for most who wait, so most of them should not
be judged again. Times are processor time of `decide`.

With `--detection` the first drain runs in so many pairs, with loop detection on and off in turns, and only the ratio of
the times is printed: that of the fastest runs, and the median and the spread of the pairs.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from bench.decisions import NAMESPACE, NOW, cluster_queue, local_queue, workload

from kubemachinery import meta
from pykueue.api import kube, kueue
from pykueue.core.decision import Admit, Decision, Preempt
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.state import admission
from pykueue.state.world import World

MILLISECOND = meta.SECOND // 1000
# As in the public baseline: how many in each queue, milliseconds from one to the next and to its end, priority, cpu.
CLASSES = ((350, 100, 200, 50, "1"), (100, 500, 500, 100, "5"), (50, 1200, 1000, 200, "20"))


@dataclass
class Figures:
    name: str
    workloads: int
    virtual_seconds: float
    asked: int = 0
    judged: int = 0
    admitted: int = 0
    preempted: int = 0
    deciding_seconds: float = 0.0
    longest_milliseconds: float = 0.0


class Drain:
    """One load on one world, event by event."""

    def __init__(self, name: str, policy: SchedulingPolicy, share: float, latency: int) -> None:
        self.world = World(policy)
        self.latency = latency
        self.now = 0  # milliseconds
        self._rng = random.Random(7)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial, self._revision = itertools.count(), itertools.count(1)
        self._things: dict[str, kueue.Workload] = {}
        self._runs: dict[str, int] = {}
        self._starts: dict[str, int] = {}  # which start of a Workload is running
        self.world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), NOW)
        self.world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")), NOW)
        for queue in (f"c{c}-q{q}" for c in range(5) for q in range(6)):
            self.world.put(cluster_queue(queue, queue.partition("-")[0]), NOW)
            self.world.put(local_queue(queue, queue), NOW)
            for count, interval, runs, priority, cpu in CLASSES:
                for n in range(int(count * share)):
                    self._submit(workload(len(self._runs), queue, cpu, priority), n * interval, runs)
        self.figures = Figures(name, len(self._runs), 0.0)

    def run(self) -> Figures:
        while self._events:
            self.now, _, happens = heapq.heappop(self._events)
            happens()
            while self._decide():
                pass
        self.figures.virtual_seconds = self.now / 1000
        return self.figures

    def _at(self, when: int, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when + self._rng.randrange(self.latency), next(self._serial), happens))

    def _submit(self, thing: kueue.Workload, when: int, runs: int) -> None:
        key = f"{NAMESPACE}/{thing.metadata.name}"
        created = meta.format_time(NOW + when * MILLISECOND)
        self._runs[key] = runs
        metadata = msgspec.structs.replace(thing.metadata, creation_timestamp=created)
        self._at(when, lambda: self._put(key, msgspec.structs.replace(thing, metadata=metadata)))

    def _put(self, key: str, thing: kueue.Workload) -> None:
        metadata = msgspec.structs.replace(thing.metadata, resource_version=str(next(self._revision)))
        self._things[key] = msgspec.structs.replace(thing, metadata=metadata)
        self.world.put(self._things[key], NOW + self.now * MILLISECOND)

    def _set_status(self, key: str, given: kueue.Admission | None, *types: str) -> None:
        """Set the conditions and the admission of a Workload."""
        since = meta.format_time(NOW + self.now * MILLISECOND)
        conditions = tuple(
            meta.Condition(type=one, status="True", reason=one, last_transition_time=since) for one in types
        )
        status = kueue.WorkloadStatus(admission=given, conditions=conditions)
        self._put(key, msgspec.structs.replace(self._things[key], status=status))

    def _decide(self) -> bool:
        figures = self.figures
        started = time.process_time()
        decisions = self.world.decide(NOW + self.now * MILLISECOND)
        took = time.process_time() - started
        figures.asked += 1
        figures.judged += len(decisions)
        figures.deciding_seconds += took
        figures.longest_milliseconds = max(figures.longest_milliseconds, took * 1000)
        for decision in decisions:
            self._carry_out(decision)
        return bool(decisions)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Admit):
            self.figures.admitted += 1
            given = admission.typed(decision.cluster_queue, decision.pod_sets)
            self._at(self.now + self.latency, lambda: self._start(decision.workload, given))
        elif isinstance(decision, Preempt):
            for victim in decision.targets:
                if not victim.already_evicted:
                    self.figures.preempted += 1
                    self._at(self.now + self.latency, lambda key=victim.key: self._evict(key))  # type: ignore[misc]

    def _start(self, key: str, given: kueue.Admission) -> None:
        self._set_status(key, given, "QuotaReserved", "Admitted")
        start = self._starts[key] = next(self._serial)
        self._at(self.now + self._runs[key], lambda: self._finish(key, start))

    def _finish(self, key: str, start: int) -> None:
        if self._starts.get(key) == start:
            del self._starts[key]
            self._set_status(key, self._things[key].status.admission, "QuotaReserved", "Admitted", "Finished")

    def _evict(self, key: str) -> None:
        if self._starts.pop(key, None) is not None:
            self._set_status(key, self._things[key].status.admission, "QuotaReserved", "Admitted", "Evicted")
            self._at(self.now + 2 * self.latency, lambda: self._set_status(key, None, "Requeued"))


def compare_detection(pairs: int, share: float, latency: int) -> int:
    """Print what loop detection costs: the time of `decide` with it, over the time without it."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs):
        for on in (True, False) if pair % 2 else (False, True):
            gc.collect()
            figures = Drain("by priority", SchedulingPolicy(loop_detection=on), share, latency).run()
            took[on].append(figures.deciding_seconds)
    ratios = sorted(on / off for on, off in zip(took[True], took[False], strict=True))
    best = min(took[True]) / min(took[False])
    spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}, {pairs} pairs"
    print(f"loop detection: {best:.3f} times the time without it, by the fastest runs;")
    print(f"by pairs: median {statistics.median(ratios):.3f} ({spread})")
    return 0


SMALLEST = ("--share=0.01",)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--share", type=float, default=0.04, help="how much of the load")
    parser.add_argument("--latency", type=int, default=20, help="milliseconds from a decision to its write")
    parser.add_argument("--detection", type=int, default=0, help="compare with loop detection off, in so many pairs")
    given = parser.parse_args(arguments)
    if given.detection:
        return compare_detection(given.detection, given.share, given.latency)
    policies = {
        "by priority": SchedulingPolicy(),
        "fair, as Kueue": SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy), preemption_progress=False),
        "fair sharing": SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy)),
    }
    figures = [Drain(name, policy, given.share, given.latency).run() for name, policy in policies.items()]
    columns = ("workloads", "admitted", "preempted", "judged each", "ms each", "longest ms")
    print(f"{'drain':14}" + "".join(f"{column:>12}" for column in columns))
    for f in figures:
        each = (f.judged / max(f.admitted, 1), f.deciding_seconds / max(f.admitted, 1) * 1000, f.longest_milliseconds)
        print(f"{f.name:14}{f.workloads:12}{f.admitted:12}{f.preempted:12}" + "".join(f"{one:12.2f}" for one in each))
    if given.json:
        given.json.write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
