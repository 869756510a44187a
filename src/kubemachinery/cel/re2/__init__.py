"""Regular expressions in the RE2 syntax of Kubernetes, matched in time linear in the text.

Patterns are untrusted: a CRD's `pattern`, a rule's `matches()`. Python's `re` backtracks, so `(a+)+$` on forty
letters would stop the server; its semantics also differ (`$` before a final newline, `\\d` beyond ASCII).
Therefore this is a small engine: parse, compile to a program of four instructions, then

- `search` walks a deterministic automaton that is built lazily and cached, one dictionary look-up per character;
- `find` runs the threads of the program side by side in order of preference (leftmost, then first alternative).

Constructs that RE2 refuses (back-references, look-around) are refused here, with the position, as are patterns with too
large a program. A search that would take too many steps raises `TooCostly`.
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
