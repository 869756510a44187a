"""What planned backfill costs and gains.

    python -m bench backfill [--json=FILE] [--attempts=N] [--rounds=N] [--jobs=N]

Three figures: a decision with eight planned starts in one cohort tree beside the same decision without any (processor
time, alternating in one run, the median of the ratios and their spread); the time to find one date; and a generated
trace of one ClusterQueue under StrictFIFO, BestEffortFIFO and StrictFIFO with EASY backfill: utilisation and waiting.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import random
import statistics
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import msgspec
from bench.decisions import NAMESPACE, NOW, local_queue, workload

from kubemachinery import meta
from pykueue.api import backfill, kube, kueue
from pykueue.core.decision import Admit
from pykueue.core.planned_starts import PlannedStart, PlannedStarts, usage_options
from pykueue.core.policy import SchedulingPolicy
from pykueue.state.world import World

SMALLEST = ("--attempts=40", "--rounds=4", "--jobs=60")
QUEUES = 8
POLICY = SchedulingPolicy(planned_backfill=True)


def cluster_queue(
    name: str, cpu: int, cohort: str = "", strategy: str = "StrictFIFO", mode: str = ""
) -> kueue.ClusterQueue:
    quota = kueue.ResourceQuota(name="cpu", nominal_quota=str(cpu))
    return kueue.ClusterQueue(
        metadata=meta.ObjectMeta(name=name, annotations={backfill.MODE: mode} if mode else {}),
        spec=kueue.ClusterQueueSpec(
            cohort_name=cohort,
            namespace_selector=meta.LabelSelector(),
            queueing_strategy=strategy,
            resource_groups=(
                kueue.ResourceGroup(
                    covered_resources=("cpu",), flavors=(kueue.FlavorQuotas(name="default", resources=(quota,)),)
                ),
            ),
        ),
    )


def limited(found: kueue.Workload, seconds: int) -> kueue.Workload:
    return msgspec.structs.replace(
        found, spec=msgspec.structs.replace(found.spec, maximum_execution_time_seconds=seconds)
    )


def finished(found: kueue.Workload) -> kueue.Workload:
    done = meta.Condition(type="Finished", status="True", reason="Succeeded")
    return msgspec.structs.replace(found, status=kueue.WorkloadStatus(conditions=(done,)))


def empty_world(queues: list[kueue.ClusterQueue]) -> World:
    world = World(POLICY)
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), NOW)
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")), NOW)
    for queue in queues:
        world.put(queue, NOW)
        world.put(local_queue(queue.metadata.name, queue.metadata.name), NOW)
    return world


@dataclass
class Loaded:
    """A tree of eight ClusterQueues full of attempts, in which small Workloads come and go beside large ones that
    wait."""

    mode: str
    attempts: int
    number: int = 0
    seconds: int = 0
    running: deque[kueue.Workload] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.world = empty_world(
            [
                cluster_queue(f"q{i}", self.attempts // QUEUES + 2, "all", "BestEffortFIFO", self.mode)
                for i in range(QUEUES)
            ]
        )
        if self.mode:
            for name in [f"q{i}" for i in range(QUEUES)]:
                queue = cluster_queue(name, self.attempts // QUEUES + 2, "all", "StrictFIFO", self.mode)
                self.world.put(queue, NOW)
        for index in range(self.attempts):
            self._submit(f"q{index % QUEUES}", "1", 50_000 + 37 * index)
        self._drain()
        for index in range(QUEUES):
            self._submit(f"q{index}", str(self.attempts // QUEUES), 3_600)
        self._drain()

    @property
    def now(self) -> int:
        return NOW + self.seconds * meta.SECOND

    def _submit(self, queue: str, cpu: str, limit: int) -> kueue.Workload:
        self.number += 1
        made = limited(workload(self.number, queue, cpu, 0), limit)
        self.world.put(made, self.now)
        return made

    def _drain(self) -> int:
        decided = 0
        while decisions := self.world.decide(self.now):
            decided += len(decisions)
            for decision in decisions:
                if isinstance(decision, Admit):
                    self.world.confirm(decision.workload)
        self.world.take_plan_changes()
        return decided

    def round(self) -> tuple[float, int]:
        """Small Workloads end, others arrive: seconds of processor time in `decide`, and how many decisions."""
        self.seconds += 5
        while len(self.running) >= QUEUES:
            self.world.put(finished(self.running.popleft()), self.now)
        for index in range(QUEUES):
            self.running.append(self._submit(f"q{index}", "1", 600))
        began = time.process_time()
        decided = self._drain()
        return time.process_time() - began, decided

    @property
    def planned(self) -> int:
        return sum(len(self.world.planned_starts(f"q{i}")) for i in range(QUEUES))


def decision_cost(attempts: int, rounds: int) -> dict[str, Any]:
    plain, planned = Loaded("", attempts), Loaded("EASY", attempts)
    plain.round(), planned.round()
    ratios, costs = [], []
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        (a, n), (b, m) = plain.round(), planned.round()
        ratios.append((b / max(m, 1)) / (a / max(n, 1)))
        costs.append((a / max(n, 1) * 1e6, b / max(m, 1) * 1e6))
    gc.enable()
    return {
        "attempts": attempts,
        "planned starts": planned.planned,
        "microseconds per decision without": statistics.median(a for a, _ in costs),
        "microseconds per decision with": statistics.median(b for _, b in costs),
        "ratio": statistics.median(ratios),
        "ratio p10": sorted(ratios)[len(ratios) // 10],
        "ratio p90": sorted(ratios)[len(ratios) * 9 // 10],
    }


def date_cost(attempts: int, rounds: int) -> dict[str, Any]:
    """Milliseconds to find one date among this many hard ends: half of them end before it."""
    made = Loaded("EASY", attempts)
    made.world.settle(made.now)
    snapshot = made.world.snapshot()
    owner, *others = [plan for name in snapshot.queues for plan in made.world.planned_starts(name)]
    plans = PlannedStarts(snapshot.queues[owner.queue].node.tree, POLICY)
    for queue in snapshot.queues.values():
        for reservation in queue.reservations.values():
            plans.use(reservation)

    def plan(each: PlannedStart) -> None:
        queue = snapshot.queues[each.queue]
        options, _ = usage_options(snapshot, POLICY, each.workload, queue)
        plans.plan(each.number, each.workload, queue, options, made.now)

    for other in others:
        plan(other)
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        plan(owner)
        taken.append((time.process_time() - began) * 1e3)
        plans.withdraw(owner.key)
    return {"attempts": attempts, "milliseconds per date": statistics.median(taken), "worst": max(taken)}


# --- A generated trace ------------------------------------------------------------------------------------------------

CAPACITY = 64
LARGE = 16


def generated(jobs: int, seed: int = 1) -> list[tuple[int, int, int, int]]:
    """(arrival, cpu, limit, run time) of each job: few large ones, run times over two orders of magnitude, and limits
    of 1.2 to 3 times the run time. Offered load: about 95 % of the capacity."""
    rng = random.Random(seed)
    found, at = [], 0.0
    for _ in range(jobs):
        cpu = rng.choices((1, 2, 4, 8, 16, 32, 48), (30, 20, 18, 14, 10, 6, 2))[0]
        runs = min(36_000, max(60, round(rng.lognormvariate(7.2, 1.1))))
        at += rng.expovariate(1) * cpu * runs / CAPACITY / 0.95
        found.append((round(at), cpu, round(runs * rng.uniform(1.2, 3.0)), runs))
    return found


def replay(trace: list[tuple[int, int, int, int]], strategy: str, mode: str) -> dict[str, float]:
    """Run the trace through the scheduler on a virtual clock."""
    world = empty_world([cluster_queue("q", CAPACITY, "", strategy, mode)])
    events: list[tuple[int, int, int]] = [(at, 1, number) for number, (at, _, _, _) in enumerate(trace)]
    heapq.heapify(events)
    made = {number: limited(workload(number, "q", str(row[1]), 0), row[2]) for number, row in enumerate(trace)}
    keys = {f"{NAMESPACE}/w{number}": number for number in made}
    created = {
        number: msgspec.structs.replace(
            found,
            metadata=msgspec.structs.replace(
                found.metadata, creation_timestamp=meta.format_time(NOW + trace[number][0] * meta.SECOND)
            ),
        )
        for number, found in made.items()
    }
    started: dict[int, int] = {}
    seconds = 0
    while events or len(started) < len(trace):
        wake = world.next_wake()
        due = -(-(wake - NOW) // meta.SECOND) if wake is not None else None
        if due is not None and (not events or due < events[0][0]):
            seconds = max(seconds, due)
        elif not events:
            break
        else:
            seconds = events[0][0]
        while events and events[0][0] <= seconds:
            _, is_arrival, number = heapq.heappop(events)
            world.put(created[number] if is_arrival else finished(created[number]), NOW + seconds * meta.SECOND)
        while decisions := world.decide(NOW + seconds * meta.SECOND):
            for decision in decisions:
                if isinstance(decision, Admit):
                    world.confirm(decision.workload)
                    number = keys[decision.workload]
                    started[number] = seconds
                    heapq.heappush(events, (seconds + trace[number][3], 0, number))
        world.take_plan_changes()
    waits = {number: at - trace[number][0] for number, at in started.items()}
    last_arrival = trace[-1][0]
    used = sum(
        row[1] * max(0, min(last_arrival, started[number] + row[3]) - min(started[number], last_arrival))
        for number, row in enumerate(trace)
        if number in started
    )
    large = [wait for number, wait in waits.items() if trace[number][1] >= LARGE]
    return {
        "utilisation": used / (CAPACITY * last_arrival),
        "hours until the end": max(started[n] + trace[n][3] for n in started) / 3600,
        "mean waiting minutes": statistics.mean(waits.values()) / 60,
        "mean waiting minutes of large jobs": statistics.mean(large) / 60 if large else 0.0,
        "longest waiting hours": max(waits.values()) / 3600,
        "started": len(started),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench backfill")
    parser.add_argument("--json", default="")
    parser.add_argument("--attempts", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1_500)
    options = parser.parse_args(arguments)
    cost = decision_cost(options.attempts, options.rounds)
    print(
        f"decision with {cost['planned starts']} planned starts and {cost['attempts']} attempts: "
        f"{cost['microseconds per decision with']:.0f} µs, without {cost['microseconds per decision without']:.0f} µs, "
        f"ratio {cost['ratio']:.2f} ({cost['ratio p10']:.2f} to {cost['ratio p90']:.2f})"
    )
    dates = [date_cost(size, max(3, options.rounds // 4)) for size in (options.attempts, 5 * options.attempts)]
    for row in dates:
        print(
            f"one date among {row['attempts']} hard ends: {row['milliseconds per date']:.2f} ms, "
            f"worst {row['worst']:.2f} ms"
        )
    trace = generated(options.jobs)
    runs = {
        "StrictFIFO": replay(trace, "StrictFIFO", ""),
        "BestEffortFIFO": replay(trace, "BestEffortFIFO", ""),
        "StrictFIFO, EASY": replay(trace, "StrictFIFO", "EASY"),
        "StrictFIFO, Conservative": replay(trace, "StrictFIFO", "Conservative"),
    }
    print(f"{len(trace)} jobs on {CAPACITY} cpu: utilisation, mean waiting, of large jobs, longest waiting")
    for name, row in runs.items():
        print(
            f"  {name:25} {row['utilisation']:6.1%} {row['mean waiting minutes']:8.1f} min "
            f"{row['mean waiting minutes of large jobs']:8.1f} min {row['longest waiting hours']:6.1f} h"
        )
    if options.json:
        Path(options.json).write_text(json.dumps({"decision": cost, "dates": dates, "trace": runs}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
