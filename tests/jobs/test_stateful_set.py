"""StatefulSets: one group of pods with one Workload, which the set creates, holds and follows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import OPTIONS
from jobs.parent_harness import REQUESTS, STATEFUL_SET, ParentHarness, set_of
from kubemachinery import codec, patches, unstructured
from kubemachinery.meta import OwnerReference
from kubemachinery.object_view import ObjectView
from pykueue.api import kueue, labels, names
from pykueue.api.conditions import FinishedReason
from pykueue.jobs.actions import ChangeWorkload
from pykueue.jobs.facts import Ancestry, UnreadableOwner
from pykueue.jobs.pod import PodView
from pykueue.lifecycle import finishing, readiness, states

NAME = names.workload_name("StatefulSet", "apps", "web", "uid-web")
LEGACY = names.workload_name("StatefulSet", "apps", "web", "")


def scaled(harness: ParentHarness, replicas: int) -> ParentHarness:
    harness.edit({"spec": {"replicas": replicas}}, "web")
    harness.settle()
    return harness


def running(replicas: int = 2) -> ParentHarness:
    """A set of which every pod runs."""
    harness = ParentHarness(set_of(replicas))
    harness.settle().admit()
    for index in range(replicas):
        harness.set_pod(index)
    harness.settle()
    return harness.run(*(f"web-{index}" for index in range(replicas)))


def legacy_workload(count: int = 2, **metadata: Any) -> kueue.Workload:
    template = {"spec": REQUESTS}
    tree = {
        "metadata": {"name": LEGACY, "namespace": "main", "uid": "uid-legacy", **metadata},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": count, "template": template}]},
    }
    return codec.from_tree(tree, kueue.Workload)


# --- Webhook ----------------------------------------------------------------------------------------------------------


def test_template_gets_only_the_mark_that_gates_pods() -> None:
    """[SS1]"""
    before = set_of(metadata={"labels": {labels.PRIORITY_CLASS: "high"}})
    after = STATEFUL_SET.parent(before).defaulted(OPTIONS)
    assert after["spec"]["template"]["metadata"] == {
        "labels": {"app": "web"},
        "annotations": {labels.POD_SUSPENDING_PARENT: "statefulset"},
    }


def test_set_of_another_framework_is_recognized_by_its_template() -> None:
    mark = {labels.POD_SUSPENDING_PARENT: "leaderworkerset.x-k8s.io/leaderworkerset"}
    tree = set_of(spec={"template": {"metadata": {"annotations": mark}}})
    assert STATEFUL_SET.parent(tree).is_of_another


def errors(new: dict[str, Any], old: dict[str, Any], *, managed: bool = True) -> list[tuple[str, str]]:
    before, after = STATEFUL_SET.parent(old), STATEFUL_SET.parent(new)
    found = [*after.validate_create(OPTIONS), *after.validate_update(before, OPTIONS, managed=managed)]
    return [(error.path, error.type.value) for error in found]


QUEUE_PATH = f"metadata.labels[{labels.QUEUE_NAME}]"
CLASS_PATH = f"metadata.labels[{labels.PRIORITY_CLASS}]"
INVALID, FORBIDDEN = "FieldValueInvalid", "FieldValueForbidden"
READY = {"status": {"readyReplicas": 1}}


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def container(**fields: Any) -> dict[str, Any]:
    return template(containers=[{**REQUESTS["containers"][0], **fields}])


@pytest.mark.parametrize(
    ("change", "old", "expected"),
    [
        pytest.param({"metadata": {"labels": {labels.QUEUE_NAME: "BAD"}}}, {}, [(QUEUE_PATH, INVALID)], id="DP4-queue"),
        pytest.param(
            {"metadata": {"annotations": {labels.ELASTIC_JOB: "true"}}},
            {},
            [(f"metadata.annotations[{labels.ELASTIC_JOB}]", FORBIDDEN)],
            id="DP4-elastic",
        ),
        pytest.param({"metadata": {"labels": {labels.QUEUE_NAME: "other"}}}, {}, [], id="DP5-queue-nothing-ready"),
        pytest.param(
            {"metadata": {"labels": {labels.QUEUE_NAME: "other"}}}, READY, [(QUEUE_PATH, INVALID)], id="DP5-queue-ready"
        ),
        pytest.param(
            {"metadata": {"labels": {labels.QUEUE_NAME: None}}}, {}, [(QUEUE_PATH, INVALID)], id="E65-queue-removed"
        ),
        pytest.param(
            {"metadata": {"labels": {labels.PRIORITY_CLASS: "high"}}}, READY, [(CLASS_PATH, INVALID)], id="E66-added"
        ),
        pytest.param({"metadata": {"labels": {labels.PRIORITY_CLASS: "high"}}}, {}, [], id="DP5-class-added-early"),
        pytest.param(container(image="app:2", command=["run"], env=[{"name": "A", "value": "1"}]), {}, [], id="E49"),
        pytest.param(
            container(resources={"requests": {"cpu": "2"}}),
            {},
            [("spec.template.spec.containers[0].resources.requests", INVALID)],
            id="E50-requests",
        ),
        pytest.param(container(resources={"requests": {"cpu": "1000m"}}), {}, [], id="SS3-equal-quantities"),
        pytest.param(container(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}), {}, [], id="SS3-limits"),
        pytest.param(
            container(ports=[{"containerPort": 80}]),
            {},
            [("spec.template.spec.containers[0].ports", INVALID)],
            id="SS3-ports",
        ),
        pytest.param(
            template(containers=[REQUESTS["containers"][0], {"name": "d"}]),
            {},
            [("spec.template.spec.containers", INVALID)],
            id="SS3-containers",
        ),
        pytest.param(
            template(nodeSelector={"a": "b"}), {}, [("spec.template.spec.nodeSelector", INVALID)], id="SS3-selector"
        ),
        pytest.param(template(tolerations=[]), {}, [], id="SS3-empty-is-absent"),
        pytest.param({"spec": {"replicas": 3}}, {}, [("spec.replicas", INVALID)], id="SS3-scale"),
        pytest.param({"spec": {"replicas": 0}}, {}, [], id="SS3-to-zero"),
        pytest.param({"spec": {"replicas": 5}}, {"spec": {"replicas": 0}}, [], id="SS3-from-zero"),
        pytest.param(
            {"spec": {"replicas": 5}, "status": {"replicas": 1}},
            {"spec": {"replicas": 0}, "status": {"replicas": 1}},
            [("spec.replicas", FORBIDDEN)],
            id="E47-still-ending",
        ),
    ],
)
def test_update_rules(change: dict[str, Any], old: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """[SS2] [SS3] [DP5]"""
    before = patches.merge(set_of(), old)
    assert errors(patches.merge(before, change), before) == expected


def test_class_may_change_and_not_be_removed() -> None:
    """[DP5] E66"""
    before = set_of(metadata={"labels": {labels.PRIORITY_CLASS: "high"}}, status=READY["status"])
    assert errors(patches.merge(before, {"metadata": {"labels": {labels.PRIORITY_CLASS: "low"}}}), before) == []
    removed = patches.merge(before, {"metadata": {"labels": {labels.PRIORITY_CLASS: None}}})
    assert errors(removed, before) == [(CLASS_PATH, INVALID)]


def test_unmanaged_set_is_scaled_and_changed_freely() -> None:
    """E44, E50"""
    before = set_of(metadata={"labels": {labels.QUEUE_NAME: None}})
    after = patches.merge(before, {"spec": {"replicas": 9}} | {})
    changed = patches.merge(after, container(resources={"requests": {"cpu": "2"}}))
    assert errors(changed, before, managed=False) == []


# --- The Workload -----------------------------------------------------------------------------------------------------


def test_set_creates_one_workload_of_a_group() -> None:
    """[SS10]"""
    harness = ParentHarness(
        set_of(
            metadata={"labels": {"team": "a"}, "annotations": {"provreq.kueue.x-k8s.io/x": "y", "cost": "1", "z": "2"}},
            spec={"template": {"metadata": {"annotations": {labels.PODSET_REQUIRED_TOPOLOGY: "block"}}}},
        ),
        replace(OPTIONS, label_keys_to_copy=("team",), annotation_keys_to_copy=("cost",)),
    )
    harness.settle()
    workload = harness.workload
    assert workload.metadata.name == NAME
    assert workload.metadata.finalizers == (labels.RESOURCE_IN_USE_FINALIZER,)
    assert workload.metadata.annotations == {
        "provreq.kueue.x-k8s.io/x": "y",
        "cost": "1",
        labels.IS_GROUP_WORKLOAD: "true",
        labels.JOB_OWNER_GVK: "apps/v1, Kind=StatefulSet",
        labels.JOB_OWNER_NAME: "web",
    }
    assert workload.metadata.labels == {"team": "a", labels.JOB_UID: "uid-web"}
    assert [(owner.name, owner.controller) for owner in workload.metadata.owner_references] == [("web", None)]
    assert workload.spec.queue_name == "lq"
    (pod_set,) = workload.spec.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 2)
    assert (pod_set.template.metadata.labels, pod_set.template.metadata.annotations) == ({}, {})
    assert pod_set.topology_request is not None
    assert pod_set.topology_request.required == "block"
    assert pod_set.topology_request.pod_index_label == "apps.kubernetes.io/pod-index"
    assert harness.events == ["CreatedWorkload"]


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param(set_of(0), id="no-replicas"),
        pytest.param(set_of(metadata={"labels": {labels.QUEUE_NAME: None}}), id="no-queue"),
        pytest.param(set_of(metadata={"labels": {labels.MULTIKUEUE_ORIGIN: "m"}}), id="remote"),
        pytest.param(set_of(metadata={"deletionTimestamp": "2026-11-15T12:00:00Z"}), id="deleted"),
    ],
)
def test_no_workload_without_need(tree: dict[str, Any]) -> None:
    harness = ParentHarness(tree)
    harness.settle()
    assert not harness.workloads
    assert harness.events == []


def test_names_of_a_remote_set_follow_the_uid_of_its_origin() -> None:
    """In a worker cluster."""
    metadata = {
        "labels": {labels.MULTIKUEUE_ORIGIN: "m"},
        "annotations": {labels.MULTIKUEUE_ORIGIN_UID: "there"},
    }
    expected = names.workload_name("StatefulSet", "apps", "web", "there")
    assert STATEFUL_SET.parent(set_of(metadata=metadata)).workload_names(OPTIONS)[0] == expected


def test_missing_priority_class_keeps_the_workload_from_being_created() -> None:
    harness = ParentHarness(set_of(metadata={"labels": {labels.PRIORITY_CLASS: "high"}}))
    harness.settle()
    assert not harness.workloads
    assert harness.events == ["Warning WorkloadPriorityClassNotFound"]
    assert harness.retries


def test_workload_of_the_old_name_is_adopted() -> None:
    """[SS6] E48"""
    harness = ParentHarness(set_of())
    harness.workloads[LEGACY] = legacy_workload()
    harness.set_pod(0).settle()
    assert list(harness.workloads) == [LEGACY]
    assert [owner.kind for owner in harness.workload.metadata.owner_references] == ["StatefulSet", "Pod"]
    assert harness.workload.metadata.annotations[labels.JOB_OWNER_NAME] == "web"
    assert PodView(harness.pods["web-0"]).group_name(OPTIONS) == LEGACY


# --- Pods -------------------------------------------------------------------------------------------------------------


def test_pod_joins_the_group_of_the_workload() -> None:
    """[SS5] [PP1] [PP6]"""
    harness = ParentHarness(set_of())
    before = harness.set_pod(0).pods["web-0"]
    assert labels.MANAGED not in ObjectView(before).labels
    assert not ObjectView(before).finalizers
    harness.settle()
    pod = PodView(harness.pods["web-0"])
    assert pod.labels == {
        "app": "web",
        labels.STATEFUL_SET_POD_INDEX: "0",
        labels.MANAGED: "true",
        labels.QUEUE_NAME: "lq",
    }
    assert pod.annotations == {
        labels.POD_SUSPENDING_PARENT: "statefulset",
        labels.POD_GROUP_NAME: NAME,
        labels.PREBUILT_WORKLOAD_NAME: NAME,
        labels.POD_GROUP_TOTAL_COUNT: "2",
        labels.POD_GROUP_FAST_ADMISSION: "true",
        labels.POD_GROUP_SERVING: "true",
        labels.POD_GROUP_POD_INDEX_LABEL: "apps.kubernetes.io/pod-index",
        labels.ROLE_HASH: "main",
    }
    assert pod.gates == {labels.ADMISSION_GATE, labels.TOPOLOGY_GATE}


def test_names_are_labels_without_the_annotation_gate() -> None:
    """[PP6]"""
    options = replace(
        OPTIONS,
        identifier_annotations=False,
        validation=structs.replace(OPTIONS.validation, workload_identifier_annotations=False),
    )
    harness = ParentHarness(set_of(), options)
    harness.set_pod(0).settle()
    pod = PodView(harness.pods["web-0"])
    assert (pod.labels[labels.POD_GROUP_NAME], pod.labels[labels.PREBUILT_WORKLOAD_NAME]) == (NAME, NAME)
    assert labels.POD_GROUP_NAME not in pod.annotations


def test_each_pod_starts_when_the_workload_is_admitted_and_none_waits_for_another() -> None:
    """[PP5] [LW4]"""
    harness = ParentHarness(set_of(3))
    harness.set_pod(0).settle()
    assert harness.gated == ["web-0"]
    harness.admit().settle()
    assert harness.gated == []
    assert harness.condition("WaitingForReplacementPods") == ""
    harness.run("web-0")
    harness.set_pod(1).settle()
    assert harness.gated == []
    assert [owner.name for owner in harness.workload.metadata.owner_references] == ["web", "web-0", "web-1"]


def test_pods_are_ready_when_all_of_them_exist_and_are() -> None:
    """[PP9]"""
    harness = ParentHarness(set_of(2))
    harness.settle().admit()
    harness.set_pod(0).settle()
    harness.run("web-0")
    assert not harness.condition("PodsReady").startswith("True")
    harness.set_pod(1).settle()
    harness.run("web-1")
    assert harness.condition("PodsReady").startswith("True")


def test_eviction_stops_pods_and_new_ones_wait_for_the_same_workload() -> None:
    """[PP7] E53"""
    harness = running()
    harness.evict().settle()
    assert harness.condition("QuotaReserved").startswith("True/")
    assert harness.end_deleted().pods == {}
    assert harness.condition("QuotaReserved").startswith("False/")
    harness.set_pod(0).settle()
    assert harness.gated == ["web-0"]
    harness.admit().settle()
    assert harness.gated == []
    assert list(harness.workloads) == [NAME]


def test_evicted_workload_without_pods_releases_its_quota() -> None:
    """[PP10]"""
    harness = ParentHarness(set_of())
    harness.settle().admit().settle()
    ready = readiness.pods_ready(harness.workload, True, harness.options.lifecycle)
    harness.apply((ChangeWorkload(harness.workload, ready),))
    harness.evict().settle()
    assert harness.condition("QuotaReserved").startswith("False/")
    assert harness.condition("PodsReady") == "False/WaitForStart"


def test_deleted_workload_without_pods_is_created_again() -> None:
    """[PP10]"""
    harness = ParentHarness(set_of())
    harness.settle().delete_workload().settle()
    assert harness.workload.metadata.deletion_timestamp is None
    assert harness.events == ["CreatedWorkload", "CreatedWorkload"]


def test_queue_of_pods_and_workload_follows_the_set_until_quota_is_reserved() -> None:
    """[SS4] E51"""
    harness = ParentHarness(set_of())
    harness.set_pod(0).settle()
    harness.edit({"metadata": {"labels": {labels.QUEUE_NAME: "other"}}}, "web").settle()
    assert harness.workload.spec.queue_name == "other"
    assert PodView(harness.pods["web-0"]).labels[labels.QUEUE_NAME] == "other"
    harness.admit().settle()
    harness.edit({"metadata": {"labels": {labels.QUEUE_NAME: "third"}}}, "web").settle()
    assert harness.workload.spec.queue_name == "other"


def test_priority_class_of_the_workload_follows_the_set() -> None:
    """[SS10]"""
    classes = {
        name: codec.from_tree({"metadata": {"name": name}, "value": value}, kueue.WorkloadPriorityClass)
        for name, value in (("low", 1), ("high", 9))
    }
    tree = set_of(metadata={"labels": {labels.PRIORITY_CLASS: "low"}})
    harness = ParentHarness(tree, workload_priority_classes=classes)
    harness.settle()
    assert harness.workload.spec.priority == 1
    harness.edit({"metadata": {"labels": {labels.PRIORITY_CLASS: "high"}}}, "web").settle()
    assert harness.workload.spec.priority == 9
    assert harness.events == ["CreatedWorkload", "UpdatedWorkload"]


# --- Scaling ----------------------------------------------------------------------------------------------------------


def test_scale_to_zero_holds_the_workload_after_the_last_pod_ran() -> None:
    """E46"""
    harness = scaled(running(), 0)
    assert harness.condition("QuotaReserved") == "True/QuotaReserved"
    assert harness.requeue_after is not None
    for name in list(harness.pods):
        del harness.objects[name]
    harness.settle()
    assert harness.condition("QuotaReserved") == "False/OnHold"
    assert harness.workload.status.admission is None
    assert next(owner.name for owner in harness.workload.metadata.owner_references) == "web"


def test_scale_to_zero_ends_the_recovery_of_the_pods() -> None:
    """[SS11] Otherwise the Workload is evicted as soon as it is admitted again, because its recovery took too long."""
    harness = running()
    for name in list(harness.pods):
        harness.status(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    harness.settle()
    assert harness.condition("PodsReady") == "True/Started"
    del harness.objects["web-1"]
    harness.settle()
    assert harness.condition("PodsReady") == "False/WaitForRecovery"
    scaled(harness, 0)
    del harness.objects["web-0"]
    harness.settle()
    assert harness.condition("QuotaReserved") == "False/OnHold"
    assert harness.condition("PodsReady") == "False/WaitForStart"


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_scale_from_zero_queues_the_workload_with_the_new_count(replicas: int) -> None:
    """[SS9]"""
    harness = ParentHarness(set_of())
    harness.settle().admit().settle()
    scaled(harness, 0)
    scaled(harness, replicas)
    assert harness.workload.spec.pod_sets[0].count == replicas
    assert harness.condition("QuotaReserved") == "False/PendingEvaluation"


def test_pending_workload_of_an_empty_set_is_held_too() -> None:
    """[SS11]"""
    harness = ParentHarness(set_of())
    harness.settle()
    scaled(harness, 0)
    assert harness.condition("QuotaReserved") == "False/OnHold"
    writes = harness.writes
    harness.settle()
    assert harness.writes == writes


def test_pods_beyond_the_quota_of_an_admitted_set_wait_with_an_event() -> None:
    """[SS9]"""
    harness = scaled(running(), 3)
    harness.set_pod(2).settle()
    assert harness.gated == ["web-2"]
    assert harness.workload.spec.pod_sets[0].count == 2
    assert "Warning ScaledWithoutQuota" in harness.events
    assert sorted(harness.pods) == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize(
    ("cpu", "expected"), [("1", 0), ("1000m", 0), ("2", 1)], ids=["the same", "another spelling", "more"]
)
def test_template_that_was_changed_without_the_webhook_is_reported(cpu: str, expected: int) -> None:
    """[SS12] The Workload keeps the requests that it has quota for."""
    harness = running()
    before = harness.workload.spec
    container = {**REQUESTS["containers"][0], "resources": {"requests": {"cpu": cpu}}}
    harness.edit({"spec": {"template": {"spec": {"containers": [container]}}}}, "web").settle()
    assert harness.events.count("Warning PodTemplateChanged") == expected
    assert harness.workload.spec == before


def test_set_that_shrinks_keeps_its_quota() -> None:
    """[SS9]"""
    harness = scaled(running(), 1)
    assert harness.workload.spec.pod_sets[0].count == 2
    assert harness.condition("QuotaReserved") == "True/QuotaReserved"


# --- Rollout ----------------------------------------------------------------------------------------------------------


def test_rollout_replaces_pods_under_the_same_workload() -> None:
    """[SS7] E49"""
    harness = running()
    harness.edit({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "app:2"}]}}}}, "web")
    del harness.objects["web-1"]
    harness.set_pod(1).settle()
    assert harness.gated == []
    assert list(harness.workloads) == [NAME]


def test_old_revision_waits_for_quota_too() -> None:
    """[SS7]"""
    harness = ParentHarness(set_of())
    harness.set_pod(0, metadata={"labels": {"controller-revision-hash": "one"}}).settle()
    harness.status("web", currentRevision="one", updateRevision="two").settle()
    assert harness.gated == ["web-0"]
    harness.admit().settle()
    assert harness.gated == []


@pytest.mark.parametrize(("revision", "gated"), [("one", []), ("two", ["web-0"])])
def test_unmanaged_pod_of_the_group_is_released_in_a_rollout_if_its_revision_is_old(
    revision: str, gated: list[str]
) -> None:
    """[SS7]"""
    harness = ParentHarness(set_of())
    harness.settle().admit().settle()
    marks = {
        "labels": {"controller-revision-hash": revision},
        "annotations": {labels.POD_GROUP_NAME: NAME, labels.POD_GROUP_TOTAL_COUNT: "1"},
        "finalizers": [labels.POD_FINALIZER],
    }
    harness.set_pod(0, metadata=marks)
    harness.status("web", currentRevision="one", updateRevision="two").settle()
    assert harness.gated == gated
    assert ObjectView(harness.pods["web-0"]).finalizers == [labels.POD_FINALIZER]


# --- Ends -------------------------------------------------------------------------------------------------------------


def test_workload_loses_its_finalizer_with_the_last_pod_of_a_deleted_set() -> None:
    """[PP8] E52"""
    harness = running()
    del harness.objects["web"]
    harness.settle()
    assert harness.workload.metadata.finalizers
    for name in list(harness.pods):
        del harness.objects[name]
    harness.settle()
    assert not harness.workload.metadata.finalizers


@pytest.mark.parametrize("queue", ["lq", ""])
def test_workload_of_an_earlier_set_of_the_same_name_loses_its_finalizer_with_its_last_pod(queue: str) -> None:
    """[PP8] The set was deleted and created again, managed or not; the pods of the earlier one end later."""
    harness = running()
    (earlier,) = harness.workloads
    harness.objects["web"] = {**set_of(metadata={"uid": "uid-later", "labels": {labels.QUEUE_NAME: queue or None}})}
    harness.settle()
    assert harness.workloads[earlier].metadata.finalizers
    for name in list(harness.pods):
        del harness.objects[name]
    harness.settle()
    assert not harness.workloads[earlier].metadata.finalizers
    assert len(harness.workloads) == (2 if queue else 1)


def owned_by(harness: ParentHarness, uid: str | None) -> ParentHarness:
    """The pods have another StatefulSet as their controller, or none."""
    for tree in harness.pods.values():
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True, "name": "web", "uid": uid}
        tree["metadata"]["ownerReferences"] = [owner] if uid else []
    return harness


def orphan_set(replicas: int = 2, **fields: Any) -> tuple[ParentHarness, str]:
    """A set of two pods that run, deleted with --cascade=orphan and created again, and the name of its Workload."""
    harness = running()
    (earlier,) = harness.workloads
    selector = {"spec": {"selector": {"matchLabels": {"app": "web"}}}}
    later = {"metadata": {"uid": "uid-later"}}
    harness.objects["web"] = set_of(replicas, **patches.merge(patches.merge(later, selector), fields))
    references = [each for each in harness.workload.metadata.owner_references if each.kind == "Pod"]
    metadata = structs.replace(harness.workload.metadata, owner_references=references)
    harness.workloads[earlier] = structs.replace(harness.workload, metadata=metadata)
    return owned_by(harness, None), earlier


def owners(harness: ParentHarness, name: str) -> set[str]:
    return {owner.uid for owner in harness.workloads[name].metadata.owner_references}


@pytest.mark.parametrize("controller", [None, "uid-later"], ids=["before the adoption", "after the adoption"])
def test_set_that_adopts_pods_of_an_earlier_one_uses_its_workload(controller: str | None) -> None:
    """[SS13] The pods count once: no second Workload requests quota for them."""
    harness, earlier = orphan_set()
    owned_by(harness, controller).settle()
    assert list(harness.workloads) == [earlier]
    assert owners(harness, earlier) == {"uid-later", "uid-web-0", "uid-web-1"}
    assert harness.workload.metadata.labels[labels.JOB_UID] == "uid-later"
    assert harness.condition("Admitted") == "True/Admitted"
    assert "Warning PodsOfEarlierSet" not in harness.events
    assert {unstructured.get(pod, "status", "phase") for pod in harness.pods.values()} == {"Running"}


def test_pods_that_replace_adopted_ones_belong_to_the_same_workload() -> None:
    """[SS13] Also after the last pod of the earlier set has ended."""
    harness, earlier = orphan_set()
    owned_by(harness, "uid-later").settle()
    for index in (0, 1):
        del harness.objects[f"web-{index}"]
        harness.set_pod(index)
    owned_by(harness, "uid-later").settle()
    assert harness.gated == []
    assert list(harness.workloads) == [earlier]
    for name in list(harness.pods):
        del harness.objects[name]
    harness.settle()
    assert list(harness.workloads) == [earlier]
    harness.edit({"spec": {"replicas": 0}}, "web").settle()
    assert harness.condition("QuotaReserved") == "False/OnHold"


def test_workload_that_was_created_before_pods_were_seen_as_orphans_is_deleted() -> None:
    """[SS13] The informer of pods may be behind that of sets."""
    harness, earlier = orphan_set()
    owned_by(harness, "uid-web").settle()
    assert len(harness.workloads) == 2
    owned_by(harness, "uid-later").settle()
    assert list(harness.workloads) == [earlier]


def test_pods_that_the_selector_of_a_later_set_does_not_match_are_left_alone() -> None:
    """[SS13] The StatefulSet controller does not adopt them."""
    harness, earlier = orphan_set(spec={"selector": {"matchLabels": {"app": "other"}}})
    harness.settle()
    assert len(harness.workloads) == 2
    assert owners(harness, earlier) == {"uid-web-0", "uid-web-1"}


@pytest.mark.parametrize(
    ("replicas", "fields"),
    [
        (3, {}),
        (2, {"metadata": {"labels": {labels.QUEUE_NAME: "other"}}}),
        (2, {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}),
    ],
    ids=["more pods", "another queue", "another placement"],
)
def test_adopted_pods_stay_on_the_earlier_workload_if_it_does_not_fit_the_set(
    replicas: int, fields: dict[str, Any]
) -> None:
    """[SS13] An Event reports that both Workloads request quota."""
    harness, earlier = orphan_set(replicas, **fields)
    owned_by(harness, "uid-later")
    before = {name: ObjectView(pod).annotations for name, pod in harness.pods.items()}
    harness.settle()
    (later,) = harness.workloads.keys() - {earlier}
    assert {name: ObjectView(pod).annotations for name, pod in harness.pods.items()} == before
    assert harness.events[-1] == "Warning PodsOfEarlierSet"
    assert harness.notes[-1] == (
        f"2 pods that an earlier set of this name created belong to Workload main/{earlier}, which keeps its quota until"
        f" they have ended; a pod that replaces one of them belongs to Workload main/{later}"
    )


def test_every_pod_runs_under_one_reservation_while_two_sets_have_one_each() -> None:
    """[SS13] A set of three pods adopts two of an earlier one: each pod has quota of one Workload, before it runs and until
    it has ended."""
    harness, earlier = orphan_set(3)
    owned_by(harness, "uid-later").settle()
    (later,) = harness.workloads.keys() - {earlier}
    harness.set_pod(2)
    owned_by(harness, "uid-later").settle()
    assert groups(harness) == {"web-0": earlier, "web-1": earlier, "web-2": later}
    assert harness.gated == ["web-2"]
    harness.admit_named(later).settle()
    assert harness.gated == []
    for index in (0, 1):
        assert all(map(states.is_reserved, harness.collect_garbage().workloads.values()))
        del harness.objects[f"web-{index}"]
        harness.set_pod(index)
        owned_by(harness, "uid-later").settle()
    assert groups(harness) == {"web-0": later, "web-1": later, "web-2": later}
    assert harness.gated == []


def groups(harness: ParentHarness) -> dict[str, str]:
    return {name: ObjectView(pod).annotations.get(labels.POD_GROUP_NAME, "") for name, pod in harness.pods.items()}


def test_pods_that_wait_in_the_group_of_a_finished_workload_are_created_again() -> None:
    """[SS13] The Workload that replaces it has the name of the later set, and the group of a pod never changes."""
    harness, earlier = orphan_set()
    owned_by(harness, "uid-later").settle()
    del harness.objects["web-1"]
    harness.evict().settle()
    owned_by(harness.end_deleted().set_pod(1), "uid-later").settle()
    assert harness.gated == ["web-1"]
    finished(harness, FinishedReason.OUT_OF_SYNC)
    assert not harness.pods
    assert earlier not in harness.workloads
    owned_by(harness.set_pod(1), "uid-later").settle().admit().settle()
    assert harness.gated == []


def finished(harness: ParentHarness, reason: FinishedReason) -> ParentHarness:
    name = harness.workload.metadata.name
    harness._changed(name, finishing.finish(harness.workload, reason, "for a test", harness.now))
    harness.settle()
    return harness


def test_finished_workload_is_replaced() -> None:
    """[PP13]"""
    harness = ParentHarness(set_of())
    harness.set_pod(0).settle()
    finished(harness, FinishedReason.OUT_OF_SYNC)
    assert harness.condition("Finished") == ""
    assert harness.gated == ["web-0"]


def test_workload_that_failed_to_start_is_not_replaced() -> None:
    """[PP13]"""
    harness = ParentHarness(set_of())
    harness.settle()
    assert finished(harness, FinishedReason.FAILED_TO_START).condition("Finished") == "True/FailedToStart"


def test_set_created_without_the_webhook_is_marked_by_the_reconciler() -> None:
    """[PP12]"""
    harness = ParentHarness(set_of())
    harness.objects["web"] = unstructured.without(harness.objects["web"], ("spec", "template", "metadata"))
    harness.settle()
    assert harness.parent is not None
    assert STATEFUL_SET.parent(harness.parent).is_marked


# --- Owners -----------------------------------------------------------------------------------------------------------


def test_set_below_a_managed_ancestor_gets_no_workload() -> None:
    """E45"""
    above = ObjectView(
        {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "a"}}
    )
    harness = ParentHarness(set_of(), ancestor=above, ancestry=Ancestry((above,)))
    harness.set_pod(0).settle()
    assert not harness.workloads
    assert harness.gated == ["web-0"]  # the ancestor has no admitted Workload


def test_set_whose_owner_cannot_be_read_gets_no_workload() -> None:
    """[JF29]"""
    reference = OwnerReference(api_version="x/v1", kind="X", name="x", uid="u")
    harness = ParentHarness(set_of(), ancestry=Ancestry(unread=UnreadableOwner(reference, "403")))
    harness.settle()
    assert not harness.workloads
    assert harness.events == ["Warning OwnerNotReadable"]


def test_set_whose_owner_does_not_exist_gets_an_event_and_no_workload() -> None:
    """[JF21]"""
    harness = ParentHarness(set_of(), ancestry=Ancestry((), "has the owner X x, which does not exist"))
    harness.settle()
    assert not harness.workloads
    assert harness.events == ["Warning OwnerNotReadable"]
