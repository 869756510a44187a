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


class Stage(Enum):
    ASSUMED = auto()
    WRITTEN = auto()
    UNKNOWN = auto()


class Reading(Enum):
    """What a read of the object means for a reservation in the ledger."""

    KEEP = auto()  # it is too old to say anything: the reservation stands
    BOOKED = auto()  # the object shows the reservation: from now on the object speaks
    FREE = auto()  # there is no such reservation, and there will not be


@dataclass(slots=True)
class Booking:
    base: int  # the revision that the write is for
    stage: Stage = Stage.ASSUMED
    revision: int = 0  # where it was stored, once that is known


class Ledger:
    """Reservations that the API has not shown yet."""

    def __init__(self) -> None:
        self._bookings: dict[str, Booking] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._bookings

    def __len__(self) -> int:
        return len(self._bookings)

    def stage(self, key: str) -> Stage | None:
        booking = self._bookings.get(key)
        return booking.stage if booking is not None else None

    def assume(self, key: str, base: str) -> None:
        """A reservation was decided; it will be written for this revision of the object."""
        self._bookings[key] = Booking(_number(base))

    def written(self, key: str, revision: str) -> None:
        """The server said yes."""
        booking = self._bookings.get(key)
        if booking is not None:
            booking.stage, booking.revision = Stage.WRITTEN, _number(revision)

    def lost(self, key: str) -> None:
        """No answer came. It may have been applied, or may yet be."""
        booking = self._bookings.get(key)
        if booking is not None and booking.stage is Stage.ASSUMED:
            booking.stage = Stage.UNKNOWN

    def end(self, key: str) -> None:
        """The server said no, or the Workload is gone."""
        self._bookings.pop(key, None)

    def read(self, key: str, revision: str, *, shows_it: bool) -> Reading:
        """What a read of the object at this revision means; it may settle the booking."""
        booking = self._bookings.get(key)
        number = _number(revision)
        if shows_it:
            self.end(key)
            return Reading.BOOKED
        if booking is None:
            return Reading.FREE
        match booking.stage:
            case Stage.ASSUMED:
                return Reading.KEEP  # the answer will tell
            case Stage.WRITTEN:
                settled = number >= booking.revision
            case Stage.UNKNOWN:
                settled = number > booking.base
        if not settled:
            return Reading.KEEP
        self.end(key)
        return Reading.FREE


def is_older(revision: str, than: str) -> bool:
    return _number(revision) < _number(than)


def _number(revision: str) -> int:
    """Revisions of one server grow; one that is no number is older than all."""
    return int(revision) if revision.isdigit() else 0
