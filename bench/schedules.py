"""The cost of QuotaSchedules: expanding a year of windows, an edge in a large state until the first decision, and one
admission check with windows to come.

    python -m bench schedules [--json=FILE] [--days=N] [--queues=N] [--reservations=N] [--drops=N]

The windows are in a zone with clock changes. The edge concerns every ClusterQueue: all trees are rebuilt, the usage of
all reservations is counted again, and one pending Workload of each cohort can start. The admission check is that of
`approach: EndBefore`. Times are processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.decisions import NAMESPACE, NOW, cluster_queue, local_queue, with_reservation, workload

from kubemachinery import meta
from pykueue import calendars
from pykueue.api import kube, kueue
from pykueue.api.quota_schedule import QuotaWindow
from pykueue.core.cohort import CohortTree, plan_trees
from pykueue.core.decision import Admit
from pykueue.core.queue import FlavorResource, QueueSpec, Quota
from pykueue.core.timeline import Candidate, QuotaChange, TimedUsage, Timeline
from pykueue.state.quota_windows import ScheduledWindows, WindowQuota, WindowSpan
from pykueue.state.world import World

COHORTS = 10
WINDOWS = 64
YEAR = 365 * 24 * meta.HOUR
EDGE = NOW + 30 * 24 * meta.HOUR


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def expansion(days: int) -> dict[str, float]:
    """The windows of one schedule with as many windows as it may have, each on every day."""
    windows = [QuotaWindow(f"w{n}", cron=f"{n % 60} {n % 24} * * *", duration="1h") for n in range(WINDOWS)]
    end = NOW + days * YEAR // 365

    def expand() -> int:
        return sum(len(list(calendars.spans(window, "Europe/Berlin", NOW, end))) for window in windows)

    took, spans = seconds(expand)
    return {"windows": WINDOWS, "days": days, "spans": spans, "seconds": took}


def edge(queues: int, reservations: int) -> dict[str, float]:
    """The start of a window that raises the quota of every ClusterQueue."""
    world = World()
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), NOW)
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")), NOW)
    per_queue = max(1, reservations // queues)
    for n in range(queues):
        world.put(cluster_queue(f"q{n}", f"c{n % COHORTS}", cpu=str(per_queue), borrowing="0"), NOW)
        world.put(local_queue(f"q{n}", f"q{n}"), NOW)
    for n in range(reservations):
        queue = f"q{n % queues}"
        world.put(with_reservation(workload(n, queue, "1", 0), queue, "1"), NOW)
    for n in range(COHORTS):
        world.put(workload(reservations + n, f"q{n % queues}", "1", 0), NOW)
    quotas = tuple(WindowQuota(f"q{n}", "default", "cpu", change=1000) for n in range(queues))
    world.set_windows([ScheduledWindows("nights", quotas, (WindowSpan("w", EDGE, EDGE + meta.HOUR),))], NOW)
    while world.decide(NOW):
        pass
    took, decisions = seconds(lambda: world.decide(EDGE))
    return {
        "queues": queues,
        "cohorts": COHORTS,
        "reservations": len(world.reservations),
        "started": sum(isinstance(each, Admit) for each in decisions),
        "seconds": took,
    }


def admission_check(drops: int, reservations: int) -> dict[str, float]:
    """One question before an admission: would the Workload still hold quota at one of many windows to come?"""
    flavor = FlavorResource("default", "cpu")
    spec = QueueSpec(name="q", cohort="c", quotas={flavor: Quota(reservations * 2000)})
    plan = plan_trees([spec], {}).trees[0]
    changes = [QuotaChange(NOW + n * meta.HOUR, lambda: plan, {0: "a window begins"}) for n in range(1, drops + 1)]
    uses = {f"w{n}": TimedUsage("q", ((0, 1000),), NOW + n * meta.MINUTE) for n in range(reservations)}
    timeline = Timeline(CohortTree.build(plan, (flavor,)), uses, changes)
    candidate = Candidate("candidate", TimedUsage("q", ((0, 1000),)))
    assert timeline.allows(candidate, NOW) is None  # builds the projections
    rounds = 200
    took, _ = seconds(lambda: [timeline.allows(candidate, NOW) for _ in range(rounds)])
    return {"drops": drops, "reservations": reservations, "seconds": took / rounds}


SMALLEST = ("--days=14", "--queues=20", "--reservations=100")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--drops", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--reservations", type=int, default=10_000)
    chosen = parser.parse_args(arguments)
    found = {
        "expansion": expansion(chosen.days),
        "edge": edge(chosen.queues, chosen.reservations),
        "admission_check": admission_check(chosen.drops, chosen.reservations),
    }
    expanded, at_edge, check = found["expansion"], found["edge"], found["admission_check"]
    print(f"{expanded['spans']} windows of {expanded['days']} days expanded in {expanded['seconds']:.2f} s")
    print(
        f"edge over {at_edge['queues']} ClusterQueues in {COHORTS} cohorts with {at_edge['reservations']} reservations:"
        f" {at_edge['seconds'] * 1000:.0f} ms until the decisions, {at_edge['started']} Workloads started"
    )
    print(
        f"admission check with {check['drops']} windows ahead and {check['reservations']} reservations:"
        f" {check['seconds'] * 1e6:.0f} µs"
    )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
