"""Pods of elastic jobs: each is held by a gate until the slice that is admitted has room for it.

A job that grows makes its new pods at once, before the larger slice is admitted; without the gate they would run on
quota that nobody has given. As many pods of a set are released as the admitted slice grants, the first by name first.

Who wires this watches pods with the label `kueue.x-k8s.io/podset`, indexed by `word_of`, and wakes a word when such a
pod changes or a Workload whose `word_of_slice` it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubemachinery import unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import pod as pods
from pykueue.jobs.actions import Actions, ReplaceObject
from pykueue.lifecycle import states


def word_of(pod: Tree) -> tuple[str, ...]:
    """The slices that a pod belongs to, as `namespace/name` of the first of them; nothing for other pods."""
    name = pods.annotation(pod, labels.WORKLOAD_SLICE_NAME)
    return (f"{unstructured.text(unstructured.get(pod, 'metadata', 'namespace'))}/{name}",) if name else ()


def word_of_slice(workload: kueue.Workload) -> tuple[str, ...]:
    """The same for a Workload of an elastic job."""
    if not states.is_elastic(workload):
        return ()
    first = workload.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, workload.metadata.name)
    return (f"{workload.metadata.namespace}/{first}",)


def released(slices: Iterable[kueue.Workload], members: Sequence[Tree]) -> Actions:
    """Take the gate off pods that the active slice has room for, once it is admitted.

    The active slice is the newest that holds quota and is neither finished nor evicted. An evicted slice still holds
    its reservation until the job has stopped, but that quota is on its way to the preemptor.
    """
    active = [each for each in slices if states.is_reserved(each) and not states.is_finished(each)]
    active = [each for each in active if not states.is_evicted(each)]
    newest = max(active, key=lambda each: (states.created(each), each.metadata.uid), default=None)
    if newest is None or not states.is_admitted(newest):
        return ()
    admission = newest.status.admission
    living = [pod for pod in members if not pods.is_over(pod) and not pods.is_deleting(pod)]
    chosen: list[Tree] = []
    for assignment in admission.pod_set_assignments if admission else ():
        alike = [pod for pod in living if unstructured.get(pod, "metadata", "labels", labels.PODSET) == assignment.name]
        waiting = [pod for pod in alike if pods.has_gate(pod, labels.ELASTIC_JOB_GATE)]
        room = (assignment.count or 0) - (len(alike) - len(waiting))
        fitting = [pod for pod in waiting if _agrees(pod, newest, assignment.name)]
        chosen += sorted(fitting, key=_name)[: max(room, 0)]
    return tuple(ReplaceObject(pods.KIND, pod, pods.without_gates(pod, labels.ELASTIC_JOB_GATE)) for pod in chosen)


def _agrees(pod: Tree, workload: kueue.Workload, pod_set: str) -> bool:
    """Whether a pod was made under what the checks say now; one of an earlier time may wait for nodes that are gone."""
    said = {
        key: value
        for check in workload.status.admission_checks
        for update in check.pod_set_updates
        if update.name == pod_set
        for key, value in update.annotations.items()
    }
    return all(pods.annotation(pod, key) in ("", value) for key, value in said.items())


def _name(pod: Tree) -> str:
    return unstructured.text(unstructured.get(pod, "metadata", "name"))
