"""From API objects to the values the brain works on. Read once, when an object arrives.

Nothing here fails: what the API would have refused is read as if it were absent, and what keeps a Workload from ever
being admitted becomes its shape's `problem`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from pykueue.api import codec, conditions, kube, kueue, labels, meta, quantity, topology_encoding
from pykueue.api.conditions import EvictedReason, PreemptedReason, Status, WorkloadCondition
from pykueue.api.meta import Nanoseconds
from pykueue.core import amounts, requests, topology
from pykueue.core.policy import Policy
from pykueue.core.queue import (
    CohortSpec,
    FlavorResource,
    FlavorSpec,
    Fungibility,
    Preemption,
    QueueSpec,
    Quota,
    ResourceGroup,
)
from pykueue.core.requests import PLAIN, Accounting, Limits, PodNeeds, Quantities
from pykueue.core.topology import PlacedPods, Placement
from pykueue.core.workload import (
    NO_DETAILS,
    AssignedPodSet,
    CheckState,
    Details,
    PodSet,
    Reservation,
    Shape,
    Workload,
)
from pykueue.lifecycle import queues, states
from pykueue.lifecycle.queues import References

E = TypeVar("E", bound=StrEnum)

# --- Queues, cohorts, flavors -----------------------------------------------------------------------------------------


def flavor_spec(flavor: kueue.ResourceFlavor) -> FlavorSpec:
    spec = flavor.spec
    return FlavorSpec(
        name=flavor.metadata.name,
        node_labels=spec.node_labels,
        taints=spec.node_taints,
        tolerations=spec.tolerations,
        topology=spec.topology_name or None,
    )


def cohort_spec(cohort: kueue.Cohort) -> CohortSpec:
    return CohortSpec(
        name=cohort.metadata.name,
        parent=cohort.spec.parent_name or "",
        quotas=_quotas(cohort.spec.resource_groups),
        weight=weight(cohort.spec.fair_sharing),
    )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a ClusterQueue depends on."""

    policy: Policy
    references: References
    checks: Mapping[str, kueue.AdmissionCheck]


@dataclass(frozen=True, slots=True)
class ReadQueue:
    """A ClusterQueue read: its spec, and whether something keeps it from admitting."""

    spec: QueueSpec
    is_blocked: bool = False


def queue_spec(cluster_queue: kueue.ClusterQueue, around: Surroundings) -> ReadQueue:
    """The spec, and [QU7] whether the queue is inactive; why it is, its status says."""
    spec, references = cluster_queue.spec, around.references
    groups = tuple(
        ResourceGroup(frozenset(group.covered_resources), tuple(flavor.name for flavor in group.flavors))
        for group in spec.resource_groups
    )
    flavors = frozenset(flavor for group in groups for flavor in group.flavors)
    checks = _checks(spec.admission_checks_strategy, flavors)
    known = {name: references.checks[name] for name in checks if name in references.checks}
    provisioning = [name for name, check in known.items() if check.controller == labels.PROVISIONING_CONTROLLER]
    topologies = {name: topology for name in flavors if (topology := references.flavors.get(name))}
    later = kueue.CheckPreemptionPolicy.AFTER_CHECK_PASSED_OR_ON_DEMAND
    is_blocked = bool(queues.blockers(cluster_queue, references))
    scope = spec.admission_scope
    concurrent = spec.concurrent_admission_policy
    constraints = concurrent.migration.constraints if concurrent is not None else None
    return ReadQueue(
        spec=QueueSpec(
            name=cluster_queue.metadata.name,
            cohort=spec.cohort_name or "",
            groups=groups,
            quotas=_quotas(spec.resource_groups),
            strategy=_enum(kueue.QueueingStrategy, spec.queueing_strategy, kueue.QueueingStrategy.BEST_EFFORT_FIFO),
            preemption=_preemption(spec.preemption),
            fungibility=_fungibility(spec.flavor_fungibility),
            weight=weight(spec.fair_sharing),
            checks=checks,
            deferring_checks=frozenset(name for name in known if around.checks[name].spec.preemption_policy == later),
            provisioned_flavors=frozenset(flavor for name in provisioning for flavor in checks[name]),
            is_multikueue=any(check.controller == labels.MULTIKUEUE_CONTROLLER for check in known.values()),
            is_usage_based=around.policy.usage_history is not None
            and scope is not None
            and scope.admission_mode == kueue.AdmissionMode.USAGE_BASED,
            is_topology_only=around.policy.topology and flavors <= topologies.keys(),
            last_acceptable_flavor=constraints.last_acceptable_flavor_name if constraints is not None else None,
            listed=not is_blocked and references.topologies.issuperset(topologies.values()),
        ),
        is_blocked=is_blocked,
    )


def _quotas(groups: Iterable[kueue.ResourceGroup]) -> dict[FlavorResource, Quota]:
    return {
        FlavorResource(flavor.name, resource.name): Quota(
            _quota(resource.name, resource.nominal_quota, 0),
            _quota(resource.name, resource.borrowing_limit, amounts.UNLIMITED),
            _quota(resource.name, resource.lending_limit, amounts.UNLIMITED),
        )
        for group in groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


def _quota(resource: str, text: quantity.QuantityText | None, absent: int) -> int:
    read = quantity_of(text)
    return absent if read is None else amounts.of_quota(resource, read)


def quantity_of(text: quantity.QuantityText | None) -> quantity.Quantity | None:
    """A quantity that is none counts as absent: one object that no server should have let in stops nobody else."""
    try:
        return None if text is None else quantity.parse(text)
    except quantity.QuantityError:
        return None


def weight(fair_sharing: kueue.FairSharing | None) -> float:
    read = quantity_of(fair_sharing.weight) if fair_sharing is not None else None
    return 1.0 if read is None else read.rounded(-9) / 10**9


def _preemption(preemption: kueue.ClusterQueuePreemption | None) -> Preemption:
    if preemption is None:
        return Preemption()
    never, borrow = kueue.PreemptionPolicy.NEVER, preemption.borrow_within_cohort
    return Preemption(
        within_cluster_queue=_enum(kueue.PreemptionPolicy, preemption.within_cluster_queue, never),
        reclaim_within_cohort=_enum(kueue.PreemptionPolicy, preemption.reclaim_within_cohort, never),
        borrow_within_cohort=borrow is not None and (borrow.policy or never) != never,
        max_priority_threshold=borrow.max_priority_threshold if borrow is not None else None,
    )


def _fungibility(fungibility: kueue.FlavorFungibility | None) -> Fungibility:
    if fungibility is None:
        return Fungibility()
    policy, preference = kueue.FlavorFungibilityPolicy, kueue.FlavorFungibilityPreference
    return Fungibility(
        stop_at_borrowing=(fungibility.when_can_borrow or policy.MAY_STOP_SEARCH) != policy.TRY_NEXT_FLAVOR,
        stop_at_preempting=(fungibility.when_can_preempt or policy.TRY_NEXT_FLAVOR) != policy.TRY_NEXT_FLAVOR,
        preference=_enum(preference, fungibility.preference, preference.BORROWING_OVER_PREEMPTION),
    )


def _checks(strategy: kueue.AdmissionChecksStrategy | None, flavors: frozenset[str]) -> dict[str, frozenset[str]]:
    if strategy is None:
        return {}
    return {rule.name: frozenset(rule.on_flavors) or flavors for rule in strategy.admission_checks}


def _enum(kind: type[E], text: str | None, absent: E) -> E:
    return kind(text) if text in {member.value for member in kind} else absent


# --- Conditions -------------------------------------------------------------------------------------------------------


def time_of(text: str | None) -> Nanoseconds:
    """Nanoseconds since 1970; a time that is missing or is none counts as the beginning."""
    if not text:
        return 0
    try:
        return meta.parse_time(text)
    except ValueError:
        return 0


def holds_quota(workload: kueue.Workload) -> bool:
    return (
        states.is_reserved(workload)
        and workload.status.admission is not None
        and states.is_active(workload)
        and not states.is_finished(workload)
    )


def may_queue(workload: kueue.Workload, policy: Policy) -> bool:
    """[QU1]"""
    return (
        states.is_active(workload)
        and not states.is_finished(workload)
        and not states.is_reserved(workload)
        and not states.is_on_hold(workload)
        and not states.has(workload, WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS)
        and not states.is_gated(workload, gates_count=policy.admission_gated_by)
        and not has_variants(workload, policy)
    )


def has_variants(workload: kueue.Workload, policy: Policy) -> bool:
    """Whether others compete in the Workload's place, each for a flavor of its own."""
    return policy.concurrent_admission and workload.metadata.labels.get(labels.CONCURRENT_ADMISSION_PARENT) == "true"


def priority(workload: kueue.Workload, policy: Policy) -> int:
    """[AM20] A boost that is no 32-bit integer counts as none."""
    base = workload.spec.priority or 0
    if policy.priority_boost:
        try:
            boost = int(workload.metadata.annotations.get(labels.PRIORITY_BOOST, "0"))
        except ValueError:
            boost = 0
        if -(2**31) <= boost < 2**31:
            return base + boost
    return base


def queue_time(workload: kueue.Workload, policy: Policy) -> Nanoseconds:
    """§2.2 The time that counts for a place in line."""
    found = workload.status.conditions
    evicted = conditions.find(found, WorkloadCondition.EVICTED)
    if evicted is not None and evicted.status == Status.TRUE:
        by_timeout = policy.order_by_eviction and evicted.reason == EvictedReason.PODS_READY_TIMEOUT
        if by_timeout or evicted.reason == EvictedReason.ADMISSION_CHECK:
            return time_of(evicted.last_transition_time)
    preempted = conditions.find(found, WorkloadCondition.PREEMPTED)
    if (
        not policy.priority_sorting_within_cohort
        and preempted is not None
        and preempted.status == Status.TRUE
        and preempted.reason == PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING
    ):
        # Strictly behind the preemptor, or the two would take turns for ever.
        return time_of(preempted.last_transition_time) + meta.MILLISECOND
    return time_of(workload.metadata.creation_timestamp)


# --- Workloads --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides, beside the pods themselves, how much a Workload asks for; compared by identity."""

    accounting: Accounting = PLAIN
    limits: Limits = requests.NO_LIMITS
    runtime_classes: Mapping[str, kube.RuntimeClass] = field(default_factory=dict)


class Shapes:
    """Reads pod sets into shapes and keeps one value per shape, however many Workloads have it."""

    def __init__(self, remembered: int = 4096) -> None:
        self._shapes: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()
        self._recent: OrderedDict[tuple[bytes, int], Shape] = OrderedDict()
        self._remembered = remembered

    def read(self, workload: kueue.Workload, rules: Rules, policy: Policy) -> Shape:
        """The shape of a Workload. Pod sets that were read before, under the same rules, are not read again."""
        reclaimable = workload.status.reclaimable_pods if policy.reclaimable_pods else ()
        source = (msgspec.json.encode((workload.spec.pod_sets, reclaimable)), id(rules))
        shape = self._recent.get(source)
        if shape is not None:
            self._recent.move_to_end(source)
            return shape
        shape = self._read(workload.spec.pod_sets, reclaimable, rules, policy)
        self._recent[source] = shape
        if len(self._recent) > self._remembered:
            self._recent.popitem(last=False)
        return shape

    def forget(self) -> None:
        """The rules changed: nothing read before is certain."""
        self._recent.clear()

    def _read(
        self,
        pod_sets: Sequence[kueue.PodSet],
        reclaimable: Sequence[kueue.ReclaimablePod],
        rules: Rules,
        policy: Policy,
    ) -> Shape:
        needs = [
            requests.read(pod_set.template.spec, runtime_classes=rules.runtime_classes, limits=rules.limits)
            for pod_set in pod_sets
        ]
        refusal = requests.check_pods(needs, rules.limits)
        problem = str(refusal) if refusal is not None else ""
        if policy.refuse_claims and any(pod_set.template.spec.resource_claims for pod_set in pod_sets):
            problem = problem or "its pods claim devices, which are not counted here"
        read = []
        marks: list[Any] = []
        for pod_set, need in zip(pod_sets, needs, strict=True):
            figure = need.figure
            count = requests.remaining_count(pod_set.name, pod_set.count, reclaimable)
            request = pod_set.topology_request
            one = PodSet(
                name=pod_set.name,
                count=count,
                spec_count=pod_set.count,
                requests=requests.total(figure, count, rules.accounting),
                pod=topology.figure(requests.in_amounts(figure)),
                min_count=pod_set.min_count,
                terms=topology.terms_of(pod_set.template.spec),
                wish=topology.wish_of(request) if asks_for_topology(request) else None,
                group=request.pod_set_group_name if request is not None else None,
            )
            read.append(one)
            marks.append((one.name, count, one.requests, one.min_count, request, _marks(pod_set.template.spec, need)))
        mark = msgspec.json.encode((marks, problem), order="sorted")
        shape = self._shapes.get(mark)
        if shape is None:
            shape = self._shapes[mark] = Shape(tuple(read), problem)
        return shape


def asks_for_topology(request: kueue.PodSetTopologyRequest | None) -> bool:
    """§4.3"""
    return request is not None and (
        request.required is not None
        or request.preferred is not None
        or request.unconstrained is not None
        or request.pod_set_slice_required_topology is not None
        or request.pod_set_slice_size is not None
        or bool(request.podset_slice_required_topology_constraints)
    )


def _marks(spec: kube.PodSpec, needs: PodNeeds) -> Any:
    """[QU12] What of a pod makes its Workload a kind of its own: what it asks for and where it may run."""

    def written(asked: Quantities) -> dict[str, str]:
        return {resource: amount.canonical for resource, amount in asked.items()}

    return (
        [(written(n.requests), c.ports) for n, c in zip(needs.init_containers, spec.init_containers, strict=True)],
        [(written(n.requests), c.ports) for n, c in zip(needs.containers, spec.containers, strict=True)],
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.runtime_class_name,
        spec.priority,
        spec.topology_spread_constraints,
        written(needs.overhead),
        spec.resource_claims,
        written(needs.pod.requests) if needs.pod is not None else None,
    )


def pod_usage(pod: kube.Pod) -> dict[str, int]:
    """[TS3] What a running pod takes on its node, itself included."""
    return {**requests.in_amounts(requests.read(pod.spec).figure), amounts.PODS: 1}


def pending(workload: kueue.Workload, shape: Shape, cluster_queue: str, policy: Policy) -> Workload:
    """A Workload that waits, or, with a reservation, one that needs a second pass."""
    status = workload.status
    requeue_at = status.requeue_state.requeue_at if status.requeue_state is not None else None
    return Workload(
        key=states.key(workload),
        uid=workload.metadata.uid,
        shape=shape,
        local_queue=workload.spec.queue_name or "",
        cluster_queue=cluster_queue,
        priority=priority(workload, policy),
        created=time_of(workload.metadata.creation_timestamp),
        queue_time=queue_time(workload, policy),
        generation=workload.metadata.generation,
        held_back=conditions.is_false(status.conditions, WorkloadCondition.REQUEUED),
        back_off_until=time_of(requeue_at) if requeue_at is not None else None,
        details=_details(workload, policy),
    )


def _details(workload: kueue.Workload, policy: Policy) -> Details:
    annotations, status = workload.metadata.annotations, workload.status
    parent = _parent(workload)
    allowed = annotations.get(labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS)
    updates: dict[str, list[kueue.PodSetUpdate]] = {}
    for check in status.admission_checks:
        if check.state == kueue.CheckState.READY:
            for update in check.pod_set_updates:
                updates.setdefault(update.name, []).append(update)
    details = Details(
        checks=tuple(CheckState(check.name, check.state) for check in status.admission_checks),
        replaces=annotations.get(labels.WORKLOAD_SLICE_REPLACEMENT_FOR, ""),
        has_closed_gate=_has_closed_gate(workload),
        allowed_flavors=_listed(allowed) if allowed is not None and policy.concurrent_admission else None,
        parent_uid=parent.uid if parent is not None else "",
        variant_flavor=_first(allowed) if parent is not None else "",
        unhealthy_nodes=tuple(node.name for node in status.unhealthy_nodes),
        is_owned_by_pod=states.is_owned_by_single_pod(workload),
        is_elastic=states.is_elastic(workload),
        terms={
            pod_set.name: topology.terms_of(pod_set.template.spec, updates[pod_set.name])
            for pod_set in workload.spec.pod_sets
            if pod_set.name in updates
        },
    )
    return NO_DETAILS if details == NO_DETAILS else details


def _parent(workload: kueue.Workload) -> meta.OwnerReference | None:
    """The Workload that this one is a variant of."""
    return next(
        (
            owner
            for owner in workload.metadata.owner_references
            if owner.kind == "Workload" and owner.api_version == kueue.API_VERSION
        ),
        None,
    )


def _listed(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def _first(text: str | None) -> str:
    return next((name for part in (text or "").split(",") if (name := part.strip())), "")


def _has_closed_gate(workload: kueue.Workload) -> bool:
    """A gate that is only in the spec is closed, so that a Workload can be created gated."""
    closed = kueue.PreemptionGatePosition.CLOSED
    positions = {gate.name: gate.position for gate in workload.status.preemption_gates}
    return any(positions.get(gate.name, closed) == closed for gate in workload.spec.preemption_gates)


def reservation(workload: kueue.Workload, shape: Shape, policy: Policy) -> Reservation:
    """A Workload that holds quota, as its status records it."""
    admission = workload.status.admission
    assert admission is not None, "a reservation is read from a Workload that has one"
    reserved = WorkloadCondition.QUOTA_RESERVED
    pod_sets = tuple(_assigned(assignment, workload, policy) for assignment in admission.pod_set_assignments)
    parent = _parent(workload)
    return Reservation(
        key=states.key(workload),
        uid=workload.metadata.uid,
        cluster_queue=admission.cluster_queue,
        local_queue=workload.spec.queue_name or "",
        pod_sets=pod_sets,
        priority=priority(workload, policy),
        queue_time=queue_time(workload, policy),
        reserved_at=conditions.since(workload.status.conditions, reserved) if states.has(workload, reserved) else None,
        evicted=states.is_evicted(workload),
        admitted=states.is_admitted(workload),
        placed=placed_pods(pod_sets, shape),
        parent_uid=parent.uid if parent is not None else "",
        variant_flavor=_first(workload.metadata.annotations.get(labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS))
        if parent is not None
        else "",
    )


def _assigned(assignment: kueue.PodSetAssignment, workload: kueue.Workload, policy: Policy) -> AssignedPodSet:
    size = next((pod_set.count for pod_set in workload.spec.pod_sets if pod_set.name == assignment.name), 0)
    reclaimable = workload.status.reclaimable_pods if policy.reclaimable_pods else ()
    remaining = requests.remaining_count(assignment.name, size, reclaimable)
    used, count = requests.reserved(assignment, size, remaining)
    return AssignedPodSet(
        name=assignment.name,
        count=count,
        flavors=assignment.flavors,
        requests=used,
        placement=placement_of(assignment.topology_assignment) if policy.topology else None,
        delayed=assignment.delayed_topology_request if policy.topology else None,
    )


def placement_of(assignment: kueue.TopologyAssignment | None) -> Placement | None:
    if assignment is None:
        return None
    domains = topology_encoding.decode(codec.to_tree(assignment)) or []
    return Placement(tuple(assignment.levels), tuple(topology.Domain(domain.values, domain.pods) for domain in domains))


def placed_pods(pod_sets: Iterable[AssignedPodSet], shape: Shape) -> tuple[PlacedPods, ...]:
    """[TS4] What placements take on the nodes: each pod its own figure, on every flavor of its pod set."""
    figures = {pod_set.name: pod_set.pod for pod_set in shape.pod_sets}
    return tuple(
        PlacedPods(flavor, figures.get(pod_set.name, ()), pod_set.placement)
        for pod_set in pod_sets
        if pod_set.placement is not None
        for flavor in sorted(set(pod_set.flavors.values()))
    )


def needs_second_pass(workload: kueue.Workload) -> bool:
    """[TS25] A placement that was put off until all checks are ready, or one on a node that is lost."""
    status = workload.status
    if not holds_quota(workload) or states.is_evicted(workload) or status.admission is None:
        return False
    is_admitted = states.is_admitted(workload)
    if is_admitted and status.unhealthy_nodes:
        lost = {node.name for node in status.unhealthy_nodes}
        placements = (placement_of(a.topology_assignment) for a in status.admission.pod_set_assignments)
        return any(domain.values[-1] in lost for p in placements if p is not None for domain in p.domains)
    return (
        not is_admitted
        and bool(status.admission_checks)
        and states.are_checks_ready(workload)
        and states.is_topology_pending(workload)
    )
