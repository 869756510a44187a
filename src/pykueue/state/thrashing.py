"""Workloads that are preempted again and again, whatever the cause, and hardly run [LG4]."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core.workload import Reservation

PREEMPTIONS_MIN: Final = 5
WITHIN: Final = 3600 * SECOND
# It runs for less than one part in so many.
SHARE: Final = 10
_KEPT_MAX: Final = 10_000


class _PreemptedAttempt(NamedTuple):
    """One reservation that ended in a preemption."""

    reserved: Nanoseconds
    at: Nanoseconds
    admitted: bool


class Thrashing(NamedTuple):
    """A Workload that is preempted again and again. `since` is the reservation before the first counted preemption."""

    workload: str
    cluster_queue: str
    preemptions: int
    since: Nanoseconds
    until: Nanoseconds  # the last preemption
    ran: Nanoseconds


class ThrashingDetector:
    """The last preemptions of each Workload."""

    def __init__(self) -> None:
        self._attempts: OrderedDict[str, deque[_PreemptedAttempt]] = OrderedDict()
        self._queues: dict[str, str] = {}

    def preempted(self, reservation: Reservation, now: Nanoseconds) -> None:
        """Record a preemption that was decided."""
        key = reservation.key
        attempts = self._attempts.setdefault(key, deque(maxlen=PREEMPTIONS_MIN))
        self._attempts.move_to_end(key)
        reserved = now if reservation.reserved_at is None else min(reservation.reserved_at, now)
        attempts.append(_PreemptedAttempt(reserved, now, reservation.admitted))
        self._queues[key] = reservation.cluster_queue
        if len(self._attempts) > _KEPT_MAX:
            oldest, _ = self._attempts.popitem(last=False)
            del self._queues[oldest]

    def forget(self, key: str) -> None:
        """Drop a Workload that ended or was deleted."""
        if self._attempts.pop(key, None) is not None:
            del self._queues[key]

    def found(self, now: Nanoseconds) -> list[Thrashing]:
        """Return the Workloads with five preemptions within the last hour that ran for less than a tenth of the time
        from the reservation before the first of these preemptions to the last."""
        found = []
        for key, attempts in self._attempts.items():
            since, until = attempts[0].reserved, attempts[-1].at
            if len(attempts) < PREEMPTIONS_MIN or now - attempts[0].at > WITHIN:
                continue
            ran = sum(attempt.at - attempt.reserved for attempt in attempts if attempt.admitted)
            if ran * SHARE <= until - since:
                found.append(Thrashing(key, self._queues[key], len(attempts), since, until, ran))
        return found
