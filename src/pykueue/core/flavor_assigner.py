"""Which flavor fits, and why the others did not (§4).

Pod sets are handled group by group, and a group's resources resource group by resource group: one search finds one
flavor for all resources of the group that are asked for. Each search walks the flavors in the queue's order, judges
each one (`Kind` and borrowing level), and stops or goes on as the queue's fungibility says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import FlavorFungibilityPreference, PreemptionPolicy
from pykueue.core import amounts, eligibility, quota, topology
from pykueue.core.assignment import MODE_OF, Assignment, Choice, Mode, PodSetChoice, assigned_of
from pykueue.core.decision import Cause, Finding, FlavorAttempt, Kind
from pykueue.core.ordering import visiting_order
from pykueue.core.policy import Policy
from pykueue.core.queue import Fungibility, ResourceGroup
from pykueue.core.snapshot import Column, Queue, Snapshot
from pykueue.core.topology import PlacementRequest, Wish
from pykueue.core.workload import AssignedPodSet, PodSet, Requests, Reservation, ScanMemory, Workload

SEVERITY: Mapping[QuotaReservedReason | None, int] = {
    None: 0,
    QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    QuotaReservedReason.WAITING_FOR_QUOTA: 2,
    QuotaReservedReason.EXCEEDS_MAX_QUOTA: 3,
    QuotaReservedReason.NO_MATCHING_FLAVOR: 4,
}


class Grade(NamedTuple):
    """How good a flavor is: its kind, and how high up the tree it borrows."""

    kind: Kind
    level: int


_BEST = Grade(Kind.FIT, 0)
_WORST = Grade(Kind.NO_FIT, 1 << 30)

Simulation = Callable[[int, int], tuple[Kind, int]]
"""(number, amount) -> what preemption could do for it, and the level it would then borrow at ([FL15])."""


@dataclass(frozen=True, slots=True)
class Assigner:
    """Everything but the counts: partial admission asks the same question for fewer and fewer pods."""

    snapshot: Snapshot
    policy: Policy
    workload: Workload
    queue: Queue
    simulate: Simulation
    memory: ScanMemory | None = None  # where the last scan stopped
    replaced: Reservation | None = None
    pinned: Mapping[str, Mapping[str, str]] | None = None

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Flavors for every pod set, then a place on the nodes for those that ask for one."""
        assignment = Assignment(replaced=self.replaced)
        choices = [self._start(index, pod_set, counts) for index, pod_set in enumerate(self.workload.shape.pod_sets)]
        all_given = all(
            self._assign_group(assignment, choices, indices) for indices in _groups(self.workload.shape.pod_sets)
        )
        assignment.memory = ScanMemory(
            stopped_at=tuple(
                {resource: chosen.stopped_at for resource, chosen in choice.flavors.items()}
                for choice in assignment.pod_sets
            ),
            queue_generation=self.queue.generation,
            turn=self.workload.turn,
            shape=self.workload.shape if self.policy.equivalence_hashing else None,
        )
        if all_given and assignment.mode is not Mode.NO_FIT and self.policy.topology:
            self._place(assignment)
        if assignment.mode is Mode.NO_FIT:
            assignment.reason = _reason(assignment, self.queue)
        return assignment

    def _start(self, index: int, pod_set: PodSet, counts: Sequence[int] | None) -> PodSetChoice:
        """The pod set with its counts and, on a second pass, what it was given already ([FL6])."""
        assigned = assigned_of(self.workload, pod_set)
        if assigned is not None:
            count, requests = assigned.count, assigned.requests
        else:
            count, requests = pod_set.count, pod_set.requests
        if counts is not None and (assigned is None or assigned.placement is None):
            requests, count = scaled(requests, count, counts[index])
        if amounts.PODS in self.queue.group_of:
            others = {resource: amount for resource, amount in requests if resource != amounts.PODS}
            requests = in_visiting_order({**others, amounts.PODS: count})
        choice = PodSetChoice(pod_set, count, requests)
        if assigned is not None and self.policy.topology:
            tree = self.queue.node.tree
            choice.flavors = {
                resource: Choice(flavor, tree.number(flavor, resource), Mode.FIT)
                for resource, flavor in assigned.flavors.items()
            }
            choice.delayed = assigned.delayed
            choice.placement = assigned.placement
        return choice

    def _assign_group(self, assignment: Assignment, choices: list[PodSetChoice], indices: Sequence[int]) -> bool:
        """Choose flavors for the pod sets of one group together; whether they all got what they need."""
        group = [choices[index] for index in indices]
        requests = _total(group)
        found: dict[str, Choice] = {}
        for choice in group:
            found.update(choice.flavors)
        attempts: dict[str, FlavorAttempt] = {}
        findings: list[Finding] = []
        error = ""
        for resource, amount in requests:
            resource_group = self.queue.group_of.get(resource)
            if resource_group is None and (amount == 0 or self.policy.ignore_undeclared):
                continue
            if resource in found:
                continue
            if resource_group is None:
                found = {}
                findings = [Finding(Cause.UNDECLARED, resource=resource, requested=amount)]
                break
            search = _FlavorSearch(self, indices, requests, resource_group, resource, assignment.usage)
            search.run()
            _merge_attempts(attempts, search.attempts, resource_group)
            if search.error or not search.best:
                found, findings, error = {}, search.findings, search.error
                break
            found.update(search.best)
            if search.grade.kind is not Kind.FIT:
                findings += search.findings
        succeeded = True
        tried = tuple(attempts[flavor] for flavor in sorted(attempts))
        for choice in group:
            choice.flavors = self._own_flavors(choice, found)
            choice.findings = list(findings)
            choice.error = error
            choice.attempts = tried
            self._append(assignment, choice)
            if error or (choice.requests and not choice.flavors):
                succeeded = False
        return succeeded

    def _own_flavors(self, choice: PodSetChoice, found: Mapping[str, Choice]) -> dict[str, Choice]:
        """[FL2] The flavors of what the pod set itself asks for. One that asks for nothing, but is placed together with
        others, takes their topology flavors so that it can be placed."""
        if choice.requests:
            return {
                resource: Choice(c.flavor, c.number, c.mode, c.level, c.stopped_at)
                for resource, _ in choice.requests
                if (c := found.get(resource)) is not None
            }
        if choice.pod_set.group is not None:
            return {
                resource: Choice(c.flavor, c.number, c.mode, c.level, c.stopped_at)
                for resource, c in found.items()
                if self.snapshot.fleet.has_flavor(c.flavor)
            }
        return {}

    def _append(self, assignment: Assignment, choice: PodSetChoice) -> None:
        assignment.pod_sets.append(choice)
        requested = dict(choice.requests)
        old = _requests_of(self.replaced, choice.name)
        for resource, chosen in choice.flavors.items():
            assignment.level = max(assignment.level, chosen.level)
            amount = requested.get(resource, 0) - old.get(resource, 0)
            assignment.usage[chosen.number] = amounts.add(assignment.usage.get(chosen.number, 0), amount)

    # Topology.

    def _place(self, assignment: Assignment) -> None:
        """[FL25] Find places; where there are none now, see whether there would be with everybody gone."""
        requests = self.placement_requests(assignment)
        fleet = self.snapshot.fleet
        if assignment.mode is Mode.FIT:
            outcome = topology.place(fleet, requests) if requests else topology.Outcome()
            if outcome.failure is not None:
                name = outcome.failure.pod_set
                assignment.of(name).findings.append(
                    Finding(Cause.NO_PLACEMENT, flavor=outcome.failure.flavor, detail=str(outcome.failure))
                )
                assignment.set_mode_of(name, Mode.PREEMPT)
            else:
                take_places(assignment, outcome)
        if assignment.mode is Mode.PREEMPT and not self.workload.details.unhealthy_nodes:
            outcome = topology.place(fleet, requests, emptied=True) if requests else topology.Outcome()
            if outcome.failure is not None:
                choice = assignment.of(outcome.failure.pod_set)
                choice.attempts = tuple(
                    FlavorAttempt(
                        attempt.flavor,
                        Kind.NO_FIT,
                        attempt.level,
                        attempt.findings,
                        QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED,
                    )
                    if attempt.flavor == outcome.failure.flavor
                    else attempt
                    for attempt in choice.attempts
                )
                if not any(finding.cause is Cause.NO_PLACEMENT for finding in choice.findings):
                    choice.findings.append(
                        Finding(Cause.NO_PLACEMENT, flavor=outcome.failure.flavor, detail=str(outcome.failure))
                    )
                assignment.set_mode_of(outcome.failure.pod_set, Mode.NO_FIT)
            else:
                for request in requests:
                    assignment.set_mode_of(request.pod_set, Mode.PREEMPT)

    def placement_requests(self, assignment: Assignment) -> list[PlacementRequest]:
        """§9.2 One per pod set that is to be placed now. One that cannot be built is an error of its pod set."""
        requests = []
        for choice in assignment.pod_sets:
            if choice.pod_set.wish is None and not self.queue.spec.is_topology_only:
                continue
            if choice.error or choice.count == 0:
                continue
            lost = self._lost_node(choice)
            if choice.placement is not None and (lost is None or self._cannot_move()):
                continue
            request = self._placement_request(assignment, choice, lost)
            if request is not None:
                requests.append(request)
        return requests

    def _cannot_move(self) -> bool:
        """[TS24] A lone pod stays on its node for life, and its Workload does not outlive it: nothing to repair."""
        return self.policy.keep_pod_owned_placements and self.workload.details.is_owned_by_pod

    def _lost_node(self, choice: PodSetChoice) -> str | None:
        """The first unhealthy node that the pod set has pods on."""
        if choice.placement is None:
            return None
        hosts = {domain.values[-1] for domain in choice.placement.domains}
        return next((node for node in self.workload.details.unhealthy_nodes if node in hosts), None)

    def _placement_request(
        self, assignment: Assignment, choice: PodSetChoice, lost: str | None
    ) -> PlacementRequest | None:
        fleet, spec, details = self.snapshot.fleet, self.queue.spec, self.workload.details
        wish = choice.pod_set.wish or Wish()
        is_elastic = self.policy.elastic_slices_with_topology and details.is_elastic
        if is_elastic and wish.kind is not topology.Kind.UNCONSTRAINED:
            assignment.fail(
                choice.name, f"{wish.kind.value} topology is not supported with ElasticJobsViaWorkloadSlices"
            )
            return None
        of_queue = {flavor for group in spec.groups for flavor in group.flavors}
        if not any(fleet.has_flavor(flavor) for flavor in of_queue):
            assignment.fail(choice.name, "workload requires Topology, but there is no TAS cache information")
            return None
        flavors = sorted(
            {c.flavor for c in choice.flavors.values() if c.flavor in of_queue and fleet.has_flavor(c.flavor)}
        )
        if len(flavors) != 1:
            several = f"more than one TAS flavor assigned: {', '.join(flavors)}"
            assignment.fail(choice.name, several if flavors else "no TAS flavor assigned")
            return None
        if spec.is_multikueue or (self.workload.reservation is None and flavors[0] in spec.provisioned_flavors):
            choice.delayed = "Pending"  # [TS6] the nodes are chosen elsewhere, or do not exist yet
            return None
        previous = None
        if is_elastic and self.replaced is not None:
            previous = next((a.placement for a in self.replaced.pod_sets if a.name == choice.name), None)
        return PlacementRequest(
            pod_set=choice.name,
            flavor=flavors[0],
            count=choice.count,
            pod=choice.pod_set.pod,
            wish=wish,
            terms=details.terms.get(choice.name, choice.pod_set.terms),
            group=choice.pod_set.group,
            repair=self._repair(choice, lost),
            previous=previous,
        )

    def _repair(self, choice: PodSetChoice, lost: str | None) -> topology.Repair | None:
        return topology.Repair(choice.placement, lost) if choice.placement is not None and lost is not None else None


def take_places(assignment: Assignment, outcome: topology.Outcome) -> None:
    """Write the placements found into the assignment; a delayed request is thereby done."""
    for name, placement in outcome.placements.items():
        choice = assignment.of(name)
        choice.placement = placement
        if choice.delayed is not None:
            choice.delayed = "Ready"


class _FlavorSearch:
    """One walk over the flavors of a resource group, for all its resources that a group of pod sets asks for."""

    def __init__(
        self,
        assigner: Assigner,
        indices: Sequence[int],
        requests: Requests,
        group: ResourceGroup,
        resource: str,
        taken: Mapping[int, int],
    ) -> None:
        self.assigner = assigner
        self.pod_sets = [assigner.workload.shape.pod_sets[index] for index in indices]
        self.first = indices[0]
        self.requests = [(name, amount) for name, amount in requests if name in group.resources]
        self.group = group
        self.resource = resource
        self.taken = taken
        self.best: dict[str, Choice] = {}
        self.grade = _WORST
        self.findings: list[Finding] = []
        self.attempts: list[FlavorAttempt] = []
        self.error = ""

    def run(self) -> None:
        policy, queue = self.assigner.policy, self.assigner.queue
        columns = queue.columns[self.group]
        memory = self.assigner.memory
        start = memory.next_index(self.first, self.resource) if memory and policy.flavor_fungibility else 0
        stopped_at = -1
        for index in range(start, len(columns)):
            stopped_at = index
            column = columns[index]
            obstacle = self._obstacle(column)
            if obstacle is not None:
                self.findings.append(obstacle)
                if obstacle.cause not in (Cause.NOT_NOMINATED, Cause.OTHER_VARIANT):
                    self.attempts.append(
                        FlavorAttempt(
                            column.flavor, Kind.NO_FIT, 0, (obstacle,), QuotaReservedReason.NO_MATCHING_FLAVOR
                        )
                    )
                if obstacle.cause is Cause.BROKEN:
                    self.best, self.error = {}, obstacle.detail
                    return
                continue
            choices, grade = self._judge(column)
            if policy.flavor_fungibility:
                if not goes_on(grade, queue.spec.fungibility):
                    self.best, self.grade = choices, grade
                    break
                if is_preferred(grade, self.grade, queue.spec.fungibility.preference):
                    self.best, self.grade = choices, grade
            elif grade.kind > self.grade.kind:
                self.best, self.grade = choices, grade
                if grade.kind is Kind.FIT:
                    break
        if policy.flavor_fungibility:
            for choice in self.best.values():
                choice.stopped_at = -1 if stopped_at == len(columns) - 1 else stopped_at

    def _obstacle(self, column: Column) -> Finding | None:
        """§4.2 What makes the flavor ineligible before any quota is looked at."""
        assigner = self.assigner
        if assigner.pinned is not None and not any(
            assigner.pinned.get(pod_set.name, {}).get(self.resource) == column.flavor for pod_set in self.pod_sets
        ):
            return Finding(Cause.NOT_NOMINATED, column.flavor, self.resource)
        allowed = assigner.workload.details.allowed_flavors
        if assigner.policy.concurrent_admission and allowed is not None and column.flavor not in allowed:
            return Finding(Cause.OTHER_VARIANT, flavor=column.flavor)
        return eligibility.obstacle(
            assigner.snapshot, assigner.policy, assigner.queue, column.flavor, self.group, self.pod_sets
        )

    def _judge(self, column: Column) -> tuple[dict[str, Choice], Grade]:
        """[FL16] The flavor is as good as its worst resource; each resource keeps its own mode and level."""
        choices: dict[str, Choice] = {}
        grade = _BEST
        findings: list[Finding] = []
        worst_reason: QuotaReservedReason | None = None
        highest = 0
        preference = self.assigner.queue.spec.fungibility.preference
        for resource, requested in self.requests:
            amount = requested
            if self.assigner.replaced is not None:
                for pod_set in self.pod_sets:
                    old = _assigned(self.assigner.replaced, pod_set.name)
                    on = old.flavors.get(resource, "") if old is not None else ""
                    if on != column.flavor:
                        grade = _WORST
                        findings.append(
                            Finding(Cause.OTHER_SLICE_FLAVOR, column.flavor, resource, requested, detail=on)
                        )
                        worst_reason = QuotaReservedReason.NO_MATCHING_FLAVOR
                        break
                    amount -= dict(old.requests).get(resource, 0) if old is not None else 0
            number = column.numbers[resource]
            kind, level, finding, reason = self._fit(column.flavor, resource, number, amount)
            highest = max(highest, level)
            if finding is not None:
                findings.append(finding)
                worst_reason = max(worst_reason, reason, key=SEVERITY.__getitem__)
            if is_preferred(grade, Grade(kind, level), preference):
                grade = Grade(kind, level)
            if grade.kind is not Kind.NO_FIT:
                choices[resource] = Choice(column.flavor, number, MODE_OF[kind], level)
        self.findings += findings
        self.attempts.append(FlavorAttempt(column.flavor, grade.kind, highest, tuple(findings), worst_reason))
        return choices, grade

    def _fit(
        self, flavor: str, resource: str, number: int, requested: int
    ) -> tuple[Kind, int, Finding | None, QuotaReservedReason | None]:
        """§4.4 One flavor-resource: kind, borrowing level, and what was short."""
        queue = self.assigner.queue
        node, preemption = queue.node, queue.spec.preemption
        earlier = self.taken.get(number, 0)
        amount = amounts.add(earlier, requested)
        potential = node.potential[number]
        if amount > potential:
            short = Finding(Cause.BEYOND_CAPACITY, flavor, resource, amount, potential, earlier=earlier)
            return Kind.NO_FIT, 0, short, QuotaReservedReason.EXCEEDS_MAX_QUOTA
        level, is_below_root = quota.level(node, number, amount)
        balance = quota.balance(node, number)
        if amount <= max(0, balance):
            return Kind.FIT, level, None, None
        short = Finding(Cause.SHORT, flavor, resource, amount, balance, earlier=earlier)
        if (
            node.subtree[number] >= amount
            or is_below_root
            or preemption.borrow_within_cohort
            or (self.assigner.policy.is_fair and preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER)
        ):
            kind, level = self.assigner.simulate(number, amount)
            return kind, level, short, None
        return Kind.NO_FIT, level, short, QuotaReservedReason.WAITING_FOR_QUOTA


def is_preferred(a: Grade, b: Grade, preference: FlavorFungibilityPreference) -> bool:
    """§4.6 Whether a is better than b; equal ones are not."""
    if a.kind is Kind.NO_FIT:
        return False
    if b.kind is Kind.NO_FIT:
        return True
    if (a.kind is Kind.NO_CANDIDATES) is not (b.kind is Kind.NO_CANDIDATES):
        return b.kind is Kind.NO_CANDIDATES
    if preference is FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING:
        return (-a.level, a.kind) > (-b.level, b.kind)
    return (a.kind, -a.level) > (b.kind, -b.level)


def goes_on(grade: Grade, fungibility: Fungibility) -> bool:
    """[FL18] Whether the search looks at further flavors."""
    if grade.kind in (Kind.NO_FIT, Kind.NO_CANDIDATES):
        return True
    if grade.kind is not Kind.FIT and not fungibility.stop_at_preempting:
        return True
    return grade.level > 0 and not fungibility.stop_at_borrowing


def _groups(pod_sets: Sequence[PodSet]) -> list[list[int]]:
    """[FL1] The indices of pod sets that get their flavors together, in order of the first of each group."""
    groups: dict[str | int, list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        groups.setdefault(index if pod_set.group is None else pod_set.group, []).append(index)
    return list(groups.values())


def _total(group: Sequence[PodSetChoice]) -> Requests:
    if len(group) == 1:
        return group[0].requests
    total: dict[str, int] = {}
    for choice in group:
        for resource, amount in choice.requests:
            total[resource] = amounts.add(total.get(resource, 0), amount)
    return in_visiting_order(total)


def in_visiting_order(requests: Mapping[str, int]) -> Requests:
    return tuple(sorted(requests.items(), key=lambda item: visiting_order(item[0])))


def scaled(requests: Requests, count: int, to: int) -> tuple[Requests, int]:
    """[AM17] The requests of another number of pods; those of no pods cannot be scaled."""
    if count in (0, to):
        return requests, count
    return tuple((resource, amounts.multiply(amount // count, to)) for resource, amount in requests), to


def _assigned(replaced: Reservation, pod_set: str) -> AssignedPodSet | None:
    return next((assigned for assigned in replaced.pod_sets if assigned.name == pod_set), None)


def _requests_of(replaced: Reservation | None, pod_set: str) -> dict[str, int]:
    if replaced is None:
        return {}
    old = _assigned(replaced, pod_set)
    return dict(old.requests) if old is not None else {}


def _merge_attempts(into: dict[str, FlavorAttempt], attempts: Sequence[FlavorAttempt], group: ResourceGroup) -> None:
    """Keep the worst of what was found for a flavor. A flavor of this group that this search did not come to, but an
    earlier one did, does not serve the group."""
    for attempt in attempts:
        before = into.get(attempt.flavor)
        if before is None:
            into[attempt.flavor] = attempt
        else:
            into[attempt.flavor] = FlavorAttempt(
                attempt.flavor,
                min(before.kind, attempt.kind),
                max(before.level, attempt.level),
                before.findings + tuple(f for f in attempt.findings if f not in before.findings),
                max(before.reason, attempt.reason, key=SEVERITY.__getitem__),
            )
    if attempts:
        seen = {attempt.flavor for attempt in attempts}
        for flavor in group.flavors:
            before = into.get(flavor)
            if before is not None and flavor not in seen:
                into[flavor] = FlavorAttempt(
                    flavor, Kind.NO_FIT, before.level, before.findings, QuotaReservedReason.NO_MATCHING_FLAVOR
                )


def _reason(assignment: Assignment, queue: Queue) -> QuotaReservedReason:
    """§4.12 The mildest reason over the flavors of a group (they are alternatives), the worst over groups and pod sets
    (all are needed). Where nothing says more, no flavor matched (W15: an empty reason would be invalid)."""
    overall: QuotaReservedReason | None = None
    for choice in assignment.pod_sets:
        if choice.mode is not Mode.NO_FIT:
            continue
        if not choice.attempts:
            overall = QuotaReservedReason.NO_MATCHING_FLAVOR
            continue
        mildest: dict[int, QuotaReservedReason | None] = {}
        for attempt in choice.attempts:
            if attempt.kind is not Kind.NO_FIT:
                continue
            for index, group in enumerate(queue.spec.groups):
                if attempt.flavor in group.flavors and (
                    index not in mildest or SEVERITY[attempt.reason] < SEVERITY[mildest[index]]
                ):
                    mildest[index] = attempt.reason
        overall = max((overall, *mildest.values()), key=SEVERITY.__getitem__)
    return overall or QuotaReservedReason.NO_MATCHING_FLAVOR
