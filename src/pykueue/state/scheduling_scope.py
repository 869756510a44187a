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

from pykueue.core.workload import Workload

Front: TypeAlias = tuple[tuple[Workload, bool, tuple[object, ...]], ...]
"""The heads of a district: each with whether it is the preemptor, and where its search for flavors goes on."""


class District:
    """Queues that are decided together, by name; and the heads that were tried on the facts as they are."""

    __slots__ = ("queues", "tried")

    def __init__(self, queues: Iterable[str]) -> None:
        self.queues = tuple(sorted(queues))
        self.tried: set[Front] = set()


class Waking:
    """Which districts are to be looked at, in the order in which something changed in them."""

    def __init__(self) -> None:
        self._district_of: dict[str, District] = {}
        self._awake: dict[District, None] = {}
        self._released: set[str] = set()

    def divide(self, districts: Iterable[Iterable[str]]) -> None:
        """The trees have changed. A queue that is in none of the districts is one for itself.

        Whoever was awake stays so; what was tried is forgotten, which costs a second look where nothing has changed.
        """
        awake = [name for district in self._awake for name in district.queues]
        self._district_of = {name: district for district in map(District, districts) for name in district.queues}
        self._awake = {}
        for name in awake:
            self.look_at(name)

    def stir(self, queue: str) -> None:
        """A fact has changed that verdicts in the queue's district rest on."""
        district = self._of(queue)
        district.tried.clear()
        self._awake[district] = None

    def look_at(self, queue: str) -> None:
        """Another head may stand in the queue's line."""
        self._awake[self._of(queue)] = None

    def release(self, queues: Iterable[str]) -> None:
        """There may be room in the trees of these queues for whoever is parked there."""
        self._released.update(queues)

    def take_released(self) -> set[str]:
        """The queues that were named since the last time."""
        released, self._released = self._released, set()
        return released

    def due(self, more: Callable[[], bool]) -> Iterator[District]:
        """Every district that is awake, once, as long as more are asked for. It sleeps from then on unless it is woken
        anew; then it stands behind the others."""
        for district in list(self._awake):
            if not more():
                return
            del self._awake[district]
            yield district

    def _of(self, queue: str) -> District:
        district = self._district_of.get(queue)
        if district is None:
            district = self._district_of[queue] = District((queue,))
        return district
