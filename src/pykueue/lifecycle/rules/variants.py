"""A Workload in a ClusterQueue with a concurrentAdmissionPolicy becomes a parent; its variants compete in its place."""

from __future__ import annotations

from pykueue.lifecycle import states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import MarkParent


def family(context: RuleContext) -> RuleResult | None:
    """Mark a Workload without quota as a parent [LC100]. One with quota is left alone: the quota of a parent is not
    counted."""
    queue, workload = context.facts.cluster_queue, context.workload
    if not context.options.concurrent_admission or queue is None or not queue.has_variants:
        return None
    if (
        context.facts.is_variant
        or context.facts.is_parent
        or states.is_reserved(workload)
        or states.is_finished(workload)
    ):
        return None
    return RuleResult((MarkParent(),))
