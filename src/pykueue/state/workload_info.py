"""Workloads, read from API objects into the values the scheduler works on; once, when an object arrives.

Nothing here fails: what the API would have refused is read as if it were absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubemachinery import conditions, meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import kueue, labels, topology_encoding
from pykueue.api.conditions import EvictedReason, PreemptedReason, WorkloadCondition
from pykueue.core import requests, timeline, topology
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.timeline import ENDLESS, RunLimit
from pykueue.core.topology import PlacedPods, TopologyPlacement
from pykueue.core.workload import (
    NO_DETAILS,
    AssignedPodSet,
    CheckInfo,
    Reservation,
    WorkloadDetails,
    WorkloadInfo,
    WorkloadShape,
)
from pykueue.lifecycle import states, variants

# Looked up once, as in `lifecycle.states`: they are used for every event.
_EVICTED: Final = WorkloadCondition.EVICTED
_PREEMPTED: Final = WorkloadCondition.PREEMPTED
_REQUEUED: Final = WorkloadCondition.REQUEUED
_REPLACING: Final = WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS

# --- Conditions -------------------------------------------------------------------------------------------------------


def time_of(text: str | None) -> Nanoseconds:
    """Return nanoseconds since 1970; 0 for a time that is missing or invalid."""
    if not text:
        return 0
    try:
        return meta.parse_time(text)
    except ValueError:
        return 0


def holds_quota(workload: kueue.Workload) -> bool:
    return (
        workload.status.admission is not None
        and states.is_reserved(workload)
        and states.is_active(workload)
        and not states.is_finished(workload)
    )


def may_queue(workload: kueue.Workload, policy: SchedulingPolicy) -> bool:
    """Whether a Workload may be in a queue: active, not finished, without quota, and not held back or gated [QU1]."""
    return (
        states.is_active(workload)
        and not states.is_finished(workload)
        and not states.is_reserved(workload)
        and not states.is_on_hold(workload)
        and not states.has(workload, _REPLACING)
        and not states.is_gated(workload, gates_count=policy.admission_gated_by)
        and not has_variants(workload, policy)
    )


def was_preempted(workload: kueue.Workload, held: Reservation) -> bool:
    """Whether a Workload that has lost its reservation lost it to a preemption, and not because of a change from
    outside. In a plan nothing is written, so there is no condition to read."""
    if not held.evicted or states.is_finished(workload) or not states.is_active(workload):
        return False
    evicted = conditions.find(workload.status.conditions, _EVICTED)
    return evicted is None or evicted.status != ConditionStatus.TRUE or evicted.reason == EvictedReason.PREEMPTED


def has_variants(workload: kueue.Workload, policy: SchedulingPolicy) -> bool:
    """Whether variants compete in place of the Workload, each for one flavor."""
    return policy.concurrent_admission and variants.is_parent(workload)


def priority(workload: kueue.Workload, policy: SchedulingPolicy) -> int:
    """Return the effective priority; a boost that is no 32-bit integer counts as none [AM20]."""
    base = workload.spec.priority or 0
    if policy.priority_boost:
        try:
            boost = int(workload.metadata.annotations.get(labels.PRIORITY_BOOST, "0"))
        except ValueError:
            boost = 0
        if -(2**31) <= boost < 2**31:
            return base + boost
    return base


def queue_time(workload: kueue.Workload, policy: SchedulingPolicy) -> Nanoseconds:
    """Return the time that orders the Workload in its queue [QU20]."""
    found = workload.status.conditions
    evicted = conditions.find(found, _EVICTED)
    if evicted is not None and evicted.status == ConditionStatus.TRUE:
        by_timeout = policy.order_by_eviction and evicted.reason == EvictedReason.PODS_READY_TIMEOUT
        if by_timeout or evicted.reason == EvictedReason.ADMISSION_CHECK:
            return time_of(evicted.last_transition_time)
    preempted = conditions.find(found, _PREEMPTED)
    if (
        not policy.priority_sorting_within_cohort
        and preempted is not None
        and preempted.status == ConditionStatus.TRUE
        and preempted.reason == PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING
    ):
        # Strictly behind the preemptor, or the two would take turns for ever.
        return time_of(preempted.last_transition_time) + meta.MILLISECOND
    return time_of(workload.metadata.creation_timestamp)


# --- Pending ----------------------------------------------------------------------------------------------------------


def pending(
    workload: kueue.Workload, shape: WorkloadShape, cluster_queue: str, policy: SchedulingPolicy
) -> WorkloadInfo:
    """Return a pending Workload, or, with a reservation, one that needs a second pass."""
    status = workload.status
    requeue_at = status.requeue_state.requeue_at if status.requeue_state is not None else None
    return WorkloadInfo(
        key=states.key(workload),
        uid=workload.metadata.uid,
        shape=shape,
        local_queue=workload.spec.queue_name or "",
        cluster_queue=cluster_queue,
        priority=priority(workload, policy),
        created=time_of(workload.metadata.creation_timestamp),
        queue_time=queue_time(workload, policy),
        generation=workload.metadata.generation,
        held_back=conditions.is_false(status.conditions, _REQUEUED),
        back_off_until=time_of(requeue_at) if requeue_at is not None else None,
        details=_details(workload, policy),
        limit=run_limit(workload) if policy.tracks_hard_ends else None,
    )


def _details(workload: kueue.Workload, policy: SchedulingPolicy) -> WorkloadDetails:
    annotations, status = workload.metadata.annotations, workload.status
    parent = variants.parent_of(workload)
    allowed = annotations.get(labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS)
    updates: dict[str, list[kueue.PodSetUpdate]] = {}
    for check in status.admission_checks:
        if check.state == kueue.CheckState.READY:
            for update in check.pod_set_updates:
                updates.setdefault(update.name, []).append(update)
    details = WorkloadDetails(
        checks=tuple(CheckInfo(check.name, check.state) for check in status.admission_checks),
        replaces=annotations.get(labels.WORKLOAD_SLICE_REPLACEMENT_FOR, ""),
        has_closed_gate=_has_closed_gate(workload),
        allowed_flavors=_listed(allowed) if allowed is not None and policy.concurrent_admission else None,
        parent_uid=parent.uid if parent is not None else "",
        variant_flavor=variants.flavor_of(workload) if parent is not None else "",
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


def _listed(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def _has_closed_gate(workload: kueue.Workload) -> bool:
    """Whether a preemption gate is closed. One that is only in the spec is, so that a Workload can be created gated."""
    closed = kueue.PreemptionGatePosition.CLOSED
    positions = {gate.name: gate.position for gate in workload.status.preemption_gates}
    return any(positions.get(gate.name, closed) == closed for gate in workload.spec.preemption_gates)


# --- Limits -----------------------------------------------------------------------------------------------------------


def run_limit(workload: kueue.Workload) -> RunLimit | None:
    """Return the limit of the next or current run: what is left of the maximum execution time, or the deadline of the
    job, whichever releases the quota first ([TL1]). None: nothing ends the run."""
    grace = [pod_set.template.spec.termination_grace_period_seconds for pod_set in workload.spec.pod_sets]
    limits = []
    most, deadline = workload.spec.maximum_execution_time_seconds, states.job_deadline_seconds(workload)
    if most is not None:
        left = max(0, most - (workload.status.accumulated_past_execution_time_seconds or 0))
        limits.append(RunLimit(left * SECOND, timeline.stop_allowance(grace)))
    if deadline is not None:
        limits.append(RunLimit(deadline * SECOND, timeline.stop_allowance(grace, counts_from_job_start=True)))
    return min(limits, key=lambda limit: limit.end(0), default=None)


def hard_end(workload: kueue.Workload) -> Nanoseconds:
    """Return when the quota of a reservation is back at the latest; endless without a limit, and until the Workload is
    admitted ([TL1])."""
    limit = run_limit(workload)
    admitted_at = states.since(workload, WorkloadCondition.ADMITTED)
    if limit is None or admitted_at is None or not states.is_admitted(workload):
        return ENDLESS
    return limit.end(admitted_at)


# --- Holding quota ----------------------------------------------------------------------------------------------------


def reservation(workload: kueue.Workload, shape: WorkloadShape, policy: SchedulingPolicy) -> Reservation:
    """Return the reservation of a Workload, as its status records it."""
    admission = workload.status.admission
    assert admission is not None, "a reservation is read from a Workload that has one"
    reserved = WorkloadCondition.QUOTA_RESERVED
    pod_sets = tuple(_assigned(assignment, workload, policy) for assignment in admission.pod_set_assignments)
    parent = variants.parent_of(workload)
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
        shape=shape,
        parent_uid=parent.uid if parent is not None else "",
        variant_flavor=variants.flavor_of(workload) if parent is not None else "",
        hard_end=hard_end(workload) if policy.tracks_hard_ends else ENDLESS,
    )


def _assigned(assignment: kueue.PodSetAssignment, workload: kueue.Workload, policy: SchedulingPolicy) -> AssignedPodSet:
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


def placement_of(assignment: kueue.TopologyAssignment | None) -> TopologyPlacement | None:
    if assignment is None:
        return None
    domains = topology_encoding.domains_of(assignment)
    return TopologyPlacement(
        tuple(assignment.levels), tuple(topology.DomainPods(domain.values, domain.pods) for domain in domains)
    )


def placed_pods(pod_sets: Iterable[AssignedPodSet], shape: WorkloadShape) -> tuple[PlacedPods, ...]:
    """Return what placements use on nodes: each pod its own requests, on every flavor of its pod set [TS4]."""
    figures = {pod_set.name: pod_set.pod for pod_set in shape.pod_sets}
    return tuple(
        PlacedPods(flavor, figures.get(pod_set.name, ()), pod_set.placement)
        for pod_set in pod_sets
        if pod_set.placement is not None
        for flavor in sorted(set(pod_set.flavors.values()))
    )


def needs_second_pass(workload: kueue.Workload) -> bool:
    """Whether a placement was deferred until all checks are ready, or uses a node that failed [TS25]."""
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
