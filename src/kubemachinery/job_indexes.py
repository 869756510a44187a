"""Completion indexes of a Job in the format of its status: `1,3-5` is four indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

# An index is an int32.
_DIGITS_MAX = 10


def parse(text: str, below: int) -> Iterator[int]:
    """The indexes of a text that are less than `below`, in order; parts that cannot be parsed are skipped. A text of a
    few bytes may contain billions."""
    for span in _spans([text], below):
        yield from span


def count(texts: Iterable[str], below: int) -> int:
    """How many indexes less than `below` are in one of these texts."""
    return sum(len(span) for span in _spans(texts, below))


def among(found: Iterable[int], text: str, below: int) -> int:
    """How many of the indexes `found` are in a text."""
    spans = _spans([text], below)
    starts = [span.start for span in spans]
    return sum(index in spans[bisect_right(starts, index) - 1] for index in found) if spans else 0


def _spans(texts: Iterable[str], below: int) -> list[range]:
    """The ranges of all texts, cut at `below`: in order, not empty, without overlaps."""
    read = []
    for part in (part for text in texts for part in text.split(",")):
        first, _, last = part.partition("-")
        if _is_index(first) and _is_index(last or first):
            read.append((int(first), min(int(last or first), below - 1) + 1))
    found: list[range] = []
    done = 0
    for start, stop in sorted(read):
        if max(start, done) < stop:
            found.append(range(max(start, done), stop))
            done = stop
    return found


def _is_index(text: str) -> bool:
    return len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()


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
