"""How long one that was put back stays out."""

from __future__ import annotations

from typing import Final

from kubemachinery.meta import SECOND, Nanoseconds, parse_time

_SPREAD: Final = 0.0001
_MOST_DOUBLINGS: Final = 40
_LATEST: Final = parse_time("9999-12-31T23:59:59Z")


def delay_seconds(attempt: int, base_seconds: int, longest_seconds: int, jitter: float = 0.0) -> float:
    """The wait before attempt `attempt`, counted from 1: doubling, a little longer by chance, at most the longest.

    A longest of 0 means without limit. `jitter`, from 0 up to 1, keeps those apart that were put back together.
    """
    doublings = min(max(0, attempt - 1), _MOST_DOUBLINGS)
    wait: float = base_seconds * (1 << doublings) * (1 + _SPREAD * jitter)
    return min(wait, longest_seconds) if longest_seconds else wait


def written(at: Nanoseconds) -> Nanoseconds:
    """A time as it can be written: in whole seconds, and in a year of four digits."""
    return min(at, _LATEST) // SECOND * SECOND


def later(at: Nanoseconds, than: Nanoseconds | None) -> Nanoseconds:
    """The time to come back only ever moves later."""
    return at if than is None else max(at, than)
