"""Admission checks: which a Workload has to pass, what they answered, and in which of the two forms."""

from __future__ import annotations

from pykueue.api.kueue import Admission, AdmissionCheckState, Workload
from pykueue.api.meta import Nanoseconds
from pykueue.lifecycle.facts import ClusterQueueFacts


def required(cluster_queue: ClusterQueueFacts, admission: Admission | None) -> tuple[str, ...]:
    """The names of the checks to pass, sorted: those of the assigned flavors, or, before, those of every flavor."""
    raise NotImplementedError


def reset(checks: tuple[AdmissionCheckState, ...], now: Nanoseconds) -> tuple[AdmissionCheckState, ...]:
    """The checks as an eviction leaves them: to be asked anew."""
    raise NotImplementedError


def may_preempt(workload: Workload, cluster_queue: ClusterQueueFacts, admission: Admission | None = None) -> bool:
    """Whether preemptions may be issued: every check that holds them back is Ready, or some check asks for them."""
    raise NotImplementedError
