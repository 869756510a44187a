"""Single pods: gated, released, and deleted when they have to stop."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jobs.job_harness import OPTIONS, POD, JobHarness, flavor, pod
from kubemachinery import patches, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.conditions import DeactivationReason
from pykueue.jobs import pod as pods
from pykueue.jobs.actions import ReplaceObject
from pykueue.jobs.pod import PodView

READY = [{"type": "Ready", "status": "True"}]


def test_new_managed_pod_gets_gate_label_and_finalizer() -> None:
    tree = pod()
    gates = [gate["name"] for gate in tree["spec"]["schedulingGates"]]
    assert gates == [labels.ADMISSION_GATE, labels.TOPOLOGY_GATE]
    assert tree["metadata"]["finalizers"] == [labels.POD_FINALIZER]
    assert tree["metadata"]["labels"][labels.MANAGED] == "true"
    assert len(tree["metadata"]["annotations"][labels.ROLE_HASH]) == 8


def test_a_pod_that_a_parent_holds_gets_the_gate_alone() -> None:
    tree = pod(metadata={"annotations": {labels.POD_SUSPENDING_PARENT: "deployment"}})
    assert "finalizers" not in tree["metadata"]
    assert labels.MANAGED not in tree["metadata"]["labels"]
    assert PodView(tree).has_gate()


def test_an_admitted_pod_is_released_in_one_write() -> None:
    """pod/gated-then-released, edge case 36: both gates go where no place is assigned."""
    harness = JobHarness(pod())
    blue = flavor(nodeLabels={"pool": "blue"}, tolerations=[{"key": "t", "operator": "Exists"}])
    harness.facts = replace(harness.facts, flavors={"default": blue})
    harness.settle()
    before = harness.writes
    harness.admit().settle()
    assert harness.writes == before + 1
    assert "schedulingGates" not in harness.job["spec"]
    assert harness.job["spec"]["nodeSelector"] == {"pool": "blue"}
    assert harness.job["metadata"]["labels"][labels.PODSET] == "main"
    assert harness.job["metadata"]["annotations"][labels.WORKLOAD] == harness.workload.metadata.name
    assert harness.events == ["CreatedWorkload", "Started"]


def test_other_gates_stay() -> None:
    harness = JobHarness(pod(spec={"schedulingGates": [{"name": "example.com/mine"}]})).settle().admit().settle()
    assert harness.job["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]


def test_the_workload_of_a_pod_has_its_spec_and_not_its_labels() -> None:
    harness = JobHarness(pod(metadata={"labels": {"app": "x"}})).settle()
    pod_set = harness.workload.spec.pod_sets[0]
    assert (pod_set.name, pod_set.count, pod_set.template.metadata.labels) == ("main", 1, {})
    assert harness.workload.metadata.owner_references[0].controller is True


def test_finished_pod_finishes_its_workload_and_loses_its_finalizer() -> None:
    """pod/succeeds"""
    harness = JobHarness(pod()).settle().admit().settle().status(phase="Running", conditions=READY).settle()
    assert harness.condition("PodsReady") == "True/Started"
    harness.status(phase="Succeeded").settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert "finalizers" not in harness.job["metadata"]
    assert harness.workload.metadata.finalizers == ()
    assert harness.events == ["CreatedWorkload", "Started", "FinishedWorkload"]


def test_an_evicted_pod_is_marked_and_deleted_and_its_quota_is_free_at_once() -> None:
    """pod/preempted, edge case 22"""
    harness = JobHarness(pod()).settle().admit().settle().status(phase="Running").settle().evict()
    marked, *_ = harness.decide()
    assert isinstance(marked, ReplaceObject)
    (condition,) = [
        each for each in unstructured.get(marked.after, "status", "conditions") if each["type"] == "TerminationTarget"
    ]
    assert (condition["status"], condition["reason"]) == ("True", "WorkloadEvictedDueToPreempted")
    harness.settle()
    assert not harness.objects
    assert harness.condition("QuotaReserved").startswith("False/")
    assert harness.condition("Finished") == "True/OwnerNotFound"
    assert harness.events == ["CreatedWorkload", "Started", "Stopped"]


def test_pod_that_is_evicted_while_it_is_gated_is_requeued() -> None:
    """The eviction comes between the admission and the removal of the gate: the pod was never started [LC49]."""
    harness = JobHarness(pod()).settle().admit().evict().settle()
    assert PodView(harness.job).has_gate()
    assert harness.condition("QuotaReserved").startswith("False/")
    assert harness.condition("Requeued") == "True/Preempted"
    harness.admit().settle()
    assert not PodView(harness.job).has_gate()


def test_pod_over_its_execution_time_finishes_its_workload_with_its_reservation() -> None:
    harness = JobHarness(pod()).settle().admit().settle().status(phase="Running").settle()
    harness.evict(DeactivationReason.MAXIMUM_EXECUTION_TIME_EXCEEDED.evicted).settle()
    assert not harness.objects
    assert harness.condition("QuotaReserved") == "True/QuotaReserved"
    assert harness.condition("Requeued") == ""
    assert harness.condition("Finished") == "True/OwnerNotFound"


def test_deleting_a_gated_pod_finishes_its_workload() -> None:
    """pod/deleted-while-gated"""
    harness = JobHarness(pod()).settle().delete().settle()
    assert not harness.objects
    assert harness.condition("Finished") == "True/OwnerNotFound"
    assert harness.workload.metadata.finalizers == ()


def test_deleting_the_workload_deletes_the_pod_even_when_it_waits() -> None:
    harness = JobHarness(pod()).settle().delete_workload().settle()
    assert not harness.objects


@pytest.mark.parametrize("mark", [None, "false"])
def test_pod_without_managed_label_is_skipped(mark: str | None) -> None:
    tree = patches.merge(pod(), {"metadata": {"labels": {labels.MANAGED: mark}}})
    harness = JobHarness(tree).settle()
    assert not harness.workloads


def test_without_pod_integration_only_pods_with_suspending_parent_are_reconciled() -> None:
    options = replace(OPTIONS, frameworks=("batch/job",))
    assert not JobHarness(pod(), options=options).settle().workloads


# --- Roles ------------------------------------------------------------------------------------------------------------


def test_pods_of_one_shape_have_one_role_whatever_they_run() -> None:
    image = {"containers": [{"name": "d", "image": "app:2", "resources": {"requests": {"cpu": "1"}}}]}
    assert PodView(pod("a")).role == PodView(pod("b", spec=image, metadata={"labels": {"app": "x"}})).role


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        {"nodeSelector": {"pool": "blue"}},
        {"tolerations": [{"key": "t"}]},
        {"priority": 3},
        {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]},
        {"resources": {"requests": {"cpu": "4"}}},
    ],
)
def test_what_makes_another_role(spec: Tree) -> None:
    assert PodView(pod("a")).role != PodView(pod("b", spec=spec)).role


@pytest.mark.parametrize(
    ("spec", "digits"),
    [
        ({"containers": [{"name": "c", "resources": {"requests": {}}}]}, "a9f06f3a"),
        ({"nodeSelector": {"name": "n", "key": "k", "a": "b"}}, "b8cd6868"),
        (
            {
                "tolerations": [{"effect": "NoSchedule", "operator": "Exists", "key": "gpu"}],
                "containers": [{"ports": [{"protocol": "TCP", "containerPort": 80}]}],
            },
            "6d77c0e0",
        ),
    ],
)
def test_the_digits_of_a_role_are_those_that_kueue_gives(spec: Tree, digits: str) -> None:
    """Pod sets are ordered by them; other digits would give a group other flavors."""
    assert pods.role_hash(spec) == digits


# --- What is refused --------------------------------------------------------------------------------------------------

GROUP = f"metadata.labels[{labels.POD_GROUP_NAME}]"
GROUP_NOTE = f"metadata.annotations[{labels.POD_GROUP_NAME}]"
TOTAL = f"metadata.annotations[{labels.POD_GROUP_TOTAL_COUNT}]"


@pytest.mark.parametrize(
    ("metadata", "paths"),
    [
        ({}, []),
        ({"labels": {labels.MANAGED: "no"}}, [f"metadata.labels[{labels.MANAGED}]"]),
        ({"labels": {labels.POD_GROUP_NAME: "g"}, "annotations": {labels.POD_GROUP_TOTAL_COUNT: "2"}}, []),
        ({"labels": {labels.POD_GROUP_NAME: "g"}}, [TOTAL]),
        ({"annotations": {labels.POD_GROUP_NAME: "g"}}, [TOTAL]),
        ({"annotations": {labels.POD_GROUP_TOTAL_COUNT: "2"}}, [GROUP]),
        ({"labels": {labels.POD_GROUP_NAME: "g"}, "annotations": {labels.POD_GROUP_TOTAL_COUNT: "0"}}, [TOTAL]),
        ({"labels": {labels.POD_GROUP_NAME: "g"}, "annotations": {labels.POD_GROUP_TOTAL_COUNT: "x"}}, [TOTAL]),
        (
            {"annotations": {labels.POD_GROUP_NAME: "no/name", labels.POD_GROUP_TOTAL_COUNT: "2"}},
            [GROUP_NOTE],
        ),
        (
            {
                "labels": {labels.POD_GROUP_NAME: "g", labels.PREBUILT_WORKLOAD_NAME: "w"},
                "annotations": {labels.POD_GROUP_TOTAL_COUNT: "2"},
            },
            [f"metadata.labels[{labels.PREBUILT_WORKLOAD_NAME}]"],
        ),
    ],
)
def test_metadata_that_is_refused(metadata: Tree, paths: list[str]) -> None:
    found = POD.job({"metadata": {"name": "p", **metadata}, "spec": {}})
    assert [error.path for error in found.validate_create(OPTIONS)] == paths


def test_a_pod_stays_in_its_group_and_a_group_that_is_not_tried_again_stays_so() -> None:
    old = POD.job(pod("a", "g", 2, metadata={"annotations": {labels.RETRIABLE_IN_GROUP: "false"}}))
    other = POD.job(pod("a", "h", 2, metadata={"annotations": {labels.RETRIABLE_IN_GROUP: "false"}}))
    retried = POD.job(pod("a", "g", 2))
    assert [error.path for error in other.validate_update(old, OPTIONS)] == [GROUP]
    path = f"metadata.annotations[{labels.RETRIABLE_IN_GROUP}]"
    assert [error.path for error in retried.validate_update(old, OPTIONS)] == [path]


@pytest.mark.parametrize("word", ["label", "annotation"])
def test_a_group_without_a_total_count_is_refused_with_the_names_of_both(word: str) -> None:
    tree = pod(metadata={f"{word}s": {labels.POD_GROUP_NAME: "g"}})
    (error,) = POD.job(tree).validate_create(OPTIONS)
    both = (
        f"both the '{labels.POD_GROUP_TOTAL_COUNT}' annotation and the '{labels.POD_GROUP_NAME}' {word} should be set"
    )
    assert (error.path, both in error.message) == (TOTAL, True)
