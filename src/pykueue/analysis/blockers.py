"""What excludes a Workload from scheduling, whatever quota is free: each cause with the change that would remove it.

A cause without a change is only reported: the spec of a missing ClusterQueue, for example, cannot be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kubemachinery import conditions, meta, selectors
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Nanoseconds
from pykueue.analysis import object_changes
from pykueue.analysis.object_changes import ObjectChange, Objects
from pykueue.api import kube, kueue, labels
from pykueue.api.conditions import ActiveCondition, ClusterQueueActiveReason, EvictedReason, WorkloadCondition
from pykueue.core.policy import SchedulingPolicy
from pykueue.lifecycle import queues, states
from pykueue.lifecycle.queues import References
from pykueue.state import workload_info


class AdmissionBlocker(msgspec.Struct, frozen=True):
    """A cause, as a sentence, and the change that removes it (None: no change that can be tried)."""

    cause: str
    part: ObjectChange | None = None


def admission_blockers(
    objects: Objects, references: References, workload: kueue.Workload, policy: SchedulingPolicy, now: Nanoseconds
) -> list[AdmissionBlocker]:
    """All causes that precede quota, from the Workload to its ClusterQueue."""
    return [*_own(workload, policy, now), *_of_queues(objects, references, workload)]


_REFUSING_STATES: Final = (kueue.CheckState.RETRY, kueue.CheckState.REJECTED)


def _own(workload: kueue.Workload, policy: SchedulingPolicy, now: Nanoseconds) -> Iterator[AdmissionBlocker]:
    if not states.is_active(workload):
        yield AdmissionBlocker(_deactivated(workload), object_changes.ActivateWorkload(states.key(workload)))
    if states.is_gated(workload, gates_count=policy.admission_gated_by):
        yield AdmissionBlocker(f"its admission is gated by {workload.metadata.annotations[labels.ADMISSION_GATED_BY]}")
    if states.is_on_hold(workload):
        yield AdmissionBlocker("it is on hold")
    if states.has(workload, WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS):
        yield AdmissionBlocker("its pod group waits for replacement pods")
    if workload_info.has_variants(workload, policy):
        yield AdmissionBlocker("its variants are scheduled in its place")
    requeued = conditions.find(workload.status.conditions, WorkloadCondition.REQUEUED)
    state = workload.status.requeue_state
    until = workload_info.time_of(state.requeue_at) if state is not None and state.requeue_at is not None else 0
    if until > now:
        is_refused = requeued is not None and requeued.reason == EvictedReason.ADMISSION_CHECK
        why = f": {requeued.message}" if requeued is not None and is_refused and requeued.message else ""
        sentence = f"its backoff ends at {meta.format_time(until)}{why}"
        yield AdmissionBlocker(sentence, object_changes.AdvanceTime(until))
    elif requeued is not None and requeued.status == ConditionStatus.FALSE and states.is_active(workload):
        yield AdmissionBlocker(f"it is not requeued: {requeued.reason}")
    failed = [check.name for check in workload.status.admission_checks if check.state in _REFUSING_STATES]
    if failed:
        yield AdmissionBlocker(f"admission checks are Retry or Rejected: {', '.join(failed)}")


def _deactivated(workload: kueue.Workload) -> str:
    """That it is deactivated, with the cause if the manager deactivated it: `it is deactivated due to …`."""
    evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
    is_cause = evicted is not None and evicted.status == ConditionStatus.TRUE
    cause = evicted.message if evicted is not None and is_cause else ""
    begin = "The workload is deactivated"
    return f"it is deactivated{cause.removeprefix(begin)}" if cause.startswith(begin) else "it is deactivated"


def _of_queues(objects: Objects, references: References, workload: kueue.Workload) -> Iterator[AdmissionBlocker]:
    namespace, name = workload.metadata.namespace, workload.spec.queue_name or ""
    local_queue = objects.get((kueue.LocalQueue, namespace, name))
    if not isinstance(local_queue, kueue.LocalQueue):
        yield _without_local_queue(objects, namespace, name)
        return
    if local_queue.spec.stop_policy != kueue.StopPolicy.NONE:
        yield AdmissionBlocker(
            f"LocalQueue {namespace}/{name} is stopped",
            object_changes.ResumeQueue(kueue.LocalQueue, f"{namespace}/{name}"),
        )
    target = local_queue.spec.cluster_queue or ""
    cluster_queue = objects.get((kueue.ClusterQueue, "", target))
    if not isinstance(cluster_queue, kueue.ClusterQueue):
        yield AdmissionBlocker(f"ClusterQueue {target} of LocalQueue {namespace}/{name} does not exist")
        return
    yield from _of_cluster_queue(objects, cluster_queue)
    for blocker in queues.blockers(cluster_queue, references):
        if blocker.reason not in _REPORTED:
            yield AdmissionBlocker(f"ClusterQueue {target} is inactive: {blocker.message}")
    yield from _of_namespace(objects, namespace, cluster_queue)


def _without_local_queue(objects: Objects, namespace: str, name: str) -> AdmissionBlocker:
    if not name:
        return AdmissionBlocker("it has no queue name")
    cause = f"LocalQueue {namespace}/{name} does not exist"
    there = [thing for thing in objects.values() if isinstance(thing, kueue.ClusterQueue)]
    if len(there) != 1:
        return AdmissionBlocker(cause)
    only = there[0].metadata.name
    local_queue = kueue.LocalQueue(
        metadata=meta.ObjectMeta(name=name, namespace=namespace), spec=kueue.LocalQueueSpec(cluster_queue=only)
    )
    return AdmissionBlocker(cause, object_changes.CreateObject(local_queue, leading_to=only))


# Reasons that `_of_cluster_queue` reports in detail, with changes.
_REPORTED: Final = frozenset(
    {
        ClusterQueueActiveReason.TERMINATING,
        ClusterQueueActiveReason.STOPPED,
        ClusterQueueActiveReason.FLAVOR_NOT_FOUND,
        ClusterQueueActiveReason.ADMISSION_CHECK_NOT_FOUND,
        ClusterQueueActiveReason.ADMISSION_CHECK_INACTIVE,
    }
)


def _of_cluster_queue(objects: Objects, cluster_queue: kueue.ClusterQueue) -> Iterator[AdmissionBlocker]:
    name, spec = cluster_queue.metadata.name, cluster_queue.spec
    if spec.stop_policy != kueue.StopPolicy.NONE:
        yield AdmissionBlocker(f"ClusterQueue {name} is stopped", object_changes.ResumeQueue(kueue.ClusterQueue, name))
    if cluster_queue.metadata.deletion_timestamp is not None:
        yield AdmissionBlocker(f"ClusterQueue {name} is being deleted")
    for flavor in sorted({flavor.name for group in spec.resource_groups for flavor in group.flavors}):
        if (kueue.ResourceFlavor, "", flavor) not in objects:
            thing = kueue.ResourceFlavor(metadata=meta.ObjectMeta(name=flavor))
            yield AdmissionBlocker(
                f"ResourceFlavor {flavor} of ClusterQueue {name} does not exist", object_changes.CreateObject(thing)
            )
    strategy = spec.admission_checks_strategy
    for rule in strategy.admission_checks if strategy is not None else ():
        check = objects.get((kueue.AdmissionCheck, "", rule.name))
        if not isinstance(check, kueue.AdmissionCheck):
            yield AdmissionBlocker(f"AdmissionCheck {rule.name} of ClusterQueue {name} does not exist")
        elif not conditions.is_true(check.status.conditions, ActiveCondition.ACTIVE):
            yield AdmissionBlocker(f"AdmissionCheck {rule.name} is not active", object_changes.ActivateCheck(rule.name))


def _of_namespace(objects: Objects, namespace: str, cluster_queue: kueue.ClusterQueue) -> Iterator[AdmissionBlocker]:
    found = objects.get((kube.Namespace, "", namespace))
    if not isinstance(found, kube.Namespace):
        thing = kube.Namespace(metadata=meta.ObjectMeta(name=namespace))
        yield AdmissionBlocker(f"namespace {namespace} does not exist", object_changes.CreateObject(thing))
        return
    selector = selectors.compile(cluster_queue.spec.namespace_selector)
    if not selector.matches(found.metadata.labels):
        cause = f"namespace {namespace} is not selected by ClusterQueue {cluster_queue.metadata.name}"
        labels = _labels_for(selector, found.metadata.labels)
        yield AdmissionBlocker(cause, object_changes.LabelNamespace(namespace, labels) if labels else None)


def _labels_for(selector: selectors.Selector, labels: selectors.Labels) -> dict[str, str | None]:
    """The labels to set, or to remove (None), so that the selector matches; empty if no labels can match."""
    changes: dict[str, str | None] = {}
    for requirement in selector.requirements:
        if requirement.holds(labels):
            continue
        asked = [each for each in selector.requirements if each.key == requirement.key]
        candidates = [*(value for each in asked for value in each.values), "true", None]
        fitting = [value for value in candidates if all(each.meets(value) for each in asked)]
        if not fitting:
            return {}
        changes[requirement.key] = fitting[0]
    return changes
