"""LeaderWorkerSets: one Workload for each group, created, followed and deleted with the number of groups."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import OPTIONS
from jobs.parent_harness import DEPLOYMENT, LWS, REQUESTS, ParentHarness, deployment_of, groups_of, set_of
from kubemachinery import codec, patches
from kubemachinery.meta import OwnerReference
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels, names
from pykueue.jobs import deployment, offline, parent_reconcile
from pykueue.jobs.actions import CreateWorkload, PatchWorkload, RetryWithBackoff
from pykueue.jobs.leader_worker_set import FRAMEWORK, GROUP_INDEX, LeaderWorkerSet
from pykueue.jobs.offline import OfflineContext
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_parent import ParentFacts

LEADER = "spec.leaderWorkerTemplate.leaderTemplate"
WORKER = "spec.leaderWorkerTemplate.workerTemplate"
INVALID, FORBIDDEN, REQUIRED = "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"


def name_of(index: int, uid: str = "uid-serve") -> str:
    return names.workload_name("LeaderWorkerSet", "leaderworkerset.x-k8s.io", f"serve-{index}", uid)


def workloads_of(harness: ParentHarness) -> list[int]:
    """The indexes of the groups that have a Workload."""
    found = (each.metadata.annotations[labels.COMPONENT_WORKLOAD_INDEX] for each in harness.workloads.values())
    return sorted(map(int, found))


def running(replicas: int = 2) -> ParentHarness:
    """A LeaderWorkerSet with groups of two, of which every pod runs."""
    harness = ParentHarness(groups_of(replicas, size=2))
    harness.settle()
    for group in range(replicas):
        harness.admit_named(name_of(group)).group_pod(group, 0).group_pod(group, 1)
    harness.settle()
    return harness.run(*harness.pods)


def scaled(harness: ParentHarness, replicas: int) -> ParentHarness:
    harness.edit({"spec": {"replicas": replicas}}, "serve")
    harness.settle()
    return harness


# --- Webhook ----------------------------------------------------------------------------------------------------------


def templates(tree: dict[str, Any], options: IntegrationOptions = OPTIONS) -> tuple[Any, Any]:
    after = LWS.parent(tree).defaulted(options)["spec"]["leaderWorkerTemplate"]
    return (after.get("leaderTemplate") or {}).get("metadata"), after["workerTemplate"]["metadata"]


MARKS = {labels.POD_SUSPENDING_PARENT: FRAMEWORK, labels.POD_GROUP_SERVING: "true"}


def test_both_templates_get_the_mark_the_queue_and_the_class() -> None:
    """[LW1] E60"""
    tree = groups_of(
        metadata={"labels": {labels.PRIORITY_CLASS: "high"}},
        spec={"leaderWorkerTemplate": {"leaderTemplate": {"metadata": {"labels": {labels.QUEUE_NAME: "mine"}}}}},
    )
    leader, worker = templates(tree)
    common = {labels.QUEUE_NAME: "lq", labels.PRIORITY_CLASS: "high"}
    assert leader == {"labels": {"app": "l", **common}, "annotations": MARKS}
    assert worker == {"labels": {"app": "w", **common}, "annotations": {**MARKS, labels.POD_INDEX_OFFSET: "1"}}


def test_workers_have_no_offset_without_a_leader_template_or_topologies_or_in_a_pod_set_group() -> None:
    """[LW1]"""
    grouped = {
        "leaderWorkerTemplate": {"workerTemplate": {"metadata": {"annotations": {labels.PODSET_GROUP_NAME: "g"}}}}
    }
    assert templates(groups_of(leader=False))[1]["annotations"] == MARKS
    assert templates(groups_of(), replace(OPTIONS, topology=False))[1]["annotations"] == MARKS
    assert labels.POD_INDEX_OFFSET not in templates(groups_of(spec=grouped))[1]["annotations"]


def created(tree: dict[str, Any]) -> list[tuple[str, str]]:
    return [(error.path, error.type.value) for error in LWS.parent(tree).validate_create(OPTIONS)]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(-1, [("spec.replicas", INVALID)]), (0, []), (1_000_000, []), (1_000_001, [("spec.replicas", INVALID)])],
)
def test_number_of_groups_has_limits(replicas: int, expected: list[tuple[str, str]]) -> None:
    """[LW2] E55"""
    assert created(groups_of(replicas)) == expected


def annotated(path: str, **annotations: str) -> dict[str, Any]:
    values = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"leaderWorkerTemplate": {path: {"metadata": {"annotations": values}}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(annotated("leaderTemplate", podset_required_topology="block"), [], id="fine"),
        pytest.param(
            annotated("leaderTemplate", podset_required_topology="a", podset_preferred_topology="b"),
            [(f"{LEADER}.metadata.annotations", INVALID)],
            id="two-modes",
        ),
        pytest.param(
            annotated("workerTemplate", podset_slice_required_topology="block", podset_slice_size="3"),
            [(f"{WORKER}.metadata.annotations[kueue.x-k8s.io/podset-slice-size]", INVALID)],
            id="slice-larger-than-the-workers",
        ),
        pytest.param(
            annotated("workerTemplate", podset_slice_required_topology="block"),
            [(f"{WORKER}.metadata.annotations[kueue.x-k8s.io/podset-slice-size]", REQUIRED)],
            id="slice-without-size",
        ),
    ],
)
def test_topology_annotations_of_both_templates(spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """[LW2]"""
    assert created(groups_of(spec=spec)) == expected


def changed(change: dict[str, Any], *, managed: bool = True, options: IntegrationOptions = OPTIONS) -> list[Any]:
    before = LWS.parent(groups_of())
    after = LWS.parent(patches.merge(before.tree, {"spec": change}))
    return [(error.path, error.type.value) for error in after.validate_update(before, options, managed=managed)]


def requests(template: str) -> dict[str, Any]:
    container = {**REQUESTS["containers"][0], "resources": {"requests": {"cpu": "2"}}}
    return {"leaderWorkerTemplate": {template: {"spec": {"containers": [container]}}}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"replicas": 7}, [], id="replicas"),
        pytest.param({"leaderWorkerTemplate": {"size": 4}}, [("spec.leaderWorkerTemplate.size", INVALID)], id="E56"),
        pytest.param(
            requests("leaderTemplate"), [(f"{LEADER}.spec.containers[0].resources.requests", INVALID)], id="leader"
        ),
        pytest.param(
            requests("workerTemplate"), [(f"{WORKER}.spec.containers[0].resources.requests", INVALID)], id="worker"
        ),
        pytest.param({"leaderWorkerTemplate": {"leaderTemplate": None}}, [(LEADER, INVALID)], id="leader-removed"),
    ],
)
def test_shape_of_a_managed_set_is_immutable(change: dict[str, Any], expected: list[Any]) -> None:
    """[LW3]"""
    assert changed(change) == expected
    assert changed(change, managed=False) == []


def test_size_may_change_with_the_gate_off() -> None:
    """[LW3] E56"""
    options = replace(OPTIONS, immutable_group_size=False)
    assert changed({"leaderWorkerTemplate": {"size": 4}}, options=options) == []


# --- Workloads --------------------------------------------------------------------------------------------------------


def test_each_group_has_a_workload_with_leader_and_workers() -> None:
    """[LW10]"""
    harness = ParentHarness(
        groups_of(
            2,
            size=3,
            metadata={"labels": {"team": "a"}},
            spec={
                "leaderWorkerTemplate": {
                    "workerTemplate": {
                        "metadata": {
                            "labels": {"leaderworkerset.sigs.k8s.io/x": "1", "leaderworkerset.sigs.k8s.io/name": "s"},
                            "annotations": {labels.PODSET_PREFERRED_TOPOLOGY: "block"},
                        }
                    }
                }
            },
        ),
        replace(OPTIONS, label_keys_to_copy=("team",)),
    )
    harness.settle()
    assert list(harness.workloads) == [name_of(0), name_of(1)]
    second = harness.workloads[name_of(1)]
    assert second.metadata.annotations == {
        labels.IS_GROUP_WORKLOAD: "true",
        labels.JOB_OWNER_GVK: "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        labels.JOB_OWNER_NAME: "serve",
        labels.COMPONENT_WORKLOAD_INDEX: "1",
    }
    assert second.metadata.labels == {"team": "a", labels.JOB_UID: "uid-serve"}
    assert [(owner.kind, owner.controller) for owner in second.metadata.owner_references] == [("LeaderWorkerSet", None)]
    leader, worker = second.spec.pod_sets
    assert [(each.name, each.count) for each in (leader, worker)] == [("leader", 1), ("worker", 2)]
    assert leader.topology_request is None
    assert worker.topology_request is not None
    assert worker.topology_request.preferred == "block"
    assert worker.topology_request.pod_index_label == "leaderworkerset.sigs.k8s.io/worker-index"
    kept = worker.template.metadata.labels
    assert kept == {"app": "w", labels.QUEUE_NAME: "lq", "leaderworkerset.sigs.k8s.io/name": "s"}
    assert harness.events == ["CreatedWorkload", "CreatedWorkload"]


@pytest.mark.parametrize(
    ("size", "leader", "expected"),
    [(1, True, [("leader", 1), ("worker", 0)]), (1, False, [("main", 1)]), (4, False, [("main", 4)])],
)
def test_pod_sets_of_a_group(size: int, leader: bool, expected: list[tuple[str, int]]) -> None:
    """[LW6]"""
    found = LWS.parent(groups_of(size=size, leader=leader))
    assert [(each.name, each.count) for each in found.templates()] == expected  # type: ignore[attr-defined]


def test_remote_set_creates_no_workloads() -> None:
    """In a worker cluster."""
    metadata = {"labels": {labels.MULTIKUEUE_ORIGIN: "m"}, "annotations": {labels.MULTIKUEUE_ORIGIN_UID: "there"}}
    harness = ParentHarness(groups_of(metadata=metadata))
    harness.group_pod(0, 0).settle()
    assert not harness.workloads
    assert PodView(harness.pods["serve-0"]).group_name(OPTIONS) == name_of(0, "there")


def test_scaling_adds_and_removes_workloads_of_the_highest_indexes() -> None:
    """[LW5] E58"""
    harness = ParentHarness(groups_of(1))
    harness.settle()
    assert workloads_of(scaled(harness, 3)) == [0, 1, 2]
    harness.status("serve", replicas=3)
    assert workloads_of(scaled(harness, 1)) == [0]
    assert "DeletedWorkload" not in harness.events


def test_workload_of_a_removed_group_keeps_its_quota_until_its_pods_have_ended() -> None:
    """[LW5]"""
    harness = scaled(running(2), 1)
    assert workloads_of(harness) == [0, 1]
    assert harness.requeue_after is not None
    for name in ("serve-1", "serve-1-1"):
        del harness.objects[name]
    harness.settle()
    assert workloads_of(harness) == [0]


@pytest.mark.parametrize(
    ("surge", "expected"), [(1, [0, 1, 2, 3, 4]), ("25%", [0, 1, 2, 3, 4]), ("50%", [0, 1, 2, 3, 4]), (0, [0, 1, 2, 3])]
)
def test_groups_that_surge_in_a_rollout_have_workloads(surge: int | str, expected: list[int]) -> None:
    """[LW9] E57"""
    strategy = {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": surge}}}
    harness = ParentHarness(groups_of(4, spec=strategy))
    harness.status("serve", replicas=5, updatedReplicas=1).settle()
    assert workloads_of(harness) == expected
    harness.status("serve", replicas=4, updatedReplicas=4).settle()
    assert workloads_of(harness) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "status",
    [
        {"replicas": -5, "updatedReplicas": -1},
        {"replicas": 10**9, "updatedReplicas": 0},
        {"replicas": "many", "updatedReplicas": None, "conditions": None},
    ],
)
def test_broken_status_changes_nothing(status: dict[str, Any]) -> None:
    strategy = {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": 1}}}
    harness = ParentHarness(groups_of(1, spec=strategy))
    harness.edit({"status": status}, "serve").settle()
    assert workloads_of(harness) in ([0], [0, 1])


def test_deleted_workload_is_created_again() -> None:
    """E57"""
    harness = ParentHarness(groups_of(1))
    harness.settle().delete_workload().settle()
    assert workloads_of(harness) == [0]


def test_workload_of_an_earlier_set_of_the_same_name_is_released_and_not_used() -> None:
    """By UID [LW10]. The garbage collector deletes it."""
    harness = ParentHarness(groups_of(1))
    harness.settle()
    other = ParentHarness(groups_of(1, metadata={"uid": "uid-earlier"}))
    other.settle()
    harness.workloads |= other.workloads
    harness.settle()
    held = {name: bool(each.metadata.finalizers) for name, each in harness.workloads.items()}
    assert held == {name: name not in other.workloads for name in harness.workloads}
    assert len(held) == 2


def without_owners(harness: ParentHarness, index: int) -> kueue.Workload:
    """The Workload of a group, after a user removed its owner references."""
    found = harness.workloads[name_of(index)]
    harness.workloads[name_of(index)] = structs.replace(
        found, metadata=structs.replace(found.metadata, owner_references=[])
    )
    return harness.workloads[name_of(index)]


def test_workload_whose_owner_references_were_removed_is_adopted() -> None:
    """[LW10]"""
    harness = running()
    without_owners(harness, 1)
    harness.settle()
    assert {each.uid for each in harness.workloads[name_of(1)].metadata.owner_references} == {
        "uid-serve",
        "uid-serve-1",
        "uid-serve-1-1",
    }
    assert harness.events.count("CreatedWorkload") == 2
    scaled(harness, 1)
    assert "serve-1" in harness.pods
    del harness.objects["serve-1"], harness.objects["serve-1-1"]
    harness.settle()
    assert workloads_of(harness) == [0]


@pytest.mark.parametrize("change", ["count", "requests", "controller"])
def test_other_workload_under_the_name_of_a_group_is_not_adopted(change: str) -> None:
    """[LW10] Its quota is not that of the pods."""
    harness = ParentHarness(groups_of(1))
    harness.settle()
    found = without_owners(harness, 0)
    leader, worker = found.spec.pod_sets
    if change == "count":
        worker = structs.replace(worker, count=1)
    elif change == "requests":
        container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "10m"}}}
        tree = patches.merge(codec.to_tree(worker), {"template": {"spec": {"containers": [container]}}})
        worker = codec.from_tree(tree, kueue.PodSet)
    else:
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="other", uid="uid-other", controller=True)
        found = structs.replace(found, metadata=structs.replace(found.metadata, owner_references=[owner]))
    found = structs.replace(found, spec=structs.replace(found.spec, pod_sets=[leader, worker]))
    harness.workloads[name_of(0)] = found
    (actions,) = harness._branches()
    assert isinstance(actions[0], CreateWorkload)


def test_branches_of_creation_are_independent() -> None:
    """E64"""
    tree = LWS.parent(groups_of(3)).defaulted(OPTIONS)
    branches = parent_reconcile.reconcile(LWS, ParentFacts(tree=tree, is_managed=True), OPTIONS, 0)
    assert [type(branch[0]) for branch in branches] == [CreateWorkload] * 3


class _CountedNames(LeaderWorkerSet):
    """A LeaderWorkerSet that counts how many names of Workloads it derives."""

    derived = 0

    def workload_name(self, index: int | str, options: IntegrationOptions) -> str:
        self.derived += 1
        return super().workload_name(index, options)


def test_pass_derives_no_more_names_than_it_needs() -> None:
    """The time of a pass depends on the Workloads that exist, not on the groups that are requested [LW12]."""
    tree = LWS.parent(groups_of(1_000_000)).defaulted(OPTIONS)
    requested = _CountedNames(LWS, tree)
    created = [branch[0] for branch in requested.reconcile(ParentFacts(tree=tree, is_managed=True), OPTIONS, 0)]
    assert [each.workload["metadata"]["name"] for each in created if isinstance(each, CreateWorkload)] == [
        name_of(index) for index in range(200)
    ]
    assert requested.derived == 200


def test_a_thousand_groups_wait_and_others_get_workloads_when_these_have_quota() -> None:
    """[LW12] An object with a million groups does not create a million Workloads that cannot be admitted."""
    harness = ParentHarness(groups_of(1_000_000))

    def next_pass() -> list[int]:
        created = [action for branch in harness._branches() for action in branch if isinstance(action, CreateWorkload)]
        for action in created:
            tree = patches.merge(action.workload, {"metadata": {"uid": action.workload["metadata"]["name"]}})
            harness.workloads[action.workload["metadata"]["name"]] = codec.from_tree(tree, kueue.Workload)
        return [int(each.workload["metadata"]["annotations"][labels.COMPONENT_WORKLOAD_INDEX]) for each in created]

    assert [len(next_pass()) for _ in range(6)] == [200, 200, 200, 200, 200, 0]
    harness.admit_named(name_of(0))
    assert next_pass() == [1000]
    inactive = harness.workloads[name_of(1)]
    harness.workloads[name_of(1)] = structs.replace(inactive, spec=structs.replace(inactive.spec, active=False))
    assert next_pass() == [1001]


def test_plan_without_a_server_has_the_workloads_of_all_groups() -> None:
    chosen = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, FRAMEWORK, deployment.FRAMEWORK))
    found = offline.workloads_of(LWS, [groups_of(300, size=1, leader=False)], OfflineContext(), chosen, 0)
    assert len(found) == 300
    assert (
        offline.workloads_of(LWS, [groups_of(10_001)], OfflineContext(), chosen, 0)
        == "requests 10001 Workloads, maximum 10000"
    )
    many = deployment_of(spec={"replicas": 2**31 - 1})
    assert (
        offline.workloads_of(DEPLOYMENT, [many], OfflineContext(), chosen, 0)
        == "requests 2147483647 Workloads, maximum 10000"
    )


def test_workloads_after_a_gap_are_kept_and_the_gap_is_filled() -> None:
    """[LW12]"""
    harness = ParentHarness(groups_of(500))
    harness.settle()
    for index in range(490):
        del harness.workloads[name_of(index)]
    kept = {name: each.metadata.uid for name, each in harness.workloads.items()}
    harness.settle()
    assert workloads_of(harness) == list(range(500))
    assert {name: harness.workloads[name].metadata.uid for name in kept} == kept


def test_missing_class_stops_creation_only() -> None:
    tree = groups_of(1, metadata={"labels": {labels.PRIORITY_CLASS: "none"}})
    facts = ParentFacts(tree=LWS.parent(tree).defaulted(OPTIONS), is_managed=True)
    (branch,) = parent_reconcile.reconcile(LWS, facts, OPTIONS, 0)
    assert isinstance(branch[-1], RetryWithBackoff)


def test_queue_and_class_of_all_workloads_follow_the_set() -> None:
    classes = {
        name: codec.from_tree({"metadata": {"name": name}, "value": value}, kueue.WorkloadPriorityClass)
        for name, value in (("low", 1), ("high", 9))
    }
    tree = groups_of(metadata={"labels": {labels.PRIORITY_CLASS: "low"}})
    harness = ParentHarness(tree, workload_priority_classes=classes)
    harness.settle()
    harness.edit({"metadata": {"labels": {labels.QUEUE_NAME: "b", labels.PRIORITY_CLASS: "high"}}}, "serve").settle()
    assert {(each.spec.queue_name, each.spec.priority) for each in harness.workloads.values()} == {("b", 9)}
    assert harness.events == ["CreatedWorkload"] * 2 + ["UpdatedWorkload"] * 2


@pytest.mark.parametrize("tree", [groups_of(1), set_of()], ids=["LeaderWorkerSet", "StatefulSet"])
def test_queue_and_admission_gates_of_a_workload_follow_its_parent_in_one_write(tree: Tree) -> None:
    """Between two writes the Workload could be admitted: in its new queue without the gate, or in the old queue."""
    gate = {"annotations": {labels.ADMISSION_GATED_BY: "example.com/gate"}}
    harness = ParentHarness(patches.merge(tree, {"metadata": gate}))
    harness.settle()
    changed = {"labels": {labels.QUEUE_NAME: "b"}, "annotations": {labels.ADMISSION_GATED_BY: None}}
    harness.edit({"metadata": changed}, harness.name)
    (patch,) = (each for each in harness.decide() if isinstance(each, PatchWorkload))
    assert patch.patch == {
        "metadata": {"annotations": {labels.ADMISSION_GATED_BY: None}},
        "spec": {"queueName": "b"},
    }
    assert harness.settle().workload.spec.queue_name == "b"
    assert harness.events == ["CreatedWorkload", "UpdatedWorkload"]
    assert harness.notes[-1] == 'Updated workload AdmissionGatedBy to ""'


# --- Pods -------------------------------------------------------------------------------------------------------------


def test_pods_join_the_workload_of_their_group() -> None:
    """[LW11]"""
    harness = ParentHarness(groups_of(2, size=2))
    harness.group_pod(1, 0).group_pod(1, 1).settle()
    leader, worker = (PodView(harness.pods[name]) for name in ("serve-1", "serve-1-1"))
    for pod in (leader, worker):
        assert pod.labels[labels.MANAGED] == "true"
        assert pod.annotations[labels.POD_GROUP_NAME] == name_of(1)
        assert pod.annotations[labels.PREBUILT_WORKLOAD_NAME] == name_of(1)
        assert pod.annotations[labels.POD_GROUP_TOTAL_COUNT] == "2"
        assert pod.annotations[labels.POD_GROUP_SERVING] == "true"
    assert (leader.role, worker.role) == ("leader", "worker")


def test_pods_without_a_leader_template_have_one_role() -> None:
    harness = ParentHarness(groups_of(1, size=2, leader=False))
    harness.group_pod(0, 0).group_pod(0, 1).settle()
    assert {PodView(tree).role for tree in harness.pods.values()} == {"main"}


def test_pod_without_its_group_index_waits() -> None:
    """E62"""
    harness = ParentHarness(groups_of(1))
    harness.group_pod(0, 0, metadata={"labels": {GROUP_INDEX: None}}).settle()
    assert labels.MANAGED not in ObjectView(harness.pods["serve-0"]).labels
    harness.edit({"metadata": {"labels": {GROUP_INDEX: "0"}}}, "serve-0").settle()
    assert ObjectView(harness.pods["serve-0"]).labels[labels.MANAGED] == "true"


def test_leader_starts_before_its_workers_exist() -> None:
    """[LW4] startup policy LeaderReady"""
    harness = ParentHarness(groups_of(1, size=3))
    harness.group_pod(0, 0).settle()
    harness.admit().settle()
    assert harness.gated == []
    harness.run("serve-0")
    harness.group_pod(0, 1).group_pod(0, 2).settle()
    assert harness.gated == []
    assert harness.condition("WaitingForReplacementPods") == ""


def test_recreated_group_starts_under_the_admission_it_has() -> None:
    """[LW7]"""
    harness = running(1)
    for name in list(harness.pods):
        del harness.objects[name]
    harness.settle()
    harness.group_pod(0, 0).group_pod(0, 1).settle()
    assert harness.gated == []


def test_gated_pods_follow_the_queue_and_running_ones_do_not() -> None:
    """E61"""
    harness = running(1)
    harness.group_pod(0, 5, metadata={"labels": {labels.QUEUE_NAME: None}}).settle()
    assert ObjectView(harness.pods["serve-0-5"]).labels[labels.QUEUE_NAME] == "lq"
    harness.edit({"metadata": {"labels": {labels.QUEUE_NAME: "other"}}}, "serve").settle()
    found = {name: ObjectView(tree).labels[labels.QUEUE_NAME] for name, tree in harness.pods.items()}
    assert found == {"serve-0": "lq", "serve-0-1": "lq", "serve-0-5": "other"}


def test_eviction_of_one_group_leaves_the_others_running() -> None:
    """[PP7]"""
    harness = running(2)
    harness.evict_named(name_of(0)).settle()
    assert list(harness.end_deleted().pods) == ["serve-1", "serve-1-1"]


def test_gated_pods_of_a_deleted_set_are_not_released() -> None:
    """[LW8] E59"""
    harness = ParentHarness(groups_of(1))
    harness.group_pod(0, 0).settle()
    del harness.objects["serve"]
    harness.settle()
    assert harness.gated == ["serve-0"]
    del harness.objects["serve-0"]
    harness.settle()
    assert not harness.workload.metadata.finalizers
