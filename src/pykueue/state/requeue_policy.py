"""Where a head that was not admitted goes: back to the active Workloads, or inadmissible, alone or with its class."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pykueue.api.kueue import QueueingStrategy
from pykueue.core.decision import Requeue

RETRIED_AT_ONCE: Final = frozenset(
    {
        Requeue.FAILED_AFTER_NOMINATION,
        Requeue.PENDING_PREEMPTION,
        Requeue.PENDING_MIGRATION,
    }
)
"""Reasons after which a head of a BestEffortFIFO queue competes again in the next cycle [QU22]."""

PARKS_EQUIVALENT: Final = frozenset({Requeue.NO_FIT, Requeue.PREEMPTION_NO_CANDIDATES})
"""Reasons that hold for every Workload of the same equivalence class [QU13]."""

MARKS_PREEMPTOR: Final = frozenset({Requeue.PENDING_PREEMPTION, Requeue.PENDING_MIGRATION})
"""Reasons that make a head the preemptor of its queue [QU4]."""


class RequeueTarget(Enum):
    ACTIVE = auto()
    INADMISSIBLE = auto()
    INADMISSIBLE_CLASS = auto()  # with all Workloads of its equivalence class


def target(
    requeue: Requeue, strategy: QueueingStrategy, *, may_compete: bool, has_reason_to_retry: bool, parks_class: bool
) -> RequeueTarget:
    """Return where a head goes [QU22].

    `has_reason_to_retry`: the queue was released during the cycle, or flavors are left that were not tried.
    `parks_class`: whether results are shared by an equivalence class at all.
    """
    if strategy is QueueingStrategy.STRICT_FIFO:
        at_once = requeue is not Requeue.NAMESPACE_MISMATCH
    else:
        at_once = requeue in RETRIED_AT_ONCE
    if may_compete and (at_once or has_reason_to_retry):
        return RequeueTarget.ACTIVE
    if parks_class and requeue in PARKS_EQUIVALENT and strategy is QueueingStrategy.BEST_EFFORT_FIFO:
        return RequeueTarget.INADMISSIBLE_CLASS
    return RequeueTarget.INADMISSIBLE
