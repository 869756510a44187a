"""The backoff of a requeued Workload."""

from __future__ import annotations

from typing import Final

from kubemachinery.meta import SECOND, Nanoseconds, parse_time

_SPREAD: Final = 0.0001
_MOST_DOUBLINGS: Final = 40
_LATEST: Final = parse_time("9999-12-31T23:59:59Z")


def delay_seconds(attempt: int, base_seconds: int, longest_seconds: int, jitter: float = 0.0) -> float:
    """The delay before attempt `attempt`, counted from 1: doubled each time, plus jitter, at most the maximum [LC53].

    A maximum of 0 means no limit. `jitter`, from 0 up to 1, spreads Workloads that were requeued together.
    """
    doublings = min(max(0, attempt - 1), _MOST_DOUBLINGS)
    wait: float = base_seconds * (1 << doublings) * (1 + _SPREAD * jitter)
    return min(wait, longest_seconds) if longest_seconds else wait


def written(at: Nanoseconds) -> Nanoseconds:
    """A time that can be written: in whole seconds, and in a year of four digits."""
    return min(at, _LATEST) // SECOND * SECOND


def later(at: Nanoseconds, than: Nanoseconds | None) -> Nanoseconds:
    """The later of two times: `requeueAt` never moves to an earlier time."""
    return at if than is None else max(at, than)
