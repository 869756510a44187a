"""The walk over the flavors of one resource group: the flavor taken, and what kept the others out ([FL7] to [FL20]).

One walk chooses one flavor for all resources of the group that are requested together. It goes through the flavors in
the ClusterQueue's order, gives each one a `Grade` (a `Kind` and a borrowing level), and stops or continues as the
ClusterQueue's flavorFungibility demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import FlavorFungibilityPreference, PreemptionPolicy
from pykueue.core import amounts, eligibility, quota
from pykueue.core.amounts import Amount
from pykueue.core.assignment import MODE_OF, AssignmentInputs, FlavorAssignment
from pykueue.core.decision import Cause, FlavorAttempt, FlavorFinding, PreemptionMode
from pykueue.core.queue import FlavorResourceNumber, Fungibility, ResourceGroupInfo, UsageByNumber
from pykueue.core.snapshot import GroupFlavor
from pykueue.core.workload import Requests

SEVERITY: Final[Mapping[QuotaReservedReason | None, int]] = {
    None: 0,
    QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    QuotaReservedReason.WAITING_FOR_QUOTA: 2,
    QuotaReservedReason.EXCEEDS_MAX_QUOTA: 3,
    QuotaReservedReason.NO_MATCHING_FLAVOR: 4,
}
"""[FL35] The order of the reasons of a NoFit, mildest first."""


class GranularMode(NamedTuple):
    """How well a flavor suits: what it takes to use it, and how high up the cohort tree it borrows."""

    preemption_mode: PreemptionMode
    borrowing_level: int


_BEST: Final = GranularMode(PreemptionMode.FIT, 0)
_WORST: Final = GranularMode(PreemptionMode.NO_FIT, 1 << 30)


class FlavorSearch:
    """One walk over the flavors of a resource group, for all its resources that a group of pod sets requests.

    `indices` are the group's pod sets; `taken` is the usage that earlier groups of the same Workload were given, which
    counts on top of the request ([FL4]). After `run`: `best` holds the flavor chosen for each resource (empty: none),
    `grade` how well it suits, `findings` and `attempts` what was in the way of each flavor, and `error` is set where a
    flavor could not be evaluated at all.
    """

    def __init__(
        self,
        inputs: AssignmentInputs,
        indices: Sequence[int],
        requests: Requests,
        group: ResourceGroupInfo,
        resource: str,
        taken: UsageByNumber,
    ) -> None:
        self.inputs = inputs
        self.pod_sets = [inputs.workload.shape.pod_sets[index] for index in indices]
        self.first = indices[0]
        self.requests = [(name, amount) for name, amount in requests if name in group.resources]
        self.group = group
        self.resource = resource
        self.taken = taken
        self.best: dict[str, FlavorAssignment] = {}
        self.grade = _WORST
        self.findings: list[FlavorFinding] = []
        self.attempts: list[FlavorAttempt] = []
        self.error = ""

    def run(self) -> None:
        """Walk from the recorded scan position to the flavor that ends the walk, or to the end of the list."""
        policy, queue = self.inputs.policy, self.inputs.queue
        columns = queue.group_flavors[self.group]
        memory = self.inputs.scan_position
        start = memory.next_index(self.first, self.resource) if memory and policy.flavor_fungibility else 0
        stopped_at = -1
        for index in range(start, len(columns)):
            stopped_at = index
            column = columns[index]
            obstacle = self._obstacle(column)
            if obstacle is not None:
                self.findings.append(obstacle)
                # A flavor outside the nomination or outside the variant was never a choice, so it is not an attempt.
                if obstacle.cause not in (Cause.NOT_NOMINATED, Cause.OTHER_VARIANT):
                    self.attempts.append(
                        FlavorAttempt(
                            column.flavor, PreemptionMode.NO_FIT, 0, (obstacle,), QuotaReservedReason.NO_MATCHING_FLAVOR
                        )
                    )
                if obstacle.cause is Cause.BROKEN:
                    self.best, self.error = {}, obstacle.detail
                    return
                continue
            choices, grade = self._judge(column)
            if policy.flavor_fungibility:
                if not should_try_next_flavor(grade, queue.spec.fungibility):
                    # Taken even where an earlier flavor is preferred: the policies allow the walk to stop here.
                    self.best, self.grade = choices, grade
                    break
                if is_preferred(grade, self.grade, queue.spec.fungibility.preference):
                    self.best, self.grade = choices, grade
            elif grade.preemption_mode > self.grade.preemption_mode:
                self.best, self.grade = choices, grade
                if grade.preemption_mode is PreemptionMode.FIT:
                    break
        if policy.flavor_fungibility:
            # [FL20] Where the walk ended, not which flavor it chose: the next attempt continues behind everything that
            # this one has tried, even behind a flavor that fitted.
            for choice in self.best.values():
                choice.stopped_at = -1 if stopped_at == len(columns) - 1 else stopped_at

    def _obstacle(self, column: GroupFlavor) -> FlavorFinding | None:
        """What makes the flavor ineligible before any quota is looked at ([FL32])."""
        inputs = self.inputs
        if inputs.pinned is not None and not any(
            inputs.pinned.get(pod_set.name, {}).get(self.resource) == column.flavor for pod_set in self.pod_sets
        ):
            return FlavorFinding(Cause.NOT_NOMINATED, column.flavor, self.resource)
        allowed = inputs.workload.details.allowed_flavors
        if inputs.policy.concurrent_admission and allowed is not None and column.flavor not in allowed:
            return FlavorFinding(Cause.OTHER_VARIANT, flavor=column.flavor)
        return eligibility.obstacle(
            inputs.snapshot, inputs.policy, inputs.queue, column.flavor, self.group, self.pod_sets
        )

    def _judge(self, column: GroupFlavor) -> tuple[dict[str, FlavorAssignment], GranularMode]:
        """Grade an eligible flavor: it is as good as its worst resource, while each resource keeps its own mode and
        borrowing level ([FL16])."""
        choices: dict[str, FlavorAssignment] = {}
        grade = _BEST
        findings: list[FlavorFinding] = []
        worst_reason: QuotaReservedReason | None = None
        highest = 0
        preference = self.inputs.queue.spec.fungibility.preference
        for resource, requested in self.requests:
            amount = requested
            if self.inputs.replaced is not None:
                # [FL28] A new slice keeps the flavors of the slice it replaces, and requests only the difference.
                for pod_set in self.pod_sets:
                    old = self.inputs.replaced.pod_set(pod_set.name)
                    on = old.flavors.get(resource, "") if old is not None else ""
                    if on != column.flavor:
                        grade = _WORST
                        findings.append(
                            FlavorFinding(Cause.OTHER_SLICE_FLAVOR, column.flavor, resource, requested, detail=on)
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
            if is_preferred(grade, GranularMode(kind, level), preference):
                grade = GranularMode(kind, level)
            # Once one resource does not fit, the flavor is lost; the remaining ones are still tested, so that their
            # findings are reported, too.
            if grade.preemption_mode is not PreemptionMode.NO_FIT:
                choices[resource] = FlavorAssignment(column.flavor, number, MODE_OF[kind], level)
        self.findings += findings
        self.attempts.append(
            FlavorAttempt(column.flavor, grade.preemption_mode, highest, tuple(findings), worst_reason)
        )
        return choices, grade

    def _fit(
        self, flavor: str, resource: str, number: FlavorResourceNumber, requested: Amount
    ) -> tuple[PreemptionMode, int, FlavorFinding | None, QuotaReservedReason | None]:
        """Test one flavor-resource: its kind, the borrowing level, and what was short ([FL12] to [FL15])."""
        queue = self.inputs.queue
        node, preemption = queue.node, queue.spec.preemption
        earlier = self.taken.get(number, 0)
        amount = amounts.add(earlier, requested)
        potential = node.potential[number]
        if amount > potential:
            short = FlavorFinding(Cause.BEYOND_CAPACITY, flavor, resource, amount, potential, earlier=earlier)
            return PreemptionMode.NO_FIT, 0, short, QuotaReservedReason.EXCEEDS_MAX_QUOTA
        level, is_below_root = quota.level(node, number, amount)
        balance = quota.balance(node, number)
        if amount <= max(0, balance):
            return PreemptionMode.FIT, level, None, None
        short = FlavorFinding(Cause.SHORT, flavor, resource, amount, balance, earlier=earlier)
        # The search for targets is the costly part of an attempt, so it runs only where preemption can help at all.
        if (
            node.subtree[number] >= amount
            or is_below_root
            or preemption.borrow_within_cohort
            or (self.inputs.policy.is_fair and preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER)
        ):
            kind, level = self.inputs.simulate(number, amount)
            return kind, level, short, None
        return PreemptionMode.NO_FIT, level, short, QuotaReservedReason.WAITING_FOR_QUOTA


def is_preferred(a: GranularMode, b: GranularMode, preference: FlavorFungibilityPreference) -> bool:
    """Whether a is better than b. Equal grades are not, so that the earlier flavor stays ([FL34])."""
    if a.preemption_mode is PreemptionMode.NO_FIT:
        return False
    if b.preemption_mode is PreemptionMode.NO_FIT:
        return True
    if (a.preemption_mode is PreemptionMode.NO_CANDIDATES) is not (b.preemption_mode is PreemptionMode.NO_CANDIDATES):
        return b.preemption_mode is PreemptionMode.NO_CANDIDATES
    if preference is FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING:
        return (-a.borrowing_level, a.preemption_mode) > (-b.borrowing_level, b.preemption_mode)
    return (a.preemption_mode, -a.borrowing_level) > (b.preemption_mode, -b.borrowing_level)


def should_try_next_flavor(grade: GranularMode, fungibility: Fungibility) -> bool:
    """Whether the walk continues behind a flavor of this grade: it does not fit, or it preempts or borrows and the
    policy is TryNextFlavor ([FL18])."""
    if grade.preemption_mode in (PreemptionMode.NO_FIT, PreemptionMode.NO_CANDIDATES):
        return True
    if grade.preemption_mode is not PreemptionMode.FIT and not fungibility.stop_at_preempting:
        return True
    return grade.borrowing_level > 0 and not fungibility.stop_at_borrowing


def merge_attempts(into: dict[str, FlavorAttempt], attempts: Sequence[FlavorAttempt], group: ResourceGroupInfo) -> None:
    """Keep the worst result for each flavor over the walks of one group of pod sets. A flavor that an earlier walk
    tried, and that this one stopped before, does not serve the whole group: it becomes a NoFit."""
    if not into:
        into.update((attempt.flavor, attempt) for attempt in attempts)
        return
    for attempt in attempts:
        before = into.get(attempt.flavor)
        if before is None:
            into[attempt.flavor] = attempt
        else:
            into[attempt.flavor] = FlavorAttempt(
                attempt.flavor,
                min(before.mode, attempt.mode),
                max(before.borrowing_level, attempt.borrowing_level),
                before.findings + tuple(f for f in attempt.findings if f not in before.findings),
                max(before.reason, attempt.reason, key=SEVERITY.__getitem__),
            )
    if attempts:
        seen = {attempt.flavor for attempt in attempts}
        for flavor in group.flavors:
            before = into.get(flavor)
            if before is not None and flavor not in seen:
                into[flavor] = FlavorAttempt(
                    flavor,
                    PreemptionMode.NO_FIT,
                    before.borrowing_level,
                    before.findings,
                    QuotaReservedReason.NO_MATCHING_FLAVOR,
                )
