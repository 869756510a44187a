"""Preemption targets: which reservations to evict so that a Workload fits (rules PR without fair sharing, rules FS with
it).

`find` is the only entry point. A search leaves the snapshot as it was.
"""

from __future__ import annotations

from pykueue.core.preemption import classical, fair
from pykueue.core.preemption.search import PreemptionTarget, TargetSearch

__all__ = ["PreemptionTarget", "TargetSearch", "find"]


def find(search: TargetSearch) -> list[PreemptionTarget]:
    """The targets whose eviction makes the Workload fit; empty if no permitted set of targets does."""
    if search.policy.is_fair:
        return fair.find(search)
    return classical.find(search)
