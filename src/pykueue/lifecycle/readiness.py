"""What the job reconciler writes about pods: whether they are ready, and which are reclaimable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition
from pykueue.api.conditions import PodsReadyReason, WorkloadCondition
from pykueue.api.kueue import ReclaimablePod, Workload
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import Changes, SetCondition, SetReclaimable

_RECOVERING: Final = frozenset({PodsReadyReason.WAIT_FOR_RECOVERY, PodsReadyReason.RECOVERED})

_MESSAGES: Final[Mapping[PodsReadyReason, tuple[ConditionStatus, str]]] = {
    PodsReadyReason.WAIT_FOR_START: (ConditionStatus.FALSE, "Not all pods are ready or succeeded"),
    PodsReadyReason.STARTED: (ConditionStatus.TRUE, "All pods reached readiness and the workload is running"),
    PodsReadyReason.WAIT_FOR_RECOVERY: (ConditionStatus.FALSE, "At least one pod has failed, waiting for recovery"),
    PodsReadyReason.RECOVERED: (ConditionStatus.TRUE, "All pods reached readiness and the workload is running"),
}


def pods_ready(workload: Workload, is_ready: bool, options: LifecycleOptions) -> Changes:
    """`PodsReady` of a job whose pods are, or are not, all ready now [LC55]. None without waitForPodsReady."""
    if options.pods_ready is None:
        return workload_changes.NOTHING
    before = conditions.find(workload.status.conditions, WorkloadCondition.PODS_READY)
    was_ready = before is not None and before.status == ConditionStatus.TRUE
    reason = before.reason if before else ""
    return _written(before, _next(states.is_admitted(workload), is_ready, was_ready, reason))


def not_started(workload: Workload) -> Changes:
    """`PodsReady` of a Workload that is losing its quota and has no pods: no pass of a job writes that they are not
    ready. Otherwise its next admission would begin with a recovery that is as old as the end of this one."""
    before = conditions.find(workload.status.conditions, WorkloadCondition.PODS_READY)
    return workload_changes.NOTHING if before is None else _written(before, PodsReadyReason.WAIT_FOR_START)


def at_admission(workload: Workload, options: LifecycleOptions) -> Changes:
    """`PodsReady` of a Workload that is being admitted: a recovery is one of pods of an earlier admission, and would
    limit the time in which the pods of this one have to start [LC51]."""
    before = conditions.find(workload.status.conditions, WorkloadCondition.PODS_READY)
    if options.pods_ready is None or before is None or before.reason != PodsReadyReason.WAIT_FOR_RECOVERY:
        return workload_changes.NOTHING
    return _written(before, PodsReadyReason.WAIT_FOR_START)


def _written(before: Condition | None, becomes: PodsReadyReason) -> Changes:
    status, message = _MESSAGES[becomes]
    if before is not None and (before.status, before.reason) == (status, becomes):
        return workload_changes.NOTHING
    return (SetCondition(WorkloadCondition.PODS_READY, status, becomes, message),)


def _next(is_admitted: bool, is_ready: bool, was_ready: bool, reason: str) -> PodsReadyReason:
    if not is_admitted:
        return PodsReadyReason.WAIT_FOR_START
    if is_ready:
        return PodsReadyReason.RECOVERED if reason in _RECOVERING else PodsReadyReason.STARTED
    if was_ready or reason == PodsReadyReason.WAIT_FOR_RECOVERY:
        return PodsReadyReason.WAIT_FOR_RECOVERY
    return PodsReadyReason.WAIT_FOR_START


def reclaim(workload: Workload, done: Mapping[str, int]) -> Changes:
    """The reclaimable pods of each pod set, at most its count [LC85]."""
    before = {pod.name: pod.count for pod in workload.status.reclaimable_pods}
    after = {pod_set.name: min(done.get(pod_set.name, 0), pod_set.count) for pod_set in workload.spec.pod_sets}
    for name in _granted(workload):
        # Other Workloads may use released quota, so the number never decreases while quota is reserved.
        after[name] = max(after[name], before.get(name, 0))
    pods = tuple(ReclaimablePod(name=name, count=count) for name, count in after.items() if count > 0)
    return () if before == {pod.name: pod.count for pod in pods} else (SetReclaimable(pods),)


def _granted(workload: Workload) -> Iterator[str]:
    """The pod sets with quota; not those of an elastic job that was scaled down since, whose count starts again."""
    admission, sizes = workload.status.admission, {each.name: each.count for each in workload.spec.pod_sets}
    for given in admission.pod_set_assignments if admission is not None else ():
        if given.name in sizes and sizes[given.name] >= (given.count or 0):
            yield given.name
