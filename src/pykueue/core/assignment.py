"""Assignments: the flavors, counts and placements that a Workload would get, their mode, and what kept others out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeAlias

import msgspec

from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import resource_order, topology
from pykueue.core.amounts import Amount
from pykueue.core.decision import Cause, FlavorAttempt, FlavorFinding, PodSetExplanation, PreemptionMode
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import FlavorResourceNumber
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import PlacedPods, TopologyPlacement
from pykueue.core.workload import AssignedPodSet, PodSetResources, Requests, Reservation, ScanPosition, WorkloadInfo


class FlavorAssignmentMode(IntEnum):
    """What it takes to admit an assignment, worst to best ([FL30])."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2  # fits once the targets of an earlier entry are evicted
    FIT = 3


MODE_OF = {
    PreemptionMode.NO_FIT: FlavorAssignmentMode.NO_FIT,
    PreemptionMode.NO_CANDIDATES: FlavorAssignmentMode.PREEMPT,
    PreemptionMode.PREEMPT: FlavorAssignmentMode.PREEMPT,
    PreemptionMode.RECLAIM: FlavorAssignmentMode.PREEMPT,
    PreemptionMode.FIT: FlavorAssignmentMode.FIT,
}


Simulation: TypeAlias = Callable[[FlavorResourceNumber, Amount], tuple[PreemptionMode, int]]
"""(number, amount) -> what preemption could do for that flavor-resource, and the level it would then borrow at
([FL15])."""


class AssignmentInputs(msgspec.Struct, frozen=True, eq=False):
    """Everything that an assignment is computed from, except the counts: partial admission repeats the computation for
    fewer and fewer pods.

    `memory` is where the last scan of the flavors stopped, `replaced` the elastic slice that the Workload replaces.
    `pinned` restricts a recomputation within the cycle to the flavors nominated: pod set -> resource -> flavor.
    """

    snapshot: Snapshot
    policy: SchedulingPolicy
    workload: WorkloadInfo
    queue: Queue
    simulate: Simulation
    scan_position: ScanPosition | None = None
    replaced: Reservation | None = None
    pinned: Mapping[str, Mapping[str, str]] | None = None


class FlavorAssignment(msgspec.Struct, gc=False):
    """The flavor chosen for one resource."""

    flavor: str
    number: FlavorResourceNumber
    mode: FlavorAssignmentMode
    level: int = 0
    stopped_at: int = 0  # where the walk over the flavors ended; -1 at the end of the list ([FL20])


class PodSetFlavorAssignment(msgspec.Struct):
    """What one pod set would get. Without findings and error it fits, even without flavors."""

    pod_set: PodSetResources
    count: int
    requests: Requests  # with `pods`, where the ClusterQueue covers them
    flavors: dict[str, FlavorAssignment] = msgspec.field(default_factory=dict)
    findings: list[FlavorFinding] = msgspec.field(default_factory=list)
    error: str = ""
    attempts: tuple[FlavorAttempt, ...] = ()
    placement: TopologyPlacement | None = None
    delayed: str | None = None

    @property
    def name(self) -> str:
        return self.pod_set.name

    @property
    def mode(self) -> FlavorAssignmentMode:
        if self.error:
            return FlavorAssignmentMode.NO_FIT
        if not self.findings:
            return FlavorAssignmentMode.FIT
        if not self.flavors:
            return FlavorAssignmentMode.NO_FIT
        return min(choice.mode for choice in self.flavors.values())

    def set_mode(self, mode: FlavorAssignmentMode) -> None:
        for choice in self.flavors.values():
            choice.mode = mode


class Assignment(msgspec.Struct):
    """The assignment of a whole Workload. `usage` is what it would add to its ClusterQueue, by flavor-resource
    number."""

    pod_sets: list[PodSetFlavorAssignment] = msgspec.field(default_factory=list)
    usage: dict[FlavorResourceNumber, Amount] = msgspec.field(default_factory=dict)
    level: int = 0
    scan_position: ScanPosition | None = None
    replaced: Reservation | None = None  # the elastic slice that the Workload replaces
    reason: QuotaReservedReason | None = None  # why it is NoFit
    _mode: FlavorAssignmentMode | None = None

    @property
    def mode(self) -> FlavorAssignmentMode:
        """The worst mode of its pod sets, unless `set_mode` or `set_mode_of` replaced it."""
        if not self.pod_sets:
            return FlavorAssignmentMode.NO_FIT
        if self._mode is None:
            modes = [choice.mode for choice in self.pod_sets]
            self._mode = modes[0] if len(modes) == 1 else min(modes)
        return self._mode

    def set_mode(self, mode: FlavorAssignmentMode) -> None:
        self._mode = mode
        for choice in self.pod_sets:
            choice.set_mode(mode)

    def set_mode_of(self, pod_set: str, mode: FlavorAssignmentMode) -> None:
        self.pod_set(pod_set).set_mode(mode)
        self._mode = mode

    def fail(self, pod_set: str, error: str) -> None:
        """Record that the pod set cannot be evaluated; the mode of the assignment is computed again."""
        choice = self.pod_set(pod_set)
        choice.error = error
        choice.findings.append(FlavorFinding(Cause.BROKEN, detail=error))
        self._mode = None

    def pod_set(self, pod_set: str) -> PodSetFlavorAssignment:
        return next(choice for choice in self.pod_sets if choice.name == pod_set)

    @property
    def contested(self) -> frozenset[FlavorResourceNumber]:
        """The flavor-resources that need preemption."""
        return frozenset(
            choice.number
            for pod_set in self.pod_sets
            for choice in pod_set.flavors.values()
            if choice.mode is FlavorAssignmentMode.PREEMPT
        )

    def placed(
        self, queue: Queue, held: Reservation | None, topology_cache: topology.TopologyCache
    ) -> tuple[PlacedPods, ...]:
        """The pods that its placements add to the nodes, beyond those that the reservation it holds already places
        there ([CY2])."""
        taken = {assigned.name: assigned.placement for assigned in held.pod_sets} if held else {}
        net = []
        for choice in self.pod_sets:
            if choice.placement is None:
                continue
            flavors = sorted({c.flavor for c in choice.flavors.values() if topology_cache.has_flavor(c.flavor)})
            if len(flavors) != 1:
                continue
            placement = _beyond(choice.placement, taken.get(choice.name))
            if placement.domains:
                net.append(PlacedPods(flavors[0], choice.pod_set.pod, placement))
        return tuple(net)

    def recorded(self) -> tuple[AssignedPodSet, ...]:
        """The content of `status.admission`; only resources that got a flavor use quota."""
        return tuple(
            AssignedPodSet(
                name=choice.name,
                count=choice.count,
                flavors={resource: chosen.flavor for resource, chosen in sorted(choice.flavors.items())},
                requests=_with_flavor(choice),
                placement=choice.placement,
                delayed=choice.delayed,
            )
            for choice in self.pod_sets
        )

    def pinned(self) -> Mapping[str, Mapping[str, str]]:
        """pod set -> resource -> flavor: the flavors that a recomputation in the same cycle is restricted to
        ([CY6])."""
        return {
            choice.name: {resource: chosen.flavor for resource, chosen in choice.flavors.items()}
            for choice in self.pod_sets
        }

    def explanation(self) -> tuple[PodSetExplanation, ...]:
        return tuple(
            PodSetExplanation(choice.name, choice.attempts, tuple(choice.findings)) for choice in self.pod_sets
        )


def _beyond(placement: TopologyPlacement, held: TopologyPlacement | None) -> TopologyPlacement:
    if held is None:
        return placement
    already: dict[tuple[str, ...], int] = {}
    for domain in held.domains:
        already[domain.values] = already.get(domain.values, 0) + domain.count
    return TopologyPlacement(
        placement.levels,
        tuple(
            topology.DomainPods(domain.values, domain.count - already.get(domain.values, 0))
            for domain in placement.domains
            if domain.count > already.get(domain.values, 0)
        ),
    )


def _with_flavor(choice: PodSetFlavorAssignment) -> Requests:
    requested = dict(choice.requests)
    resources = sorted(choice.flavors, key=resource_order.visiting_order)
    return tuple((resource, requested.get(resource, 0)) for resource in resources)


def assigned_of(workload: WorkloadInfo, pod_set: PodSetResources) -> AssignedPodSet | None:
    """What the Workload's reservation, if it has one, records for the pod set."""
    if workload.reservation is None:
        return None
    return workload.reservation.pod_set(pod_set.name)
