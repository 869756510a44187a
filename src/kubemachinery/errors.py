"""The base of all exceptions that are raised on purpose; their message is meant for users.

    ProgramError
    └── UsageError      the call or the input is wrong

Pure packages return outcomes as values; an exception there means a broken invariant.
"""

from __future__ import annotations


class ProgramError(Exception):
    """An exception raised on purpose. The message is complete without a traceback."""


class UsageError(ProgramError):
    """The call or the input is wrong. The message is one sentence with the place and the reason."""
