"""How a life ends: Finished, which is never taken back."""

from __future__ import annotations

from pykueue.api.conditions import FinishedReason
from pykueue.api.kueue import Workload
from pykueue.api.meta import Nanoseconds
from pykueue.lifecycle.change import Changes


def finish(workload: Workload, reason: FinishedReason, message: str, now: Nanoseconds) -> Changes:
    """Say that it is over. What it held stays written, and counts no more. Nothing, if it was over before."""
    raise NotImplementedError
