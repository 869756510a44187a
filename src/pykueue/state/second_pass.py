"""Workloads that hold quota and have to be looked at once more: for a placement that was put off until checks had
passed, or for a node that is lost ([TS25])."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.core.workload import Reservation, ScanPosition, WorkloadInfo

_LONGEST_PAUSE_SECONDS: Final = 30


class SecondPasses:
    """Those who are to be looked at, each as a head of its queue."""

    def __init__(self) -> None:
        self.heads: dict[str, WorkloadInfo] = {}
        self._tries: dict[str, int] = {}  # those that did not work

    def put(self, head: WorkloadInfo, reservation: Reservation) -> None:
        head.reservation = reservation
        head.held_back, head.back_off_until = False, None  # what holds back a pending one means nothing here
        self.heads[head.key] = head

    def drop(self, key: str) -> None:
        self.heads.pop(key, None)

    def pop(self, key: str) -> WorkloadInfo:
        """It worked."""
        return self.heads.pop(key)

    def end(self, key: str) -> None:
        """None is needed any more, and earlier ones do not count against the next."""
        self.heads.pop(key, None)
        self._tries.pop(key, None)

    def due(self, now: Nanoseconds) -> Iterator[WorkloadInfo]:
        for key in sorted(self.heads):
            head = self.heads[key]
            if head.may_compete(now):
                yield head

    def try_later(self, key: str, now: Nanoseconds, scan: ScanPosition | None = None) -> None:
        """[TS26] A failed second pass is tried again, at ever longer intervals. Its next scan continues at `scan`."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        self.heads[key].scan_position = scan
        self.heads[key].back_off_until = now + min(2 ** (tries - 1), _LONGEST_PAUSE_SECONDS) * SECOND

    def has_failed(self, key: str) -> bool:
        return key in self._tries

    def pauses(self) -> Iterator[Nanoseconds]:
        """When those that are not due will be."""
        return (head.back_off_until for head in self.heads.values() if head.back_off_until is not None)
