"""Words of messages that depend on a number."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 job`, `2 jobs`, `1,204 jobs`.

    `plural` is needed if it is not the noun and s, or if the noun comes with its verb: `1 job waits`, `2 jobs wait`.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
