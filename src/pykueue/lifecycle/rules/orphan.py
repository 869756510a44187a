"""A Workload whose job is gone is over, and nobody else will take our finalizer off it."""

from __future__ import annotations

from pykueue.api import labels
from pykueue.api.conditions import FinishedReason
from pykueue.lifecycle import finishing
from pykueue.lifecycle.rules import Verdict, View
from pykueue.lifecycle.workload_changes import RemoveFinalizer


def orphan(view: View) -> Verdict | None:
    """Without owner, and either on its way out or marked as having had one."""
    metadata = view.workload.metadata
    is_deleting = metadata.deletion_timestamp is not None
    had_owner = view.options.finish_orphaned and bool(metadata.labels.get(labels.JOB_UID))
    if metadata.owner_references or not (is_deleting or had_owner):
        return None
    finished = (
        ()
        if is_deleting
        else finishing.finish(
            view.workload, FinishedReason.OWNER_NOT_FOUND, "The workload's owner no longer exists", view.now
        )
    )
    holds = labels.RESOURCE_IN_USE_FINALIZER in metadata.finalizers
    return Verdict((*finished, *((RemoveFinalizer(),) if holds else ())), ends=is_deleting)
