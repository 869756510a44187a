"""Pods that are admitted together. Their Workload has the name of the group, and is owned by all of them.

    active     may run, runs, or has succeeded
    inactive   failed, or is being deleted without having been bound to a node
    role       pods of one shape, interchangeable with each other; each role is a pod set

A group gets its Workload when it is complete. From then on a failed pod may be replaced by another one of its role: any
pod with the group's name. Pods beyond the count of their role are deleted, youngest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubemachinery import codec, conditions, unstructured
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.jobs import pod as pods
from pykueue.jobs import podsets, workload_matching, workload_sync, workloads
from pykueue.jobs.actions import (
    Action,
    Actions,
    ChangeWorkload,
    DeleteObject,
    EmitJobEvent,
    PatchWorkload,
    ReplaceObject,
)
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob, JobOutcome, JobRow, Matched, PodSetTemplate, Stop, last_time
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.workload_changes import Changes, SetCondition

ROLES_MAX: Final = podsets.COUNT_MAX

PODS_FAILED: Final = "PodsFailed"
PODS_READY: Final = "PodsReady"


class PodGroup(GenericJob):
    """The pods of one group, as they are now. There is at least one."""

    is_group = True

    def __init__(
        self,
        row: JobRow,
        members: Sequence[PodView],
        options: IntegrationOptions,
        now: Nanoseconds,
        *,
        absent: int = 0,
        expected: int | None = None,
    ) -> None:
        self.members: Final = tuple(members)
        super().__init__(row, self.members[0].tree)
        self._options = options
        self._now = now
        # How many pods of the Workload are missing.
        self.absent: Final = absent
        # How many pods the group has, where its Workload decides that and not the annotation of its pods.
        self._expected = expected

    def keeping(
        self,
        members: Sequence[PodView],
        *,
        absent: int = 0,
        expected: int | None = None,
    ) -> PodGroup:
        return PodGroup(self.row, members, self._options, self._now, absent=absent, expected=expected)

    # --- Metadata -----------------------------------------------------------------------------------------------------

    @property
    def objects(self) -> tuple[PodView, ...]:
        return self.members

    @property
    def group(self) -> str:
        return self.members[0].group_name(self._options)

    @property
    def total(self) -> int | None:
        return self.members[0].group_total_count if self._expected is None else self._expected

    @property
    def gated_by(self) -> str | None:
        """Gated as long as one of its pods is: they are admitted together."""
        gates = (pod.annotations.get(labels.ADMISSION_GATED_BY) for pod in self.members)
        return next((gate for gate in gates if gate is not None), None)

    @property
    def is_fast(self) -> bool:
        """Whether it is admitted as soon as one pod is created."""
        return self.annotations.get(labels.POD_GROUP_FAST_ADMISSION) == "true"

    @property
    def is_serving(self) -> bool:
        """Whether it runs until it is deleted."""
        return self.annotations.get(labels.POD_GROUP_SERVING) == "true"

    @property
    def follows_queue(self) -> bool:
        return not self.is_serving

    @property
    def is_deleting(self) -> bool:
        """False: a group is deleted with its last pod."""
        return False

    def workload_name(self) -> str:
        return self.group

    def workload_annotations(self) -> Mapping[str, str]:
        return {labels.IS_GROUP_WORKLOAD: "true"}

    def templates(self) -> tuple[PodSetTemplate, ...]:
        return ()

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        runnable = [pod for pod in self.members if is_active(pod)]
        if self.is_fast and runnable:
            return (pods.pod_set(runnable[0], runnable[0].role, self.total or 1, options),)
        by_role: dict[str, list[PodView]] = {}
        for pod in runnable:
            by_role.setdefault(pod.role, []).append(pod)
        return tuple(pods.pod_set(alike[0], role, len(alike), options) for role, alike in sorted(by_role.items()))

    # --- State --------------------------------------------------------------------------------------------------------

    def is_skipped(self, options: IntegrationOptions) -> bool:
        return pods.PodJob(self.row, self.tree).is_skipped(options)

    def is_suspended(self) -> bool:
        return any(pod.is_finished or pod.has_gate() for pod in self.members)

    def is_active(self) -> bool:
        return any(holds_quota(pod, self._options, self._now) for pod in self.members)

    def outcome(self) -> JobOutcome | None:
        """A finished group has always succeeded; the message has the number of succeeded pods."""
        if self.is_serving or self.total is None:
            return None
        succeeded = sum(pod.phase == "Succeeded" for pod in self.members)
        is_final = not all(pod.is_retriable for pod in self.members)
        given_up = is_final and all(pod.is_finished for pod in self.members)
        if succeeded != self.total and not given_up:
            return None
        ended = last_time(pod.ended for pod in self.members if pod.is_finished)
        return JobOutcome(f"Pods succeeded: {succeeded}/{self.total}.", True, ended)

    def are_pods_ready(self) -> bool:
        """A succeeded pod counts as ready: it will not become ready again."""
        enough = self.total is not None and len(self.members) >= self.total
        return enough and all(pod.is_ready or pod.phase == "Succeeded" for pod in self.members)

    def reclaimable(self) -> Mapping[str, int]:
        done: dict[str, int] = {}
        for pod in () if self.is_serving else self.members:
            if pod.phase == "Succeeded":
                done[pod.role] = done.get(pod.role, 0) + 1
        return done

    def conditions(self, workload: kueue.Workload) -> Changes:
        """`WaitingForReplacementPods`, which keeps the Workload out of the queue while pods are missing."""
        before = conditions.find(workload.status.conditions, WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS)
        if not self.absent:
            if before is None or before.status == ConditionStatus.FALSE:
                return ()
            return (_replacement(ConditionStatus.FALSE, PODS_READY, "No pods need replacement"),)
        evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
        if evicted is not None and evicted.status == ConditionStatus.TRUE:
            if before is not None and (before.status, before.reason) == (ConditionStatus.TRUE, evicted.reason):
                return ()
            return (_replacement(ConditionStatus.TRUE, evicted.reason, evicted.message),)
        if before is not None and before.status == ConditionStatus.TRUE:
            return ()
        return (_replacement(ConditionStatus.TRUE, PODS_FAILED, "Some Failed pods need replacement"),)

    # --- Starting and stopping ----------------------------------------------------------------------------------------

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        by_role = {info.name: info for info in infos}
        actions: list[Action] = []
        for pod in self.members:
            if not pod.has_gate():
                continue
            role = pod.role
            if role not in by_role:
                return PodSetConflict(f"nothing is assigned to the role {role}")
            after = pods.released(pod, by_role[role])
            if isinstance(after, PodSetConflict):
                return after
            actions += (ReplaceObject(self.row.kind, pod.tree, after), EmitJobEvent(pod.tree, "Started", note))
        return tuple(actions)

    def stop(self, order: Stop) -> Actions:
        return tuple(action for pod in self.members for action in pods.stop(self.row.kind, pod, order))

    def finalize(self) -> Actions:
        return pods.finalize(self.row.kind, self.members)

    def find_workload(self, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
        return find(self, facts, options, now)


def _replacement(status: ConditionStatus, reason: str, message: str) -> SetCondition:
    return SetCondition(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS, status, reason, message)


def holds_quota(pod: PodView, options: IntegrationOptions, now: Nanoseconds) -> bool:
    """Whether a pod runs. A deleted pod does not count after its grace period: its node may be lost."""
    if pod.phase != "Running":
        return False
    if not pod.is_deleting:
        return True
    if options.fast_quota_release:
        return False
    since = states.moment(pod.deletion_timestamp)
    grace = unstructured.integer(pod.metadata.get("deletionGracePeriodSeconds"))
    return since is None or grace is None or now <= since + grace * SECOND


def is_active(pod: PodView) -> bool:
    if pod.is_deleting and not pod.node_name:
        return False
    return pod.phase != "Failed"


# --- Its Workload -----------------------------------------------------------------------------------------------------


def find(group: PodGroup, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    """The Workload of a group with the pods that count for it, or what has to be done before there is one."""
    found = facts.named
    if found is None:
        return _composed(group, options, now)
    prebuilt = bool(workloads.prebuilt_name(group, options))
    marked = found.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) == "true"
    if not marked and options.validate_group_owner and not prebuilt:
        return _refused(group)
    if prebuilt and group.is_serving:
        return _serving(group, found, facts, options, now)
    if prebuilt and not _has_all_roles(found, group):
        return _adopted(group, found) or workload_matching.out_of_sync(group, found, now)
    if not prebuilt and found.spec.maximum_execution_time_seconds != workloads.maximum_execution_time(group):
        return workload_matching.unmatched(group, (found,), facts, options, now)
    waiting = _of_other_roles(group, found)
    kept, excess, replaced, absent = _sorted_out(group, found, now)
    if not kept:
        return workload_matching.unmatched(group, (found,), facts, options, now)
    # The pods of a prebuilt Workload may be created one after another: one that does not exist yet was not lost.
    group = group.keeping(kept, absent=0 if prebuilt and not states.is_evicted(found) else absent)
    cleanup = (*_adopted(group, found), *_removed(group, excess), *pods.finalize(group.row.kind, replaced))
    return cleanup or workload_sync.synced(group, found, facts, options) or Matched(found, group, waiting)


def _of_other_roles(group: PodGroup, found: kueue.Workload) -> tuple[EmitJobEvent, ...]:
    """A Warning Event on each gated pod whose role the Workload does not have [PG16]. Nothing starts such a pod, and it
    does not count: the pod sets of a Workload with quota are immutable."""
    if states.is_finished(found):
        return ()
    known = {pod_set.name for pod_set in found.spec.pod_sets}
    return tuple(
        EmitJobEvent(
            pod.tree,
            "ErrWorkloadCompose",
            f"podSetInfo with the name '{pod.role}' is not found: Workload {states.key(found)} of the pod group has no"
            " pod set for pods with these requests and this placement; the pod stays gated",
            warning=True,
        )
        for pod in group.members
        if is_active(pod) and pod.has_gate() and pod.role not in known
    )


def _serving(
    group: PodGroup, found: kueue.Workload, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds
) -> Matched | Actions:
    """The prebuilt Workload of pods that a controller keeps running, such as those of a StatefulSet [PP5].

    The pods appear in the controller's order, and some only when others run. So each starts as soon as the Workload is
    admitted; none is counted as missing, and none is deleted as excess: those beyond the count of their role wait at
    their gate. The parent sets what the Workload follows.
    """
    if not states.is_finished(found) and not _has_all_roles(found, group):
        return _adopted(group, found) or workload_matching.out_of_sync(group, found, now)
    kept: list[PodView] = []
    for pod_set in found.spec.pod_sets:
        alike = [pod for pod in group.members if pod.role == pod_set.name]
        kept += _by_worth([pod for pod in alike if is_active(pod)])[: pod_set.count]
        kept += [pod for pod in alike if not is_active(pod)]
    adopted = _adopted(group, found)
    if adopted or not kept:
        return adopted
    return Matched(found, group.keeping(kept, expected=sum(pod_set.count for pod_set in found.spec.pod_sets)))


def _composed(group: PodGroup, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    """A group without a Workload: complete, or not yet."""
    active = [pod for pod in group.members if is_active(pod)]
    released = pods.finalize(group.row.kind, [pod for pod in group.members if not is_active(pod)])
    if released:
        return released
    if group.outcome() is not None:
        return Matched(None, group)
    name = workloads.prebuilt_name(group, options)
    if name:
        return workload_matching.missing_prebuilt(group, now)
    problem = _problem(group, active, options)
    if problem:
        return (EmitJobEvent(group.tree, "ErrWorkloadCompose", problem, warning=True),)
    surplus = _by_worth(active)[group.total :]
    if surplus:
        return _removed(group, surplus)
    if len(group.pod_sets(options)) > ROLES_MAX:
        return ()
    return Matched(None, group)


def _problem(group: PodGroup, active: Sequence[PodView], options: IntegrationOptions) -> str:
    """Why the group cannot be admitted yet. Another pod, or an update of one, may change this."""
    if group.total is None:
        return f"The annotation {labels.POD_GROUP_TOTAL_COUNT} is not a number above 0"
    if len(active) < group.total and not (group.is_fast and active):
        return f"'{group.group}' group has fewer runnable pods than expected"
    for pod in group.members:
        if pod.phase == "Failed":
            continue
        name = pod.name
        if pod.labels.get(labels.QUEUE_NAME, "") != group.queue_name:
            return f"The pods {group.name} and {name} have different queue names"
        if pod.group_total_count != group.total:
            return f"The pods {group.name} and {name} have different values of {labels.POD_GROUP_TOTAL_COUNT}"
        index = pod.labels.get(labels.POD_GROUP_POD_INDEX)
        if index is not None and not (index.isdigit() and int(index) < group.total):
            return f"The pod {name} has no index below {group.total}"
    for key in options.label_keys_to_copy:
        if len({pod.labels[key] for pod in group.members if key in pod.labels}) > 1:
            return f"The pods of the group have different values of the label {key}"
    for key in options.annotation_keys_to_copy:
        if len({pod.annotations[key] for pod in group.members if key in pod.annotations}) > 1:
            return f"The pods of the group have different values of the annotation {key}"
    return ""


def _refused(group: PodGroup) -> Actions:
    note = (
        f'A Workload named "{group.group}" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    inactive = [pod for pod in group.members if not is_active(pod)]
    return (
        EmitJobEvent(group.tree, "WorkloadNameConflict", note, warning=True, action="Admission"),
        *pods.finalize(group.row.kind, inactive),
    )


def _sorted_out(
    group: PodGroup, workload: kueue.Workload, now: Nanoseconds
) -> tuple[list[PodView], list[PodView], list[PodView], int]:
    """The pods that count for the Workload, excess pods, replaced pods; and how many are missing."""
    kept: list[PodView] = []
    excess: list[PodView] = []
    replaced: list[PodView] = []
    absent = 0
    for pod_set in workload.spec.pod_sets:
        alike = [pod for pod in group.members if pod.role == pod_set.name]
        active = _by_worth([pod for pod in alike if is_active(pod)])
        inactive = _by_last_activity([pod for pod in alike if not is_active(pod)], now)
        if group.is_fast:
            absent += int(pod_set.count > 0 and not active)
        else:
            absent += max(0, pod_set.count - len(active))
        kept += active[: pod_set.count]
        excess += active[pod_set.count :]
        stay = len(inactive) - max(0, min(len(inactive), len(inactive) + len(active) - pod_set.count))
        kept += inactive[:stay]
        replaced += inactive[stay:]
    return kept, excess, replaced, absent


def _by_worth(found: Sequence[PodView]) -> list[PodView]:
    """Those to keep first: with our finalizer, then without the gate, then the oldest."""
    return sorted(
        found,
        key=lambda pod: (
            labels.POD_FINALIZER not in pod.finalizers,
            pod.has_gate(),
            _created(pod),
            pod.name,
        ),
    )


def _by_last_activity(found: Sequence[PodView], now: Nanoseconds) -> list[PodView]:
    """The pod that became inactive last comes first."""
    return sorted(
        found,
        key=lambda pod: (
            labels.POD_FINALIZER not in pod.finalizers,
            -_last_active(pod, now),
            _created(pod),
            pod.name,
        ),
    )


def _created(pod: PodView) -> Nanoseconds:
    return states.moment(pod.creation_timestamp) or 0


def _last_active(pod: PodView, now: Nanoseconds) -> Nanoseconds:
    deleted = states.moment(pod.deletion_timestamp)
    failed = [
        states.moment(unstructured.text(condition.get("lastTransitionTime")))
        for _, condition in unstructured.entries(pod.status, "conditions")
        if condition.get("type") == "ContainersReady"
        and condition.get("status") == "False"
        and condition.get("reason") == "PodFailed"
    ]
    return min(moment for moment in (now, deleted, *failed) if moment is not None)


def _has_all_roles(workload: kueue.Workload, group: PodGroup) -> bool:
    """Whether the roles of all pods that count are pod sets of the Workload."""
    known = {pod_set.name for pod_set in workload.spec.pod_sets}
    return all(pod.role in known for pod in group.members if is_active(pod))


def _removed(group: PodGroup, excess: Sequence[PodView]) -> Actions:
    """Delete excess pods, without our finalizer, which would keep them."""
    actions: list[Action] = []
    for pod in excess:
        actions += pods.finalize(group.row.kind, (pod,))
        if not pod.is_deleting:
            actions += (
                DeleteObject(group.row.kind, pod.tree),
                EmitJobEvent(pod.tree, "ExcessPodDeleted", "Excess pod deleted"),
            )
    return tuple(actions)


def _adopted(group: PodGroup, workload: kueue.Workload) -> Actions:
    """Every pod of the group is an owner of its Workload."""
    owners = workload.metadata.owner_references
    known = {owner.uid for owner in owners}
    missing = [pod for pod in group.members if pod.uid not in known]
    if not missing:
        return ()
    references = [*map(codec.to_tree, owners), *(workloads.owner_reference(group, pod) for pod in missing)]
    note = f"Added {len(missing)} owner reference(s)"
    return (
        PatchWorkload(workload, {"metadata": {"ownerReferences": references}}),
        ChangeWorkload(workload, (workload_changes.normal("OwnerReferencesAdded", note),)),
    )
