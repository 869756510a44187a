"""Return of freed memory to the operating system, where the C library supports it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    """glibc's `malloc_trim`; None with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None


def give_back() -> None:
    """Return freed pages to the system. glibc keeps free pages between used ones until it is asked.

    Takes some ten milliseconds for a heap of some hundred MiB; Python's lock is free meanwhile.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
