"""Pods of elastic jobs: each is held by a scheduling gate until the admitted slice has a place for it.

A job that is scaled up creates its new pods at once, before the larger slice is admitted; without the gate they would
run without quota. As many pods of a pod set are released as the admitted slice grants, in the order of their names.

The controller watches pods with the label `kueue.x-k8s.io/podset`, indexed by `slice_keys`, and reconciles a key when
such a pod changes or a Workload that has the key (`workload_slice_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import pod as pods
from pykueue.jobs import podsets
from pykueue.jobs.actions import Actions, ReplaceObject
from pykueue.jobs.pod import PodView
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo
from pykueue.lifecycle import states


def slice_keys(pod: Tree) -> tuple[str, ...]:
    """The slices that a pod belongs to, as `namespace/name` of the first of them; empty for other pods."""
    view = PodView(pod)
    name = view.annotations.get(labels.WORKLOAD_SLICE_NAME)
    return (f"{view.namespace}/{name}",) if name else ()


def workload_slice_keys(workload: kueue.Workload) -> tuple[str, ...]:
    """The same for a Workload of an elastic job."""
    if not states.is_elastic(workload):
        return ()
    first = workload.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, workload.metadata.name)
    return (f"{workload.metadata.namespace}/{first}",)


def active_slice(slices: Iterable[kueue.Workload]) -> kueue.Workload | None:
    """The slice that grants places to pods: the newest that has quota reserved and is neither finished nor evicted.

    An evicted slice keeps its reservation until the job has stopped, but that quota is about to be released to the
    preemptor.
    """
    held = [each for each in slices if states.is_reserved(each) and not states.is_finished(each)]
    held = [each for each in held if not states.is_evicted(each)]
    return max(held, key=lambda each: (states.created(each), each.metadata.uid), default=None)


def released(slices: Iterable[kueue.Workload], members: Sequence[Tree]) -> Actions:
    """Remove the gate from the pods that the active slice has a place for, once it is admitted."""
    newest = active_slice(slices)
    if newest is None or not states.is_admitted(newest):
        return ()
    admission = newest.status.admission
    # A slice that was scaled down keeps its assignment, and has released the quota beyond the counts of its spec.
    sizes = {pod_set.name: pod_set.count for pod_set in newest.spec.pod_sets}
    living = [pod for pod in map(PodView, members) if not pod.is_finished]
    chosen: list[tuple[Tree, Tree]] = []
    for assignment in admission.pod_set_assignments if admission else ():
        alike = [pod for pod in living if pod.labels.get(labels.PODSET) == assignment.name]
        gated = [pod for pod in alike if pod.has_gate(labels.ELASTIC_JOB_GATE)]
        granted = min(assignment.count or 0, sizes.get(assignment.name, 0))
        # A released pod that is being deleted uses its node until it has ended.
        places = granted - (len(alike) - len(gated))
        added = podsets.updated(PodSetInfo(assignment.name, 0), newest)
        if isinstance(added, PodSetConflict):
            continue
        waiting = [pod for pod in gated if not pod.is_deleting]
        ready = {pod.name: (pod.tree, after) for pod in waiting if (after := _started(pod, added)) is not None}
        chosen += [ready[name] for name in sorted(ready)[: max(places, 0)]]
    return tuple(ReplaceObject(pods.KIND, pod, after) for pod, after in chosen)


def _started(pod: PodView, added: PodSetInfo) -> Tree | None:
    """The pod as it may start, with the podSetUpdates `added` of the slice; None if it was created under earlier ones
    that differ: it may wait for nodes that were deleted.

    Pods of a pod set that had none when the job started were created from a template without podSetUpdates.
    """
    tree = pod.tree
    for key in added.annotations:
        if pod.annotations.get(key) == "":
            tree = ObjectView(tree).without_annotation(key)
    # Labels lead no pod to other nodes, so that those of the pod may differ.
    missing = {key: value for key, value in added.labels.items() if key not in pod.labels}
    after = podsets.injected(tree, structs.replace(added, labels=missing))
    if isinstance(after, PodSetConflict):
        return None
    return pods.without_gates(after, labels.ELASTIC_JOB_GATE)
