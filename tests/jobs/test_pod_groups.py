"""Pods that are admitted together, replaced one by one, and counted when they end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import OPTIONS, JobHarness, pod
from kubemachinery import codec, unstructured
from kubemachinery.meta import MINUTE
from pykueue.api import kueue, labels
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_group import ROLES_MAX

READY = [{"type": "Ready", "status": "True"}]
BIG = {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}]}


def running(harness: JobHarness, *names: str) -> JobHarness:
    for name in names:
        harness.status(name, phase="Running", conditions=READY)
    return harness.settle()


def pair() -> JobHarness:
    """Two pods that run."""
    return running(JobHarness(pod("a", "g", 2), pod("b", "g", 2)).settle().admit().settle(), "a", "b")


def gated(harness: JobHarness) -> list[str]:
    return [name for name, tree in harness.objects.items() if PodView(tree).has_gate()]


def beforehand(*pod_sets: tuple[str, int]) -> kueue.Workload:
    """A Workload `g` that a user made, with pod sets of these names and sizes."""
    template: dict[str, Any] = {"spec": {"containers": []}}
    tree = {
        "metadata": {"name": "g", "namespace": "main", "uid": "uid-g"},
        "spec": {"podSets": [{"name": name, "count": count, "template": template} for name, count in pod_sets]},
    }
    return codec.from_tree(tree, kueue.Workload)


# --- Coming together --------------------------------------------------------------------------------------------------


def test_a_complete_group_gets_one_workload_that_all_its_pods_own() -> None:
    """pod/group-admitted"""
    harness = JobHarness(pod("a", "g", 3), pod("b", "g", 3), pod("c", "g", 3)).settle()
    workload = harness.workload
    assert workload.metadata.name == "g"
    assert workload.metadata.labels == {}
    assert workload.metadata.annotations == {labels.IS_GROUP_WORKLOAD: "true"}
    owners = [(owner.name, owner.controller) for owner in workload.metadata.owner_references]
    assert owners == [("a", None), ("b", None), ("c", None)]
    assert [pod_set.count for pod_set in workload.spec.pod_sets] == [3]
    harness.admit().settle()
    assert gated(harness) == []
    assert harness.events == ["CreatedWorkload", "Started", "Started", "Started"]


def test_incomplete_group_waits_with_an_event() -> None:
    """pod/group-incomplete"""
    harness = JobHarness(pod("a", "g", 3), pod("b", "g", 3)).settle()
    assert not harness.workloads
    assert harness.events == ["Warning ErrWorkloadCompose"]
    harness.add(pod("c", "g", 3)).settle()
    assert harness.workload.spec.pod_sets[0].count == 3


def test_pods_of_different_shapes_are_different_pod_sets() -> None:
    """pod/group-two-roles"""
    harness = JobHarness(pod("a", "g", 3), pod("b", "g", 3, spec=BIG), pod("c", "g", 3)).settle()
    counts = {pod_set.name: pod_set.count for pod_set in harness.workload.spec.pod_sets}
    assert counts == {PodView(pod("a")).role: 2, PodView(pod("b", spec=BIG)).role: 1}
    assert list(counts) == sorted(counts)


def test_group_is_gated_while_one_of_its_pods_is_gated() -> None:
    held = {"annotations": {labels.ADMISSION_GATED_BY: "example.com/budget"}}
    harness = JobHarness(pod("a", "g", 2), pod("b", "g", 2, metadata=held)).settle()
    assert harness.workload.metadata.annotations[labels.ADMISSION_GATED_BY] == "example.com/budget"
    harness.objects["b"] = unstructured.without(
        harness.objects["b"], ("metadata", "annotations", labels.ADMISSION_GATED_BY)
    )
    assert labels.ADMISSION_GATED_BY not in harness.settle().workload.metadata.annotations


NAMES_ONE = {"labels": {labels.PREBUILT_WORKLOAD_NAME: "g"}}


def test_prebuilt_workload_without_a_role_of_the_group_is_finished_not_deleted() -> None:
    harness = JobHarness(pod("a", "g", 2, metadata=NAMES_ONE), pod("b", "g", 2, metadata=NAMES_ONE, spec=BIG))
    harness.workloads["g"] = beforehand((PodView(pod("a")).role, 1), ("other", 1))
    harness.settle()
    assert harness.condition("Finished") == "True/OutOfSync"
    assert [owner.name for owner in harness.workload.metadata.owner_references] == ["a", "b"]
    assert gated(harness) == ["a", "b"]
    assert harness.events == ["OwnerReferencesAdded"]


def test_failed_pods_without_a_workload_lose_their_finalizer() -> None:
    harness = JobHarness(pod("a", "g", 1, metadata=NAMES_ONE | {"annotations": {labels.RETRIABLE_IN_GROUP: "false"}}))
    harness.workloads["g"] = beforehand(("other", 1))
    harness.settle().status("a", phase="Failed")
    assert harness.settle().objects["a"]["metadata"].get("finalizers", []) == []


def test_pods_of_an_admitted_prebuilt_workload_start_as_they_are_created() -> None:
    harness = JobHarness(pod("a", "g", 2, metadata=NAMES_ONE))
    harness.workloads["g"] = beforehand((PodView(pod("a")).role, 2))
    assert gated(harness.admit().settle()) == []
    assert harness.condition("WaitingForReplacementPods") == ""
    harness.add(pod("b", "g", 2, metadata=NAMES_ONE)).settle()
    assert gated(harness) == []
    running(harness, "a", "b").status("a", phase="Failed")
    harness.settle().add(pod("c", "g", 2, metadata=NAMES_ONE)).settle()
    assert gated(harness) == []


def test_pods_stop_when_their_prebuilt_workload_is_deleted() -> None:
    harness = JobHarness(pod("a", "g", 2, metadata=NAMES_ONE), pod("b", "g", 2, metadata=NAMES_ONE))
    harness.workloads["g"] = beforehand((PodView(pod("a")).role, 2))
    running(harness.admit().settle(), "a", "b")
    del harness.workloads["g"]
    assert harness.settle().events.count("Stopped") == 2


def test_prebuilt_workload_defines_its_maximum_execution_time() -> None:
    harness = JobHarness(pod("a", "g", 1, metadata=NAMES_ONE))
    made = beforehand((PodView(pod("a")).role, 1))
    spec = structs.replace(made.spec, maximum_execution_time_seconds=60)
    harness.workloads["g"] = structs.replace(made, spec=spec)
    assert harness.settle().workload.spec.maximum_execution_time_seconds == 60


def test_pods_that_name_different_queues_are_never_admitted() -> None:
    """pod/group-disagreeing-queue"""
    other = pod("b", "g", 2, metadata={"labels": {labels.QUEUE_NAME: "other"}})
    assert not JobHarness(pod("a", "g", 2), other).settle().workloads


def test_pods_that_disagree_about_the_size_are_never_admitted() -> None:
    assert not JobHarness(pod("a", "g", 2), pod("b", "g", 3)).settle().workloads


def test_pods_that_disagree_about_a_label_to_copy_are_never_admitted() -> None:
    options = replace(OPTIONS, label_keys_to_copy=("team",))
    red, blue = ({"labels": {"team": team}} for team in ("red", "blue"))
    assert (
        not JobHarness(pod("a", "g", 2, metadata=red), pod("b", "g", 2, metadata=blue), options=options)
        .settle()
        .workloads
    )
    harness = JobHarness(pod("a", "g", 2, metadata=red), pod("b", "g", 2), options=options).settle()
    assert harness.workload.metadata.labels == {"team": "red"}


def test_pods_that_disagree_about_an_annotation_that_metrics_read_are_never_admitted() -> None:
    options = replace(OPTIONS, annotation_keys_to_copy=("team",))
    red, blue = ({"annotations": {"team": team}} for team in ("red", "blue"))
    harness = JobHarness(pod("a", "g", 2, metadata=red), pod("b", "g", 2, metadata=blue), options=options).settle()
    assert not harness.workloads
    assert harness.notes[-1] == "The pods of the group have different values of the annotation team"
    harness = JobHarness(pod("a", "g", 2), pod("b", "g", 2, metadata=red), options=options).settle()
    assert harness.workload.metadata.annotations["team"] == "red"


@pytest.mark.parametrize(("index", "fits"), [("1", True), ("2", False), ("first", False)])
def test_an_index_is_below_the_size_of_the_group(index: str, fits: bool) -> None:
    indexed = pod("b", "g", 2, metadata={"labels": {labels.POD_GROUP_POD_INDEX: index}})
    assert bool(JobHarness(pod("a", "g", 2), indexed).settle().workloads) is fits


def test_too_many_roles_are_never_admitted() -> None:
    count = ROLES_MAX + 1
    members = [pod(f"p{i:02}", "g", count, spec={"priority": i}) for i in range(count)]
    assert not JobHarness(*members).settle().workloads


def test_a_group_named_by_an_annotation_is_one() -> None:
    """pod/group-named-by-annotation"""
    notes = {"annotations": {labels.POD_GROUP_NAME: "g", labels.POD_GROUP_TOTAL_COUNT: "2"}}
    harness = JobHarness(pod("a", metadata=notes), pod("b", metadata=notes)).settle()
    assert harness.workload.metadata.name == "g"


def test_fast_admission_does_not_wait_for_the_others() -> None:
    """pod/group-fast-admission"""
    fast = {"annotations": {labels.POD_GROUP_FAST_ADMISSION: "true"}}
    harness = JobHarness(pod("a", "g", 3, metadata=fast)).settle()
    assert harness.workload.spec.pod_sets[0].count == 3
    harness.admit().settle()
    assert gated(harness) == []
    harness.add(pod("b", "g", 3, metadata=fast)).settle()
    assert gated(harness) == []
    assert [owner.name for owner in harness.workload.metadata.owner_references] == ["a", "b"]


def test_pod_whose_role_the_workload_does_not_have_is_reported() -> None:
    """[PG16] The Workload of a group with fast admission has the role of the first pod only."""
    fast = {"annotations": {labels.POD_GROUP_FAST_ADMISSION: "true"}}
    harness = JobHarness(pod("a", "g", 3, metadata=fast)).settle().admit().settle()
    harness.add(pod("b", "g", 3, spec=BIG, metadata=fast)).settle()
    assert gated(harness) == ["b"]
    assert harness.events[-1] == "Warning ErrWorkloadCompose"
    role = PodView(harness.objects["b"]).role
    assert harness.notes[-1] == (
        f"podSetInfo with the name '{role}' is not found: Workload main/g of the pod group has no pod set for pods with"
        " these requests and this placement; the pod stays gated"
    )
    harness.add(pod("c", "g", 3, metadata=fast)).settle()
    assert gated(harness) == ["b"]


def test_pods_beyond_the_size_are_deleted_the_youngest_first() -> None:
    """pod/group-excess"""
    harness = pair()
    harness.add(pod("z", "g", 2, metadata={"creationTimestamp": "2026-11-15T11:30:00Z"})).settle()
    assert sorted(harness.objects) == ["a", "b"]
    assert [owner.name for owner in harness.workload.metadata.owner_references] == ["a", "b"]
    assert harness.events[-1] == "ExcessPodDeleted"


def test_excess_is_removed_before_the_group_is_composed() -> None:
    young = {"creationTimestamp": "2026-11-15T11:30:00Z"}
    harness = JobHarness(pod("a", "g", 2, metadata=young), pod("b", "g", 2), pod("c", "g", 2)).settle()
    assert sorted(harness.objects) == ["b", "c"]
    assert harness.workload.spec.pod_sets[0].count == 2


def test_workload_of_another_owner_is_not_used_for_a_group() -> None:
    """Edge case 35: never adopted, never deleted; gated pods that are deleted must still be able to go."""
    harness = JobHarness(pod("a", "g", 2), pod("b", "g", 2)).settle()
    foreign = structs.replace(harness.workload, metadata=structs.replace(harness.workload.metadata, annotations={}))
    harness.workloads = {"g": foreign}
    harness.settle()
    assert harness.events == ["CreatedWorkload", "Warning WorkloadNameConflict"]
    conflict = 'A Workload named "g" already exists but is not a pod group workload; this pod group cannot be admitted'
    assert harness.notes[-1] == conflict
    harness.delete("a").settle()
    assert sorted(harness.objects) == ["b"]
    assert harness.workload is foreign


# --- Replacement ------------------------------------------------------------------------------------------------------


def test_a_failed_pod_may_be_replaced_without_another_admission() -> None:
    """pod/group-replacement"""
    harness = pair()
    assert harness.condition("PodsReady") == "True/Started"
    harness.status("b", phase="Failed").settle()
    assert harness.condition("WaitingForReplacementPods") == "True/PodsFailed"
    assert harness.message("WaitingForReplacementPods") == "Some Failed pods need replacement"
    assert labels.POD_FINALIZER in harness.objects["b"]["metadata"]["finalizers"]
    harness.add(pod("n", "g", 2)).settle()
    assert gated(harness) == []
    assert harness.condition("WaitingForReplacementPods") == "False/PodsReady"
    assert harness.condition("PodsReady") == "False/WaitForRecovery"
    assert "finalizers" not in harness.objects["b"]["metadata"]
    assert [owner.name for owner in harness.workload.metadata.owner_references] == ["a", "b", "n"]


def test_pod_that_failed_first_is_finalized_first() -> None:
    """Edge case 33"""

    def failed(at: str) -> dict[str, object]:
        condition = {"type": "ContainersReady", "status": "False", "reason": "PodFailed", "lastTransitionTime": at}
        return {"phase": "Failed", "conditions": [condition]}

    harness = pair()
    harness.status("a", **failed("2026-11-15T11:50:00Z")).status("b", **failed("2026-11-15T11:40:00Z")).settle()
    harness.add(pod("n", "g", 2)).settle()
    assert "finalizers" not in harness.objects["b"]["metadata"]
    assert "finalizers" in harness.objects["a"]["metadata"]


def test_an_evicted_group_waits_for_other_pods() -> None:
    harness = pair().evict().settle()
    assert not [name for name in harness.objects if not PodView(harness.objects[name]).is_deleting]
    assert harness.events[-2:] == ["Stopped", "Stopped"]
    assert harness.condition("QuotaReserved") == "True/QuotaReserved"
    for name in ("a", "b"):
        harness.status(name, phase="Failed")
    harness.settle()
    assert harness.condition("QuotaReserved").startswith("False/")
    assert harness.condition("WaitingForReplacementPods") == "True/Preempted"
    harness.add(pod("m", "g", 2)).add(pod("n", "g", 2)).settle()
    assert harness.condition("WaitingForReplacementPods") == "False/PodsReady"
    harness.admit().settle()
    assert gated(harness) == []


@pytest.mark.parametrize(("grace", "holds"), [(600, True), (30, False)])
def test_a_pod_that_should_have_ended_long_ago_holds_no_quota(grace: int, holds: bool) -> None:
    harness = pair().evict().settle()
    for name in ("a", "b"):
        harness.edit({"metadata": {"deletionGracePeriodSeconds": grace}}, name)
    harness.now += MINUTE
    harness.settle()
    assert (harness.condition("QuotaReserved") == "True/QuotaReserved") is holds


def test_with_the_gate_a_pod_that_is_ending_holds_no_quota() -> None:
    options = replace(OPTIONS, fast_quota_release=True)
    harness = JobHarness(pod("a", "g", 1), options=options).settle().admit().settle()
    running(harness, "a").evict().settle()
    assert harness.condition("QuotaReserved").startswith("False/")


# --- The end ----------------------------------------------------------------------------------------------------------


def test_pods_that_succeed_give_their_quota_back_one_by_one() -> None:
    """pod/group-succeeds"""
    harness = pair().status("a", phase="Succeeded").settle()
    assert [each.count for each in harness.workload.status.reclaimable_pods] == [1]
    assert harness.condition("PodsReady") == "True/Started"
    harness.status("b", phase="Succeeded").settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert all("finalizers" not in tree["metadata"] for tree in harness.objects.values())


def test_a_pod_that_succeeded_counts_as_ready() -> None:
    """A departure from Kueue [LD6]: otherwise a group whose pods succeed one by one would be evicted."""
    harness = pair().status("a", phase="Succeeded", conditions=[{"type": "Ready", "status": "False"}]).settle()
    assert harness.condition("PodsReady") == "True/Started"


def test_a_group_that_is_not_tried_again_ends_with_its_last_pod() -> None:
    """Edge case 34: it has succeeded, and the message has the number of succeeded pods."""
    harness = pair().edit({"metadata": {"annotations": {labels.RETRIABLE_IN_GROUP: "false"}}}, "a")
    harness.status("a", phase="Succeeded").status("b", phase="Failed").settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert "1/2" in next(each.message for each in harness.workload.status.conditions if each.type == "Finished")


def test_a_serving_group_never_ends_by_itself() -> None:
    serving = {"annotations": {labels.POD_GROUP_SERVING: "true"}}
    harness = JobHarness(pod("a", "g", 1, metadata=serving)).settle().admit().settle()
    harness.status("a", phase="Succeeded").settle()
    assert harness.condition("Finished") == ""
    assert harness.workload.status.reclaimable_pods == ()


def test_deleting_the_workload_deletes_every_pod_even_those_that_are_over() -> None:
    harness = pair().status("a", phase="Succeeded").settle().delete_workload().settle()
    assert not harness.objects


def test_workload_loses_its_finalizer_with_the_last_pod() -> None:
    harness = pair()
    harness.objects.clear()
    harness.settle()
    assert harness.workload.metadata.finalizers == ()


def test_a_pod_deleted_from_a_group_stays_until_another_has_taken_its_place() -> None:
    harness = JobHarness(pod("a", "g", 1)).settle().delete("a").settle()
    assert sorted(harness.objects) == ["a"]
    harness.add(pod("b", "g", 1)).settle()
    assert sorted(harness.objects) == ["b"]


def test_deleted_pod_of_an_incomplete_group_loses_its_finalizer() -> None:
    harness = JobHarness(pod("a", "g", 2)).settle().delete("a").settle()
    assert not harness.objects
