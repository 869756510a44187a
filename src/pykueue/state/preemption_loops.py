"""Preemption loops: the same Workloads preempt each other in turns although nothing else changes.

A decision is a function of the facts. When the same Workload preempts the same targets over the same reservations for
the third time, and only the scheduler's own decisions changed a fact in between, it will go on for ever [LG2]. Two
numbers per ClusterQueue show whether that is so, each updated in constant time per change:

- the *fingerprint* of its reservations, the XOR of one hash for each of them [LG1];
- the *outside changes*: arrivals, ends, edits, states of admission checks, everything that a decision depends on and
  that is no consequence of a preemption. Changes of quota, cohorts, flavors, nodes and namespaces count for all queues.

Pods that a controller creates in place of evicted ones have other names (`replaced_pods`): a new pod counts under the
identity of the one that it replaces, and a loop with such a member is *likely* [LG3].

Detection changes no decision. A collision of two hashes can only report a loop that is none. With the gate `LoopGuard`
a preemption that would begin a fourth round is delayed; the delay doubles with every further round [LG6].
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core.workload import Reservation
from pykueue.state.replaced_pods import PodLikeness, ReplacedPods

# How often the same preemption has to be decided. Twice can be a coincidence: an eviction that was being written.
ROUNDS: Final = 3
# Bounds of what is kept: preemptions to compare with, and the order of the latest ones.
_COMPARED_MAX: Final = 4096
_ORDER_MAX: Final = 256
# How long the guard delays a preemption: the first time, and at most.
DELAY_MIN: Final = 30 * SECOND
DELAY_MAX: Final = 600 * SECOND
# After how many delays of a preemption its loop is settled: the whole round before had delays of DELAY_MAX, so that the
# next rounds take equally long and end in the same state, as long as there is no outside change.
_SETTLED_DELAYS: Final = 9
_FOR_EVER: Final = sys.maxsize


class LoopStep(NamedTuple):
    """One Workload that was decided to be evicted for another."""

    preemptor: str
    target: str


class PreemptionLoop(msgspec.Struct, frozen=True):
    """Workloads that preempt each other in turns: the preemptions of one round, in the order of their decisions."""

    cluster_queue: str  # of the Workload whose preemption was repeated first
    preemptions: tuple[LoopStep, ...]
    rounds: int
    since: Nanoseconds
    is_likely: bool = False  # a member is a pod that was created in place of an evicted one

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted({key for preemption in self.preemptions for key in preemption}))

    def sentence(self) -> str:
        """Return one round as text: which Workload preempts which."""
        return ", ".join(dict.fromkeys(f"{each.preemptor} preempts {each.target}" for each in self.preemptions))

    def title(self) -> str:
        """Return the name of what was found, for the beginning of a message."""
        return "likely preemption loop" if self.is_likely else "preemption loop"


class _Decided(NamedTuple):
    """What two equal preemptions have in common."""

    queues: tuple[str, ...]
    outside_changes: int
    fingerprint: int
    preemptor: str
    targets: tuple[str, ...]


class _OrderedStep(NamedTuple):
    """A preemption, the number of the decision, and whether one of the two is a pod in the place of another."""

    position: int
    step: LoopStep
    is_likely: bool


class _Repeated(msgspec.Struct):
    """A preemption that was decided, how often, and where in the order of decisions it was the last time."""

    since: Nanoseconds
    times: int = 0
    position: int = 0
    ended: int = -1  # how many reservations had ended the last time
    # Of the guard: how often it was delayed, how long the last time, and until when it is; 0 if it is not.
    delays: int = 0
    delay: Nanoseconds = 0
    held_until: Nanoseconds = 0


class LoopDetector:
    """Compares every preemption with the earlier ones of the same cohort tree.

    With `enabled` off it only counts outside changes, which other rules depend on too.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._fingerprints: dict[str, int] = {}  # by ClusterQueue
        self._outside: dict[str, int] = {}  # by ClusterQueue
        self._outside_everywhere = 0
        self._ended: dict[str, int] = {}  # by ClusterQueue: the reservations that have ended
        self._decided: OrderedDict[_Decided, _Repeated] = OrderedDict()
        self._order: deque[_OrderedStep] = deque(maxlen=_ORDER_MAX)
        self._position = 0
        self._loops: dict[str, tuple[_Decided, PreemptionLoop]] = {}  # by the identity of a member
        self._new: list[PreemptionLoop] = []
        self._pods = ReplacedPods()
        self._held: dict[_Decided, Nanoseconds] = {}  # delayed preemptions, and until when
        self._seen_at: Nanoseconds = 0

    # --- Facts --------------------------------------------------------------------------------------------------------

    def reserved(self, reservation: Reservation) -> None:
        """Count a reservation in. Counting it a second time takes it out again: XOR is its own inverse."""
        if not self._enabled:
            return
        name = reservation.cluster_queue
        identity = self._pods.identity(reservation.key)
        fingerprint = self._fingerprints.pop(name, 0) ^ hash((identity, reservation.usage))
        if fingerprint:
            self._fingerprints[name] = fingerprint

    def released(self, reservation: Reservation) -> None:
        """Count a reservation out that has ended."""
        self.reserved(reservation)
        self._ended[reservation.cluster_queue] = self._ended.get(reservation.cluster_queue, 0) + 1

    def replaced(self, before: Reservation, after: Reservation) -> None:
        """Count a reservation in place of another of the same Workload: it was read again, and has not ended."""
        self.reserved(before)
        self.reserved(after)

    def changed(self, cluster_queue: str | None = None) -> None:
        """Count an outside change: in one ClusterQueue, or one that may concern all."""
        if cluster_queue is None:
            self._outside_everywhere += 1
        else:
            self._outside[cluster_queue] = self._outside.get(cluster_queue, 0) + 1

    def cluster_queue_deleted(self, name: str) -> None:
        """Drop the counter of a deleted ClusterQueue. Its value moves to the common counter, so that no sum repeats."""
        self._outside_everywhere += self._outside.pop(name, 0) + 1
        self._ended.pop(name, None)

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

    # --- Pods that a controller creates again [LG3] -------------------------------------------------------------------

    @property
    def awaits_pods(self) -> bool:
        """Whether a pod was evicted lately, so that the next one may take its place."""
        return self._pods.is_waiting

    def replaces_pod(self, key: str, likeness: PodLikeness, now: Nanoseconds) -> bool:
        """Whether a pod that arrives takes the place of one that was evicted lately. It is then no outside change."""
        return self._pods.arrived(key, likeness, now)

    def is_evicted_pod(self, key: str) -> bool:
        """Whether a Workload that ends or is deleted is a pod that was preempted: a consequence of the preemption. If
        no other pod takes its place within a minute, it counts as an outside change then."""
        return self._pods.ended(key)

    def identity(self, key: str) -> str:
        """Return the key that stands for a Workload: that of the first pod in whose place it was created."""
        return self._pods.identity(key)

    def forget(self, key: str) -> None:
        """Drop the identity of a deleted Workload."""
        self._pods.forget(key)

    # --- Preemptions --------------------------------------------------------------------------------------------------

    def preempted(
        self,
        queues: tuple[str, ...],
        cluster_queue: str,
        preemptor: str,
        targets: tuple[str, ...],
        now: Nanoseconds,
        pods: Iterable[tuple[str, str, PodLikeness]] = (),
    ) -> None:
        """Compare a preemption that was just decided, before any of its targets has lost its reservation.

        `queues` are the ClusterQueues whose reservations the decision rests on; `pods` are the targets that are single
        pods, with their ClusterQueues.
        """
        if not self._enabled:
            return
        decided = self._decided_now(queues, preemptor, targets, now)
        repeated = self._decided.setdefault(decided, _Repeated(now))
        ended = sum(self._ended.get(name, 0) for name in queues)
        if repeated.ended == ended:
            return  # the same round: the eviction is not written yet, and was decided again
        repeated.ended = ended
        self._decided.move_to_end(decided)
        if len(self._decided) > _COMPARED_MAX:
            self._decided.popitem(last=False)
        before, repeated.position = repeated.position, self._position
        repeated.times += 1
        repeated.held_until = 0
        for target in targets:
            likely = self._pods.is_replacement(preemptor) or self._pods.is_replacement(target)
            self._order.append(_OrderedStep(self._position, LoopStep(preemptor, target), likely))
        self._position += 1
        if repeated.times >= ROUNDS:
            # Everything since the time before is one round: the state was the same then.
            steps = [each for each in self._order if before <= each.position <= repeated.position]
            likely = any(each.is_likely for each in steps)
            # With pods that were replaced, the names of this time and not of the time before.
            ends = (before + 1, repeated.position) if likely else (before, repeated.position - 1)
            round_ = tuple(each.step for each in steps if ends[0] <= each.position <= ends[1])
            self._found(decided, PreemptionLoop(cluster_queue, round_, repeated.times, repeated.since, likely))
        for key, of_queue, likeness in pods:
            self._pods.evicted(key, of_queue, likeness, now)

    def _decided_now(
        self, queues: tuple[str, ...], preemptor: str, targets: tuple[str, ...], now: Nanoseconds
    ) -> _Decided:
        for cluster_queue in self._pods.expire(now):
            self.changed(cluster_queue)
        identity = self._pods.identity
        return _Decided(
            queues,
            self.outside_changes(queues),
            self._fingerprint(queues),
            identity(preemptor),
            tuple(identity(target) for target in targets),
        )

    def _found(self, decided: _Decided, loop: PreemptionLoop) -> None:
        known = self.loop_of(decided.preemptor)
        if known is None:
            self._new.append(loop)
        else:  # the same loop, seen at another preemption of its round or in a later round
            # Of pods that replace each other, the present ones are its members.
            present = loop if loop.is_likely else known
            loop = replace(present, since=known.since, rounds=max(known.rounds, loop.rounds))
        for member in loop.members:
            self._loops[self._pods.identity(member)] = decided, loop

    def take_new(self) -> list[PreemptionLoop]:
        """Return and clear the loops that were found since the last call, each once."""
        found, self._new = self._new, []
        return found

    def loop_of(self, key: str) -> PreemptionLoop | None:
        """Return the loop that a Workload is in; None after an outside change."""
        identity = self._pods.identity(key)
        decided, loop = self._loops.get(identity, (None, None))
        if decided is None:
            return None
        if self.outside_changes(decided.queues) == decided.outside_changes:
            return loop
        del self._loops[identity]
        return None

    def loops(self) -> list[PreemptionLoop]:
        """Return the loops that go on, each once."""
        return list({id(loop): loop for key in list(self._loops) if (loop := self.loop_of(key)) is not None}.values())

    # --- The guard [LG6] ----------------------------------------------------------------------------------------------

    def delayed_until(
        self, queues: tuple[str, ...], preemptor: str, targets: tuple[str, ...], now: Nanoseconds
    ) -> Nanoseconds | None:
        """Return until when a preemption is delayed because it was decided `ROUNDS` times on the same facts; None if it
        may be carried out."""
        self._follow_clock(now)
        decided = self._decided_now(queues, preemptor, targets, now)
        repeated = self._decided.get(decided)
        if repeated is None or repeated.times < ROUNDS:
            return None
        if not repeated.held_until:
            repeated.delays += 1
            repeated.delay = min(max(2 * repeated.delay, DELAY_MIN), DELAY_MAX)
            repeated.held_until = now + repeated.delay
        elif repeated.held_until <= now:
            return None
        self._held[decided] = repeated.held_until
        return repeated.held_until

    def take_due(self, now: Nanoseconds) -> Iterator[str]:
        """Return and clear the delays that are over, or that an outside change has ended: a ClusterQueue of each."""
        self._follow_clock(now)
        for decided, until in list(self._held.items()):
            if until <= now or self.outside_changes(decided.queues) != decided.outside_changes:
                del self._held[decided]
                yield decided.queues[0]

    def _follow_clock(self, now: Nanoseconds) -> None:
        """Delay nothing by more than its delay after the clock was set back [CS6]."""
        if now < self._seen_at:
            for decided in self._held:
                repeated = self._decided.get(decided)
                if repeated is not None:
                    repeated.held_until = min(repeated.held_until, now + repeated.delay)
                    self._held[decided] = repeated.held_until
        self._seen_at = now

    @property
    def next_due(self) -> Nanoseconds | None:
        """When the next delay is over."""
        return min((until for until in self._held.values() if until != _FOR_EVER), default=None)

    def hold_settled(self) -> list[PreemptionLoop]:
        """Hold the delayed preemptions of settled loops until an outside change, and return these loops."""
        settled: dict[int, PreemptionLoop] = {}
        for decided in self._held:
            repeated = self._decided.get(decided)
            loop = self.loop_of(decided.preemptor)
            if repeated is not None and loop is not None and repeated.delays >= _SETTLED_DELAYS:
                repeated.held_until = self._held[decided] = _FOR_EVER
                settled[id(loop)] = loop
        return list(settled.values())
