"""Messages: a decision as the message that Kueue writes, the details beyond it, and which Workloads hold the quota that
is short.

Decisions carry facts; this module turns them into text. Conditions and Events have the `message`, which tools parse;
plans, `explain` and the dashboard show the `details` after it. Which Workloads hold the quota is computed on demand: it
needs the whole tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import amounts, quota
from pykueue.core.cohort import QuotaNode
from pykueue.core.decision import (
    Admit,
    Cause,
    Decision,
    Evict,
    FlavorAttempt,
    FlavorFinding,
    Preempt,
    PreemptionMode,
    SecondPassFailed,
    Wait,
)
from pykueue.core.preemption.search import may_take
from pykueue.core.snapshot import Snapshot
from pykueue.core.workload import Reservation, WorkloadInfo


def of_finding(finding: FlavorFinding) -> str:
    """A finding as Kueue writes it."""
    flavor, resource = finding.flavor, finding.resource
    match finding.cause:
        case Cause.SHORT:
            # Kueue subtracts what is available, which is never below zero.
            more = _amount(finding, finding.requested - max(0, finding.available))
            return f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"
        case Cause.BEYOND_CAPACITY:
            before, now = (_amount(finding, each) for each in (finding.earlier, finding.requested - finding.earlier))
            requested = f"previously considered podsets requests ({before}) + current podset request ({now})"
            most = _amount(finding, finding.available)
            return f"insufficient quota for {resource} in flavor {flavor}, {requested} > maximum capacity ({most})"
        case Cause.UNDECLARED:
            return f"resource {resource} unavailable in ClusterQueue"
        case Cause.OTHER_SLICE_FLAVOR:
            return f"could not assign {flavor} flavor since the original workload is assigned: {finding.detail}"
        case Cause.NOT_NOMINATED:
            return f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
        case Cause.OTHER_VARIANT:
            return f"skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
        case Cause.NO_PLACEMENT | Cause.NOT_ELIGIBLE | Cause.BROKEN:
            return finding.detail


def _amount(finding: FlavorFinding, amount: int) -> str:
    return amounts.text(finding.resource, amount)


def message(decision: Decision) -> str:
    """The message of the condition or Event about the decision, as Kueue writes it. Empty for an Admit."""
    match decision:
        case Preempt():
            return ". ".join(filter(None, (_unassigned(decision), _pending(decision))))
        case SecondPassFailed(message="") if decision.targets:
            return ". ".join(filter(None, (_unassigned(decision), _pending(decision))))
        case Wait() | SecondPassFailed():
            return decision.message or _unassigned(decision)
        case Evict():
            return f"Workload was evicted as there was no replacement for unhealthy node(s): {','.join(decision.nodes)}"
        case _:
            return ""


def _pending(decision: Preempt | SecondPassFailed) -> str:
    if isinstance(decision, Preempt) and decision.migrates:
        return "Pending the migration of 1 workload(s)"
    return f"Pending the preemption of {len(decision.targets)} workload(s)"


def _unassigned(decision: Decision) -> str:
    """Why the pod sets have no flavors: each with its reasons in alphabetical order. A pod set that cannot be evaluated
    is reported alone."""
    found = []
    for explained in decision.explanation:
        broken = next((finding for finding in explained.findings if finding.cause is Cause.BROKEN), None)
        if broken is not None:
            return f"failed to assign flavors to pod set {explained.pod_set}: {broken.detail}"
        if explained.findings:
            reasons = ", ".join(sorted(map(of_finding, explained.findings)))
            found.append(f"couldn't assign flavors to pod set {explained.pod_set}: {reasons}")
    return "; ".join(found)


def details(decision: Decision) -> Iterator[str]:
    """The details beyond the message, a sentence each: figures, preemption targets, flavors without candidates."""
    match decision:
        case Admit():
            for pod_set in decision.pod_sets:
                flavors = ", ".join(f"{resource} on {flavor}" for resource, flavor in sorted(pod_set.flavors.items()))
                yield f"{pod_set.name}: {pod_set.count} pods" + (f", {flavors}" if flavors else "")
            if decision.borrowing_level:
                yield "borrows from its cohort"
            return
        case Preempt() | SecondPassFailed():
            for target in decision.targets:
                yield f"preempts {target.key} of ClusterQueue {target.cluster_queue} ({target.reason.value})"
            if isinstance(decision, Preempt) and decision.migrates:
                yield f"replaces its less favorable variant {decision.migrates}"
    yield from dict.fromkeys(_figures(decision))


def _figures(decision: Decision) -> Iterator[str]:
    for explained in decision.explanation:
        for finding in (*(each for attempt in explained.attempts for each in attempt.findings), *explained.findings):
            if finding.cause is Cause.SHORT:
                debt = f", {_amount(finding, -finding.available)} used beyond quota" if finding.available < 0 else ""
                requested, unused = _amount(finding, finding.requested), _amount(finding, max(0, finding.available))
                yield f"{finding.resource} in flavor {finding.flavor}: requested {requested}, unused {unused}{debt}"
        for attempt in explained.attempts:
            if attempt.mode is PreemptionMode.NO_CANDIDATES:
                yield f"flavor {attempt.flavor}: no preemption candidates"


def of_decision(decision: Decision) -> Iterator[str]:
    """The message of the decision, then the details: what a plan and `explain` show."""
    if stated := message(decision):
        yield stated
    yield from details(decision)


_POSSIBILITY: Final = {
    PreemptionMode.NO_CANDIDATES: "NoCandidates",
    PreemptionMode.PREEMPT: "Preempt",
    PreemptionMode.RECLAIM: "Reclaim",
}


def considered(decision: Decision) -> str:
    """The flavors that were tried before the ones that were assigned, as Kueue adds them to the Event QuotaReserved."""
    pod_sets = []
    for explained in decision.explanation:
        tried = [
            _attempt(attempt)
            for attempt in explained.attempts
            if attempt.mode is not PreemptionMode.FIT or attempt.borrowing_level > 0
        ]
        if tried:
            pod_sets.append(f"{explained.pod_set}: {', '.join(tried)}")
    return " | ".join(pod_sets)


def _attempt(attempt: FlavorAttempt) -> str:
    possibility = _POSSIBILITY.get(attempt.mode)
    mode = (
        "Fit"
        if attempt.mode is PreemptionMode.FIT
        else "NoFit"
        if possibility is None
        else f"preemptionMode={possibility}"
    )
    borrow = [f"borrow={attempt.borrowing_level}"] if attempt.borrowing_level > 0 else []
    reasons = sorted(set(map(of_finding, attempt.findings)))
    return f"{attempt.flavor}({';'.join((mode, *borrow, *reasons))})"


class Holder(msgspec.Struct, frozen=True):
    """A Workload that uses quota which another one is short of, and what protects it from preemption (empty:
    nothing)."""

    workload: str
    cluster_queue: str
    amount: int
    protected_by: str


def holders(snapshot: Snapshot, workload: WorkloadInfo, flavor: str, resource: str) -> list[Holder]:
    """The Workloads that use a flavor-resource in the Workload's tree, most first, each with the rule that protects
    it."""
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
            amount = dict(reservation.usage_by_number).get(number, 0)
            if amount > 0:
                rule = _protection(snapshot, workload, reservation, other.node, number)
                found.append(Holder(reservation.key, name, amount, rule))
    return sorted(found, key=lambda holder: (-holder.amount, holder.workload))


def _protection(snapshot: Snapshot, workload: WorkloadInfo, held: Reservation, node: QuotaNode, number: int) -> str:
    """The first rule that forbids to preempt the reservation ([PR2], [PR3])."""
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
