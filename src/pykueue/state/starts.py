"""How many Workloads started that are behind a pending one in the order of its ClusterQueue [LG8].

A Workload passes a pending one if its priority is lower and it starts after the other was queued, or if its priority is
the same and it was queued later. Those queued in the same second do not count: one of them may have started before the
other was created. A reservation that is withdrawn and decided again counts once.

So two sorted lists per ClusterQueue and priority are enough, of the times of starts and of the positions in the queue:
no pairs are kept, and a pending Workload is only read when it is asked about.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.core.workload import WorkloadInfo

# The starts that are kept per ClusterQueue and priority; of more, the older half is dropped, and a count is a bound.
_KEPT_MAX: Final = 8192


class _Starts(msgspec.Struct):
    started: list[Nanoseconds] = msgspec.field(default_factory=list)
    positions: list[tuple[Nanoseconds, str]] = msgspec.field(default_factory=list)  # time in the queue and UID


class StartCounts:
    """The starts of every ClusterQueue."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[int, _Starts]] = {}  # by ClusterQueue and priority

    def started(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """Record that quota was reserved for a pending Workload."""
        starts = self._queues.setdefault(workload.cluster_queue, {}).setdefault(workload.priority, _Starts())
        position = (workload.queue_time, workload.uid)
        place = bisect_left(starts.positions, position)
        if starts.positions[place : place + 1] == [position]:
            return
        starts.positions.insert(place, position)
        insort(starts.started, now)  # at the end, unless the clock was set back
        if len(starts.started) > _KEPT_MAX:
            del starts.started[: _KEPT_MAX // 2]
            del starts.positions[: _KEPT_MAX // 2]

    def passed(self, workload: WorkloadInfo) -> int:
        """Return how many Workloads have passed a pending one."""
        found = 0
        queued_later = (workload.queue_time + 1, "")
        for priority, starts in self._queues.get(workload.cluster_queue, {}).items():
            if priority == workload.priority:
                found += len(starts.positions) - bisect_left(starts.positions, queued_later)
            elif priority < workload.priority:
                found += len(starts.started) - bisect_right(starts.started, workload.queue_time)
        return found

    def forget(self, cluster_queue: str) -> None:
        """Drop the starts of a deleted ClusterQueue."""
        self._queues.pop(cluster_queue, None)
