"""Workloads as the scheduler sees them.

Thousands of pending Workloads have few shapes, so what a shape requests is one shared value (`WorkloadShape`), and a
pending `WorkloadInfo` is little more than its place in the queue. A `Reservation` is a Workload that holds quota: what
it uses, on which flavors, and what decides whether it can be preempted.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.api.conditions import PreemptedReason
from pykueue.api.kueue import CheckState, DelayedTopologyRequestState
from pykueue.core import amounts
from pykueue.core.queue import FlavorResource
from pykueue.core.timeline import ENDLESS, RunLimit
from pykueue.core.topology import Figure, NodeTerms, PlacedPods, TopologyPlacement, TopologyRequest

Requests: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount) pairs in the order in which flavors are searched for them ([FL31])."""


NO_TERMS = NodeTerms()
_FAILED: Final = frozenset({CheckState.RETRY, CheckState.REJECTED})


class PodSetResources(msgspec.Struct, frozen=True, eq=False):
    """One pod set: what its pods request together, and what each requires of its node. Compared by identity.

    `requests` is what quota is charged for `count` pods; `pod` is what one pod really uses on a node.
    `topology_request` is None where the pod set does not request topology.
    """

    name: str
    count: int  # pods still to run: spec.count less those that are reclaimable
    spec_count: int
    requests: Requests
    pod: Figure = ()
    min_count: int | None = None
    terms: NodeTerms = NO_TERMS
    topology_request: TopologyRequest | None = None
    group: str | None = None

    @property
    def can_shrink(self) -> bool:
        return self.min_count is not None and self.min_count < self.spec_count


class WorkloadShape(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """Everything that makes two Workloads equivalent for the scheduler, except priority and variant. Compared by
    identity, so `state` interns it."""

    pod_sets: tuple[PodSetResources, ...]
    problem: str = ""  # why no Workload of this shape can ever be admitted ([AM22], steps 3 to 6)

    @property
    def requests_topology(self) -> bool:
        return any(pod_set.topology_request is not None for pod_set in self.pod_sets)


class AssignedPodSet(msgspec.Struct, frozen=True):
    """What a reservation records for one pod set."""

    name: str
    count: int
    flavors: Mapping[str, str]  # resource -> flavor
    requests: Requests
    placement: TopologyPlacement | None = None
    delayed: str | None = None  # the state of a delayed topology request

    @property
    def is_placement_pending(self) -> bool:
        """Whether the pod set waits for a placement that could not be made when quota was reserved ([TS6])."""
        return self.delayed == DelayedTopologyRequestState.PENDING and self.placement is None


class Reservation:
    """A Workload that holds quota in a ClusterQueue: usage, and what makes it a candidate for preemption.

    `usage_by_number` and `used_numbers` are the usage by the flavor-resource numbers of the ClusterQueue's tree;
    `Queue.add_reservation` writes them whenever the tree is new.
    """

    __slots__ = (
        "admitted",
        "assumed_targets",
        "cluster_queue",
        "evicted",
        "hard_end",
        "hidden",
        "key",
        "local_queue",
        "parent_uid",
        "placed",
        "pod_sets",
        "priority",
        "queue_time",
        "reserved_at",
        "shape",
        "uid",
        "usage",
        "usage_by_number",
        "used_numbers",
        "variant_flavor",
    )

    def __init__(
        self,
        key: str,
        uid: str,
        cluster_queue: str,
        local_queue: str,
        pod_sets: tuple[AssignedPodSet, ...],
        *,
        priority: int = 0,
        queue_time: Nanoseconds = 0,
        reserved_at: Nanoseconds | None = None,
        evicted: bool = False,
        admitted: bool = False,
        placed: tuple[PlacedPods, ...] = (),
        parent_uid: str = "",
        variant_flavor: str = "",
        shape: WorkloadShape | None = None,
        assumed_targets: Mapping[str, PreemptedReason] | None = None,
        hard_end: Nanoseconds = ENDLESS,
    ) -> None:
        self.key = key
        self.uid = uid
        self.cluster_queue = cluster_queue
        self.local_queue = local_queue
        self.pod_sets = pod_sets
        self.priority = priority
        self.queue_time = queue_time
        self.reserved_at = reserved_at
        self.evicted = evicted
        self.admitted = admitted
        self.placed = placed
        self.parent_uid = parent_uid
        self.variant_flavor = variant_flavor
        self.shape = shape  # what its pods request; None: not known
        self.hard_end = hard_end  # when its quota is back at the latest, because a limit is enforced ([TL1])
        self.assumed_targets = (
            assumed_targets or {}
        )  # key -> reason: targets to be evicted once checks passed (KEP-993)
        self.usage = _usage(pod_sets)
        # By preemptor: the part of its usage that counts as usage of the preemptor that waits for it (KEP-993).
        self.hidden: dict[str, Mapping[FlavorResource, int]] = {}
        self.usage_by_number: tuple[tuple[int, int], ...] = ()
        self.used_numbers: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<reservation {self.key} in {self.cluster_queue}>"

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    def pod_set(self, name: str) -> AssignedPodSet | None:
        return next((assigned for assigned in self.pod_sets if assigned.name == name), None)

    def is_like(self, other: Reservation) -> bool:
        """Whether they are equal in everything that a decision depends on. A hard end is compared separately, because
        only the timeline depends on it."""
        return bool(_compared(self) == _compared(other))

    def counted(self, pair: FlavorResource, amount: int) -> int:
        """The part of its usage that counts as its own, not as that of a waiting preemptor."""
        return amount - sum(hidden.get(pair, 0) for hidden in self.hidden.values())


_NOT_COMPARED: Final = {"assumed_targets", "hard_end", "hidden", "shape", "usage", "usage_by_number", "used_numbers"}
_compared: Final = attrgetter(*(name for name in Reservation.__slots__ if name not in _NOT_COMPARED))


def _usage(pod_sets: tuple[AssignedPodSet, ...]) -> tuple[tuple[FlavorResource, int], ...]:
    """The recorded usage summed by flavor-resource; a resource without a recorded flavor uses no quota ([AM18])."""
    total: dict[FlavorResource, int] = {}
    for pod_set in pod_sets:
        for resource, flavor in pod_set.flavors.items():
            total.setdefault(FlavorResource(flavor, resource), 0)
        for resource, amount in pod_set.requests:
            if flavor := pod_set.flavors.get(resource, ""):
                pair = FlavorResource(flavor, resource)
                total[pair] = amounts.add(total[pair], amount)
    return tuple(total.items())


class ScanPosition(msgspec.Struct, frozen=True, gc=False):
    """Where the walk over the flavors stopped in the last attempt, so that the next one continues behind it. Kueue
    calls it LastAssignment ([FL20])."""

    stopped_at: tuple[Mapping[str, int], ...]  # per pod set: resource -> index in its flavor list, -1 at the end
    queue_generation: int
    pop_cycle: int  # the pop cycle of the ClusterQueue in which the attempt was made ([QU8])
    shape: WorkloadShape | None  # None: shapes are not compared

    @property
    def has_untried_flavors(self) -> bool:
        """Whether some flavor list was not walked to its end ([FL22])."""
        for by_resource in self.stopped_at:  # asked for every head of every cycle: loops are faster than `any`
            for index in by_resource.values():
                if index != -1:
                    return True
        return False

    def next_index(self, pod_set: int, resource: str) -> int:
        """The index of the first flavor to try: one behind the recorded one, 0 where nothing is recorded ([FL21])."""
        if pod_set >= len(self.stopped_at):
            return 0
        return self.stopped_at[pod_set].get(resource, -1) + 1


class CheckInfo(msgspec.Struct, frozen=True):
    """An admission check that a Workload lists, with its state."""

    name: str
    state: str  # a `CheckState`
    requests_preemption: bool = False


class WorkloadDetails(msgspec.Struct, frozen=True):
    """Properties that few Workloads have; all others share `NO_DETAILS`, which keeps pending ones small."""

    checks: tuple[CheckInfo, ...] = ()
    replaces: str = ""  # the key of the elastic slice that this one replaces
    has_closed_gate: bool = False
    allowed_flavors: frozenset[str] | None = None  # of a variant (ConcurrentAdmission)
    parent_uid: str = ""
    variant_flavor: str = ""
    unhealthy_nodes: tuple[str, ...] = ()
    is_owned_by_pod: bool = False
    is_elastic: bool = False
    # Per pod set, with the additions of Ready checks.
    terms: Mapping[str, NodeTerms] = msgspec.field(default_factory=dict)

    @property
    def has_failed_checks(self) -> bool:
        return bool(self.checks) and any(check.state in _FAILED for check in self.checks)

    @property
    def all_checks_ready(self) -> bool:
        return all(check.state == CheckState.READY for check in self.checks)


NO_DETAILS = WorkloadDetails()


class WorkloadInfo:
    """A Workload for the scheduler to decide: a pending one, or one with a reservation that needs a second pass.

    `state` owns it and is the only one to change it; the scheduling cycle reads it."""

    __slots__ = (
        "back_off_until",
        "cluster_queue",
        "created",
        "details",
        "evaluated_generation",
        "generation",
        "held_back",
        "key",
        "limit",
        "local_queue",
        "pop_cycle",
        "priority",
        "queue_time",
        "reservation",
        "scan_position",
        "set_aside",
        "shape",
        "uid",
    )

    def __init__(
        self,
        key: str,
        uid: str,
        shape: WorkloadShape,
        *,
        local_queue: str = "",
        cluster_queue: str = "",
        priority: int = 0,
        created: Nanoseconds = 0,
        queue_time: Nanoseconds | None = None,
        generation: int = 0,
        held_back: bool = False,
        back_off_until: Nanoseconds | None = None,
        details: WorkloadDetails = NO_DETAILS,
        reservation: Reservation | None = None,
        limit: RunLimit | None = None,
    ) -> None:
        self.key = key
        self.uid = uid
        self.shape = shape
        self.local_queue = local_queue
        self.cluster_queue = cluster_queue
        self.priority = priority
        self.created = created
        self.queue_time = created if queue_time is None else queue_time
        self.generation = generation
        self.evaluated_generation = 0
        self.held_back = held_back  # its Requeued condition is False
        self.back_off_until = back_off_until
        self.details = details
        self.reservation = reservation
        self.limit = limit  # of its run; None: there is none, or the timeline is not used
        self.scan_position: ScanPosition | None = None
        self.set_aside = False  # its evaluation failed: no change elsewhere can make it admissible
        self.pop_cycle = 0  # the pop cycle of its ClusterQueue when it was last a head ([QU8])

    def __repr__(self) -> str:
        return f"<workload {self.key} for {self.cluster_queue}>"

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def equivalence_class(self) -> tuple[WorkloadShape, int, frozenset[str] | None]:
        """Its equivalence class: Workloads of one class in one ClusterQueue get the same result, so one evaluation
        serves them all (Kueue: SchedulingEquivalenceHash, [QU12])."""
        return self.shape, self.priority, self.details.allowed_flavors

    @property
    def resumes_at(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Where the next attempt continues in the lists of flavors; empty where it starts from the first."""
        if self.scan_position is None or not self.scan_position.has_untried_flavors:
            return ()
        return tuple(tuple(sorted(by_resource.items())) for by_resource in self.scan_position.stopped_at)

    def differs_from(self, other: WorkloadInfo) -> bool:
        """Whether something that its evaluation depends on has changed: its spec, priority, checks or backoff."""
        return (
            self.generation != other.generation
            or self.priority != other.priority
            or self.shape is not other.shape
            or self.back_off_until != other.back_off_until
            or self.limit != other.limit
            or self.details != other.details
        )

    def may_compete(self, now: Nanoseconds) -> bool:
        """Whether it may become a head: its backoff is over, and its evaluation has not failed ([QU16])."""
        return not self.held_back and not self.set_aside and (self.back_off_until is None or self.back_off_until <= now)
