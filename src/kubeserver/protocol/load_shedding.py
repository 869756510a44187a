"""Load shedding: excess requests are refused at once, so that the others are served.

A cap on requests in flight, a bucket of tokens for each user, caps on watches and on log streams: for all users, for
each user, and for all users of the role view together, so that neither one user nor all viewers can take every slot.
The process's own controllers do not come through here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from kubemachinery import status
from kubemachinery.clock import Clock
from kubeserver.protocol.authentication import RequestUser

WATCHES: Final = "watches"
LOG_STREAMS: Final = "log streams"


class RequestLimits(msgspec.Struct, frozen=True):
    in_flight_max: int = 256
    watches_max: int = 500
    watches_per_user_max: int = 350
    watches_of_viewers_max: int = 200
    log_streams_max: int = 100
    log_streams_per_user_max: int = 70
    log_streams_of_viewers_max: int = 40
    rate_per_second: float = 4_000.0
    burst: float = 8_000.0


class LoadShedder:
    """Counts requests, and refuses those over a limit with 429."""

    def __init__(self, clock: Clock, caps: RequestLimits | None = None) -> None:
        self._clock = clock
        self._caps = caps or RequestLimits()
        self._in_flight = 0
        # For each user: tokens left, and when they were counted.
        self._buckets: dict[str, tuple[float, float]] = {}
        # Sort of stream -> the most for all users, for one user, for all viewers.
        self._stream_caps = {
            WATCHES: (self._caps.watches_max, self._caps.watches_per_user_max, self._caps.watches_of_viewers_max),
            LOG_STREAMS: (
                self._caps.log_streams_max,
                self._caps.log_streams_per_user_max,
                self._caps.log_streams_of_viewers_max,
            ),
        }
        # Open streams, by sort and user.
        self._streams: dict[str, Counter[RequestUser]] = {sort: Counter() for sort in self._stream_caps}

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

    def check_stream(self, sort: str, user: RequestUser) -> None:
        """Refuse another stream of this type at its limit."""
        together, for_one, for_viewers = self._stream_caps[sort]
        counts = self._streams[sort]
        if counts.total() >= together:
            raise status.too_many_requests(f"{counts.total()} {sort} are open, which is all there can be")
        own = sum(count for other, count in counts.items() if other.name == user.name)
        if own >= for_one:
            raise status.too_many_requests(
                f"{own} {sort} of user {user.name!r} are open, which is all one user can have"
            )
        if user.is_viewer and (viewed := sum(n for other, n in counts.items() if other.is_viewer)) >= for_viewers:
            raise status.too_many_requests(f"{viewed} {sort} of the role view are open, which is all it can have")

    @contextmanager
    def stream(self, sort: str, user: RequestUser) -> Iterator[None]:
        """Count a stream while it is open."""
        counts = self._streams[sort]
        counts[user] += 1
        try:
            yield
        finally:
            counts[user] -= 1
            if not counts[user]:
                del counts[user]
