"""Whether the pods of a Workload have come up, as whoever runs the job writes it; and pods that are done early."""

from __future__ import annotations

from collections.abc import Mapping

from pykueue.api.kueue import Workload
from pykueue.lifecycle.change import Changes
from pykueue.lifecycle.facts import Options


def pods_ready(workload: Workload, is_ready: bool, options: Options) -> Changes:
    """`PodsReady` for a job whose pods are, or are not, all ready now. Nothing where waitForPodsReady is off."""
    raise NotImplementedError


def reclaim(workload: Workload, done: Mapping[str, int]) -> Changes:
    """Pods of each set that are done and will not come back, never more than the set has."""
    raise NotImplementedError
