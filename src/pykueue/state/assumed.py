"""Assumed reservations: decided, and not confirmed by a read of the object yet.

Between the decision and the moment the API shows it, a reservation exists only here. Quota would be given twice if an
old read, or a lost answer, were taken for "it was not written". So:

    stage      what is known                        what ends it
    assumed    the write is being sent              its answer: written, refused, or lost
    written    it is stored at this revision        a read at or above that revision, whatever it shows
    unknown    the answer was lost                  a read that shows the reservation: it was written;
                                                    a read of another revision without it: the write, which is
                                                    conditional on its revision, can never be applied any more
    confirmed  (not kept here)                      the object shows the reservation

A read of the very revision that the write is conditional on settles nothing: the write may still arrive. That holds
also if the object shows a reservation there: it is the one before, which a second pass replaces.
"""

from __future__ import annotations

from enum import Enum, auto

import msgspec


class WriteStage(Enum):
    ASSUMED = auto()
    WRITTEN = auto()
    UNKNOWN = auto()


class ReadOutcome(Enum):
    """What a read of the object means for an assumed reservation."""

    KEEP = auto()  # the read is too old: the reservation stands
    CONFIRMED = auto()  # the object shows the reservation
    FREE = auto()  # there is no such reservation, and there will not be


class AssumedReservation(msgspec.Struct):
    base: int  # the revision that the write is conditional on; 0: not known
    stage: WriteStage = WriteStage.ASSUMED
    revision: int = 0  # where it was stored, once that is known


class AssumedReservations:
    """Reservations that no read of their object has confirmed yet."""

    def __init__(self) -> None:
        self._reservations: dict[str, AssumedReservation] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._reservations

    def __len__(self) -> int:
        return len(self._reservations)

    def stage(self, key: str) -> WriteStage | None:
        assumed = self._reservations.get(key)
        return assumed.stage if assumed is not None else None

    def assume(self, key: str, base: str) -> None:
        """Add a reservation that was decided; its write is conditional on this revision of the object."""
        self._reservations[key] = AssumedReservation(_number(base))

    def written(self, key: str, revision: str) -> None:
        """Record that the server stored the reservation."""
        assumed = self._reservations.get(key)
        if assumed is not None:
            assumed.stage, assumed.revision = WriteStage.WRITTEN, _number(revision)

    def lost(self, key: str) -> None:
        """Record that no answer came: the write may have been applied, or may be applied later."""
        assumed = self._reservations.get(key)
        if assumed is not None and assumed.stage is WriteStage.ASSUMED:
            assumed.stage = WriteStage.UNKNOWN

    def end(self, key: str) -> None:
        """Remove a reservation: it was refused or confirmed, or the Workload was deleted."""
        self._reservations.pop(key, None)

    def read(self, key: str, revision: str, *, shows_it: bool) -> ReadOutcome:
        """Return what a read of the object at this revision means; it may settle the reservation."""
        assumed = self._reservations.get(key)
        number = _number(revision)
        if shows_it and (assumed is None or assumed.base == 0 or number > assumed.base):
            self.end(key)
            return ReadOutcome.CONFIRMED
        if assumed is None:
            return ReadOutcome.FREE
        match assumed.stage:
            case WriteStage.ASSUMED:
                return ReadOutcome.KEEP  # the answer to the write decides
            case WriteStage.WRITTEN:
                settled = number >= assumed.revision
            case WriteStage.UNKNOWN:
                settled = number > assumed.base
        if not settled:
            return ReadOutcome.KEEP
        self.end(key)
        return ReadOutcome.FREE


def is_older(revision: str, than: str) -> bool:
    return _number(revision) < _number(than)


def _number(revision: str) -> int:
    """Return a revision as a number. Revisions of one server grow; one that is no number is older than all."""
    return int(revision) if revision.isdigit() else 0
