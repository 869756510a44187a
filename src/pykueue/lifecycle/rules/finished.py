"""Finished is the end; after the time that the operator gives, the object goes too."""

from __future__ import annotations

from pykueue.api import labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.rules import END, Verdict, View
from pykueue.lifecycle.workload_changes import Delete, RemoveFinalizer


def finished(view: View) -> Verdict | None:
    workload, kept = view.workload, view.options.keep_finished
    if not states.is_finished(workload):
        return None
    ended = states.since(workload, WorkloadCondition.FINISHED)
    if kept is None or ended is None:
        return END
    if view.now < ended + kept:
        return Verdict(wake_at=ended + kept, ends=True)
    unheld = (RemoveFinalizer(),) if labels.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers else ()
    if workload.metadata.deletion_timestamp is not None:
        return Verdict(unheld, ends=True)
    told = workload_changes.normal("Deleted", "Deleted finished workload due to elapsed retention")
    return Verdict((*unheld, Delete(), told), ends=True)
