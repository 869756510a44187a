"""A finished Workload is deleted after its retention period [LC94]."""

from __future__ import annotations

from pykueue.api import labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.rules import END, RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer


def finished(context: RuleContext) -> RuleResult | None:
    workload, kept = context.workload, context.options.keep_finished
    if not states.is_finished(workload):
        return None
    ended = states.since(workload, WorkloadCondition.FINISHED)
    if kept is None or ended is None:
        return END
    if context.now < ended + kept:
        return RuleResult(wake_at=ended + kept, ends=True)
    unheld = (RemoveFinalizer(),) if labels.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers else ()
    if workload.metadata.deletion_timestamp is not None:
        return RuleResult(unheld, ends=True)
    event = workload_changes.normal("Deleted", "Deleted finished workload due to elapsed retention")
    return RuleResult((*unheld, DeleteWorkload(), event), ends=True)
