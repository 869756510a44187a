"""Whom to evict so that a Workload fits: §6 without fair sharing, §7 with it.

`find` is the one door. A search leaves the snapshot as it found it.
"""

from __future__ import annotations

from pykueue.core.preemption import classical, fair
from pykueue.core.preemption.search import PreemptionTarget, TargetSearch

__all__ = ["PreemptionTarget", "TargetSearch", "find"]


def find(search: TargetSearch) -> list[PreemptionTarget]:
    """The victims that make room for the Workload, none if no permitted set of victims does."""
    if search.policy.is_fair:
        return fair.find(search)
    return classical.find(search)
