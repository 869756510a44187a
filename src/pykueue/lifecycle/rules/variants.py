"""A Workload in a ClusterQueue with a concurrentAdmissionPolicy becomes a parent; its variants compete in its place."""

from __future__ import annotations

from pykueue.lifecycle import states
from pykueue.lifecycle.rules import Verdict, View
from pykueue.lifecycle.workload_changes import MarkParent


def family(view: View) -> Verdict | None:
    """One that holds quota stays what it is: a parent holds none, and what it runs on would not be counted."""
    queue, workload = view.facts.cluster_queue, view.workload
    if not view.options.concurrent_admission or queue is None or not queue.has_variants:
        return None
    if view.facts.is_variant or view.facts.is_parent or states.is_reserved(workload) or states.is_finished(workload):
        return None
    return Verdict((MarkParent(),))
