"""ClusterQueues, Cohorts and ResourceFlavors as the scheduler sees them: their specs as frozen values.

Names are Kueue's, amounts are integers (`core.amounts`). An absent limit is `UNLIMITED`: no limit and a limit that is
never reached have the same effect, so the arithmetic needs only one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from pykueue.api.kueue import FlavorFungibilityPreference, PreemptionPolicy, QueueingStrategy
from pykueue.core.amounts import UNLIMITED, Amount

if TYPE_CHECKING:
    from pykueue.api.backfill import BackfillSettings
    from pykueue.api.kube import Taint, Toleration


class FlavorResource(NamedTuple):
    """A pair of a flavor and a resource; all quota arithmetic is per such pair."""

    flavor: str
    resource: str


FlavorResourceNumber: TypeAlias = int
"""The number of a flavor-resource in the cohort tree that the ClusterQueue is in (`CohortTree.number`)."""

UsageByNumber: TypeAlias = Mapping[FlavorResourceNumber, Amount]
UsagePairs: TypeAlias = Iterable[tuple[FlavorResourceNumber, Amount]]
"""Amounts of flavor-resources: what a Workload uses of its tree."""


class Quota(NamedTuple):
    """The quota of one flavor-resource; `UNLIMITED` where a limit is absent."""

    nominal: int
    borrowing_limit: int = UNLIMITED
    lending_limit: int = UNLIMITED


class PreemptionPolicies(msgspec.Struct, frozen=True):
    """The preemption settings of a ClusterQueue."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: bool = False
    max_priority_threshold: int | None = None

    @property
    def can_always_reclaim(self) -> bool:
        return self.reclaim_within_cohort is PreemptionPolicy.ANY


class Fungibility(msgspec.Struct, frozen=True):
    """The flavorFungibility of a ClusterQueue: whether a flavor that borrows or preempts ends the walk over the
    flavors, and which of two such flavors is preferred."""

    stop_at_borrowing: bool = True  # whenCanBorrow is MayStopSearch
    stop_at_preempting: bool = False  # whenCanPreempt is MayStopSearch
    preference: FlavorFungibilityPreference = FlavorFungibilityPreference.BORROWING_OVER_PREEMPTION


class ResourceGroupInfo(msgspec.Struct, frozen=True, eq=False):
    """Resources that are always assigned together, from one flavor of an ordered list. Compared by identity."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


class CohortInfo(msgspec.Struct, frozen=True):
    """A Cohort: its parent, its own quota and its weight for fair sharing."""

    name: str
    parent: str = ""
    quotas: Mapping[FlavorResource, Quota] = msgspec.field(default_factory=dict)
    weight: float = 1.0


class QueueSpec(msgspec.Struct, frozen=True, eq=False):
    """A ClusterQueue. While it is inactive (not `listed`), its quota and usage count in the tree, but it has no heads
    and no preemption candidates."""

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroupInfo, ...] = ()
    quotas: Mapping[FlavorResource, Quota] = msgspec.field(default_factory=dict)
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    preemption: PreemptionPolicies = PreemptionPolicies()
    fungibility: Fungibility = Fungibility()
    weight: float = 1.0
    checks: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)  # check -> the flavors it applies to
    deferring_checks: frozenset[str] = frozenset()  # those with preemptionPolicy AfterCheckPassedOrOnDemand
    provisioned_flavors: frozenset[str] = frozenset()  # flavors behind a ProvisioningRequest check
    is_multikueue: bool = False
    is_usage_based: bool = False
    is_topology_only: bool = False
    has_variants: bool = False  # a concurrentAdmissionPolicy: Workloads are tried on its flavors by variants
    last_acceptable_flavor: str | None = None
    backfill: BackfillSettings | None = None
    listed: bool = True

    @property
    def covered(self) -> frozenset[str]:
        """The resources that it declares quota for."""
        return frozenset[str]().union(*(group.resources for group in self.groups))

    def group_of(self, resource: str) -> ResourceGroupInfo | None:
        return next((group for group in self.groups if resource in group.resources), None)


class FlavorSpec(msgspec.Struct, frozen=True, eq=False):
    """A ResourceFlavor: what decides whether a pod set is eligible for it."""

    name: str
    node_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None
