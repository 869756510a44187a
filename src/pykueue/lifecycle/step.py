"""What is due for one Workload now: the rules, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from pykueue.api.kueue import Workload
from pykueue.api.meta import Nanoseconds
from pykueue.lifecycle.change import Changes
from pykueue.lifecycle.facts import Facts, Options


@dataclass(frozen=True, slots=True)
class Step:
    """What to write and tell now, when to look again, and whether the scheduler has to look at the reservation.

    All changes are on the status, or all are on the object: one write carries them.
    """

    changes: Changes = ()
    wake_at: Nanoseconds | None = None
    recheck: bool = False


def step(workload: Workload, facts: Facts, options: Options, now: Nanoseconds, *, jitter: float = 0.0) -> Step:
    """What is due now. `jitter`, from 0 up to 1, spreads those that were put back together."""
    raise NotImplementedError
