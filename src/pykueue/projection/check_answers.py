"""Admission checks that are decided in a run, such as those of Budgets: the interface that a run asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue
from pykueue.projection.outcome import ProjectedAttempt


class CheckRefusal(NamedTuple):
    """A check that does not pass: its Workload loses its quota, and is requeued at a time; None: it is deactivated."""

    until: Nanoseconds | None


class DueChecks(NamedTuple):
    """What follows from the checks at a time: attempts that are evicted, and Workloads whose wait ends, by key, each
    with what ends it."""

    evicted: Sequence[tuple[str, CheckRefusal]] = ()
    returning: Sequence[tuple[str, str]] = ()


class CheckAnswers(Protocol):
    """The checks of one run. Times are never before those of an earlier call."""

    def answer(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> CheckRefusal | None:
        """The refusal of a Workload with quota whose other checks have passed; None: these pass too."""

    def admitted(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> None:
        """Note that an attempt was admitted, now or at an earlier time."""

    def ended(self, attempt: ProjectedAttempt, now: Nanoseconds) -> None:
        """Note that an attempt released its quota."""

    def waits(self, workload: kueue.Workload, cluster_queue: str, until: Nanoseconds) -> None:
        """Note a Workload that a check has refused, before the run or in it, and when it is requeued at the latest."""

    def left(self, key: str) -> None:
        """Note that a Workload has ended or was deleted."""

    def next_look(self) -> Nanoseconds | None:
        """When `due` may have something next; None: not before another call."""

    def due(self, now: Nanoseconds) -> DueChecks:
        """What follows from the checks at this time."""
