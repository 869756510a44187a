"""What can go wrong with a pattern."""

from __future__ import annotations


class PatternError(ValueError):
    """The text is not a regular expression that RE2 accepts; the message has the reason and the position."""


class TooCostly(Exception):
    """The search took more steps than any honest pattern needs."""
