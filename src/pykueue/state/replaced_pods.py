"""Pods that a controller creates in place of evicted ones, and the identity that they share [LG3].

A preempted pod is deleted, and its controller creates another one under another name. For a preemption loop it is the
same member: the new pod gets the identity of the pod that it replaces, and neither the deletion nor the arrival is an
outside change. A pod replaces another one of the same LocalQueue, name shape and requests, evicted within a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core.name_shape import name_shape
from pykueue.core.workload import WorkloadShape

# How long after an eviction a pod that arrives is taken as its replacement, and how many evictions are remembered.
WITHIN: Final = 60 * SECOND
_EVICTED_MAX: Final = 4096


class PodLikeness(NamedTuple):
    """What a pod and its replacement have in common."""

    local_queue: str
    name_shape: str
    shape: WorkloadShape | None

    @classmethod
    def of(cls, key: str, local_queue: str, shape: WorkloadShape | None) -> PodLikeness:
        """Return the likeness of a Workload. Its name ends in a hash, which differs from pod to pod."""
        namespace, _, name = key.partition("/")
        return cls(f"{namespace}/{local_queue}", name_shape(name.rpartition("-")[0] or name), shape)


class _EvictedPod(msgspec.Struct):
    cluster_queue: str
    likeness: PodLikeness
    identity: str
    at: Nanoseconds
    has_ended: bool = False
    is_replaced: bool = False


class ReplacedPods:
    """The pods that were preempted within the last minute, and the identities of their replacements."""

    def __init__(self) -> None:
        self._evicted: dict[str, _EvictedPod] = {}  # by key, oldest first
        self._identities: dict[str, str] = {}  # of replacements: the key of the first pod

    @property
    def is_waiting(self) -> bool:
        return bool(self._evicted)

    def identity(self, key: str) -> str:
        """Return the key that stands for a Workload: that of the first pod in whose place it was created."""
        return self._identities.get(key, key) if self._identities else key

    def is_replacement(self, key: str) -> bool:
        return key in self._identities

    def evicted(self, key: str, cluster_queue: str, likeness: PodLikeness, now: Nanoseconds) -> None:
        """Record that a pod is preempted."""
        self._evicted.pop(key, None)
        self._evicted[key] = _EvictedPod(cluster_queue, likeness, self.identity(key), now)
        if len(self._evicted) > _EVICTED_MAX:
            del self._evicted[next(iter(self._evicted))]

    def arrived(self, key: str, likeness: PodLikeness, now: Nanoseconds) -> bool:
        """Give a pod that arrives the identity of the first like it that was evicted and has no replacement yet;
        whether there is one."""
        for name, pod in self._evicted.items():
            if pod.likeness == likeness and not pod.is_replaced and name != key and now - pod.at <= WITHIN:
                pod.is_replaced = True
                self._identities[key] = pod.identity
                if pod.has_ended:
                    del self._evicted[name]
                return True
        return False

    def ended(self, key: str) -> bool:
        """Record that a Workload ended or was deleted; whether it is a pod that was preempted."""
        pod = self._evicted.get(key)
        if pod is None:
            return False
        pod.has_ended = True
        if pod.is_replaced:
            del self._evicted[key]
        return True

    def forget(self, key: str) -> None:
        """Drop the identity of a deleted Workload. Its replacement keeps it."""
        self._identities.pop(key, None)

    def expire(self, now: Nanoseconds) -> Iterator[str]:
        """Drop the pods that were evicted more than a minute ago; return the ClusterQueues of those that ended without
        a replacement. A pod that is still there may be requeued: its end would be an outside change."""
        for key, pod in list(self._evicted.items()):
            if now - pod.at <= WITHIN:
                return
            del self._evicted[key]
            if pod.has_ended and not pod.is_replaced:
                yield pod.cluster_queue
