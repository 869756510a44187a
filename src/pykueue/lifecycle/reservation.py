"""Quota given, given back, or found to hold no longer; and `Admitted`, which follows from it."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import Admission, Workload
from pykueue.api.meta import Nanoseconds
from pykueue.lifecycle.change import Changes
from pykueue.lifecycle.facts import Options


def reserve(
    workload: Workload,
    admission: Admission,
    required_checks: Iterable[str],
    options: Options,
    now: Nanoseconds,
    *,
    note: str = "",
) -> Changes:
    """What the scheduler writes, all at once: the quota and, where nothing is left to wait for, Admitted.

    `required_checks` are those of the assigned flavors (`checks.required`); one that is not listed yet means that
    Admitted is left to the controller, which lists it first. `note` is added to the Event.
    """
    raise NotImplementedError


def clear(
    workload: Workload,
    reason: QuotaReservedReason,
    message: str,
    options: Options,
    now: Nanoseconds,
) -> Changes:
    """Take the quota back, without an eviction."""
    raise NotImplementedError


def give_up(workload: Workload, message: str, options: Options, now: Nanoseconds) -> Changes:
    """A reservation that no longer holds when the last check turns Ready: back to the queue, the checks asked anew."""
    raise NotImplementedError


def repair(workload: Workload, admission: Admission) -> Changes:
    """A second pass that worked: the placement, and nodes that need no replacement any more."""
    raise NotImplementedError


def admitted(workload: Workload, options: Options, now: Nanoseconds) -> Changes:
    """`Admitted` as it follows from the rest of the status, with the time banked when it ends."""
    raise NotImplementedError
