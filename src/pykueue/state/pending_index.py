"""Pending Workloads by LocalQueue, and in the queue of the ClusterQueue that it points to.

A pending Workload belongs to its LocalQueue, whether or not that exists, points to a ClusterQueue or is stopped. It is
in the queue of a ClusterQueue as long as its LocalQueue points there and is not stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.core.workload import WorkloadInfo
from pykueue.state.pending_queue import PendingQueue
from pykueue.state.scheduling_scope import SchedulingScopes


class QueueTarget(msgspec.Struct, frozen=True):
    """The ClusterQueue that a LocalQueue points to."""

    cluster_queue: str
    is_stopped: bool


class PendingIndex:
    """All pending Workloads."""

    def __init__(self, scopes: SchedulingScopes) -> None:
        self.queues: dict[str, PendingQueue] = {}  # by ClusterQueue
        self._timed: set[str] = set()  # the queues that may have Workloads with a backoff
        self._scopes = scopes
        self._local_queues: dict[str, QueueTarget] = {}
        self._pointing: dict[str, dict[str, None]] = {}  # ClusterQueue -> its LocalQueues, in order of arrival
        self._waiting: dict[str, dict[str, WorkloadInfo]] = {}  # LocalQueue -> pending Workloads, in a queue or not
        self._local_queue_of: dict[str, str] = {}
        self._in_namespace: dict[str, dict[str, None]] = {}  # namespace -> LocalQueues with pending Workloads, ever

    # Queues.

    def open(self, cluster_queue: str, now: Nanoseconds) -> None:
        """Create the queue of a ClusterQueue, with the pending Workloads of its LocalQueues."""
        if cluster_queue not in self.queues:
            self.queues[cluster_queue] = PendingQueue(cluster_queue, timed=self._timed)
            for local_queue in self._pointing.get(cluster_queue, ()):
                self._enqueue_all(local_queue, now)

    def close(self, cluster_queue: str) -> None:
        self.queues.pop(cluster_queue, None)

    def put_local_queue(self, key: str, target: QueueTarget, now: Nanoseconds) -> bool:
        """Put a LocalQueue; whether its target changed."""
        before = self._local_queues.get(key)
        self._local_queues[key] = target
        if before == target:
            return False
        if before is not None:
            self._withdraw_all(key, before)
            del self._pointing[before.cluster_queue][key]
        self._pointing.setdefault(target.cluster_queue, {})[key] = None
        for workload in self._waiting.get(key, {}).values():
            workload.cluster_queue, workload.scan_position = target.cluster_queue, None
        self._enqueue_all(key, now)
        return True

    def drop_local_queue(self, key: str) -> None:
        before = self._local_queues.pop(key, None)
        if before is not None:
            self._withdraw_all(key, before)
            del self._pointing[before.cluster_queue][key]

    def target(self, local_queue: str) -> str:
        """Return the ClusterQueue that a LocalQueue points to, stopped or not; empty if there is none."""
        target = self._local_queues.get(local_queue)
        return target.cluster_queue if target is not None else ""

    def _queue_of(self, local_queue: str) -> PendingQueue | None:
        """Return the queue that a LocalQueue points to, unless it is stopped or points nowhere [QU2]."""
        target = self._local_queues.get(local_queue)
        return None if target is None or target.is_stopped else self.queues.get(target.cluster_queue)

    def _enqueue_all(self, local_queue: str, now: Nanoseconds) -> None:
        queue = self._queue_of(local_queue)
        if queue is not None:
            for workload in self._waiting.get(local_queue, {}).values():
                workload.cluster_queue = queue.name
                queue.put(workload, now)
            self._scopes.mark_ready(queue.name)

    def _withdraw_all(self, local_queue: str, before_target: QueueTarget) -> None:
        queue = self.queues.get(before_target.cluster_queue)
        if queue is not None:
            for key in self._waiting.get(local_queue, {}):
                queue.drop(key)
            self._scopes.mark_ready(queue.name)

    # Workloads.

    def put(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """Put a pending Workload. One without a change that could let it in stays where it is."""
        key, local_queue = workload.key, f"{workload.namespace}/{workload.local_queue}"
        if self._local_queue_of.get(key, local_queue) != local_queue:
            self.forget(key)
        waiting = self._waiting.get(local_queue)
        if waiting is None:
            waiting = self._waiting[local_queue] = {}
            self._in_namespace.setdefault(workload.namespace, {})[local_queue] = None
        before = waiting.get(key)
        if before is not None:
            if not _may_matter(before, workload) and self._is_queued(before):
                before.generation = workload.generation
                return
            workload.scan_position = before.scan_position
            workload.evaluated_generation = before.evaluated_generation
        waiting[key] = workload
        self._local_queue_of[key] = local_queue
        queue = self._queue_of(local_queue)
        if queue is not None:
            queue.put(workload, now)
            self._scopes.mark_ready(queue.name)

    def count(self, key: str) -> None:
        """Count a pending Workload in its first backoff from now on: its object was written."""
        queue = self._queue_of(self._local_queue_of[key])
        if queue is not None:
            queue.count(key)

    def forget(self, key: str) -> None:
        """Remove a Workload that is not pending any more, if it was."""
        local_queue = self._local_queue_of.pop(key, None)
        if local_queue is None:
            return
        self._waiting[local_queue].pop(key, None)
        queue = self._queue_of(local_queue)
        if queue is not None:
            queue.drop(key)
            self._scopes.mark_ready(queue.name)

    def set_aside(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """Exclude a Workload from scheduling until it changes."""
        workload.set_aside = True
        queue = self.queues.get(workload.cluster_queue)
        if queue is not None and workload.key in queue:
            queue.put(workload, now)
            self._scopes.mark_ready(queue.name)

    def put_back(self, now: Nanoseconds) -> None:
        """Return the Workloads in flight to their queues: the cycle raised an exception."""
        for queue in self.queues.values():
            for key, workload in sorted(queue.in_flight.items()):
                queue.drop(key)
                queue.put(workload, now)
                self._scopes.invalidate(queue.name)

    def wake(self, now: Nanoseconds) -> None:
        """Activate the Workloads whose backoff has ended."""
        for name in sorted(self._timed):
            queue = self.queues.get(name)
            if queue is not None and queue.wake(now):
                self._scopes.mark_ready(name)
            if queue is None or queue.next_wake is None:
                self._timed.discard(name)

    @property
    def next_wake(self) -> Nanoseconds | None:
        """The earliest end of a backoff."""
        found = (self.queues[name].next_wake for name in self._timed if name in self.queues)
        return min((time for time in found if time is not None), default=None)

    def _is_queued(self, workload: WorkloadInfo) -> bool:
        queue = self.queues.get(workload.cluster_queue)
        return queue is not None and workload.key in queue

    # Queries.

    def pending(self, key: str) -> WorkloadInfo | None:
        """Return a pending Workload, in a queue or not."""
        local_queue = self._local_queue_of.get(key)
        return self._waiting[local_queue].get(key) if local_queue is not None else None

    def pending_in(self, local_queue: str) -> int:
        """Return how many Workloads of a LocalQueue are pending, without those in their first backoff."""
        queue = self._queue_of(local_queue)
        resting = queue.resting if queue is not None else set()
        waiting = self._waiting.get(local_queue, {})
        return len(waiting) - sum(key in waiting for key in resting)

    def waiting_for(self, cluster_queue: str) -> Iterator[str]:
        """Return the pending Workloads whose LocalQueues point to a ClusterQueue, in its queue or not."""
        for local_queue in self._pointing.get(cluster_queue, ()):
            yield from self._waiting.get(local_queue, {})

    def waiting(self, namespace: str | None = None) -> Iterable[str]:
        """Return the pending Workloads of one namespace or of all."""
        if namespace is None:
            return iter(self._local_queue_of)
        return (key for queue in self._in_namespace.get(namespace, ()) for key in self._waiting[queue])

    def targets(self, namespace: str) -> Iterator[str]:
        """Return the ClusterQueues that LocalQueues of a namespace with pending Workloads, now or before, point to."""
        return (self.target(key) for key in self._in_namespace.get(namespace, ()))


def _may_matter(before: WorkloadInfo, after: WorkloadInfo) -> bool:
    """Whether a pending Workload changed in a way that could let it in [QU23]."""
    return (
        before.uid != after.uid
        or (before.evaluated_generation != 0 and after.generation != before.evaluated_generation)
        or before.shape is not after.shape
        or before.priority != after.priority
        or before.queue_time != after.queue_time
        or before.held_back != after.held_back
        or before.back_off_until != after.back_off_until
        or before.limit != after.limit
        or before.details != after.details
    )
