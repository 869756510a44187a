"""Reservations that are on their way: what is assumed, what is unknown, what stands.

    free ──assume──▶ assumed ──answered──▶ booked ──seen at its revision──▶ (the object itself says so)
                        │  ╲──refused──▶ free
                        ╰──lost──▶ unknown ──answered / refused──▶ booked / free

A booking counts against quota from the moment it is assumed. An answer that was lost does not free it: the write may
have been carried out, or may still be. It stays *unknown* until the write was sent again and answered, or a read at or
above the write's revision has shown what became of it. Because the write is conditional on the revision it was decided
on, at most one of any number of attempts is ever carried out.

While a booking stands here, older news about its object is held back: a watch that lags behind (or a relist) must not
take away a reservation that the server has already acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    ASSUMED = "assumed"
    UNKNOWN = "unknown"
    BOOKED = "booked"


@dataclass(slots=True)
class Booking:
    """One reservation that the object in the local copy does not show yet."""

    uid: str
    # The revision of the object that the decision was made on; the write is conditional on it.
    based_on: int
    standing: Standing = Standing.ASSUMED
    # The revision that the write made, once it is known.
    revision: int = 0


class Bookings:
    """One owner, no I/O. The caller tells what happened, and asks whether news may pass."""

    def __init__(self) -> None:
        self._by_key: dict[str, Booking] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def standing(self, key: str) -> Standing | None:
        booking = self._by_key.get(key)
        return booking.standing if booking is not None else None

    def assume(self, key: str, uid: str, based_on: int) -> None:
        """A reservation was decided, and its write goes out."""
        if key in self._by_key:
            raise ValueError(f"{key} is {self._by_key[key].standing} already and cannot be booked twice")
        self._by_key[key] = Booking(uid, based_on)

    def answered(self, key: str, revision: int) -> None:
        """The server carried the write out."""
        booking = self._by_key[key]
        booking.standing, booking.revision = Standing.BOOKED, revision

    def lost(self, key: str) -> None:
        """No answer came. Nobody knows."""
        self._by_key[key].standing = Standing.UNKNOWN

    def refused(self, key: str) -> None:
        """The server said no, or a later read shows that the write can never land: free again."""
        del self._by_key[key]

    def may_pass(self, key: str, uid: str, revision: int) -> bool:
        """Whether news about an object may reach the memory. News that settles a booking ends it.

        Another uid is another object: what was booked for the old one is gone with it.
        """
        booking = self._by_key.get(key)
        if booking is None:
            return True
        if booking.uid != uid or (booking.standing is Standing.BOOKED and revision >= booking.revision):
            del self._by_key[key]
            return True
        return False

    def gone(self, key: str) -> None:
        """The object was deleted; nothing is booked for what is not there."""
        self._by_key.pop(key, None)
