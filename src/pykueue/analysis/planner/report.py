"""The result of a plan, as one plain object: reservations, events, pending Workloads, and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pykueue.analysis.planner.cycles import SchedulingPlan
from pykueue.api.conditions import EvictedReason
from pykueue.core import amounts, messages
from pykueue.core.decision import (
    Admit,
    Cause,
    Decision,
    Evict,
    FlavorAttempt,
    Preempt,
    SecondPassFailed,
    TargetWorkload,
    Wait,
)
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.world import World


def as_tree(made: SchedulingPlan) -> dict[str, Any]:
    """The decision object: reservations, events, and pending Workloads by queue."""
    decisions = list(made.decisions)
    admits = [decision for decision in decisions if isinstance(decision, Admit)]
    return {
        "assignments": dict(sorted(made.admissions.items())),
        "reserved": sorted({d.workload for d in admits if not d.is_second_pass}),
        "admitted": sorted({d.workload for d in admits if d.is_admitted and not d.was_admitted}),
        "preempted": dict(sorted(dict(_preempted(decisions)).items())),
        "evicted": dict(sorted(dict(_evicted(decisions)).items())),
        "replaced": dict(sorted((d.replaces, d.workload) for d in admits if d.replaces)),
        "active": _by_queue(made.world, active=True),
        "inadmissible": _by_queue(made.world, active=False),
        "events": sorted([list(event) for event in set(_events(decisions))]),
        **({"loop": loop_tree(made.loop)} if made.loop is not None else {}),
    }


def loop_tree(loop: PreemptionLoop) -> dict[str, Any]:
    """A preemption loop: the preemptions of one round, and how often the round was seen."""
    return {
        "workloads": list(loop.members),
        "preemptions": [{"preemptor": each.preemptor, "target": each.target} for each in loop.preemptions],
        "rounds": loop.rounds,
    }


_HOLDERS_SHOWN: Final = 10


def explanations(made: SchedulingPlan) -> dict[str, Any]:
    """The reasons for every decided Workload: the last decision, the flavors tried, the missing amounts, their holders,
    and what protects those from preemption."""
    found: dict[str, Any] = {}
    for decision in made.decisions:
        found[decision.workload] = {
            "clusterQueue": decision.cluster_queue,
            "decision": type(decision).__name__,
            "reason": decision.reason.value if isinstance(decision, (Wait, Preempt)) else "",
            "because": list(messages.of_decision(decision)),
            "tried": [_attempt_tree(e.pod_set, attempt) for e in decision.explanation for attempt in e.attempts],
            "holders": _holders_tree(made.world, decision),
        }
    return dict(sorted(found.items()))


def _attempt_tree(pod_set: str, attempt: FlavorAttempt) -> dict[str, Any]:
    return {
        "podSet": pod_set,
        "flavor": attempt.flavor,
        "outcome": attempt.mode.name,
        "borrowingLevel": attempt.borrowing_level,
        "short": {
            f.resource: amounts.text(f.resource, f.short_by) for f in attempt.findings if f.resource and f.short_by
        },
    }


def _holders_tree(world: World, decision: Decision) -> list[dict[str, Any]]:
    queue = world.queues.get(decision.cluster_queue)
    workload = queue.get(decision.workload) if queue is not None else None
    if workload is None or not isinstance(decision, Wait):
        return []
    short = {
        (finding.flavor, finding.resource): None
        for explained in decision.explanation
        for finding in (*explained.findings, *(f for a in explained.attempts for f in a.findings))
        if finding.cause is Cause.SHORT
    }
    return [
        {
            "workload": holder.workload,
            "clusterQueue": holder.cluster_queue,
            "flavor": flavor,
            "resource": resource,
            "amount": amounts.text(resource, holder.amount),
            "protectedBy": holder.protected_by,
        }
        for flavor, resource in short
        for holder in messages.holders(world.snapshot(), workload, flavor, resource)[:_HOLDERS_SHOWN]
    ]


def _preempted(decisions: Iterable[Decision]) -> Iterator[tuple[str, dict[str, str]]]:
    for decision in decisions:
        for victim in _ordered_victims(decision):
            yield victim.key, {"by": decision.workload, "reason": victim.reason.value}


def _ordered_victims(decision: Decision) -> tuple[TargetWorkload, ...]:
    victims = decision.targets if isinstance(decision, (Preempt, SecondPassFailed)) else ()
    return tuple(victim for victim in victims if not victim.already_evicted)


def _evicted(decisions: Iterable[Decision]) -> Iterator[tuple[str, str]]:
    for decision in decisions:
        if isinstance(decision, Evict):
            yield decision.workload, EvictedReason.NODE_FAILURES.value
        elif isinstance(decision, Preempt) and decision.migrates:
            yield decision.migrates, EvictedReason.FLAVOR_MIGRATION.value


def _by_queue(world: World, *, active: bool) -> dict[str, list[str]]:
    keys = {
        name: sorted(w.key for w in (queue.active() if active else queue.parked()))
        for name, queue in sorted(world.queues.items())
    }
    return {name: found for name, found in keys.items() if found}


def _events(decisions: Iterable[Decision]) -> Iterator[tuple[str, str, str]]:
    """The Events of decisions: Workload, type and reason."""
    for decision in decisions:
        for victim in _ordered_victims(decision):
            yield victim.key, "Normal", "EvictedDueToPreempted"
            yield victim.key, "Normal", "Preempted"
            yield decision.workload, "Normal", "PreemptedWorkload"
        match decision:
            case Admit():
                if not decision.is_second_pass:
                    yield decision.workload, "Normal", "QuotaReserved"
                if decision.is_admitted and not decision.replaces_node:
                    yield decision.workload, "Normal", "Admitted"
                if decision.replaces:
                    yield decision.replaces, "Normal", "WorkloadSliceReplaced"
            case Preempt():
                if decision.migrates:
                    yield decision.migrates, "Normal", "EvictedDueToFlavorMigration"
                yield decision.workload, "Warning", decision.reason.value
            case Wait():
                yield decision.workload, "Warning", decision.reason.value
            case SecondPassFailed():
                yield decision.workload, "Warning", "SecondPassFailed"
            case Evict():
                yield decision.workload, "Normal", "EvictedDueToNodeFailures"
