"""Why, in words: the findings of a decision as sentences, and who holds what is short.

Decisions carry facts; this turns them into what a person reads, the same for the command line, the condition's message
and the dashboard. Who holds the quota is asked for on demand: it is a look at the whole tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import amounts, quota
from pykueue.core.cohort import Node
from pykueue.core.decision import Admit, Cause, Decision, Evict, Finding, Kind, Preempt, Retry, Wait
from pykueue.core.preemption.search import may_take
from pykueue.core.snapshot import Snapshot
from pykueue.core.workload import Reservation, Workload


def of_finding(finding: Finding) -> str:
    """What was in the way, with the figures."""
    match finding.cause:
        case Cause.SHORT:
            asked, free = _amount(finding, finding.requested), _amount(finding, max(0, finding.room))
            short = _amount(finding, finding.short_by)
            debt = f" ({_amount(finding, -finding.room)} overdrawn)" if finding.room < 0 else ""
            return f"{finding.resource} of flavor {finding.flavor}: {asked} asked, {free} free{debt}, {short} short"
        case Cause.BEYOND_CAPACITY:
            asked, most = _amount(finding, finding.requested), _amount(finding, finding.room)
            return f"{finding.resource} of flavor {finding.flavor}: {asked} asked, {most} at most were everything idle"
        case Cause.UNDECLARED:
            return f"the ClusterQueue declares no quota for {finding.resource}"
        case Cause.OTHER_SLICE_FLAVOR:
            return f"flavor {finding.flavor}: the slice to be replaced has its {finding.resource} on {finding.detail}"
        case Cause.NOT_NOMINATED | Cause.OTHER_VARIANT:
            return f"flavor {finding.flavor}: {finding.cause.value}"
        case Cause.NO_PLACEMENT | Cause.NOT_ELIGIBLE | Cause.BROKEN:
            return f"flavor {finding.flavor}: {finding.detail}" if finding.flavor else finding.detail


def _amount(finding: Finding, amount: int) -> str:
    return amounts.text(finding.resource, amount)


def of_decision(decision: Decision) -> Iterator[str]:
    """The decision, and everything that was in the way of a better one; each pod set that says something new."""
    match decision:
        case Admit():
            for pod_set in decision.pod_sets:
                flavors = ", ".join(f"{resource} on {flavor}" for resource, flavor in sorted(pod_set.flavors.items()))
                yield f"{pod_set.name}: {pod_set.count} pods" + (f", {flavors}" if flavors else "")
            if decision.borrowing_level:
                yield "borrows from its cohort"
        case Preempt():
            for victim in decision.victims:
                yield f"takes the place of {victim.key} of {victim.cluster_queue} ({victim.reason.value})"
            if decision.migrates:
                yield f"takes the place of its less favorable variant {decision.migrates}"
        case Wait() | Retry():
            if decision.message:
                yield decision.message
        case Evict():
            yield f"no replacement for lost nodes: {', '.join(decision.nodes)}"
    if isinstance(decision, Admit):
        return
    told = set()
    for explained in decision.explanation:
        tried = [finding for attempt in explained.attempts for finding in attempt.findings]
        for finding in (*tried, *explained.findings):
            sentence = of_finding(finding)
            if sentence not in told:
                told.add(sentence)
                yield sentence
        for attempt in explained.attempts:
            sentence = f"flavor {attempt.flavor}: nobody may be preempted for it"
            if attempt.kind is Kind.NO_CANDIDATES and sentence not in told:
                told.add(sentence)
                yield sentence


@dataclass(frozen=True, slots=True)
class Holder:
    """A Workload that uses what somebody else is short of, and what keeps it from being preempted (empty: nothing)."""

    workload: str
    cluster_queue: str
    amount: int
    protected_by: str


def holders(snapshot: Snapshot, workload: Workload, flavor: str, resource: str) -> list[Holder]:
    """Who holds a flavor's resource in the Workload's tree: most first, and the rule that protects each."""
    queue = snapshot.queues.get(workload.cluster_queue)
    if queue is None:
        return []
    number = queue.node.tree.number(flavor, resource)
    found = []
    for name in queue.node.tree.queues:
        other = snapshot.queues.get(name)
        if other is None:
            continue
        for reservation in other.reservations.values():
            amount = dict(reservation.numbers).get(number, 0)
            if amount > 0:
                rule = _protection(snapshot, workload, reservation, other.node, number)
                found.append(Holder(reservation.key, name, amount, rule))
    return sorted(found, key=lambda holder: (-holder.amount, holder.workload))


def _protection(snapshot: Snapshot, workload: Workload, held: Reservation, node: Node, number: int) -> str:
    """[PR2], [PR3] The first rule that forbids taking the reservation's place."""
    preemption = snapshot.queues[workload.cluster_queue].spec.preemption
    is_own = held.cluster_queue == workload.cluster_queue
    policy = preemption.within_cluster_queue if is_own else preemption.reclaim_within_cohort
    name = "withinClusterQueue" if is_own else "reclaimWithinCohort"
    if policy is PreemptionPolicy.NEVER:
        return f"{name} is Never"
    if not is_own and not quota.is_borrowing_any(node, (number,)):
        return f"ClusterQueue {held.cluster_queue} is within its nominal quota"
    if not may_take(policy, workload, held):
        return f"{name} is {policy.value}, and its priority is {held.priority} against {workload.priority}"
    return ""
