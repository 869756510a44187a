"""The indexes of a Job as its status writes them: `1,3-5` stands for four of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def parse(text: str, below: int) -> Iterator[int]:
    """The numbers that a text stands for, as far as there are so many; what cannot be read is left out."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), min(int(last or first), below - 1) + 1)


def format(numbers: Iterable[int]) -> str:
    """The shortest such text: three and more in a row are written as a range."""
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
