"""Who is tried again, and when: only where something has changed that the last verdicts rest on.

Queues that could ever compete for the same room form a *district*: the queues of one tree, and all trees whose pods are
placed on nodes. Districts cannot touch each other, so each has its cycles for itself.

A cycle is a function of the district's facts and of the heads in its lines. Facts are all that `Waking.stir` is called
for: quota, reservations and who of them is being evicted, flavors, checks, namespaces, nodes. As long as none of them
changes, heads that were tried already would only hear again what they heard: they wait without costing anything.

Three words for three causes: `look_at` (another head may stand in a line), `stir` (a fact has changed), `release`
(there may be room, so that those who are parked look again, too).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from pykueue.core.workload import WorkloadInfo

HeadSet: TypeAlias = tuple[tuple[WorkloadInfo, bool, tuple[object, ...]], ...]
"""The heads of a district: each with whether it is the preemptor, and where its search for flavors goes on."""


class SchedulingScope:
    """Queues that are decided together, by name; and the heads that were tried on the facts as they are."""

    __slots__ = ("queues", "tried")

    def __init__(self, queues: Iterable[str]) -> None:
        self.queues = tuple(sorted(queues))
        self.tried: set[HeadSet] = set()


class SchedulingScopes:
    """Which districts are to be looked at, in the order in which something changed in them."""

    def __init__(self) -> None:
        self._scope_of: dict[str, SchedulingScope] = {}
        self._ready: dict[SchedulingScope, None] = {}
        self._released: set[str] = set()

    def regroup(self, scopes: Iterable[Iterable[str]]) -> None:
        """The trees have changed. A queue that is in none of the districts is one for itself.

        Whoever was awake stays so; what was tried is forgotten, which costs a second look where nothing has changed.
        """
        awake = [name for scope in self._ready for name in scope.queues]
        self._scope_of = {name: scope for scope in map(SchedulingScope, scopes) for name in scope.queues}
        self._ready = {}
        for name in awake:
            self.mark_ready(name)

    def invalidate(self, queue: str) -> None:
        """A fact has changed that verdicts in the queue's district rest on."""
        scope = self._of(queue)
        scope.tried.clear()
        self._ready[scope] = None

    def mark_ready(self, queue: str) -> None:
        """Another head may stand in the queue's line."""
        self._ready[self._of(queue)] = None

    def release(self, queues: Iterable[str]) -> None:
        """There may be room in the trees of these queues for whoever is parked there."""
        self._released.update(queues)

    def take_released(self) -> set[str]:
        """The queues that were named since the last time."""
        released, self._released = self._released, set()
        return released

    def due(self, more: Callable[[], bool]) -> Iterator[SchedulingScope]:
        """Every district that is awake, once, as long as more are asked for. It sleeps from then on unless it is woken
        anew; then it stands behind the others."""
        for scope in list(self._ready):
            if not more():
                return
            del self._ready[scope]
            yield scope

    def _of(self, queue: str) -> SchedulingScope:
        scope = self._scope_of.get(queue)
        if scope is None:
            scope = self._scope_of[queue] = SchedulingScope((queue,))
        return scope
