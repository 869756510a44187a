"""The clock interface, and the clock of the operating system.

Packages that need the time get a `Clock` as an argument. Waiting uses the time of the event loop (`asyncio.sleep`,
`asyncio.timeout`), so a loop with virtual time and a clock that reads it simulate a day in a moment.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time and monotonic time."""

    def now(self) -> int:
        """Nanoseconds since 1970. May jump when the clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment. Never decreases."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()
