"""Who waits through which LocalQueue, and in whose line.

A Workload that waits belongs to its LocalQueue, whether or not that exists, leads anywhere or is stopped. It stands in
the line of a ClusterQueue as long as its LocalQueue leads there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kubemachinery.meta import Nanoseconds
from pykueue.core.workload import WorkloadInfo
from pykueue.state.pending_queue import PendingQueue
from pykueue.state.scheduling_scope import SchedulingScopes


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """Where a LocalQueue leads."""

    cluster_queue: str
    is_stopped: bool


class PendingIndex:
    """Everybody who waits."""

    def __init__(self, scopes: SchedulingScopes) -> None:
        self.queues: dict[str, PendingQueue] = {}  # by ClusterQueue
        self._scopes = scopes
        self._local_queues: dict[str, QueueTarget] = {}
        self._waiting: dict[str, dict[str, WorkloadInfo]] = {}  # LocalQueue -> pending Workloads, in a line or not
        self._local_queue_of: dict[str, str] = {}

    # Queues.

    def open(self, cluster_queue: str, now: Nanoseconds) -> None:
        """A ClusterQueue is there: whoever waits for it gets in line."""
        if cluster_queue not in self.queues:
            self.queues[cluster_queue] = PendingQueue(cluster_queue)
            for local_queue in self._leading_to(cluster_queue):
                self._enqueue_all(local_queue, now)

    def close(self, cluster_queue: str) -> None:
        self.queues.pop(cluster_queue, None)

    def put_local_queue(self, key: str, leads: QueueTarget, now: Nanoseconds) -> bool:
        """Take in a LocalQueue; whether that changed where it leads."""
        before = self._local_queues.get(key)
        self._local_queues[key] = leads
        if before == leads:
            return False
        if before is not None:
            self._withdraw_all(key, before)
        for workload in self._waiting.get(key, {}).values():
            workload.cluster_queue, workload.scan_position = leads.cluster_queue, None
        self._enqueue_all(key, now)
        return True

    def drop_local_queue(self, key: str) -> None:
        before = self._local_queues.pop(key, None)
        if before is not None:
            self._withdraw_all(key, before)

    def target(self, local_queue: str) -> str:
        """The ClusterQueue that a LocalQueue leads to, stopped or not; empty where there is none."""
        leads = self._local_queues.get(local_queue)
        return leads.cluster_queue if leads is not None else ""

    def _leading_to(self, cluster_queue: str) -> Iterator[str]:
        return (key for key, leads in self._local_queues.items() if leads.cluster_queue == cluster_queue)

    def _line_of(self, local_queue: str) -> PendingQueue | None:
        """[QU2] The line that the LocalQueue leads to, unless it is stopped or leads nowhere."""
        leads = self._local_queues.get(local_queue)
        return None if leads is None or leads.is_stopped else self.queues.get(leads.cluster_queue)

    def _enqueue_all(self, local_queue: str, now: Nanoseconds) -> None:
        line = self._line_of(local_queue)
        if line is not None:
            for workload in self._waiting.get(local_queue, {}).values():
                workload.cluster_queue = line.name
                line.put(workload, now)
            self._scopes.mark_ready(line.name)

    def _withdraw_all(self, local_queue: str, led: QueueTarget) -> None:
        line = self.queues.get(led.cluster_queue)
        if line is not None:
            for key in self._waiting.get(local_queue, {}):
                line.drop(key)
            self._scopes.mark_ready(line.name)

    # Workloads.

    def put(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """A Workload waits. One of which nothing has changed that could let it in keeps its place."""
        key, local_queue = workload.key, f"{workload.namespace}/{workload.local_queue}"
        if self._local_queue_of.get(key, local_queue) != local_queue:
            self.forget(key)
        waiting = self._waiting.setdefault(local_queue, {})
        before = waiting.get(key)
        if before is not None:
            if not _may_matter(before, workload) and self._is_in_line(before):
                before.generation = workload.generation
                return
            workload.scan_position = before.scan_position
            workload.evaluated_generation = before.evaluated_generation
        waiting[key] = workload
        self._local_queue_of[key] = local_queue
        line = self._line_of(local_queue)
        if line is not None:
            line.put(workload, now)
            self._scopes.mark_ready(line.name)

    def count(self, key: str) -> None:
        """Something was written about a Workload that waits already."""
        line = self._line_of(self._local_queue_of[key])
        if line is not None:
            line.count(key)

    def forget(self, key: str) -> None:
        """The Workload does not wait any more, or was never here."""
        local_queue = self._local_queue_of.pop(key, None)
        if local_queue is None:
            return
        self._waiting[local_queue].pop(key, None)
        line = self._line_of(local_queue)
        if line is not None:
            line.drop(key)
            self._scopes.mark_ready(line.name)

    def set_aside(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """Leave a Workload out until it changes."""
        workload.set_aside = True
        line = self.queues.get(workload.cluster_queue)
        if line is not None and workload.key in line:
            line.put(workload, now)
            self._scopes.mark_ready(line.name)

    def put_back(self, now: Nanoseconds) -> None:
        """A cycle broke off: whoever was being decided waits for the next one."""
        for line in self.queues.values():
            for key, workload in sorted(line.in_flight.items()):
                line.drop(key)
                line.put(workload, now)
                self._scopes.invalidate(line.name)

    def wake(self, now: Nanoseconds) -> None:
        """Whoever waited only for a time that has come is in line again."""
        for line in self.queues.values():
            if line.wake(now):
                self._scopes.mark_ready(line.name)

    def _is_in_line(self, workload: WorkloadInfo) -> bool:
        line = self.queues.get(workload.cluster_queue)
        return line is not None and workload.key in line

    # Questions.

    def pending(self, key: str) -> WorkloadInfo | None:
        """A Workload that waits, in a line or for one."""
        local_queue = self._local_queue_of.get(key)
        return self._waiting[local_queue].get(key) if local_queue is not None else None

    def pending_in(self, local_queue: str) -> int:
        """How many Workloads wait through a LocalQueue, though it lead nowhere; without those that rest."""
        line = self._line_of(local_queue)
        resting = line.resting if line is not None else set()
        waiting = self._waiting.get(local_queue, {})
        return len(waiting) - sum(key in waiting for key in resting)

    def waiting_for(self, cluster_queue: str) -> Iterator[str]:
        """Those whose LocalQueues lead to a ClusterQueue, in its line or not."""
        for local_queue in self._leading_to(cluster_queue):
            yield from self._waiting.get(local_queue, {})

    def waiting(self, namespace: str | None = None) -> Iterable[str]:
        """Everybody who waits, in one namespace or in all."""
        return (key for key in self._local_queue_of if namespace is None or key.startswith(f"{namespace}/"))

    def targets(self, namespace: str) -> Iterator[str]:
        """The ClusterQueues for which Workloads of a namespace wait, or have waited."""
        return (self.target(key) for key in self._waiting if key.startswith(f"{namespace}/"))


def _may_matter(before: WorkloadInfo, after: WorkloadInfo) -> bool:
    """§2.7(a) Whether a waiting Workload changed in a way that could let it in."""
    return (
        before.uid != after.uid
        or (before.evaluated_generation != 0 and after.generation != before.evaluated_generation)
        or before.shape is not after.shape
        or before.priority != after.priority
        or before.queue_time != after.queue_time
        or before.held_back != after.held_back
        or before.back_off_until != after.back_off_until
        or before.details != after.details
    )
