"""The topology of an assignment: which pod sets have to be placed, and where they go ([FL25], [TS31]).

Flavors are chosen first, by quota alone. Then the pod sets that request topology are placed on the nodes of their
flavor. A failure changes the mode of the assignment, not the flavor: a later attempt continues behind it.
"""

from __future__ import annotations

from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import DelayedTopologyRequestState
from pykueue.core import topology
from pykueue.core.assignment import Assignment, AssignmentInputs, FlavorAssignmentMode, PodSetFlavorAssignment
from pykueue.core.decision import Cause, FlavorAttempt, FlavorFinding, PreemptionMode
from pykueue.core.topology import PlacementRequest, TopologyRequest


def place(inputs: AssignmentInputs, assignment: Assignment) -> None:
    """Find placements for an assignment whose flavors are chosen, and lower its mode where there are none.

    Without a placement on the nodes as they are, preemption may help, so the mode becomes Preempt. Without one even on
    nodes emptied of all placed Workloads, no preemption can help, so it becomes NoFit ([FL25]).
    """
    requests = placement_requests(inputs, assignment)
    topology_cache = inputs.snapshot.topology_cache
    if assignment.mode is FlavorAssignmentMode.FIT:
        outcome = topology.place(topology_cache, requests) if requests else topology.PlacementOutcome()
        if outcome.failure is not None:
            assignment.pod_set(outcome.failure.pod_set).findings.append(_no_placement(outcome.failure))
            assignment.set_mode_of(outcome.failure.pod_set, FlavorAssignmentMode.PREEMPT)
        else:
            record_placements(assignment, outcome)
    # A Workload that replaces a lost node keeps its other pods where they are, so an emptied cluster means nothing.
    if assignment.mode is FlavorAssignmentMode.PREEMPT and not inputs.workload.details.unhealthy_nodes:
        outcome = topology.place(topology_cache, requests, emptied=True) if requests else topology.PlacementOutcome()
        if outcome.failure is not None:
            _record_failure(assignment, outcome.failure)
        else:
            for request in requests:
                assignment.set_mode_of(request.pod_set, FlavorAssignmentMode.PREEMPT)


def _record_failure(assignment: Assignment, failure: topology.PlacementFailure) -> None:
    choice = assignment.pod_set(failure.pod_set)
    choice.attempts = tuple(
        FlavorAttempt(
            attempt.flavor,
            PreemptionMode.NO_FIT,
            attempt.borrowing_level,
            attempt.findings,
            QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED,
        )
        if attempt.flavor == failure.flavor
        else attempt
        for attempt in choice.attempts
    )
    if not any(finding.cause is Cause.NO_PLACEMENT for finding in choice.findings):
        choice.findings.append(_no_placement(failure))
    assignment.set_mode_of(failure.pod_set, FlavorAssignmentMode.NO_FIT)


def _no_placement(failure: topology.PlacementFailure) -> FlavorFinding:
    return FlavorFinding(Cause.NO_PLACEMENT, flavor=failure.flavor, detail=str(failure))


def record_placements(assignment: Assignment, outcome: topology.PlacementOutcome) -> None:
    """Write the placements found into the assignment; a delayed topology request is thereby Ready."""
    for name, placement in outcome.placements.items():
        choice = assignment.pod_set(name)
        choice.placement = placement
        if choice.delayed is not None:
            choice.delayed = DelayedTopologyRequestState.READY


def placement_requests(inputs: AssignmentInputs, assignment: Assignment) -> list[PlacementRequest]:
    """One request per pod set that is to be placed now. A request that cannot be built is an error of its pod set
    ([TS31])."""
    requests = []
    for choice in assignment.pod_sets:
        if choice.pod_set.topology_request is None and not inputs.queue.spec.is_topology_only:
            continue
        if choice.error or choice.count == 0:
            continue
        lost = _lost_node(inputs, choice)
        if choice.placement is not None and (lost is None or _keeps_placement(inputs)):
            continue
        request = _placement_request(inputs, assignment, choice, lost)
        if request is not None:
            requests.append(request)
    return requests


def _keeps_placement(inputs: AssignmentInputs) -> bool:
    """A pod stays on its node for life, and a Workload that a Pod owns ends with it: there is nothing to replace
    ([TS24])."""
    return inputs.policy.keep_pod_owned_placements and inputs.workload.details.is_owned_by_pod


def _lost_node(inputs: AssignmentInputs, choice: PodSetFlavorAssignment) -> str | None:
    """The first unhealthy node that the pod set has pods on."""
    if choice.placement is None:
        return None
    hosts = {domain.values[-1] for domain in choice.placement.domains}
    return next((node for node in inputs.workload.details.unhealthy_nodes if node in hosts), None)


def _placement_request(
    inputs: AssignmentInputs, assignment: Assignment, choice: PodSetFlavorAssignment, lost: str | None
) -> PlacementRequest | None:
    topology_cache, spec, details = inputs.snapshot.topology_cache, inputs.queue.spec, inputs.workload.details
    request = choice.pod_set.topology_request or TopologyRequest()
    is_elastic = inputs.policy.elastic_slices_with_topology and details.is_elastic
    if is_elastic and request.mode is not topology.TopologyRequestMode.UNCONSTRAINED:
        assignment.fail(
            choice.name, f"{request.mode.value} topology is not supported with ElasticJobsViaWorkloadSlices"
        )
        return None
    of_queue = {flavor for group in spec.groups for flavor in group.flavors}
    if not any(topology_cache.has_flavor(flavor) for flavor in of_queue):
        assignment.fail(choice.name, "workload requires Topology, but there is no TAS cache information")
        return None
    flavors = sorted(
        {c.flavor for c in choice.flavors.values() if c.flavor in of_queue and topology_cache.has_flavor(c.flavor)}
    )
    if len(flavors) != 1:
        several = f"more than one TAS flavor assigned: {', '.join(flavors)}"
        assignment.fail(choice.name, several if flavors else "no TAS flavor assigned")
        return None
    if spec.is_multikueue or (inputs.workload.reservation is None and flavors[0] in spec.provisioned_flavors):
        choice.delayed = (
            DelayedTopologyRequestState.PENDING
        )  # [TS6] the nodes are chosen in another cluster, or do not exist yet
        return None
    previous = None
    if is_elastic and inputs.replaced is not None:
        old = inputs.replaced.pod_set(choice.name)
        previous = old.placement if old is not None else None
    repair = None
    if choice.placement is not None and lost is not None:
        repair = topology.NodeReplacement(choice.placement, lost)
    return PlacementRequest(
        pod_set=choice.name,
        flavor=flavors[0],
        count=choice.count,
        pod=choice.pod_set.pod,
        topology_request=request,
        terms=details.terms.get(choice.name, choice.pod_set.terms),
        group=choice.pod_set.group,
        node_replacement=repair,
        previous=previous,
        weighed_as=inputs.workload.uid
        if topology_cache.options.preferred_affinity and not inputs.policy.departures
        else "",
    )
