"""The status of ClusterQueues, LocalQueues and Cohorts, and whether what others refer to may go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pykueue.api.kueue import (
    AdmissionFairSharingStatus,
    ClusterQueue,
    ClusterQueueStatus,
    Cohort,
    CohortStatus,
    LocalQueue,
    LocalQueueStatus,
)
from pykueue.api.meta import Nanoseconds, ObjectMeta
from pykueue.api.quantity import QuantityText

Flavor: TypeAlias = str
Resource: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Taken:
    """How much of one resource of one flavor is taken, and what of it is borrowed, as quantities are written."""

    total: QuantityText = 0
    borrowed: QuantityText = 0


Usage: TypeAlias = Mapping[tuple[Flavor, Resource], Taken]


@dataclass(frozen=True, slots=True)
class Counted:
    """What the memory knows of one queue."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reservation: Usage = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    # Thousandths, rounded up; infinite for a weight of 0. None where fair sharing is off.
    weighted_share: float | None = None


@dataclass(frozen=True, slots=True)
class KnownCheck:
    """An AdmissionCheck as a ClusterQueue sees it."""

    is_active: bool = True
    controller: str = ""


@dataclass(frozen=True, slots=True)
class References:
    """The objects that a ClusterQueue may refer to: flavors with their topology's name, topologies, checks."""

    flavors: Mapping[str, str] = field(default_factory=dict)
    topologies: frozenset[str] = frozenset()
    checks: Mapping[str, KnownCheck] = field(default_factory=dict)


def blockers(cluster_queue: ClusterQueue, references: References) -> tuple[tuple[str, str], ...]:
    """Why the queue cannot admit, as reason and sentence, the first one first; empty when it can."""
    raise NotImplementedError


def cluster_queue_status(
    cluster_queue: ClusterQueue, references: References, counted: Counted, now: Nanoseconds
) -> ClusterQueueStatus:
    raise NotImplementedError


def local_queue_status(
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue | None,
    counted: Counted,
    now: Nanoseconds,
    *,
    consumed: AdmissionFairSharingStatus | None = None,
) -> LocalQueueStatus:
    raise NotImplementedError


def cohort_status(cohort: Cohort, weighted_share: float | None) -> CohortStatus:
    raise NotImplementedError


def finalizers(metadata: ObjectMeta, *, is_used: bool) -> tuple[str, ...]:
    """The finalizers that a ClusterQueue, ResourceFlavor, AdmissionCheck or Topology should have now."""
    raise NotImplementedError
