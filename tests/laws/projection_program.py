"""Prints one run ahead of a fixed cluster; `test_projection` runs it under several hash seeds."""

from __future__ import annotations

from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue import projection
from pykueue.api import kueue
from pykueue.projection import ConstantDraws, SchedulerCase, uniform


def seconds(workload: kueue.Workload) -> int:
    return 1 + int(uniform(7, workload.metadata.uid, 0) * 1000)


QUEUES = tuple(
    QueueCase(f"q{n}", "all", (QuotaCase(4, None, None), QuotaCase(3, 2, 1)), "LowerPriority", "Any", n == 0)
    for n in range(4)
)
WORKLOADS = tuple(WorkloadCase(n, f"q{n % 4}", 1 + n % 5, n % 3, n % 7) for n in range(60))


def main() -> None:
    cluster = ClusterCase((), QUEUES, WORKLOADS, fair=False)
    case = SchedulerCase(tuple(cluster.things()), policy=cluster.policy)
    found = projection.run(case, NOW, ConstantDraws(seconds, stop=5), effort=20_000)
    for attempt in found.attempts:
        print(attempt)
    print(sorted(found.pending), found.decisions, found.loops)


if __name__ == "__main__":
    main()
