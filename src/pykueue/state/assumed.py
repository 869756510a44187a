"""The ledger of reservations whose writing is under way: free -> assumed -> (unknown) -> booked.

Between the decision and the moment the API shows it, a reservation exists only here. Quota is freed too early if an old
read, or a lost answer, is taken for "it was not written"; that is how quota gets given twice. So:

    state      what is known                        what ends it
    assumed    the write is on its way              its answer: written, refused, or lost
    written    it is stored at this revision        a read at or above that revision, whatever it shows
    unknown    the answer was lost                  a read that shows the reservation: it was written;
                                                    a read of another revision without it: the write, which names the
                                                    revision it is for, can never be applied any more
    booked     (not in the ledger)                  the object itself speaks

A read of the very revision the write was made for settles nothing: the write may still arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class WriteStage(Enum):
    ASSUMED = auto()
    WRITTEN = auto()
    UNKNOWN = auto()


class ReadOutcome(Enum):
    """What a read of the object means for a reservation in the ledger."""

    KEEP = auto()  # it is too old to say anything: the reservation stands
    CONFIRMED = auto()  # the object shows the reservation: from now on the object speaks
    FREE = auto()  # there is no such reservation, and there will not be


@dataclass(slots=True)
class AssumedReservation:
    base: int  # the revision that the write is for
    stage: WriteStage = WriteStage.ASSUMED
    revision: int = 0  # where it was stored, once that is known


class AssumedReservations:
    """Reservations that the API has not shown yet."""

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
        """A reservation was decided; it will be written for this revision of the object."""
        self._reservations[key] = AssumedReservation(_number(base))

    def written(self, key: str, revision: str) -> None:
        """The server said yes."""
        assumed = self._reservations.get(key)
        if assumed is not None:
            assumed.stage, assumed.revision = WriteStage.WRITTEN, _number(revision)

    def lost(self, key: str) -> None:
        """No answer came. It may have been applied, or may yet be."""
        assumed = self._reservations.get(key)
        if assumed is not None and assumed.stage is WriteStage.ASSUMED:
            assumed.stage = WriteStage.UNKNOWN

    def end(self, key: str) -> None:
        """The server said no, or the Workload is gone."""
        self._reservations.pop(key, None)

    def read(self, key: str, revision: str, *, shows_it: bool) -> ReadOutcome:
        """What a read of the object at this revision means; it may settle the assumed."""
        assumed = self._reservations.get(key)
        number = _number(revision)
        if shows_it:
            self.end(key)
            return ReadOutcome.CONFIRMED
        if assumed is None:
            return ReadOutcome.FREE
        match assumed.stage:
            case WriteStage.ASSUMED:
                return ReadOutcome.KEEP  # the answer will tell
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
    """Revisions of one server grow; one that is no number is older than all."""
    return int(revision) if revision.isdigit() else 0
