"""When a job ran and how it ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RunFacts:
    """When a job ran and how it ended. Empty fields are not known."""

    started: str = ""
    ended: str = ""
    ran_seconds: int | None = None
    exit_code: int | None = None
    evictions: int = 0
    user: str = ""


NO_RUN: Final = RunFacts()
