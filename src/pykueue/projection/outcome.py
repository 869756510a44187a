"""What a run found: the attempts of every Workload, with their times and what they used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from kubemachinery.meta import Nanoseconds

UsageAmounts: TypeAlias = tuple[tuple[str, str, int], ...]
"""Flavor, resource, amount as quota counts it."""


class Release(NamedTuple):
    """What let a Workload in: the end of another attempt, or of its own wait, or a change of quota. `key` is empty
    without another attempt."""

    at: Nanoseconds
    key: str = ""
    reason: str = ""  # of the end; or what changed


class ProjectedAttempt(msgspec.Struct, eq=False):
    """One reservation of quota in a run: from QuotaReserved until the quota is released."""

    key: str
    uid: str
    number: int
    cluster_queue: str
    reserved: Nanoseconds
    usage: UsageAmounts = ()
    counts: tuple[tuple[str, int], ...] = ()  # pods by pod set
    admitted: Nanoseconds | None = None
    # When it ends by itself; None: not known, or not admitted yet.
    ends: Nanoseconds | None = None
    # When the eviction began, and which Workload preempted it.
    evicted: Nanoseconds | None = None
    preemptor: str = ""
    released: Nanoseconds | None = None
    # Why it ended: `Finished`, or the reason of the eviction.
    reason: str = ""
    because: Release | None = None


class Projection(msgspec.Struct):
    """The result of a run."""

    began: Nanoseconds
    # The time of the last event that was handled.
    reached: Nanoseconds
    attempts: list[ProjectedAttempt] = msgspec.field(default_factory=list)
    # The Workloads without quota at the end, and when each became pending last.
    pending: dict[str, Nanoseconds] = msgspec.field(default_factory=dict)
    # The Workloads that hold quota and whose end is not known.
    endless: tuple[str, ...] = ()
    # The Workloads that an admission check has rejected.
    rejected: set[str] = msgspec.field(default_factory=set)
    decisions: int = 0
    # How often a preemption loop was found.
    loops: int = 0
    # The Workloads that are in a preemption loop at the end, of a run that skips loops.
    looping: tuple[str, ...] = ()
    # The Workloads that were in a preemption loop at any time, of a run that skips loops.
    looped: set[str] = msgspec.field(default_factory=set)
    # False if the effort was used up before the end of the run, or the run was stalled.
    is_complete: bool = True
    # Whether it ended because it made no progress.
    is_stalled: bool = False
    # Whether it ended because nothing was left to happen.
    has_run_out: bool = False

    def starts(self) -> dict[str, Nanoseconds]:
        """The first admission of each Workload after the run began."""
        return {key: attempt.admitted or 0 for key, attempt in self.first_attempts().items()}

    def first_attempts(self) -> dict[str, ProjectedAttempt]:
        """The attempt of each Workload that was admitted first after the run began."""
        found: dict[str, ProjectedAttempt] = {}
        for attempt in self.attempts:
            if attempt.admitted is not None and attempt.admitted >= self.began:
                found.setdefault(attempt.key, attempt)
        return found


class UsageChange(NamedTuple):
    """A change of the reserved amount of a ClusterQueue."""

    at: Nanoseconds
    cluster_queue: str
    flavor: str
    resource: str
    amount: int


def usage_changes(projection: Projection) -> Iterator[UsageChange]:
    """The changes of reserved amounts, in the order of time. Attempts that held quota when the run began count from
    its begin."""
    edges = [
        (at, sign, attempt)
        for attempt in projection.attempts
        for at, sign in ((max(attempt.reserved, projection.began), 1), (attempt.released, -1))
        if at is not None
    ]
    for at, sign, attempt in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        for flavor, resource, amount in attempt.usage:
            yield UsageChange(at, attempt.cluster_queue, flavor, resource, sign * amount)
