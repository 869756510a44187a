"""Regular expressions in the RE2 syntax of Kubernetes, matched in time linear in the text.

Patterns come from strangers: a CRD's `pattern`, a rule's `matches()`. Python's `re` backtracks, so `(a+)+$` on forty
letters would stop the server; it also reads a few things differently (`$` before a final newline, `\\d` beyond ASCII).
So this is a small engine of its own: parse, compile to a program of four instructions, then

- `search` walks a deterministic automaton that is built lazily and remembered, one dictionary look-up per character;
- `find` runs the threads of the program side by side in order of preference (leftmost, then first alternative).

What RE2 refuses (back-references, look-around) is refused here, with the place. A pattern whose program would be too
large is refused, and a search that would take too many steps raises `TooCostly` instead of going on.
"""

from __future__ import annotations

from functools import lru_cache

from kubemachinery.cel.re2.errors import PatternError, TooCostly
from kubemachinery.cel.re2.matching import Pattern

__all__ = ["Pattern", "PatternError", "TooCostly", "compile"]


@lru_cache(maxsize=1024)
def compile(pattern: str) -> Pattern:
    """The pattern ready to use; raises `PatternError`."""
    return Pattern(pattern)
