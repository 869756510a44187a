"""Workloads that hold quota and need a second scheduling pass: for a placement that was deferred until the checks
passed, or for a node that failed ([TS25]).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core.workload import Reservation, ScanPosition, WorkloadInfo

_LONGEST_PAUSE_SECONDS: Final = 30


class PausedSecondPass(NamedTuple):
    """A Workload that needs a second pass, and since when its nodes have failed."""

    head: WorkloadInfo
    failed_since: Nanoseconds | None


class SecondPasses:
    """The Workloads that need a second pass, each as a head of its queue."""

    def __init__(self, replacement_delay: Nanoseconds = 0) -> None:
        self.heads: dict[str, WorkloadInfo] = {}
        self._tries: dict[str, int] = {}  # failed second passes
        self._replacement_delay = replacement_delay
        self._failed_since: dict[str, Nanoseconds] = {}  # of the nodes that are to be replaced

    def put(self, head: WorkloadInfo, reservation: Reservation, now: Nanoseconds) -> None:
        """Add a Workload, or what was read of it again: the delay before the first replacement goes on."""
        head.reservation = reservation
        head.held_back, head.back_off_until = False, None  # those of a pending Workload do not apply
        if reservation.admitted:
            due = self._failed_since.setdefault(head.key, now) + self._replacement_delay
            head.back_off_until = due if due > now else None
        self.heads[head.key] = head

    def drop(self, key: str) -> None:
        self.heads.pop(key, None)
        self._failed_since.pop(key, None)

    def pause(self, key: str) -> PausedSecondPass | None:
        """Remove a Workload whose quota another one has for now, and return what `resume` needs."""
        head, failed_since = self.heads.pop(key, None), self._failed_since.pop(key, None)
        return PausedSecondPass(head, failed_since) if head is not None else None

    def resume(self, paused: PausedSecondPass) -> None:
        """Add a Workload again that has its quota back: its delay and its backoff went on meanwhile."""
        self.heads[paused.head.key] = paused.head
        if paused.failed_since is not None:
            self._failed_since[paused.head.key] = paused.failed_since

    def pop(self, key: str) -> WorkloadInfo:
        """Remove a Workload whose second pass succeeded."""
        self._failed_since.pop(key, None)
        return self.heads.pop(key)

    def end(self, key: str) -> None:
        """Remove a Workload that needs no second pass any more, with its count of failures."""
        self.drop(key)
        self._tries.pop(key, None)

    def due(self, now: Nanoseconds) -> Iterator[WorkloadInfo]:
        for key in sorted(self.heads):
            head = self.heads[key]
            if head.may_compete(now):
                yield head

    @property
    def next_due(self) -> Nanoseconds | None:
        """When the first Workload may be tried; None if none may without a change."""
        heads = (head for head in self.heads.values() if not head.held_back and not head.set_aside)
        return min((head.back_off_until or 0 for head in heads), default=None)

    def try_later(self, key: str, now: Nanoseconds, scan: ScanPosition | None = None) -> None:
        """Retry a failed second pass after a growing backoff [TS26]. Its next scan continues at `scan`. A paused one
        lost its quota earlier in the cycle: it was not tried, and continues when it is resumed."""
        head = self.heads.get(key)
        if head is None:
            return
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        head.scan_position = scan
        head.back_off_until = now + min(2 ** (tries - 1), _LONGEST_PAUSE_SECONDS) * SECOND

    def has_failed(self, key: str) -> bool:
        return key in self._tries

    def backoff_ends(self) -> Iterator[Nanoseconds]:
        """Return when the backoffs end."""
        return (head.back_off_until for head in self.heads.values() if head.back_off_until is not None)
