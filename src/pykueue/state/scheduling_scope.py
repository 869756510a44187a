"""Scheduling scopes: which queues are decided together, and when they are tried again.

Queues that could ever compete for the same capacity form a *scope*: the queues of one cohort tree, and all trees whose
pods are placed on nodes. Scopes cannot affect each other, so each has cycles of its own.

A cycle is a function of the scope's facts and of its heads. Facts are all that `SchedulingScopes.invalidate` is called
for: quota, reservations and which of them are being evicted, flavors, checks, namespaces, nodes. While none of them
changes, heads that were tried would get the same answer again, and no cycle runs for them.

Three methods for three causes: `mark_ready` (a queue may have another head), `invalidate` (a fact changed) and
`release` (capacity may be free, so that inadmissible Workloads are retried too).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from pykueue.core.workload import WorkloadInfo

HeadSet: TypeAlias = tuple[tuple[str, WorkloadInfo, bool, tuple[object, ...]], ...]
"""The heads of a scope: each with its ClusterQueue, which another LocalQueue of the same name may change, whether it is
the preemptor, and where its scan of flavors continues."""

# So many scopes are looked at in one call of `World.decide`. Most have nothing to decide when they are looked at again,
# which takes some 20 microseconds each.
SCOPES_AT_ONCE: Final = 500


class SchedulingScope:
    """Queues that are decided together, by name, and the sets of heads that were tried on the current facts."""

    __slots__ = ("queues", "tried")

    def __init__(self, queues: Iterable[str]) -> None:
        self.queues = tuple(sorted(queues))
        self.tried: set[HeadSet] = set()


class SchedulingScopes:
    """The scopes, and which of them need a cycle, in the order in which something changed in them."""

    def __init__(self) -> None:
        self._scope_of: dict[str, SchedulingScope] = {}
        self._ready: dict[SchedulingScope, None] = {}
        self._released: set[str] = set()

    def regroup(self, scopes: Iterable[Iterable[str]]) -> None:
        """Replace the scopes after cohort trees changed. A queue that is in none of them is a scope of its own.

        Scopes that need a cycle still do; the sets of heads that were tried are dropped, which costs one more cycle.
        """
        awake = [name for scope in self._ready for name in scope.queues]
        self._scope_of = {name: scope for scope in map(SchedulingScope, scopes) for name in scope.queues}
        self._ready = {}
        for name in awake:
            self.mark_ready(name)

    def invalidate(self, queue: str) -> None:
        """Record that a fact changed that decisions in the queue's scope depend on."""
        scope = self._of(queue)
        scope.tried.clear()
        self._ready[scope] = None

    def mark_ready(self, queue: str) -> None:
        """Record that the queue may have another head."""
        self._ready[self._of(queue)] = None

    def release(self, queues: Iterable[str]) -> None:
        """Record that inadmissible Workloads in the cohort trees of these queues may fit now."""
        self._released.update(queues)

    def take_released(self) -> set[str]:
        """Return and clear the queues that were released."""
        released, self._released = self._released, set()
        return released

    def due(self, more: Callable[[], bool]) -> Iterator[SchedulingScope]:
        """Return every scope that needs a cycle, once, while `more` is true. A scope that is marked again meanwhile
        comes after the others, in the next call."""
        for scope in list(self._ready):
            if not more():
                return
            del self._ready[scope]
            yield scope

    @property
    def has_due(self) -> bool:
        """Whether a scope needs a cycle."""
        return bool(self._ready)

    def scope_of(self, queue: str) -> SchedulingScope:
        """Return the scope of a queue."""
        return self._of(queue)

    def queues_of(self, queue: str) -> tuple[str, ...]:
        """Return the queues of the same scope, by name."""
        return self._of(queue).queues

    def _of(self, queue: str) -> SchedulingScope:
        scope = self._scope_of.get(queue)
        if scope is None:
            scope = self._scope_of[queue] = SchedulingScope((queue,))
        return scope
