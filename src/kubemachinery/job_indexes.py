"""Completion indexes of a Job in the format of its status: `1,3-5` is four indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def parse(text: str, below: int) -> Iterator[int]:
    """The indexes of a text that are less than `below`; parts that cannot be parsed are skipped."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), min(int(last or first), below - 1) + 1)


def format(numbers: Iterable[int]) -> str:
    """The shortest text of these indexes: three and more in a row become a range."""
    parts: list[str] = []
    start = last = None
    for number in [*sorted(set(numbers)), None]:
        if last is not None and start is not None and number == last + 1:
            last = number
            continue
        if start is not None and last is not None:
            wide = last - start
            parts.append(str(start) if not wide else f"{start}{'-' if wide > 1 else ','}{last}")
        start = last = number
    return ",".join(parts)
