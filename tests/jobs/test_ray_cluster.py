"""RayCluster, and what all Ray kinds share: pod sets, counted containers, validation, slices."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, JobHarness, flavor
from jobs.ray_objects import ELASTIC, RAY, UID, containers, counts, group, ray_cluster, ray_job, template, view
from kubemachinery import patches
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.api.conditions import FinishedReason
from pykueue.jobs import admission, ray, workloads
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle import finishing, states

ROW = next(row for row in KINDS if row.framework == "ray.io/raycluster")
GATE = {"name": labels.ELASTIC_JOB_GATE}
FAULT_TOLERANT = {"annotations": {"ray.io/ft-enabled": "True"}}


def gated(**fields: Any) -> Tree:
    return template(spec={"schedulingGates": [GATE]}, **fields)


def elastic_cluster(*groups: Tree, **fields: Any) -> Tree:
    """An elastic RayCluster as the webhook stores it."""
    return view(ray_cluster(*groups, metadata={"annotations": ELASTIC}, **fields)).prepared(RAY)


def errors(tree: Tree, options: IntegrationOptions = RAY) -> list[str]:
    """The paths of the field errors of a new object, with their types."""
    row = KINDS.of(ObjectView(tree))
    assert row is not None
    found = admission.validate_create(row, tree, JobAdmissionFacts(), KINDS, options).errors
    return [f"{error.path}: {error.type.removeprefix('FieldValue')}" for error in found]


def update_errors(new: Tree, old: Tree, options: IntegrationOptions = RAY, **facts: Any) -> list[str]:
    row = KINDS.of(ObjectView(new))
    assert row is not None
    found = admission.validate_update(row, new, old, JobAdmissionFacts(**facts), KINDS, options).errors
    return [f"{error.path}: {error.type.removeprefix('FieldValue')}" for error in found]


# --- Pod sets ---------------------------------------------------------------------------------------------------------


def test_pod_sets_are_head_and_worker_groups_in_lower_case() -> None:
    """[RY1]"""
    assert counts(ray_cluster(group("Small", 2), group("large", 3))) == {"head": 1, "small": 2, "large": 3}


@pytest.mark.parametrize(
    ("replicas", "hosts", "pods"),
    [(2, 4, 8), (2, 1, 2), (2, 0, 2), (None, None, 1), (None, 4, 4), (0, 4, 0), (3, None, 3)],
)
def test_a_worker_group_counts_its_hosts(replicas: int | None, hosts: int | None, pods: int) -> None:
    """[RY2]"""
    given = group("a", replicas) if hosts is None else group("a", replicas, numOfHosts=hosts)
    assert counts(ray_cluster(given)) == {"head": 1, "a": pods}


def test_topology_request_has_no_index_labels() -> None:
    """[RY3]"""
    asked = template(metadata={"annotations": {labels.PODSET_REQUIRED_TOPOLOGY: "rack"}})
    head, worker = view(ray_cluster(group(template=asked))).pod_sets(RAY)
    assert "topologyRequest" not in head
    assert worker["topologyRequest"] == {"required": "rack"}


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({"requests": {"cpu": "1"}}, {"cpu": "1", "memory": "256Mi"}),
        ({"requests": {"cpu": "100m", "memory": "1Gi"}}, {"cpu": "200m", "memory": "1Gi"}),
        ({"limits": {"cpu": "4"}}, {"cpu": "4", "memory": "256Mi"}),
        ({}, {"cpu": "200m", "memory": "256Mi"}),
        ({"requests": {"cpu": "much"}}, {"cpu": "much", "memory": "256Mi"}),
    ],
)
def test_head_counts_at_least_what_the_redis_cleanup_needs(resources: Tree, requests: Tree) -> None:
    """[RY4]"""
    tree = ray_cluster(metadata=FAULT_TOLERANT)
    head = {"template": {"spec": {"containers": [{"name": "ray", "image": "ray:1", "resources": resources}]}}}
    assert containers(patches.merge(tree, {"spec": {"headGroupSpec": head}})) == {"ray": requests}


def test_fault_tolerance_options_are_enough_for_the_redis_cleanup() -> None:
    """[RY4]"""
    assert containers(ray_cluster(gcsFaultToleranceOptions={})) == {"ray": {"cpu": "1", "memory": "256Mi"}}
    assert containers(ray_cluster(metadata={"annotations": {"ray.io/ft-enabled": "no"}})) == {"ray": {"cpu": "1"}}


def test_head_without_containers_is_not_changed_for_the_redis_cleanup() -> None:
    tree = ray_cluster(metadata=FAULT_TOLERANT, headGroupSpec={"template": {"spec": {}}})
    assert view(tree).pod_sets(RAY)[0]["template"]["spec"] == {}


def test_autoscaler_is_counted_in_the_head() -> None:
    """[RY5]"""
    default = {"cpu": "500m", "memory": "512Mi"}
    assert containers(ray_cluster(enableInTreeAutoscaling=True)) == {"ray": {"cpu": "1"}, "autoscaler": default}
    options = {"resources": {"requests": {"cpu": "2"}}}
    tree = ray_cluster(enableInTreeAutoscaling=True, autoscalerOptions=options)
    assert containers(tree) == {"ray": {"cpu": "1"}, "autoscaler": {"cpu": "2"}}
    assert containers(tree, "small") == {"ray": {"cpu": "1"}}


def test_counted_containers_are_never_written_into_the_object() -> None:
    """[RY6]"""
    tree = ray_cluster(metadata=FAULT_TOLERANT, enableInTreeAutoscaling=True)
    harness = JobHarness(tree, options=RAY).settle().admit().settle()
    (container,) = harness.job["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert (container["name"], container["resources"]) == ("ray", {"requests": {"cpu": "1"}})
    assert harness.events == ["CreatedWorkload", "Started"]


def test_name_of_the_workload_is_the_one_of_kueue() -> None:
    """The elastic one contains the generation [RC4]."""
    plain = view(ray_job(metadata={"name": "rayjob"}, mode="K8sJobMode"))
    built = workloads.build(plain, plain.pod_sets(RAY), workloads.Priority(0), RAY)
    assert built["metadata"]["name"] == "rayjob-rayjob-22da0"
    elastic = view(ray_cluster(metadata={"annotations": ELASTIC, "generation": 3}))
    built = workloads.build(elastic, elastic.pod_sets(RAY), workloads.Priority(0), RAY)
    assert built["metadata"]["name"] == "raycluster-ray-edc13"


# --- Start, stop, state -----------------------------------------------------------------------------------------------


def test_start_and_stop_are_one_write_each_and_restore_the_templates() -> None:
    """[RY6]"""
    tree = ray_cluster(group("a", 2), group("b", 1))
    harness = JobHarness(tree, options=RAY)
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle().admit()
    before = harness.writes
    harness.settle()
    assert harness.writes == before + 1
    templates = [each.at(harness.job) for each in view(harness.job).templates()]
    assert [each["spec"]["nodeSelector"] for each in templates] == [{"pool": "blue"}] * 3
    assert [each["metadata"]["labels"][labels.PODSET] for each in templates] == ["head", "a", "b"]
    harness.evict().settle()
    assert view(harness.job).templates() == view(tree).templates()
    for each in view(harness.job).templates():
        assert each.at(harness.job)["spec"] == each.at(tree)["spec"]
    assert harness.job["spec"]["suspend"] is True
    assert harness.condition("QuotaReserved") == "False/PendingEvaluation"
    assert harness.events[-1] == "Stopped"


def test_cluster_with_pods_keeps_its_quota_until_it_is_suspended() -> None:
    """[RY11]"""
    harness = JobHarness(ray_cluster(), options=RAY).settle().admit().settle().status(state="ready").settle()
    harness.evict().settle()
    assert harness.job["spec"]["suspend"] is True
    assert states.is_reserved(harness.workload)
    harness.status(state="suspended").settle()
    assert not states.is_reserved(harness.workload)


@pytest.mark.parametrize(
    ("status", "is_active"),
    [
        ({}, False),
        ({"state": "ready"}, True),
        ({"state": "suspended", "availableWorkerReplicas": 2}, False),
        ({"state": "failed"}, False),
        ({"state": "failed", "availableWorkerReplicas": 2}, True),
        ({"readyWorkerReplicas": 1}, True),
        ({"desiredWorkerReplicas": 4}, False),
        ({"head": {"podName": "ray-head"}}, True),
        ({"head": {"podName": ""}, "availableWorkerReplicas": 0}, False),
        ({"state": None, "head": None, "availableWorkerReplicas": -1}, False),
        ({"state": 5, "head": [], "readyWorkerReplicas": "many"}, False),
    ],
)
def test_a_cluster_is_active_while_it_may_have_pods(status: Tree, is_active: bool) -> None:
    """[RY11]"""
    cluster = view(ray_cluster(status=status))
    assert cluster.is_active() is is_active
    assert cluster.are_pods_ready() is (status.get("state") == "ready")
    assert cluster.outcome() is None


@pytest.mark.parametrize("status", [None, [], "ready", 3])
def test_a_status_that_is_no_object_reads_as_empty(status: Any) -> None:
    cluster = view({**ray_cluster(), "status": status})
    assert (cluster.is_active(), cluster.are_pods_ready(), cluster.outcome()) == (False, False, None)


def test_failed_cluster_keeps_its_quota() -> None:
    """[RC2]"""
    harness = JobHarness(ray_cluster(), options=RAY).settle().admit().settle().status(state="failed").settle()
    assert states.is_reserved(harness.workload)
    assert not states.is_finished(harness.workload)


def test_changed_count_restarts_a_cluster_that_is_not_elastic() -> None:
    """[RC5]"""
    harness = JobHarness(ray_cluster(group("a", 1)), options=RAY)
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle().admit().settle().status(state="ready").settle()
    harness.edit({"spec": {"workerGroupSpecs": [{**harness.job["spec"]["workerGroupSpecs"][0], "replicas": 2}]}})
    harness.settle()
    assert harness.job["spec"]["suspend"] is True
    assert not harness.workloads
    assert "nodeSelector" not in harness.job["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    harness.status(state="suspended").settle()
    assert [pod_set.count for pod_set in harness.workload.spec.pod_sets] == [1, 2]


def test_added_worker_group_restarts_without_restoring_templates() -> None:
    """[RC5]"""
    harness = JobHarness(ray_cluster(group("a", 1)), options=RAY)
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle().admit().settle()
    groups = [*harness.job["spec"]["workerGroupSpecs"], group("b", 1)]
    harness.edit({"spec": {"workerGroupSpecs": groups}}).settle()
    assert harness.job["spec"]["suspend"] is True
    assert [pod_set.name for pod_set in harness.workload.spec.pod_sets] == ["head", "a", "b"]
    assert harness.job["spec"]["headGroupSpec"]["template"]["spec"]["nodeSelector"] == {"pool": "blue"}


# --- Webhook ----------------------------------------------------------------------------------------------------------


def defaulted(tree: Tree, row: JobIntegration = ROW, options: IntegrationOptions = RAY, **facts: Any) -> Tree:
    return admission.default(row, tree, JobAdmissionFacts(**facts), KINDS, options)


def test_elastic_cluster_is_gated_and_suspended() -> None:
    """[RY10]"""
    new = ray_cluster(metadata={"annotations": ELASTIC}, suspend=False)
    stored = defaulted(new)
    assert stored["spec"]["suspend"] is True
    for each in view(stored).templates():
        assert each.at(stored)["spec"]["schedulingGates"] == [GATE]
    assert defaulted(stored) == stored
    off = defaulted(new, options=replace(RAY, elastic=False))
    assert "schedulingGates" not in off["spec"]["headGroupSpec"]["template"]["spec"]


def test_elastic_cluster_of_a_job_is_gated_and_not_suspended() -> None:
    """KubeRay copies labels and annotations of the RayJob [RY10, RC6]."""
    parent = ray_job(metadata={"name": "top", "uid": "uid-top"})
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "top", "uid": "uid-top", "controller": True}
    child = ray_cluster(metadata={"annotations": ELASTIC, "ownerReferences": [owner]}, suspend=False)
    stored = defaulted(child, ancestry=Ancestry((ObjectView(parent),)))
    assert stored["spec"]["suspend"] is False
    assert stored["spec"]["headGroupSpec"]["template"]["spec"]["schedulingGates"] == [GATE]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (ray_cluster(), []),
        (ray_cluster(enableInTreeAutoscaling=True), ["spec.enableInTreeAutoscaling: Invalid"]),
        (ray_cluster(metadata={"labels": None}, enableInTreeAutoscaling=True), []),
        (ray_cluster(*(group(f"g{i}") for i in range(17))), []),
        (ray_cluster(*(group(f"g{i}") for i in range(18))), ["spec.workerGroupSpecs: TooMany"]),
        (ray_cluster(group("a"), group("head")), ["spec.workerGroupSpecs[1].groupName: Forbidden"]),
        (ray_cluster(metadata={"labels": None}, *(group("head"),)), []),  # noqa: B026
    ],
)
def test_rules_for_the_cluster_of_a_managed_object(tree: Tree, expected: list[str]) -> None:
    """[RY8]"""
    assert errors(tree) == expected


def test_message_about_autoscaling_names_gate_and_annotation() -> None:
    """[RY8]"""
    tree = ray_cluster(enableInTreeAutoscaling=True)
    (error,) = admission.validate_create(ROW, tree, JobAdmissionFacts(), KINDS, RAY).errors
    assert "ElasticJobsViaWorkloadSlices" in error.message
    assert labels.ELASTIC_JOB in error.message


def test_number_of_pod_sets_is_in_the_message() -> None:
    """[RY8]"""
    tree = ray_cluster(*(group(f"g{i}") for i in range(18)))
    (error,) = admission.validate_create(ROW, tree, JobAdmissionFacts(), KINDS, RAY).errors
    assert str(error) == "spec.workerGroupSpecs: Too many: 19: must have at most 18 items"


def test_objects_without_queue_are_checked_where_they_are_managed() -> None:
    """[RY8]"""
    tree = ray_cluster(metadata={"labels": None}, enableInTreeAutoscaling=True)
    assert errors(tree, replace(RAY, manage_without_queue=True)) == ["spec.enableInTreeAutoscaling: Invalid"]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (elastic_cluster(), []),
        (elastic_cluster(enableInTreeAutoscaling=True), []),
        (
            elastic_cluster(enableInTreeAutoscaling=True, managedBy=labels.MULTIKUEUE_CONTROLLER),
            ["spec.enableInTreeAutoscaling: Forbidden"],
        ),
        (
            ray_cluster(metadata={"annotations": ELASTIC}),
            [
                "spec.workerGroupSpecs[0].template.spec.schedulingGates: Invalid",
                "spec.headGroupSpec.template.spec.schedulingGates: Invalid",
            ],
        ),
        (
            ray_cluster(group(template=gated()), metadata={"annotations": ELASTIC}),
            ["spec.headGroupSpec.template.spec.schedulingGates: Invalid"],
        ),
    ],
)
def test_rules_for_elastic_clusters(tree: Tree, expected: list[str]) -> None:
    """[RC3]"""
    assert errors(tree) == expected


def test_template_that_had_no_gate_may_stay_without_one() -> None:
    """Created while the webhook was absent: the manager has to be able to suspend it [RC3]."""
    bare = ray_cluster(group("a"), metadata={"annotations": ELASTIC}, suspend=False)
    assert update_errors(ray_cluster(group("a"), metadata={"annotations": ELASTIC}), bare) == []
    more = ray_cluster(group("a"), group("b"), metadata={"annotations": ELASTIC})
    path = "spec.workerGroupSpecs[{}].template.spec.schedulingGates: Invalid"
    assert update_errors(more, bare) == [path.format(1)]
    assert update_errors(bare, elastic_cluster(group("a"))) == [
        path.format(0),
        "spec.headGroupSpec.template.spec.schedulingGates: Invalid",
    ]


def test_topology_annotations_are_checked_at_their_templates() -> None:
    """[RY9]"""
    both = {labels.PODSET_REQUIRED_TOPOLOGY: "rack", labels.PODSET_PREFERRED_TOPOLOGY: "rack"}
    wrong = template(metadata={"annotations": both})
    tree = ray_cluster(group(template=wrong), headGroupSpec={"template": wrong}, metadata={"labels": None})
    assert errors(tree) == [
        "spec.headGroupSpec.template.metadata.annotations: Invalid",
        "spec.workerGroupSpecs[0].template.metadata.annotations: Invalid",
    ]
    assert errors(tree, replace(RAY, topology=False)) == []


def test_slice_size_is_at_most_the_count_of_the_group() -> None:
    """[RY9]"""
    asked = {
        labels.PODSET_REQUIRED_TOPOLOGY: "block",
        labels.PODSET_SLICE_REQUIRED_TOPOLOGY: "rack",
        labels.PODSET_SLICE_SIZE: "4",
    }
    sliced = template(metadata={"annotations": asked})
    path = f"spec.workerGroupSpecs[0].template.metadata.annotations[{labels.PODSET_SLICE_SIZE}]: Invalid"
    assert errors(ray_cluster(group("a", 1, numOfHosts=4, template=sliced))) == []
    assert errors(ray_cluster(group("a", 3, template=sliced))) == [path]


def test_pod_set_groups_have_two_pod_sets() -> None:
    """[RY9]"""
    asked = {labels.PODSET_REQUIRED_TOPOLOGY: "rack", labels.PODSET_GROUP_NAME: "pair"}
    grouped = template(metadata={"annotations": asked})
    assert errors(ray_cluster(group("a", 3, template=grouped), headGroupSpec={"template": grouped})) == []
    assert errors(ray_cluster(group("a", 3, template=grouped))) == [
        f"spec.workerGroupSpecs[0].template.metadata.annotations[{labels.PODSET_GROUP_NAME}]: Invalid"
    ]


QUEUE = f"metadata.labels[{labels.QUEUE_NAME}]"


@pytest.mark.parametrize(
    ("options", "old", "new", "expected"),
    [
        (RAY, {"suspend": False}, {"suspend": False, "metadata": {"labels": None}}, [f"{QUEUE}: Invalid"]),
        (
            replace(RAY, validate_ray_and_spark_updates=False),
            {"suspend": False},
            {"suspend": False, "metadata": {"labels": None}},
            [],
        ),
        (RAY, {}, {"metadata": {"labels": None}}, []),
        (RAY, {}, {"enableInTreeAutoscaling": True}, ["spec.enableInTreeAutoscaling: Invalid"]),
        (
            RAY,
            {"metadata": {"labels": None}},
            {"metadata": {"labels": None, "annotations": {labels.PREBUILT_WORKLOAD_NAME: "A B"}}},
            [],
        ),
    ],
)
def test_update_rules_apply_to_objects_that_are_or_were_managed(
    options: IntegrationOptions, old: Tree, new: Tree, expected: list[str]
) -> None:
    """[RY7]"""
    assert update_errors(ray_cluster(**new), ray_cluster(**old), options) == expected


# --- Slices -----------------------------------------------------------------------------------------------------------


def elastic(*groups: Tree) -> JobHarness:
    """An elastic RayCluster that runs with its first slice."""
    return JobHarness(elastic_cluster(*groups), options=RAY).settle().admit().settle().status(state="ready").settle()


def scaled(harness: JobHarness, **replicas: int) -> JobHarness:
    groups = [
        {**each, "replicas": replicas.get(each["groupName"], each["replicas"])}
        for each in harness.job["spec"]["workerGroupSpecs"]
    ]
    generation = harness.job["metadata"]["generation"] + 1
    return harness.edit({"metadata": {"generation": generation}, "spec": {"workerGroupSpecs": groups}}).settle()


def living(harness: JobHarness) -> list[kueue.Workload]:
    return [each for each in harness.workloads.values() if not states.is_finished(each)]


def sizes(harness: JobHarness) -> list[tuple[int, ...]]:
    return [tuple(pod_set.count for pod_set in each.spec.pod_sets) for each in living(harness)]


def replaced(harness: JobHarness) -> JobHarness:
    """The larger slice is admitted, and the scheduler finishes the one that it replaces."""
    old, new = living(harness)
    changes = finishing.finish(old, FinishedReason.WORKLOAD_SLICE_REPLACED, "Replaced", harness.now)
    harness._changed(old.metadata.name, changes)
    kept, harness.workloads = harness.workloads, {new.metadata.name: new}
    harness.admit()
    harness.workloads = {**kept, **harness.workloads}
    return harness.settle()


def test_scale_up_creates_a_second_slice_and_does_not_stop_the_cluster() -> None:
    """[RC4]"""
    harness = scaled(elastic(group("a", 1)), a=3)
    assert sizes(harness) == [(1, 1), (1, 3)]
    first, second = living(harness)
    assert second.metadata.annotations[labels.WORKLOAD_SLICE_REPLACEMENT_FOR] == states.key(first)
    assert second.metadata.name != first.metadata.name
    assert harness.job["spec"]["suspend"] is False
    assert sizes(replaced(harness)) == [(1, 3)]


def test_scale_down_resizes_the_slice_in_place() -> None:
    """[RC4]"""
    harness = scaled(elastic(group("a", 3)), a=1)
    assert sizes(harness) == [(1, 1)]
    assert states.is_reserved(living(harness)[0])
    assert harness.job["spec"]["suspend"] is False


def test_groups_scale_independently_and_one_slice_remains() -> None:
    """[RC4]"""
    harness = replaced(scaled(elastic(group("a", 0), group("b", 0)), a=1))
    assert sizes(harness) == [(1, 1, 0)]
    harness = replaced(scaled(harness, b=1))
    assert sizes(harness) == [(1, 1, 1)]
    assert sizes(scaled(harness, a=0)) == [(1, 0, 1)]
    assert sizes(scaled(harness, b=0)) == [(1, 0, 0)]


def test_evicted_elastic_cluster_is_suspended_with_its_gates() -> None:
    """[RC4]"""
    harness = elastic(group("a", 1)).evict().settle()
    assert harness.job["spec"]["suspend"] is True
    assert states.is_reserved(harness.workload)
    harness.status(state="suspended").settle()
    assert not states.is_reserved(harness.workload)
    for each in view(harness.job).templates():
        assert each.at(harness.job)["spec"]["schedulingGates"] == [GATE]
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False


def test_changed_groups_of_an_elastic_cluster_restart_it() -> None:
    harness = elastic(group("a", 1))
    groups = [*harness.job["spec"]["workerGroupSpecs"], group("b", 1, template=gated())]
    harness.edit({"spec": {"workerGroupSpecs": groups}}).settle()
    assert harness.job["spec"]["suspend"] is True
    assert sizes(harness) == [(1, 1, 1)]


def test_stale_workload_annotation_of_an_elastic_template_is_overwritten() -> None:
    """The Workload of an earlier start was deleted by hand [JF43]."""
    stale = {labels.WORKLOAD: "gone", labels.WORKLOAD_SLICE_NAME: "gone"}
    tree = elastic_cluster(group("a", 1, template=gated(metadata={"annotations": stale})))
    harness = JobHarness(tree, options=RAY).settle().admit().settle()
    annotations = harness.job["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["annotations"]
    assert annotations[labels.WORKLOAD] == harness.workload.metadata.name
    assert annotations[labels.WORKLOAD_SLICE_NAME] == harness.workload.metadata.name
    assert harness.condition("Finished") == ""


def test_uid_of_the_example_is_the_one_of_the_names() -> None:
    assert view(ray_cluster()).uid == UID
    assert ROW.own_controller == ray.OPERATOR
