"""Pods that are admitted together. Their Workload is called like the group, and belongs to all of them.

    active     may run, runs, or has succeeded
    inactive   failed, or is being deleted without having had a node
    role       pods of one shape, interchangeable with each other; each role is a pod set

A group that is complete gets its Workload. From then on a pod that fails may be replaced by another of its role: any
pod with the group's name. Pods beyond the count of their role are deleted, the youngest first.
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
from pykueue.jobs import workload_matching, workload_sync, workloads
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
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, Stop
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo
from pykueue.jobs.workload_sync import Matched
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.workload_changes import Changes, SetCondition

ROLES_MAX: Final = 18

PODS_FAILED: Final = "PodsFailed"
PODS_READY: Final = "PodsReady"


class PodGroup(GenericJob):
    """The pods of one group, as they are now. There is at least one."""

    is_group = True

    def __init__(
        self,
        row: JobIntegration,
        members: Sequence[Tree],
        options: IntegrationOptions,
        now: Nanoseconds,
        *,
        absent: int = 0,
        gathers: bool = False,
    ) -> None:
        self.members: Final = tuple(members)
        super().__init__(row, self.members[0])
        self._options = options
        self._now = now
        # How many pods are missing of those that the Workload is for.
        self.absent: Final = absent
        # Whether pods are still to come: none starts before the last is there.
        self._gathers = gathers

    def keeping(self, members: Sequence[Tree], *, absent: int = 0, gathers: bool = False) -> PodGroup:
        return PodGroup(self.row, members, self._options, self._now, absent=absent, gathers=gathers)

    # --- What it is ---------------------------------------------------------------------------------------------------

    @property
    def objects(self) -> tuple[Tree, ...]:
        return self.members

    @property
    def group(self) -> str:
        return pods.group_name(self.tree, self._options)

    @property
    def total(self) -> int | None:
        return pods.total_count(self.tree)

    @property
    def gated_by(self) -> str | None:
        """Held back as long as one of its pods is: they are admitted together."""
        notes = (unstructured.get(pod, "metadata", "annotations", labels.ADMISSION_GATED_BY) for pod in self.members)
        return next((note for note in notes if note is not None), None)

    @property
    def is_fast(self) -> bool:
        """Whether it is admitted as soon as one pod is there."""
        return self.annotations.get(labels.POD_GROUP_FAST_ADMISSION) == "true"

    @property
    def is_serving(self) -> bool:
        """Whether it runs until somebody ends it."""
        return self.annotations.get(labels.POD_GROUP_SERVING) == "true"

    @property
    def follows_queue(self) -> bool:
        return not self.is_serving

    @property
    def is_deleting(self) -> bool:
        """A group goes with its last pod."""
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
            return (pods.pod_set(runnable[0], pods.role(runnable[0]), self.total or 1, options),)
        by_role: dict[str, list[Tree]] = {}
        for pod in runnable:
            by_role.setdefault(pods.role(pod), []).append(pod)
        return tuple(pods.pod_set(alike[0], role, len(alike), options) for role, alike in sorted(by_role.items()))

    # --- How it stands ------------------------------------------------------------------------------------------------

    def is_skipped(self, options: IntegrationOptions) -> bool:
        return pods.PodJob(self.row, self.tree).is_skipped(options)

    def is_suspended(self) -> bool:
        return any(pods.is_over(pod) or pods.has_gate(pod) for pod in self.members)

    def is_active(self) -> bool:
        return any(self._holds_quota(pod) for pod in self.members)

    def _holds_quota(self, pod: Tree) -> bool:
        """Whether a pod runs. One that should have ended long ago, on a lost node perhaps, does not count."""
        if pods.phase(pod) != "Running":
            return False
        if not pods.is_deleting(pod):
            return True
        if self._options.fast_quota_release:
            return False
        since = states.moment(unstructured.text(unstructured.get(pod, "metadata", "deletionTimestamp")))
        grace = unstructured.integer(unstructured.get(pod, "metadata", "deletionGracePeriodSeconds"))
        return since is None or grace is None or self._now <= since + grace * SECOND

    def outcome(self) -> JobOutcome | None:
        """A group that is over has always succeeded; the message says with how many pods."""
        if self.is_serving or self.total is None:
            return None
        succeeded = sum(pods.phase(pod) == "Succeeded" for pod in self.members)
        given_up = all(map(pods.is_over, self.members)) and not all(map(pods.is_retriable, self.members))
        if succeeded != self.total and not given_up:
            return None
        return JobOutcome(f"Pods succeeded: {succeeded}/{self.total}.", success=True)

    def are_pods_ready(self) -> bool:
        """A pod that has succeeded counts: it was ready, and will never be again."""
        enough = self.total is not None and len(self.members) >= self.total
        return enough and all(pods.is_ready(pod) or pods.phase(pod) == "Succeeded" for pod in self.members)

    def reclaimable(self) -> Mapping[str, int]:
        done: dict[str, int] = {}
        for pod in () if self.is_serving else self.members:
            if pods.phase(pod) == "Succeeded":
                done[pods.role(pod)] = done.get(pods.role(pod), 0) + 1
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
        return (_replacement(ConditionStatus.TRUE, PODS_FAILED, "Some failed pods need replacement"),)

    # --- Starting and stopping ----------------------------------------------------------------------------------------

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        by_role = {info.name: info for info in infos}
        actions: list[Action] = []
        for pod in () if self._gathers else self.members:
            if not pods.has_gate(pod):
                continue
            role = pods.role(pod)
            if role not in by_role:
                return PodSetConflict(f"nothing is assigned to the role {role}")
            after = pods.released(pod, by_role[role])
            if isinstance(after, PodSetConflict):
                return after
            actions += (ReplaceObject(self.row.kind, pod, after), EmitJobEvent(pod, "Started", note))
        return tuple(actions)

    def stop(self, order: Stop) -> Actions:
        return tuple(action for pod in self.members for action in pods.stop(self, pod, order))

    def finalize(self) -> Actions:
        return pods.let_go(self, self.members)


def _replacement(status: ConditionStatus, reason: str, message: str) -> SetCondition:
    return SetCondition(WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS, status, reason, message)


def is_active(pod: Tree) -> bool:
    if pods.is_deleting(pod) and not unstructured.get(pod, "spec", "nodeName"):
        return False
    return pods.phase(pod) != "Failed"


# --- Its Workload -----------------------------------------------------------------------------------------------------


def find(group: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    """The Workload of a group with the pods that count for it, or what has to be done before there is one."""
    assert isinstance(group, PodGroup)
    found = facts.named
    if found is None:
        return _composed(group, options, now)
    prebuilt = bool(workloads.prebuilt_name(group, options))
    marked = found.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) == "true"
    if not marked and options.validate_group_owner and not prebuilt:
        return _refused(group)
    if prebuilt and not _knows_all(found, group):
        return _adopted(group, found) or workload_matching.out_of_sync(group, found, now)
    if not prebuilt and found.spec.maximum_execution_time_seconds != workloads.maximum_execution_time(group):
        return workload_matching.unmatched(group, (found,), facts, options, now)
    kept, excess, replaced, absent = _sorted_out(group, found, now)
    if not kept:
        return workload_matching.unmatched(group, (found,), facts, options, now)
    # One whose Workload was there first has had no pod replaced before they have all come.
    gathers = prebuilt and absent > 0 and not states.is_evicted(found) and all(map(pods.has_gate, kept))
    group = group.keeping(kept, absent=0 if gathers else absent, gathers=gathers)
    cleanup = (*_adopted(group, found), *_removed(group, excess), *pods.let_go(group, replaced))
    return cleanup or workload_sync.synced(group, found, facts, options) or Matched(found, group)


def _composed(group: PodGroup, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    """A group without a Workload: complete, or not yet."""
    active = [pod for pod in group.members if is_active(pod)]
    let_go = pods.let_go(group, [pod for pod in group.members if not is_active(pod)])
    if let_go:
        return let_go
    if group.outcome() is not None:
        return Matched(None, group)
    name = workloads.prebuilt_name(group, options)
    if name:
        return workload_matching.unmade(group, name, now)
    problem = _problem(group, active, options)
    if problem:
        return (EmitJobEvent(group.tree, "ErrWorkloadCompose", problem, warning=True),)
    surplus = _by_worth(active)[group.total :]
    if surplus:
        return _removed(group, surplus)
    if len(group.pod_sets(options)) > ROLES_MAX:
        return ()
    return Matched(None, group)


def _problem(group: PodGroup, active: Sequence[Tree], options: IntegrationOptions) -> str:
    """Why the group cannot be admitted yet. Another pod, or a change to one, may settle it."""
    if group.total is None:
        return f"The annotation {labels.POD_GROUP_TOTAL_COUNT} is not a number above 0"
    if len(active) < group.total and not (group.is_fast and active):
        return f"'{group.group}' group has fewer runnable pods than expected"
    for pod in group.members:
        if pods.phase(pod) == "Failed":
            continue
        name = unstructured.text(unstructured.get(pod, "metadata", "name"))
        if unstructured.text(unstructured.get(pod, "metadata", "labels", labels.QUEUE_NAME)) != group.queue_name:
            return f"The pods {group.name} and {name} name different queues"
        if pods.total_count(pod) != group.total:
            return f"The pods {group.name} and {name} say different sizes of their group"
        index = unstructured.get(pod, "metadata", "labels", labels.POD_GROUP_POD_INDEX)
        if index is not None and not (str(index).isdigit() and int(index) < group.total):
            return f"The pod {name} has no index below {group.total}"
    for key in options.label_keys_to_copy:
        values = {unstructured.get(pod, "metadata", "labels", key) for pod in group.members} - {None}
        if len(values) > 1:
            return f"The pods of the group have different values of the label {key}"
    return ""


def _refused(group: PodGroup) -> Actions:
    note = f'A Workload named "{group.group}" already exists but is not of a pod group; the group cannot be admitted'
    inactive = [pod for pod in group.members if not is_active(pod)]
    return (
        EmitJobEvent(group.tree, "WorkloadNameConflict", note, warning=True, action="Admission"),
        *pods.let_go(group, inactive),
    )


def _sorted_out(
    group: PodGroup, workload: kueue.Workload, now: Nanoseconds
) -> tuple[list[Tree], list[Tree], list[Tree], int]:
    """The pods that count for the Workload, those too many, those that were replaced; and how many are missing."""
    kept: list[Tree] = []
    excess: list[Tree] = []
    replaced: list[Tree] = []
    absent = 0
    for pod_set in workload.spec.pod_sets:
        alike = [pod for pod in group.members if pods.role(pod) == pod_set.name]
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


def _by_worth(found: Sequence[Tree]) -> list[Tree]:
    """Those to keep first: ours, released, old."""
    return sorted(
        found,
        key=lambda pod: (
            labels.POD_FINALIZER not in unstructured.sequence(unstructured.get(pod, "metadata", "finalizers")),
            pods.has_gate(pod),
            _created(pod),
            unstructured.text(unstructured.get(pod, "metadata", "name")),
        ),
    )


def _by_last_activity(found: Sequence[Tree], now: Nanoseconds) -> list[Tree]:
    """Those that went inactive last come first."""
    return sorted(
        found,
        key=lambda pod: (
            labels.POD_FINALIZER not in unstructured.sequence(unstructured.get(pod, "metadata", "finalizers")),
            -_last_active(pod, now),
            _created(pod),
            unstructured.text(unstructured.get(pod, "metadata", "name")),
        ),
    )


def _created(pod: Tree) -> Nanoseconds:
    return states.moment(unstructured.text(unstructured.get(pod, "metadata", "creationTimestamp"))) or 0


def _last_active(pod: Tree, now: Nanoseconds) -> Nanoseconds:
    deleted = states.moment(unstructured.text(unstructured.get(pod, "metadata", "deletionTimestamp")))
    failed = [
        states.moment(unstructured.text(condition.get("lastTransitionTime")))
        for _, condition in unstructured.entries(pod, "status", "conditions")
        if condition.get("type") == "ContainersReady"
        and condition.get("status") == "False"
        and condition.get("reason") == "PodFailed"
    ]
    return min(moment for moment in (now, deleted, *failed) if moment is not None)


def _knows_all(workload: kueue.Workload, group: PodGroup) -> bool:
    """Whether the roles of all pods that count are pod sets of the Workload."""
    known = {pod_set.name for pod_set in workload.spec.pod_sets}
    return all(pods.role(pod) in known for pod in group.members if is_active(pod))


def _removed(group: PodGroup, excess: Sequence[Tree]) -> Actions:
    """Delete pods that are too many; our finalizer must not hold them."""
    actions: list[Action] = []
    for pod in excess:
        actions += pods.let_go(group, (pod,))
        if not pods.is_deleting(pod):
            actions += (DeleteObject(group.row.kind, pod), EmitJobEvent(pod, "ExcessPodDeleted", "Excess pod deleted"))
    return tuple(actions)


def _adopted(group: PodGroup, workload: kueue.Workload) -> Actions:
    """Every pod of the group is an owner of its Workload."""
    owners = workload.metadata.owner_references
    known = {owner.uid for owner in owners}
    missing = [pod for pod in group.members if unstructured.get(pod, "metadata", "uid") not in known]
    if not missing:
        return ()
    references = [*map(codec.to_tree, owners), *(workloads.owner_reference(group, pod) for pod in missing)]
    note = f"Added {len(missing)} owner reference(s)"
    return (
        PatchWorkload(workload, {"metadata": {"ownerReferences": references}}),
        ChangeWorkload(workload, (workload_changes.normal("OwnerReferencesAdded", note),)),
    )
