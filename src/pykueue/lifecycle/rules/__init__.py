"""The rules of a Workload's life, one a file; `step` has them in their order.

A rule looks at the Workload and the facts around it and says what is due by it, or nothing. It sees the Workload as the
rules before it left it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from pykueue.api.kueue import Workload
from pykueue.api.meta import Nanoseconds
from pykueue.lifecycle.change import Changes
from pykueue.lifecycle.facts import Facts, Options


@dataclass(frozen=True, slots=True)
class View:
    """What a rule sees."""

    workload: Workload
    facts: Facts
    options: Options
    now: Nanoseconds
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says: what to change, when to look again, and whether that is the last word in this pass."""

    changes: Changes = ()
    wake_at: Nanoseconds | None = None
    recheck: bool = False
    ends: bool = False


Rule: TypeAlias = Callable[[View], Verdict | None]

END: Final = Verdict(ends=True)
