"""The decision: all pod sets of one workload get their place, or the first failure says why not."""

from __future__ import annotations

from collections.abc import Sequence

from pykueue.core.topology.failure import Outcome
from pykueue.core.topology.fleet import Fleet
from pykueue.core.topology.values import PlacementRequest


def place(fleet: Fleet, requests: Sequence[PlacementRequest], *, emptied: bool = False) -> Outcome:
    """Place the pod sets of one workload, in the order of its spec; `emptied` ignores all usage by placed workloads."""
    raise NotImplementedError
