"""What a clock is, and the clock of the system.

Rooms that need the time are handed a `Clock`. Waiting is done with the event loop's own time (`asyncio.sleep`,
`asyncio.timeout`), so a loop with virtual time and a clock that reads it move a whole system through a day in a moment.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two questions: what time is it for people, and how much time has passed."""

    def now(self) -> int:
        """Nanoseconds since 1970. May jump when somebody sets the clock."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment. Never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()
