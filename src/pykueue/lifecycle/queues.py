"""The status of ClusterQueues, LocalQueues and Cohorts, and the finalizers of objects that others refer to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self, TypeAlias

import msgspec

from kubemachinery import conditions
from kubemachinery.conditions import Conditions, ConditionStatus
from kubemachinery.meta import Nanoseconds, ObjectMeta
from kubemachinery.quantity import QuantityText
from pykueue.api import labels
from pykueue.api.conditions import ActiveCondition
from pykueue.api.conditions import ClusterQueueActiveReason as Reason
from pykueue.api.conditions import LocalQueueActiveReason as LocalReason
from pykueue.api.kueue import (
    AdmissionCheck,
    AdmissionFairSharingStatus,
    ClusterQueue,
    ClusterQueueSpec,
    ClusterQueueStatus,
    CohortStatus,
    FairSharingStatus,
    FlavorUsage,
    LocalQueue,
    LocalQueueFairSharingStatus,
    LocalQueueFlavorUsage,
    LocalQueueResourceUsage,
    LocalQueueStatus,
    ResourceFlavor,
    ResourceUsage,
    StopPolicy,
    Topology,
)

Flavor: TypeAlias = str
Resource: TypeAlias = str

_LARGEST: Final = 2**63 - 1
_NOT_INTO_CLUSTER_QUEUE: Final = "Can't submit new workloads to clusterQueue"


class QuotaUsage(msgspec.Struct, frozen=True):
    """How much of one resource of one flavor is used, and how much of it is borrowed, as quantities."""

    total: QuantityText = "0"
    borrowed: QuantityText = "0"


Usage: TypeAlias = Mapping[tuple[Flavor, Resource], QuotaUsage]


class QueueCounts(msgspec.Struct, frozen=True):
    """The counts and the usage of one queue, from the scheduler's state."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reservation: Usage = msgspec.field(default_factory=dict)
    usage: Usage = msgspec.field(default_factory=dict)
    # Thousandths, rounded up; infinite for a weight of 0. None where fair sharing is off.
    weighted_share: float | None = None


class KnownCheck(msgspec.Struct, frozen=True):
    """An AdmissionCheck as a ClusterQueue sees it."""

    is_active: bool = True
    controller: str = ""


class References(msgspec.Struct, frozen=True):
    """The objects that a ClusterQueue may refer to: flavors with their topology's name, topologies, checks."""

    flavors: Mapping[str, str] = msgspec.field(default_factory=dict)
    topologies: frozenset[str] = frozenset()
    checks: Mapping[str, KnownCheck] = msgspec.field(default_factory=dict)
    # ClusterQueues under a cycle of cohorts.
    in_cohort_cycle: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        flavors: Iterable[ResourceFlavor],
        topologies: Iterable[Topology],
        checks: Iterable[AdmissionCheck],
        *,
        has_topologies: bool,
        in_cohort_cycle: frozenset[str] = frozenset(),
    ) -> Self:
        """`has_topologies` is the gate TopologyAwareScheduling; without it the topology of a flavor is ignored."""
        return cls(
            {flavor.metadata.name: (has_topologies and flavor.spec.topology_name) or "" for flavor in flavors},
            frozenset(topology.metadata.name for topology in topologies),
            {check.metadata.name: _known(check) for check in checks},
            in_cohort_cycle,
        )


def _known(check: AdmissionCheck) -> KnownCheck:
    return KnownCheck(conditions.is_true(check.status.conditions, ActiveCondition.ACTIVE), check.spec.controller_name)


class Blocker(NamedTuple):
    """One reason why a ClusterQueue cannot admit."""

    reason: Reason
    message: str


# --- ClusterQueue -----------------------------------------------------------------------------------------------------


def blockers(cluster_queue: ClusterQueue, references: References) -> tuple[Blocker, ...]:
    """Why the ClusterQueue cannot admit, in the order of [OC1]; empty if it can."""
    if cluster_queue.metadata.deletion_timestamp is not None:
        return (Blocker(Reason.TERMINATING, "clusterQueue is terminating"),)
    found = tuple(_blockers(cluster_queue.spec, references))
    if not found and cluster_queue.metadata.name in references.in_cohort_cycle:
        # The API has no reason for this: the condition is False, and the message has the cause [OC2].
        return (Blocker(Reason.READY, "its cohorts form a cycle"),)
    return found


def _blockers(spec: ClusterQueueSpec, references: References) -> Iterator[Blocker]:
    flavors = [flavor.name for group in spec.resource_groups for flavor in group.flavors]
    rules = spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy else ()
    known = [(rule, references.checks[rule.name]) for rule in rules if rule.name in references.checks]
    remote = [rule for rule, check in known if check.controller == labels.MULTIKUEUE_CONTROLLER]
    provisioned = [rule.name for rule, check in known if check.controller == labels.PROVISIONING_CONTROLLER]
    topologies = {name: topology for name in flavors if (topology := references.flavors.get(name))}

    if spec.stop_policy != StopPolicy.NONE:
        yield Blocker(Reason.STOPPED, "is stopped")
    if missing := _listed(name for name in flavors if name not in references.flavors):
        yield Blocker(Reason.FLAVOR_NOT_FOUND, f"references missing ResourceFlavor(s): {missing}")
    if missing := _listed(rule.name for rule in rules if rule.name not in references.checks):
        yield Blocker(Reason.ADMISSION_CHECK_NOT_FOUND, f"references missing AdmissionCheck(s): {missing}")
    if idle := _listed(rule.name for rule, check in known if not check.is_active):
        yield Blocker(Reason.ADMISSION_CHECK_INACTIVE, f"references inactive AdmissionCheck(s): {idle}")
    if len(remote) > 1:
        several = "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue"
        found = _listed(rule.name for rule in remote)
        yield Blocker(Reason.MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS, f"{several}, found: {found}")
    if some := _listed(rule.name for rule in remote if rule.on_flavors and set(rule.on_flavors) != set(flavors)):
        reason = Reason.MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR
        yield Blocker(reason, f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {some}")
    if remote and provisioned:
        reason = Reason.MULTIKUEUE_WITH_PROVISIONING_REQUEST
        both = f"{_listed(rule.name for rule in remote)}, {_listed(provisioned)}"
        together = "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together"
        yield Blocker(reason, f"{together}, found: {both}")
    # With MultiKueue, pods run in other clusters, which have the nodes of the topology.
    lacking = [(flavor, topology) for flavor, topology in topologies.items() if topology not in references.topologies]
    if lacking and not remote:
        listed = (f'there is no Topology "{topology}" for TAS flavor "{flavor}"' for flavor, topology in lacking)
        yield Blocker(Reason.TOPOLOGY_NOT_FOUND, ", ".join(listed))


def _listed(names: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(names))


def cluster_queue_status(
    cluster_queue: ClusterQueue, references: References, counted: QueueCounts, now: Nanoseconds
) -> ClusterQueueStatus:
    """Whether it admits Workloads, its usage, and how many Workloads are pending."""
    found = blockers(cluster_queue, references)
    if not found:
        status, reason, message = ConditionStatus.TRUE, Reason.READY, "Can admit new workloads"
    else:
        status, reason, message = ConditionStatus.FALSE, found[0].reason, _cannot_admit(found)
    share = counted.weighted_share
    return ClusterQueueStatus(
        conditions=_active(cluster_queue.status.conditions, cluster_queue.metadata, status, reason, message, now),
        flavors_reservation=_flavors(cluster_queue, counted.reservation),
        flavors_usage=_flavors(cluster_queue, counted.usage),
        pending_workloads=counted.pending,
        reserving_workloads=counted.reserving,
        admitted_workloads=counted.admitted,
        fair_sharing=None if share is None else FairSharingStatus(weighted_share=_whole(share)),
    )


def _cannot_admit(found: tuple[Blocker, ...]) -> str:
    if found[0].reason is Reason.TERMINATING:
        return f"Can't admit new workloads; {found[0].message}"
    causes = ", ".join(blocker.message for blocker in found)
    return conditions.truncated(f"Can't admit new workloads: {causes}.")


def _active(
    before: Conditions, metadata: ObjectMeta, status: ConditionStatus, reason: str, message: str, now: Nanoseconds
) -> Conditions:
    return conditions.set_condition(
        before, ActiveCondition.ACTIVE, status, str(reason), message, now=now, generation=metadata.generation
    )


def _flavors(cluster_queue: ClusterQueue, usage: Usage) -> tuple[FlavorUsage, ...]:
    """Every flavor of the queue in its order, also without usage; resources by name."""
    return tuple(
        FlavorUsage(
            name=flavor.name,
            resources=tuple(
                ResourceUsage(name=name, total=taken.total, borrowed=taken.borrowed)
                for name in sorted(group.covered_resources)
                for taken in (usage.get((flavor.name, name), QuotaUsage()),)
            ),
        )
        for group in cluster_queue.spec.resource_groups
        for flavor in group.flavors
    )


def _whole(share: float) -> int:
    return _LARGEST if share == math.inf else min(_LARGEST, math.ceil(share))


# --- LocalQueue -------------------------------------------------------------------------------------------------------


def local_queue_status(
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue | None,
    counted: QueueCounts,
    now: Nanoseconds,
    *,
    consumed: AdmissionFairSharingStatus | None = None,
) -> LocalQueueStatus:
    """Whether Workloads can be admitted through it [OC3], and its usage.

    `consumed` is its usage over time. None: it was not sampled, and the last value stays.
    """
    status, reason, message = _local_queue_active(local_queue, cluster_queue)
    if cluster_queue is None:
        counted = QueueCounts(pending=counted.pending)
    return LocalQueueStatus(
        conditions=_active(local_queue.status.conditions, local_queue.metadata, status, reason, message, now),
        pending_workloads=0 if reason is LocalReason.STOPPED else counted.pending,
        reserving_workloads=counted.reserving,
        admitted_workloads=counted.admitted,
        flavors_reservation=_local_flavors(cluster_queue, counted.reservation),
        flavors_usage=_local_flavors(cluster_queue, counted.usage),
        fair_sharing=local_queue.status.fair_sharing
        if consumed is None
        else LocalQueueFairSharingStatus(
            weighted_share=_whole(counted.weighted_share or 0), admission_fair_sharing_status=consumed
        ),
    )


def is_local_queue_active(local_queue: LocalQueue, cluster_queue: ClusterQueue | None) -> bool:
    """Whether Workloads can be admitted through it, as its condition `Active` states."""
    return _local_queue_active(local_queue, cluster_queue)[0] is ConditionStatus.TRUE


def _local_queue_active(
    local_queue: LocalQueue, cluster_queue: ClusterQueue | None
) -> tuple[ConditionStatus, LocalReason, str]:
    if local_queue.spec.stop_policy != StopPolicy.NONE:
        return ConditionStatus.FALSE, LocalReason.STOPPED, "LocalQueue is stopped"
    if cluster_queue is None:
        return ConditionStatus.FALSE, LocalReason.CLUSTER_QUEUE_DOES_NOT_EXIST, _NOT_INTO_CLUSTER_QUEUE
    if not conditions.is_true(cluster_queue.status.conditions, ActiveCondition.ACTIVE):
        return ConditionStatus.FALSE, LocalReason.CLUSTER_QUEUE_IS_INACTIVE, _NOT_INTO_CLUSTER_QUEUE
    return ConditionStatus.TRUE, LocalReason.READY, "Can submit new workloads to localQueue"


def _local_flavors(cluster_queue: ClusterQueue | None, usage: Usage) -> tuple[LocalQueueFlavorUsage, ...]:
    return tuple(
        LocalQueueFlavorUsage(
            name=flavor.name,
            resources=tuple(LocalQueueResourceUsage(name=one.name, total=one.total) for one in flavor.resources),
        )
        for flavor in (_flavors(cluster_queue, usage) if cluster_queue else ())
    )


# --- Cohort and finalizers --------------------------------------------------------------------------------------------


def cohort_status(weighted_share: float | None) -> CohortStatus:
    """The status of a Cohort: its weighted share under fair sharing [OC5]."""
    if weighted_share is None:
        return CohortStatus()
    return CohortStatus(fair_sharing=FairSharingStatus(weighted_share=_whole(weighted_share)))


def finalizers(metadata: ObjectMeta, *, is_used: bool) -> tuple[str, ...]:
    """The finalizers that a ClusterQueue, ResourceFlavor, AdmissionCheck or Topology should have now [OC6].

    In use are a ClusterQueue in which quota is reserved, a flavor or check that a ClusterQueue lists, and a Topology
    that a flavor names. Our finalizer is set from the start and removed when a deleted object is no longer in use.
    """
    ours = labels.RESOURCE_IN_USE_FINALIZER
    if metadata.deletion_timestamp is None:
        return metadata.finalizers if ours in metadata.finalizers else (*metadata.finalizers, ours)
    return metadata.finalizers if is_used else tuple(name for name in metadata.finalizers if name != ours)
