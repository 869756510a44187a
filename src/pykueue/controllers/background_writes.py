"""Writes on which no admission depends: statuses of queues, reasons why Workloads are pending, and Events.

Each of them takes as much of the server as an admission. In a rush, that is while many decisions are written, they are
a share of these writes, and one in two seconds more [CY27]: a manager that admits faster writes more of them, and their
part of all requests stays the same. A rush of more than two seconds leaves out the Events of admissions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# Decisions within such a second that make a rush.
_RUSH: Final = 20
_RUSH_SECONDS: Final = 1.0
_LONG_RUSH_SECONDS: Final = 2.0
_SHARE: Final = 0.05
_PER_SECOND: Final = 0.5
_AT_ONCE: Final = 10
_LOOK_SECONDS: Final = 0.1


class BackgroundWrites:
    """How many of these writes may be sent. `is_full` returns whether decisions wait to be written."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self._is_full = is_full
        self._last = deque[float](maxlen=_RUSH)  # when the last decisions began to be written
        self._rush_since = 0.0  # when the last decision was made that was not part of a rush
        self._left = float(_AT_ONCE)
        self._counted_at = 0.0

    @property
    def is_rush(self) -> bool:
        """Whether many decisions were made within the last second, or some wait to be written."""
        return (len(self._last) == _RUSH and _now() - self._last[0] < _RUSH_SECONDS) or self._is_full()

    @property
    def is_long_rush(self) -> bool:
        """Whether the present rush has lasted for more than two seconds."""
        return self.is_rush and _now() - self._rush_since > _LONG_RUSH_SECONDS

    def decision_started(self) -> None:
        """Count an admission or an eviction that is to be written."""
        now = _now()
        if not self.is_rush:
            self._rush_since = now
        self._last.append(now)
        self._left = min(_AT_ONCE, self._left + _SHARE)

    def take_now(self) -> bool:
        """Whether one may be sent now; in a rush, it is then counted as sent."""
        if not self.is_rush:
            return True
        now = _now()
        self._left = min(_AT_ONCE, self._left + _PER_SECOND * (now - self._counted_at))
        self._counted_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    async def take(self) -> None:
        """Return when one may be sent."""
        # The share grows with time and with decisions, and the rush ends when there are none.
        while not self.take_now():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()
