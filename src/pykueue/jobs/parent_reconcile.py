"""The reconciler of kinds made of pods, as a decision: facts in, independent branches of actions out.

1  the namespace does not exist        nothing
2  the parent does not exist           its Workloads lose the finalizer once their pods are gone
3  another parent made it              left alone
4  its owners cannot be decided about  an Event, and another pass
5  an ancestor is managed              its pods are released while the ancestor is admitted
6  not managed                         left alone
7  its template is not marked          it is marked, as the webhook would have done
8  managed                             `PodParent.reconcile`

In 3 to 8, Workloads of an earlier object with the same name are treated as in 2: their parent does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue, labels
from pykueue.jobs import parent_pods, parent_workloads, unreadable_owners
from pykueue.jobs.actions import Actions, EmitJobEvent, ReplaceObject, RequeueAfter, RetryWithBackoff
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_parent import Branches, ParentFacts, PodParent


def reconcile(row: JobIntegration, facts: ParentFacts, options: IntegrationOptions, now: Nanoseconds) -> Branches:
    """What a parent needs, whether it exists or not."""
    if facts.namespace is None:
        return ()
    if facts.tree is None:
        return _left_behind(facts.workloads, facts, options)
    parent = row.parent(facts.tree)
    if parent.is_deleting and not parent.is_of_another:
        return _left_behind(facts.workloads, facts, options)
    return (*_left_behind(_of_earlier(parent, facts), facts, options), *_of_present(row, parent, facts, options, now))


def _of_present(
    row: JobIntegration, parent: PodParent, facts: ParentFacts, options: IntegrationOptions, now: Nanoseconds
) -> Branches:
    """What a parent needs that exists and is not being deleted."""
    if parent.is_of_another:
        return ()
    undecided = _undecided(parent, facts)
    if undecided is not None:
        return (undecided,)
    if facts.ancestor is not None:
        return _released(parent, facts, options)
    if not facts.is_managed:
        return ()
    if not parent.is_marked:
        return ((ReplaceObject(row.kind, parent.tree, parent.defaulted(options)),),)
    return parent.reconcile(facts, options, now)


def _of_earlier(parent: PodParent, facts: ParentFacts) -> tuple[kueue.Workload, ...]:
    """The Workloads of objects that had the name of the parent before it, by UID. One with a name that the parent looks
    up is its own: it is adopted [SS6]."""
    return tuple(
        each
        for each in facts.workloads
        if not parent_workloads.is_owned(parent, each) and each.metadata.name not in facts.named
    )


def _left_behind(left: Iterable[kueue.Workload], facts: ParentFacts, options: IntegrationOptions) -> Branches:
    """The finalizers of Workloads whose parent is gone, once their last pod is [PP8]. The garbage collector deletes
    the Workloads."""
    used = {PodView(tree).group_name(options) for tree in facts.pods}
    free = (each for each in left if each.metadata.name not in used)
    return tuple(filter(None, map(parent_workloads.without_finalizer, free)))


def _undecided(parent: PodParent, facts: ParentFacts) -> Actions | None:
    """The actions for a parent of which it is not known whether an ancestor is managed."""
    found = facts.ancestry
    if found.too_deep:
        message = f"The job {found.problem}"
        return (EmitJobEvent(parent.tree, "JobNestingTooDeep", message, warning=True), RetryWithBackoff(message))
    if found.problem:
        retry = RetryWithBackoff(f"{parent.row.kind.kind} {parent.name} {found.problem}")
        return (unreadable_owners.event(parent, found.problem), retry) if facts.is_managed else (retry,)
    if found.unread is None or any(parent_workloads.is_owned(parent, each) for each in facts.workloads):
        return None
    if facts.is_managed:
        return unreadable_owners.undecided(parent, found.unread)
    return (RequeueAfter(unreadable_owners.AGAIN),)


def _released(parent: PodParent, facts: ParentFacts, options: IntegrationOptions) -> Branches:
    """Pods below a managed ancestor run while its Workload is admitted: they were gated only if the ancestor could
    not be read when the template was marked."""
    assert facts.ancestor is not None
    if not unreadable_owners.is_admitted(facts.ancestor, facts.ancestor_workloads, parent, options):
        return ()
    pods = (pod for pod in map(PodView, facts.pods) if pod.has_gate() and labels.MANAGED not in pod.labels)
    return tuple(parent_pods.replaced(pod, parent_pods.without_gates(pod)) for pod in pods)
