"""A stopped, or missing, queue of a Workload with quota: first its LocalQueue, then its ClusterQueue [LC37].

queue               admitted    quota reserved only
active              -           -
Hold                continues   quota released
HoldAndDrain        evicted     quota released
missing, deleting   continues   quota released

An admitted Workload that is evicted already keeps its quota until its job has stopped. One that was not admitted has no
job to wait for, so its quota is released although it is evicted.
"""

from __future__ import annotations

from pykueue.api.conditions import EvictedReason, QuotaReservedReason
from pykueue.api.kueue import StopPolicy
from pykueue.lifecycle import eviction, reservation, states
from pykueue.lifecycle.facts import ClusterQueueFacts, LocalQueueFacts
from pykueue.lifecycle.rules import RuleContext, RuleResult


def local_queue_stopped(context: RuleContext) -> RuleResult | None:
    return _stopped(context, "LocalQueue", context.facts.local_queue, EvictedReason.LOCAL_QUEUE_STOPPED)


def cluster_queue_stopped(context: RuleContext) -> RuleResult | None:
    return _stopped(context, "ClusterQueue", context.facts.cluster_queue, EvictedReason.CLUSTER_QUEUE_STOPPED)


def _stopped(
    context: RuleContext, kind: str, queue: LocalQueueFacts | ClusterQueueFacts | None, drained: EvictedReason
) -> RuleResult | None:
    workload = context.workload
    if queue is not None and not queue.is_stopped and not queue.is_deleting:
        return None
    if not states.is_reserved(workload):
        return None
    if states.is_admitted(workload):
        if queue is None or queue.stop_policy != StopPolicy.HOLD_AND_DRAIN or states.is_evicted(workload):
            return None
        return RuleResult(eviction.evict(workload, drained, f"The {kind} is stopped", context.now))
    name = workload.spec.queue_name if kind == "LocalQueue" else states.cluster_queue(workload)
    if queue is None or queue.is_deleting:
        reason, message = QuotaReservedReason.MISCONFIGURED, f"{kind} {name} is terminating or missing"
    else:
        reason, message = QuotaReservedReason.SUSPENDED, f"{kind} {name} is stopped"
    return RuleResult(reservation.clear(workload, reason, message, context.options, context.now))
