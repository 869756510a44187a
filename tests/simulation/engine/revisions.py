"""What a history is made of. No import here reaches the product, so that the checks are independent of the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Tree: TypeAlias = dict[str, Any]

# Kinds that are written all the time and are irrelevant for queueing.
CHATTER: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io")
# The annotation that marks a write of a user.
BY_HAND: Final = "example.com/by-hand"


@dataclass(frozen=True, slots=True)
class Stored:
    """One revision that the server kept: who, when, and the bytes."""

    seconds: float
    revision: int
    resource: str
    namespace: str
    name: str
    op: str  # ADDED, MODIFIED or DELETED
    body: bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the run, as a position in its history."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be, and was."""

    law: str  # as in the tables of `safety` and `liveness`
    revision: int
    about: str
    what: str

    def __str__(self) -> str:
        return f"{self.law} at revision {self.revision}: {self.about}{': ' if self.about else ''}{self.what}"
