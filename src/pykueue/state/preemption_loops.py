"""Preemption loops: the same Workloads preempt each other in turns although nothing else changes.

A decision is a function of the facts. When the same Workload preempts the same targets over the same reservations for
the third time, and only the scheduler's own decisions changed a fact in between, it will go on for ever [LG2]. Two
numbers per ClusterQueue show whether that is so, each updated in constant time per change:

- the *fingerprint* of its reservations, the XOR of one hash for each of them [LG1];
- the *outside changes*: arrivals, ends, edits, states of admission checks, everything that a decision depends on and
  that is no consequence of a preemption. Changes of quota, cohorts, flavors, nodes and namespaces count for all queues.

Detection changes no decision. A collision of two hashes can only report a loop that is none.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kubemachinery.meta import Nanoseconds
from pykueue.core.workload import Reservation

# How often the same preemption has to be decided. Twice can be a coincidence: an eviction that was being written.
ROUNDS: Final = 3
# Bounds of what is kept: preemptions to compare with, and the order of the latest ones.
_COMPARED_MAX: Final = 4096
_ORDER_MAX: Final = 256


class LoopStep(NamedTuple):
    """One Workload that was decided to be evicted for another."""

    preemptor: str
    target: str


@dataclass(frozen=True, slots=True)
class PreemptionLoop:
    """Workloads that preempt each other in turns: the preemptions of one round, in the order of their decisions."""

    cluster_queue: str  # of the Workload whose preemption was repeated first
    preemptions: tuple[LoopStep, ...]
    rounds: int
    since: Nanoseconds

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted({key for preemption in self.preemptions for key in preemption}))

    def sentence(self) -> str:
        """Return one round as text: which Workload preempts which."""
        return ", ".join(dict.fromkeys(f"{each.preemptor} preempts {each.target}" for each in self.preemptions))


class _Decided(NamedTuple):
    """What two equal preemptions have in common."""

    queues: tuple[str, ...]
    outside_changes: int
    fingerprint: int
    preemptor: str
    targets: tuple[str, ...]


@dataclass(slots=True)
class _Repeated:
    """A preemption that was decided, how often, and where in the order of decisions it was the last time."""

    since: Nanoseconds
    times: int = 0
    position: int = 0


class LoopDetector:
    """Compares every preemption with the earlier ones of the same cohort tree."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, int] = {}  # by ClusterQueue
        self._outside: dict[str, int] = {}  # by ClusterQueue
        self._outside_everywhere = 0
        self._decided: OrderedDict[_Decided, _Repeated] = OrderedDict()
        self._order: deque[tuple[int, LoopStep]] = deque(maxlen=_ORDER_MAX)
        self._position = 0
        self._loops: dict[str, tuple[_Decided, PreemptionLoop]] = {}  # by member
        self._new: list[PreemptionLoop] = []

    # --- Facts --------------------------------------------------------------------------------------------------------

    def reserved(self, reservation: Reservation) -> None:
        """Count a reservation in. Counting it a second time takes it out again: XOR is its own inverse."""
        name = reservation.cluster_queue
        fingerprint = self._fingerprints.pop(name, 0) ^ hash((reservation.key, reservation.usage))
        if fingerprint:
            self._fingerprints[name] = fingerprint

    released = reserved

    def changed(self, cluster_queue: str | None = None) -> None:
        """Count an outside change: in one ClusterQueue, or one that may concern all."""
        if cluster_queue is None:
            self._outside_everywhere += 1
        else:
            self._outside[cluster_queue] = self._outside.get(cluster_queue, 0) + 1

    def cluster_queue_deleted(self, name: str) -> None:
        """Drop the counter of a deleted ClusterQueue. Its value moves to the common counter, so that no sum repeats."""
        self._outside_everywhere += self._outside.pop(name, 0) + 1

    def outside_changes(self, queues: tuple[str, ...]) -> int:
        """The number of outside changes that may concern these ClusterQueues; equal numbers mean that there were none
        in between."""
        # Every counter only grows, so the sum is the same only if all counters are.
        return self._outside_everywhere + sum(self._outside.get(name, 0) for name in queues)

    def _fingerprint(self, queues: tuple[str, ...]) -> int:
        found = 0
        for name in queues:
            found ^= self._fingerprints.get(name, 0)
        return found

    # --- Preemptions --------------------------------------------------------------------------------------------------

    def preempted(
        self, queues: tuple[str, ...], cluster_queue: str, preemptor: str, targets: tuple[str, ...], now: Nanoseconds
    ) -> None:
        """Compare a preemption that was just decided, before any of its targets has lost its reservation.

        `queues` are the ClusterQueues whose reservations the decision rests on.
        """
        decided = _Decided(queues, self.outside_changes(queues), self._fingerprint(queues), preemptor, targets)
        repeated = self._decided.setdefault(decided, _Repeated(now))
        self._decided.move_to_end(decided)
        if len(self._decided) > _COMPARED_MAX:
            self._decided.popitem(last=False)
        before, repeated.position = repeated.position, self._position
        repeated.times += 1
        for target in targets:
            self._order.append((self._position, LoopStep(preemptor, target)))
        self._position += 1
        if repeated.times >= ROUNDS:
            # Everything since the time before is one round: the state was the same then.
            round_ = tuple(pair for position, pair in self._order if before <= position < repeated.position)
            self._found(decided, PreemptionLoop(cluster_queue, round_, repeated.times, repeated.since))

    def _found(self, decided: _Decided, loop: PreemptionLoop) -> None:
        known = self.loop_of(decided.preemptor)
        if known is None:
            self._new.append(loop)
        else:  # the same loop, seen at another preemption of its round or in a later round
            loop = replace(known, rounds=max(known.rounds, loop.rounds))
        for member in loop.members:
            self._loops[member] = decided, loop

    def take_new(self) -> list[PreemptionLoop]:
        """Return and clear the loops that were found since the last call, each once."""
        found, self._new = self._new, []
        return found

    def loop_of(self, key: str) -> PreemptionLoop | None:
        """Return the loop that a Workload is in; None after an outside change."""
        decided, loop = self._loops.get(key, (None, None))
        if decided is None:
            return None
        if self.outside_changes(decided.queues) == decided.outside_changes:
            return loop
        del self._loops[key]
        return None
