"""The one way in which a Workload loses what it has, and how it comes back."""

from __future__ import annotations

from pykueue.api.conditions import EvictedReason, PreemptedReason, UnderlyingCause
from pykueue.api.kueue import Workload
from pykueue.api.meta import Nanoseconds
from pykueue.lifecycle.change import Changes
from pykueue.lifecycle.facts import Options


def evict(
    workload: Workload,
    reason: EvictedReason,
    message: str,
    now: Nanoseconds,
    *,
    cause: UnderlyingCause = UnderlyingCause.NONE,
) -> Changes:
    """Start an eviction. The quota stays taken until the job has stopped and `release` is written.

    For a deactivation with a cause, `reason` is the `DeactivatedDueTo…` that is stored.
    """
    raise NotImplementedError


def preempt(workload: Workload, reason: PreemptedReason, message: str, now: Nanoseconds, *, note: str = "") -> Changes:
    """Evict a victim. One that is being evicted already is left alone."""
    raise NotImplementedError


def release(workload: Workload, options: Options, now: Nanoseconds) -> Changes:
    """The job of an evicted Workload has stopped: give the quota back and say whether it may be queued at once."""
    raise NotImplementedError
