"""Decisions of the job controller: a Job and its pods in; a status, pods to create and pods to delete out.

Every pod is counted exactly once, with a tracking finalizer: when a pod has ended, its uid is written to
`status.uncountedTerminatedPods`, then its finalizer is removed, and once that is observed the uid is replaced by an
increment of the count. Successes of an indexed Job are counted by index. A pod that the controller deletes itself
(the Job is suspended, or has too many pods) loses its finalizer first and is not counted.

When the last pods of a Job have ended, one write of the status counts them and finishes the Job, and their finalizers
are removed afterwards. The counts of a finished Job never change, so they need not be remembered by uid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from kubemachinery import job_indexes, meta, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.runner import conditions, job_completion
from pykueue.runner.conditions import ConditionUpdate
from pykueue.runner.job_completion import FailureAction, JobOutcome, JobProgress

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = labels.JOB_COMPLETION_INDEX
MANAGED_BY: Final = "kubernetes.io/job-controller"
_INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"

_FINISHED_TYPES: Final = ("Complete", "SuccessCriteriaMet", "Failed", "FailureTarget")
_FIRST_PAUSE_SECONDS: Final = 10
_LONGEST_PAUSE_SECONDS: Final = 600
_AT_ONCE_MAX: Final = 500
_INDEXES_MAX: Final = 1_000_000


class JobPlan(msgspec.Struct, frozen=True):
    """What to do, in this order: write the status, release pods, delete, discard, create."""

    status: Tree
    # Pods that are counted in the status: their finalizer is removed.
    release: tuple[Tree, ...] = ()
    # Pods to delete that count as failed.
    delete: tuple[Tree, ...] = ()
    # Pods to delete that are not counted.
    discard: tuple[Tree, ...] = ()
    create: tuple[Tree, ...] = ()
    # The Job finished longer ago than `ttlSecondsAfterFinished`.
    expired: bool = False
    requeue_after_seconds: float | None = None


def is_managed_here(job: Tree) -> bool:
    """Whether `spec.managedBy` leaves the Job to this controller."""
    return unstructured.get(job, "spec", "managedBy") in (None, MANAGED_BY)


def decide(job: Tree, pods: Sequence[Tree], now: int) -> JobPlan:
    """Return the plan for a Job; `pods` are all pods that it owns."""
    if job_completion.is_over(job):
        return _after_finish(job, pods, now)
    seen = [_PodView(job, pod) for pod in pods]
    counts = _count(job, seen)
    active = [pod for pod in seen if pod.is_active]
    end = job_completion.decided_outcome(job) or job_completion.outcome(job, counts.progress(seen, active), now)
    if end is not None:
        return _finish(job, seen, counts, active, end, now)
    if unstructured.get(job, "spec", "suspend"):
        updates = (ConditionUpdate("Suspended", True, "JobSuspended", "Job suspended"),)
        status = _status(job, seen, counts, 0, updates, now)
        return JobPlan(status, counts.release, discard=tuple(pod.tree for pod in active))
    return _sync_pods(job, seen, counts, active, now)


# --- Pods -------------------------------------------------------------------------------------------------------------


class _PodView:
    """The fields of a pod that its Job depends on."""

    def __init__(self, job: Tree, tree: Tree) -> None:
        self.tree = tree
        self.uid = unstructured.text(unstructured.get(tree, "metadata", "uid"))
        self.phase = unstructured.text(unstructured.get(tree, "status", "phase"))
        self.is_deleted = unstructured.get(tree, "metadata", "deletionTimestamp") is not None
        self.is_tracked = FINALIZER in unstructured.sequence(unstructured.get(tree, "metadata", "finalizers"))
        written = unstructured.text(unstructured.get(tree, "metadata", "annotations", INDEX))
        self.index = int(written) if written.isdigit() else None
        failures = unstructured.text(unstructured.get(tree, "metadata", "annotations", _INDEX_FAILURES))
        self.failures = int(failures) if failures.isdigit() else 0
        self.succeeded = self.phase == "Succeeded"
        replaced_early = unstructured.get(job, "spec", "podReplacementPolicy") != "Failed"
        # A deleted pod may never report how it ended.
        self.failed = self.phase == "Failed" or (self.is_deleted and replaced_early and not self.succeeded)

    @property
    def is_active(self) -> bool:
        return self.phase not in ("Succeeded", "Failed") and not self.is_deleted

    @property
    def is_terminating(self) -> bool:
        return self.phase not in ("Succeeded", "Failed") and self.is_deleted

    @property
    def is_ready(self) -> bool:
        return conditions.find_true(unstructured.mapping(self.tree.get("status")), "Ready") is not None

    @property
    def restarts(self) -> int:
        return sum(
            unstructured.integer(status.get("restartCount")) or 0
            for field_name in ("initContainerStatuses", "containerStatuses")
            for _, status in unstructured.entries(self.tree, "status", field_name)
        )

    @property
    def finished(self) -> int:
        """When the last container of the pod ended."""
        ends = (
            unstructured.text(unstructured.get(status, "state", "terminated", "finishedAt"))
            for _, status in unstructured.entries(self.tree, "status", "containerStatuses")
        )
        return max((meta.parse_time(end) for end in ends if end), default=0)

    @property
    def failure(self) -> tuple[str, str] | None:
        """When and how a container failed last, including one that was restarted since."""
        ends = [
            end
            for field_name in ("initContainerStatuses", "containerStatuses")
            for _, status in unstructured.entries(self.tree, "status", field_name)
            for state in ("lastState", "state")
            if (end := unstructured.mapping(unstructured.get(status, state, "terminated"))).get("exitCode")
        ]
        return max(
            (
                (
                    unstructured.text(end.get("finishedAt")),
                    job_completion.failure(
                        unstructured.integer(end.get("exitCode")) or 0,
                        unstructured.integer(end.get("signal")) or 0,
                        unstructured.text(end.get("message")),
                    ),
                )
                for end in ends
            ),
            default=None,
        )

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key; surplus pods are taken from the end: ready before not ready, running before pending, older
        first."""
        created = unstructured.text(unstructured.get(self.tree, "metadata", "creationTimestamp"))
        return (not self.is_ready, self.phase != "Running", self.index or 0, created, self.uid)


# --- Counting ---------------------------------------------------------------------------------------------------------


class _PodCounts(msgspec.Struct):
    succeeded: int
    failed: int
    completed: set[int]
    failed_indexes: set[int]
    uncounted_succeeded: dict[str, None] = msgspec.field(default_factory=dict)
    uncounted_failed: dict[str, None] = msgspec.field(default_factory=dict)
    # index -> its failures so far, for the annotation of the next pod of that index.
    failures: dict[int, int] = msgspec.field(default_factory=dict)
    counted: list[Tree] = msgspec.field(default_factory=list)
    fatal: str = ""
    failure: str = ""
    is_indexed: bool = False

    @property
    def release(self) -> tuple[Tree, ...]:
        return tuple(self.counted)

    @property
    def succeeded_in_all(self) -> int:
        return len(self.completed) if self.is_indexed else self.succeeded + len(self.uncounted_succeeded)

    def count_all(self) -> None:
        """Count the ended pods whose finalizer is not removed yet, in the write that finishes the Job."""
        self.succeeded += len(self.uncounted_succeeded)
        self.failed += len(self.uncounted_failed)
        self.uncounted_succeeded.clear()
        self.uncounted_failed.clear()

    def progress(self, seen: Sequence[_PodView], active: Sequence[_PodView]) -> JobProgress:
        return JobProgress(
            active=len(active),
            succeeded=self.succeeded_in_all,
            failed=self.failed + len(self.uncounted_failed),
            completed=self.completed,
            failed_indexes=self.failed_indexes,
            restarts=sum(pod.restarts for pod in active),
            fatal=self.fatal,
            failure=self.failure,
            ended=max((pod.finished for pod in seen), default=0),
        )


def _count(job: Tree, seen: Sequence[_PodView]) -> _PodCounts:
    status = unstructured.mapping(job.get("status"))
    completions = unstructured.integer(unstructured.get(job, "spec", "completions")) or 0
    counts = _PodCounts(
        succeeded=unstructured.integer(status.get("succeeded")) or 0,
        failed=unstructured.integer(status.get("failed")) or 0,
        completed=_indexes(status, "completedIndexes", completions),
        failed_indexes=_indexes(status, "failedIndexes", completions),
        is_indexed=unstructured.get(job, "spec", "completionMode") == "Indexed",
    )
    tracked = {pod.uid for pod in seen if pod.is_tracked}
    for uid in unstructured.sequence(unstructured.get(status, "uncountedTerminatedPods", "succeeded")):
        if uid in tracked:
            counts.uncounted_succeeded[uid] = None
        else:
            counts.succeeded += 1
    for uid in unstructured.sequence(unstructured.get(status, "uncountedTerminatedPods", "failed")):
        if uid in tracked:
            counts.uncounted_failed[uid] = None
        else:
            counts.failed += 1
    for pod in seen:
        if pod.succeeded or pod.failed:
            _count_one(job, pod, counts, completions)
    failures = [found for pod in seen if (found := pod.failure) is not None]
    counts.failure = max(failures)[1] if failures else ""
    return counts


def _indexes(status: Mapping[str, Any], name: str, completions: int) -> set[int]:
    """The indexes that a status names; of a status that names more than a machine can have run, the first ones."""
    return set(islice(job_indexes.parse(unstructured.text(status.get(name)), completions), _INDEXES_MAX))


def _count_one(job: Tree, pod: _PodView, counts: _PodCounts, completions: int) -> None:
    known_index = pod.index is not None and pod.index < completions
    if pod.succeeded:
        if pod.is_tracked:
            if not counts.is_indexed:
                counts.uncounted_succeeded[pod.uid] = None
            elif known_index and pod.index is not None:
                counts.completed.add(pod.index)
            counts.counted.append(pod.tree)
        return
    action, message = (
        job_completion.failure_action(job, pod.tree) if pod.phase == "Failed" else (FailureAction.COUNT, "")
    )
    more = 0 if action is FailureAction.IGNORE else 1
    if pod.index is not None and known_index:
        counts.failures[pod.index] = max(counts.failures.get(pod.index, 0), pod.failures + more)
        limit = unstructured.integer(unstructured.get(job, "spec", "backoffLimitPerIndex"))
        if limit is not None and (action is FailureAction.FAIL_INDEX or pod.failures + more > limit):
            counts.failed_indexes.add(pod.index)
    if not pod.is_tracked:
        return
    if action is not FailureAction.IGNORE:
        counts.uncounted_failed[pod.uid] = None
    if action is FailureAction.FAIL_JOB:
        counts.fatal = message
    counts.counted.append(pod.tree)


# --- Active Jobs ------------------------------------------------------------------------------------------------------


def _sync_pods(
    job: Tree, seen: Sequence[_PodView], counts: _PodCounts, active: Sequence[_PodView], now: int
) -> JobPlan:
    """Plan the right number of pods: discard surplus pods, and create missing ones after their backoff."""
    resumed = conditions.find_true(unstructured.mapping(job.get("status")), "Suspended") is not None
    updates = (ConditionUpdate("Suspended", False, "JobResumed", "Job resumed"),) if resumed else ()
    surplus, missing, wakes = _difference(job, seen, counts, active, now)
    if unstructured.get(job, "metadata", "deletionTimestamp") is not None:
        missing = []
    expected = len(active) - len(surplus) + len(missing)
    status = _status(job, seen, counts, expected, updates, now)
    if resumed or not status.get("startTime"):
        status["startTime"] = meta.format_time(now)
    deadline = job_completion.deadline_of({**job, "status": status})
    if deadline is not None:
        wakes.append((deadline - now) / meta.SECOND)
    return JobPlan(
        status,
        counts.release,
        discard=tuple(pod.tree for pod in surplus),
        create=tuple(_pod(job, index, counts.failures.get(index, 0) if index is not None else 0) for index in missing),
        requeue_after_seconds=max(min(wakes), 0.01) if wakes else None,
    )


def _difference(
    job: Tree, seen: Sequence[_PodView], counts: _PodCounts, active: Sequence[_PodView], now: int
) -> tuple[list[_PodView], list[int | None], list[float]]:
    """Return the surplus pods, the indexes of missing pods (None if not indexed), and the delays until the next
    check."""
    completions = unstructured.integer(unstructured.get(job, "spec", "completions"))
    parallelism = unstructured.integer(unstructured.get(job, "spec", "parallelism"))
    wanted = 1 if parallelism is None else parallelism
    if completions is None:
        # A work queue Job: once one pod has succeeded, the others may finish and are not replaced.
        wanted = min(wanted, len(active)) if counts.succeeded_in_all else wanted
    else:
        wanted = min(wanted, max(completions - counts.succeeded_in_all - len(counts.failed_indexes), 0))
    useful, surplus = _kept(counts, active, completions or 0)
    useful.sort(key=lambda pod: pod.order)
    surplus += useful[wanted:]
    # With podReplacementPolicy Failed, terminating pods still count against parallelism.
    waits_for_end = unstructured.get(job, "spec", "podReplacementPolicy") == "Failed"
    going = [pod for pod in seen if pod.is_terminating and waits_for_end]
    count = min(wanted - len(useful) - len(going), _AT_ONCE_MAX)
    if count <= 0:
        return surplus, [], []
    taken = {pod.index for pod in (*useful, *going)}
    if not counts.is_indexed:
        wait = _pause(seen, now)
        return (surplus, [None] * count, []) if wait <= 0 else (surplus, [], [wait])
    return surplus, *_next_indexes(job, seen, counts, taken, count, completions or 0, now)


def _kept(counts: _PodCounts, active: Sequence[_PodView], completions: int) -> tuple[list[_PodView], list[_PodView]]:
    """Return the active pods to keep, and the others: their index is finished, or another active pod has it."""
    if not counts.is_indexed:
        return list(active), []
    useful: dict[int, _PodView] = {}
    surplus: list[_PodView] = []
    for pod in sorted(active, key=lambda pod: pod.order):
        done = pod.index is None or pod.index >= completions or pod.index in counts.completed | counts.failed_indexes
        if pod.index is None or done or pod.index in useful:
            surplus.append(pod)
        else:
            useful[pod.index] = pod
    return list(useful.values()), surplus


def _next_indexes(
    job: Tree,
    seen: Sequence[_PodView],
    counts: _PodCounts,
    taken: set[int | None],
    count: int,
    completions: int,
    now: int,
) -> tuple[list[int | None], list[float]]:
    each_alone = unstructured.get(job, "spec", "backoffLimitPerIndex") is not None
    shared = 0.0 if each_alone else _pause(seen, now)
    if shared > 0:
        return [], [shared]  # a Job may have billions of indexes
    missing: list[int | None] = []
    wakes: list[float] = []
    of_index: dict[int | None, list[_PodView]] = {}
    for pod in seen if each_alone else ():
        of_index.setdefault(pod.index, []).append(pod)
    for index in range(completions):
        if len(missing) == count:
            break
        if index in taken or index in counts.completed or index in counts.failed_indexes:
            continue
        wait = _pause(of_index.get(index, ()), now)
        if wait > 0:
            wakes.append(wait)
        else:
            missing.append(index)
    return missing, wakes


def _pause(seen: Sequence[_PodView], now: int) -> float:
    """Return the seconds left of the backoff, which doubles with each failure since the last success."""
    last_success = max((pod.finished for pod in seen if pod.succeeded), default=0)
    failures = [pod.finished for pod in seen if pod.phase == "Failed" and pod.finished > last_success]
    if not failures:
        return 0.0
    pause = float(min(_FIRST_PAUSE_SECONDS * 2 ** min(len(failures) - 1, 10), _LONGEST_PAUSE_SECONDS))
    return (max(failures) - now) / meta.SECOND + pause


def _pod(job: Tree, index: int | None, failures: int) -> Tree:
    """Return the next pod, from the pod template of the Job."""
    metadata = unstructured.mapping(job.get("metadata"))
    template = unstructured.mapping(unstructured.get(job, "spec", "template"))
    name, labels = (
        unstructured.text(metadata.get("name")),
        unstructured.texts(unstructured.get(template, "metadata", "labels")),
    )
    annotations = unstructured.texts(unstructured.get(template, "metadata", "annotations"))
    spec = dict(unstructured.mapping(template.get("spec")))
    base = f"{name}-"
    if index is not None:
        base = f"{name}-{index}-"
        labels[INDEX] = annotations[INDEX] = str(index)
        if unstructured.get(job, "spec", "backoffLimitPerIndex") is not None:
            annotations[_INDEX_FAILURES] = str(failures)
        spec.setdefault("hostname", f"{name}-{index}"[-63:].lstrip("-"))
        for field_name in ("initContainers", "containers"):
            if field_name in spec:
                spec[field_name] = [
                    _with_index_variable(container) for _, container in unstructured.entries(spec, field_name)
                ]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata.get("uid")}
    finalizers = unstructured.sequence(unstructured.get(template, "metadata", "finalizers"))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": base,
            "namespace": metadata.get("namespace"),
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*finalizers, FINALIZER],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec,
    }


_INDEX_VARIABLE: Final = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
}


def _with_index_variable(container: Mapping[str, Any]) -> Tree:
    variables = unstructured.sequence(container.get("env"))
    if any(unstructured.get(each, "name") == _INDEX_VARIABLE["name"] for each in variables):
        return dict(container)
    return {**container, "env": [_INDEX_VARIABLE, *variables]}


# --- Ending -----------------------------------------------------------------------------------------------------------


def _finish(
    job: Tree, seen: Sequence[_PodView], counts: _PodCounts, active: Sequence[_PodView], end: JobOutcome, now: int
) -> JobPlan:
    """Plan the end of a Job whose outcome is decided; it finishes once every pod has ended, with final counts."""
    pods = tuple(pod.tree for pod in active)
    left = bool(active) or any(pod.is_terminating for pod in seen)
    updates = [ConditionUpdate(end.target, True, end.reason, end.message)]
    ended = _ended(job, seen, end, now)
    if not left:
        counts.count_all()
        updates.append(ConditionUpdate(end.final, True, end.reason, end.message, ended))
    status = _status(job, seen, counts, 0, updates, now)
    if not status.get("startTime") and end.success:
        status["startTime"] = meta.format_time(now)
    if not left and end.success:
        status["completionTime"] = meta.format_time(ended)
    if end.success:
        return JobPlan(status, counts.release, discard=pods)
    return JobPlan(status, counts.release, delete=pods)


def _ended(job: Tree, seen: Sequence[_PodView], end: JobOutcome, now: int) -> int:
    """Return when a Job ended: with its last pod, where that decided the Job. The controller may not have run then.

    Otherwise it is now: the controller ends the pods itself, and they are deleted when they have ended.
    """
    if end.reason == job_completion.DEADLINE or job_completion.decided_outcome(job) is not None:
        return now
    last = max((pod.finished for pod in seen), default=0)
    started = unstructured.text(unstructured.get(job, "status", "startTime"))
    return min(max(last, meta.parse_time(started) if started else 0), now) if last else now


def _after_finish(job: Tree, pods: Sequence[Tree], now: int) -> JobPlan:
    status = dict(unstructured.mapping(job.get("status")))
    release = tuple(
        pod for pod in pods if FINALIZER in unstructured.sequence(unstructured.get(pod, "metadata", "finalizers"))
    )
    kept = unstructured.integer(unstructured.get(job, "spec", "ttlSecondsAfterFinished"))
    if kept is None or unstructured.get(job, "metadata", "deletionTimestamp") is not None:
        return JobPlan(status, release)
    # The Job may have ended while no controller ran: the time counts from the write that finished it, so that others
    # see the outcome before the Job is deleted.
    finished = (conditions.find_true(status, type_) for type_ in _FINISHED_TYPES)
    since = max(unstructured.text(each.get("lastTransitionTime")) for each in finished if each is not None)
    wait = (meta.parse_time(since) - now) / meta.SECOND + kept
    return JobPlan(status, release, expired=wait <= 0, requeue_after_seconds=max(wait, 0.01) if wait > 0 else None)


# --- Status -----------------------------------------------------------------------------------------------------------


def _status(
    job: Tree, seen: Sequence[_PodView], counts: _PodCounts, active: int, updates: Sequence[ConditionUpdate], now: int
) -> Tree:
    status: Tree = dict(unstructured.mapping(job.get("status")))
    found = conditions.merge(status, updates, now)
    numbers = {
        "active": active,
        "ready": sum(pod.is_active and pod.is_ready for pod in seen) if active else 0,
        "terminating": sum(pod.is_terminating for pod in seen),
        "succeeded": len(counts.completed) if counts.is_indexed else counts.succeeded,
        "failed": counts.failed,
    }
    always = ("ready", "terminating")
    for name, number in numbers.items():
        if number or name in always:
            status[name] = number
        else:
            status.pop(name, None)
    for name, numbers_of in (("completedIndexes", counts.completed), ("failedIndexes", counts.failed_indexes)):
        if numbers_of:
            status[name] = job_indexes.format(numbers_of)
    if found:
        status["conditions"] = found
    status["uncountedTerminatedPods"] = dict(_uncounted(counts))
    return status


def _uncounted(counts: _PodCounts) -> Iterator[tuple[str, list[str]]]:
    if counts.uncounted_succeeded:
        yield "succeeded", list(counts.uncounted_succeeded)
    if counts.uncounted_failed:
        yield "failed", list(counts.uncounted_failed)
