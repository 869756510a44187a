"""A Workload without owner is finished, and its finalizer removed [LC92]."""

from __future__ import annotations

from pykueue.api import labels
from pykueue.api.conditions import FinishedReason
from pykueue.lifecycle import finishing
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import RemoveFinalizer


def orphan(context: RuleContext) -> RuleResult | None:
    """Orphaned: without owner references, and either being deleted or with the label of a former owner."""
    metadata = context.workload.metadata
    is_deleting = metadata.deletion_timestamp is not None
    had_owner = context.options.finish_orphaned and bool(metadata.labels.get(labels.JOB_UID))
    if metadata.owner_references or not (is_deleting or had_owner):
        return None
    finished = (
        ()
        if is_deleting
        else finishing.finish(
            context.workload, FinishedReason.OWNER_NOT_FOUND, "The workload's owner no longer exists", context.now
        )
    )
    holds = labels.RESOURCE_IN_USE_FINALIZER in metadata.finalizers
    return RuleResult((*finished, *((RemoveFinalizer(),) if holds else ())), ends=is_deleting)
