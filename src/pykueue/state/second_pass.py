"""Workloads that hold quota and need a second scheduling pass: for a placement that was deferred until the checks
passed, or for a node that failed ([TS25]).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core.workload import Reservation, ScanPosition, WorkloadInfo

_LONGEST_PAUSE_SECONDS: Final = 30


class SecondPasses:
    """The Workloads that need a second pass, each as a head of its queue."""

    def __init__(self) -> None:
        self.heads: dict[str, WorkloadInfo] = {}
        self._tries: dict[str, int] = {}  # failed second passes

    def put(self, head: WorkloadInfo, reservation: Reservation) -> None:
        head.reservation = reservation
        head.held_back, head.back_off_until = False, None  # these apply to pending Workloads only
        self.heads[head.key] = head

    def drop(self, key: str) -> None:
        self.heads.pop(key, None)

    def pop(self, key: str) -> WorkloadInfo:
        """Remove a Workload whose second pass succeeded."""
        return self.heads.pop(key)

    def end(self, key: str) -> None:
        """Remove a Workload that needs no second pass any more, with its count of failures."""
        self.heads.pop(key, None)
        self._tries.pop(key, None)

    def due(self, now: Nanoseconds) -> Iterator[WorkloadInfo]:
        for key in sorted(self.heads):
            head = self.heads[key]
            if head.may_compete(now):
                yield head

    def try_later(self, key: str, now: Nanoseconds, scan: ScanPosition | None = None) -> None:
        """Retry a failed second pass after a growing backoff [TS26]. Its next scan continues at `scan`."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        self.heads[key].scan_position = scan
        self.heads[key].back_off_until = now + min(2 ** (tries - 1), _LONGEST_PAUSE_SECONDS) * SECOND

    def has_failed(self, key: str) -> bool:
        return key in self._tries

    def backoff_ends(self) -> Iterator[Nanoseconds]:
        """Return when the backoffs end."""
        return (head.back_off_until for head in self.heads.values() if head.back_off_until is not None)
