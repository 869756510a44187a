"""The exceptions of pykueue, and the exit codes of its commands.

    PykueueError (kubemachinery.errors.ProgramError)    every exception raised on purpose, with a message for users
    ├── UsageError (kubemachinery.errors)               the call or the input is wrong: exit code 2
    │   └── ConfigurationError                          the Configuration is invalid; carries every error found
    ├── NegativeResult                                  the command worked and its result is negative: exit code 1
    └── KubeError (kubemachinery.client.errors)         a request to the API server failed

Pure packages return outcomes as values; an exception there means a broken invariant.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubemachinery.errors import ProgramError, UsageError

__all__ = ["ConfigurationError", "NegativeResult", "PykueueError", "UsageError"]

# One class to catch for users of `pykueue.Client`: errors of the API machinery are included.
PykueueError = ProgramError


class ConfigurationError(UsageError):
    """The Configuration cannot be used. Every finding is a sentence that starts with its path."""

    def __init__(self, source: str, findings: Sequence[str]) -> None:
        self.source = source
        self.findings = tuple(findings)
        first = self.findings[0] if self.findings else "unusable"
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        super().__init__(f"{source}: {first}{more}")


class NegativeResult(ProgramError):
    """The command did its work and the result is negative: the job failed, the wait timed out, a check found errors."""
