"""Load shedding: what is too much is refused at once, so that what is not goes on.

A cap on requests in flight, a bucket of tokens for each user, a cap on watches. The process's own controllers do not
come through here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pykueue.apiserver import status
from pykueue.clock import Clock


@dataclass(frozen=True, slots=True)
class Caps:
    in_flight_max: int = 256
    watches_max: int = 500
    rate_per_second: float = 4_000.0
    burst: float = 8_000.0


class Shedder:
    """Counts requests, and refuses the one too many with 429."""

    def __init__(self, clock: Clock, caps: Caps | None = None) -> None:
        self._clock = clock
        self._caps = caps or Caps()
        self._in_flight = 0
        # For each user: tokens left, and when they were counted.
        self._buckets: dict[str, tuple[float, float]] = {}

    @contextmanager
    def request(self, user: str) -> Iterator[None]:
        self._take(user)
        if self._in_flight >= self._caps.in_flight_max:
            raise status.too_many_requests("too many requests are in flight, please try again later")
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def _take(self, user: str) -> None:
        now, caps = self._clock.monotonic(), self._caps
        tokens, since = self._buckets.get(user, (caps.burst, now))
        tokens = min(caps.burst, tokens + (now - since) * caps.rate_per_second)
        if tokens < 1.0:
            self._buckets[user] = (tokens, now)
            raise status.too_many_requests("this user sends more requests than are served, please try again later")
        if len(self._buckets) > 1_000:
            self._buckets.clear()
        self._buckets[user] = (tokens - 1.0, now)

    def check_watches(self, open_now: int) -> None:
        if open_now >= self._caps.watches_max:
            raise status.too_many_requests(f"{open_now} watches are open, which is all there can be")
