"""How many writes may be in progress at once, found from how long they take.

A server at its limit answers no faster if it has more to answer: further writes only wait there, decisions run ahead of
what has happened, and Workloads are admitted that others preempt before they have run. So the limit follows the time
that writes take, as TCP Vegas does: of `in_progress` writes that take `seconds`, where one alone takes `fastest`,
about `in_progress * (1 - fastest / seconds)` wait.
"""

from __future__ import annotations

from typing import Final

# An API server calls our webhooks for each of them, and keeps at most 25 connections for that.
MOST: Final = 24
LEAST: Final = 6
_FEW_WAITING: Final = 2.0
_MANY_WAITING: Final = 4.0


class WriteLimit:
    """The limit, between LEAST and MOST."""

    __slots__ = ("_fastest_seconds", "value")

    def __init__(self) -> None:
        self.value = LEAST
        self._fastest_seconds = float("inf")

    def answered(self, seconds: float, in_progress: int) -> int:
        """Change the limit after a write that took so long, and return by how much: -1, 0 or 1."""
        self._fastest_seconds = min(self._fastest_seconds, seconds)
        waiting = in_progress * (1 - self._fastest_seconds / seconds) if seconds > 0 else 0.0
        if waiting > _MANY_WAITING and self.value > LEAST:
            change = -1
        elif waiting < _FEW_WAITING and in_progress >= self.value and self.value < MOST:
            change = 1
        else:
            change = 0
        self.value += change
        return change
