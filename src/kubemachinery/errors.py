"""The family tree of this program's exceptions.

    PykueueError
    ├── UsageError          the call or the input is wrong: one sentence, exit code 2
    │   └── ConfigurationError   the Configuration is wrong; carries every finding
    └── AnswerIsNo          the command worked and the answer is no: exit code 1

Inside the pure rooms outcomes are values; an exception there means a promise was broken.
"""

from __future__ import annotations

from collections.abc import Sequence


class PykueueError(Exception):
    """Anything this program raises on purpose."""


class UsageError(PykueueError):
    """The call or the input is wrong. The message is one sentence that says where and what."""


class ConfigurationError(UsageError):
    """The Configuration cannot be used. Every finding is a sentence that starts with its path."""

    def __init__(self, source: str, findings: Sequence[str]) -> None:
        self.source = source
        self.findings = tuple(findings)
        first = self.findings[0] if self.findings else "unusable"
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        super().__init__(f"{source}: {first}{more}")


class AnswerIsNo(PykueueError):
    """The command did its work, and the answer is no."""
