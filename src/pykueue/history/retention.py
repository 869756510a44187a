"""The time by which old records are deleted: one that a wrong system clock does not reach [HI15].

A manager looks at its clock at its start and once an hour. `ran` is for how long managers have run on the file, by the
monotonic clock; a *look* is what the clock showed at that time. The time of the retention is the least that any look of
the last days of running gives, continued by what has run since:

    shown │            ╭─╮ a clock that is wrong and put back
          │        ╭── │ │     ╭── after a stop of the managers
          │   ╭────────╯ ╰─────╯ ·····  TRIED_SECONDS later this step counts
          └──────────────────────────── ran

A clock that is set ahead looks like a clock that went on while no manager ran. They differ only in the time for which
they stay so, and both are waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pykueue.history.records import Seconds

# For how long of running a clock must have been ahead before records are deleted by it.
TRIED_SECONDS: Final = 7 * 86_400


class ClockLook(NamedTuple):
    """What the system clock showed after managers had run for so many seconds."""

    ran: int
    shown: Seconds

    @property
    def offset(self) -> int:
        return self.shown - self.ran


def looked(looks: Sequence[ClockLook], look: ClockLook) -> tuple[ClockLook, ...]:
    """Return the looks with a new one, without those that cannot give the least time any more.

    An earlier look with an offset at least as large leaves before the new one does. So the offsets grow, the first look
    gives the least time, and a clock that runs evenly has one look.
    """
    recent = [each for each in looks if each.ran > look.ran - TRIED_SECONDS and each.offset < look.offset]
    if recent and recent[-1].ran == look.ran:
        return tuple(recent)
    return (*recent, look)


def time(looks: Sequence[ClockLook]) -> Seconds:
    """The time by which records are deleted, at the last look."""
    return looks[-1].ran + looks[0].offset
