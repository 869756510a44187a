"""Jobs of the Training Operator: pod sets by replica type, state from conditions, and the rules that the webhook has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS, JobHarness, flavor
from jobs.kubeflow_jobs import FRAMEWORKS, KUBEFLOW, ROWS, TRAINING, condition, kubeflow_job, replica, replica_specs
from kubemachinery import codec
from kubemachinery.unstructured import Tree
from pykueue.api import kube, labels
from pykueue.jobs import admission
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.interface import GenericJob, JobOutcome
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

KUBEFLOW_OPTIONS = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, *FRAMEWORKS))


def job(kind: str = "PyTorchJob", replicas: Mapping[str, Tree | None] | None = None, **fields: Any) -> GenericJob:
    return ROWS[kind].job(kubeflow_job(kind, replicas, **fields))


def harness(kind: str = "PyTorchJob", replicas: Mapping[str, Tree | None] | None = None, **fields: Any) -> JobHarness:
    return JobHarness(kubeflow_job(kind, replicas, **fields), options=KUBEFLOW_OPTIONS, row=ROWS[kind])


def sizes(found: GenericJob) -> list[tuple[str, int]]:
    return [(pod_set["name"], pod_set["count"]) for pod_set in found.pod_sets(KUBEFLOW_OPTIONS)]


# --- Pod sets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "field", "names"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs", ["master", "worker"]),
        ("TFJob", "tfReplicaSpecs", ["chief", "master", "ps", "worker", "evaluator"]),
        ("XGBoostJob", "xgbReplicaSpecs", ["master", "worker"]),
        ("PaddleJob", "paddleReplicaSpecs", ["master", "worker"]),
        ("JAXJob", "jaxReplicaSpecs", ["worker"]),
    ],
)
def test_pod_sets_follow_the_replica_types_of_the_kind_in_their_order(kind: str, field: str, names: list[str]) -> None:
    found = job(kind)
    assert field in found.spec
    assert [name for name, _ in sizes(found)] == names


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ({"Worker": replica(3), "Master": replica()}, [("master", 1), ("worker", 3)]),
        ({"Worker": replica(None)}, [("worker", 1)]),
        ({"Worker": replica(0)}, [("worker", 0)]),
        ({"Master": None, "Worker": replica(2)}, [("worker", 2)]),
        ({"master": replica(), "Worker": replica(2), "Extra": replica()}, [("worker", 2)]),
        ({}, []),
    ],
    ids=["order of the table", "one by default", "zero", "a null entry", "other keys", "none"],
)
def test_counts_of_the_replica_types_that_are_present(
    replicas: dict[str, Tree | None], expected: list[tuple[str, int]]
) -> None:
    """[KF1], [KF2]"""
    assert sizes(job("PyTorchJob", replicas)) == expected


def test_a_tf_job_of_workers_and_parameter_servers_has_the_servers_first() -> None:
    """[KF1]"""
    assert sizes(job("TFJob", {"Worker": replica(None), "PS": replica(2)})) == [("ps", 2), ("worker", 1)]


@pytest.mark.parametrize("kind", KUBEFLOW)
def test_pods_are_ranked_by_the_label_of_the_operator(kind: str) -> None:
    """[KF3], [MP2]"""
    requests = [pod_set["topologyRequest"] for pod_set in job(kind).pod_sets(KUBEFLOW_OPTIONS)]
    assert requests == [{"podIndexLabel": "training.kubeflow.org/replica-index"}] * len(requests)
    without = replace(KUBEFLOW_OPTIONS, topology=False)
    assert all("topologyRequest" not in pod_set for pod_set in job(kind).pod_sets(without))


def test_topology_annotations_of_each_template_become_its_request() -> None:
    """[KF3]"""
    found = job(
        replicas={
            "Master": replica(1, {labels.PODSET_REQUIRED_TOPOLOGY: "cloud.com/rack"}),
            "Worker": replica(3, {labels.PODSET_PREFERRED_TOPOLOGY: "cloud.com/block"}),
        }
    )
    index = {"podIndexLabel": "training.kubeflow.org/replica-index"}
    assert [pod_set["topologyRequest"] for pod_set in found.pod_sets(KUBEFLOW_OPTIONS)] == [
        {"required": "cloud.com/rack", **index},
        {"preferred": "cloud.com/block", **index},
    ]


# --- State ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("policy", "suspended"),
    [({"suspend": True}, True), ({"suspend": False}, False), ({"suspend": None}, False), (None, False)],
)
def test_the_suspend_field_is_that_of_the_run_policy(kind: str, policy: Tree | None, suspended: bool) -> None:
    """[KF4], [MP4]"""
    found = job(kind, spec={"runPolicy": policy})
    assert found.is_suspended() is suspended
    assert found.with_tree(found.suspended()).is_suspended()
    assert not found.with_tree(found.resumed()).is_suspended()


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("statuses", "active"),
    [
        ({"Worker": {"active": 2}}, True),
        ({"Worker": {"active": 0, "succeeded": 2}}, False),
        ({"Worker": {}, "Other": {"active": 1}}, True),
        ({"Worker": {"active": -1}}, True),
        ({"Worker": None}, False),
        ({"Worker": {"active": "two"}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_job_is_active_while_a_replica_status_counts_active_pods(
    kind: str, statuses: Tree | None, active: bool
) -> None:
    """[KF6], [MP4]"""
    assert job(kind, status={"replicaStatuses": statuses}).is_active() is active


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([condition("Running", "False"), condition("Succeeded", message="all done")], JobOutcome("all done", True)),
        ([condition("Failed", message="no luck"), condition("Succeeded")], JobOutcome("no luck", False)),
        ([condition("Failed", "False"), condition("Succeeded", message="yes")], JobOutcome("yes", True)),
        ([condition("Created"), condition("Suspended"), condition("Restarting")], None),
        ([condition("Unheard"), None, "junk", {"type": ["Failed"], "status": "True"}], None),
        ([], None),
        (None, None),
    ],
)
def test_the_first_true_condition_succeeded_or_failed_is_the_outcome(
    kind: str, conditions: list[Any] | None, expected: JobOutcome | None
) -> None:
    """[KF7], [MP4]"""
    assert job(kind, status={"conditions": conditions}).outcome() == expected


def test_an_outcome_without_a_message_gets_one() -> None:
    """[KF7]"""
    found = [job(status={"conditions": [condition(end)]}).outcome() for end in ("Succeeded", "Failed")]
    assert found == [JobOutcome("PyTorchJob finished successfully", True), JobOutcome("PyTorchJob failed", False)]


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([condition("Created"), condition("Running")], True),
        ([condition("Running", "False")], False),
        ([condition("Created")], False),
        (None, False),
    ],
)
def test_pods_are_ready_while_the_condition_running_is_true(
    kind: str, conditions: list[Tree] | None, ready: bool
) -> None:
    """[KF8], [MP4]"""
    assert job(kind, status={"conditions": conditions}).are_pods_ready() is ready


@pytest.mark.parametrize("kind", KUBEFLOW)
def test_no_pods_are_reclaimed_before_the_job_ends(kind: str) -> None:
    """[KF11]"""
    assert job(kind, status={"replicaStatuses": {"Worker": {"succeeded": 1}}}).reclaimable() == {}


# --- Priority ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("policy", "first", "last", "expected"),
    [
        ("policy", "first", "last", "policy"),
        ("", "first", "last", "first"),
        (None, "", "last", "last"),
        (None, "", "", ""),
    ],
)
def test_priority_class_of_the_scheduling_policy_precedes_those_of_the_templates(
    kind: str, policy: str | None, first: str, last: str, expected: str
) -> None:
    """[KF9], [MP4]"""
    types = replica_specs(kind).types
    if len(types) == 1:
        first = first or last
    given = {types[-1]: replica(priorityClassName=last)} | {types[0]: replica(priorityClassName=first)}
    run_policy = {"schedulingPolicy": None if policy is None else {"priorityClass": policy}}
    assert job(kind, given, spec={"runPolicy": run_policy}).priority_class() == expected


def test_priority_of_the_workload_is_that_of_the_class_in_the_scheduling_policy() -> None:
    """[KF9]"""
    classes = {"high": codec.from_tree({"metadata": {"name": "high"}, "value": 700}, kube.PriorityClass)}
    policy = {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}
    found = JobHarness(
        kubeflow_job("TFJob", spec=policy), options=KUBEFLOW_OPTIONS, row=ROWS["TFJob"], priority_classes=classes
    ).settle()
    assert found.workload.spec.priority == 700


# --- Starting and stopping --------------------------------------------------------------------------------------------


def test_each_template_gets_the_data_of_its_pod_set_by_position() -> None:
    """[KF5]"""
    infos = [PodSetInfo("a", 1, node_selector={"pool": "one"}), PodSetInfo("b", 1, node_selector={"pool": "two"})]
    after = job("TFJob", {"Worker": replica(), "PS": replica()}).started(infos)
    assert not isinstance(after, PodSetConflict)
    specs = after["spec"]["tfReplicaSpecs"]
    assert specs["PS"]["template"]["spec"]["nodeSelector"] == {"pool": "one"}
    assert specs["Worker"]["template"]["spec"]["nodeSelector"] == {"pool": "two"}
    assert after["spec"]["runPolicy"]["suspend"] is False


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_pod_sets_is_a_conflict_at_the_start_and_changes_nothing_at_a_stop(count: int) -> None:
    """[KF5]"""
    found, infos = job(), [PodSetInfo("any", 1, node_selector={"pool": "one"})] * count
    assert isinstance(found.started(infos), PodSetConflict)
    assert found.restored(infos) is found.tree


@pytest.mark.parametrize("kind", KUBEFLOW)
def test_a_job_is_started_evicted_restored_started_again_and_finished(kind: str) -> None:
    """[KF4], [KF5], [KF7], [MP4]"""
    found = harness(kind)
    found.facts = replace(found.facts, flavors={"default": flavor(nodeLabels={"pool": "a"})})
    before = found.job
    found.settle().admit().settle()
    templates = [each["template"] for each in found.job["spec"][replica_specs(kind).field].values()]
    assert [template["spec"]["nodeSelector"] for template in templates] == [{"pool": "a"}] * len(templates)
    assert found.job["spec"]["runPolicy"]["suspend"] is False
    found.status(replicaStatuses={"Worker": {"active": 1}}, conditions=[condition("Running")]).settle()
    assert found.condition("PodsReady") == "True/Started"
    found.evict().settle()
    assert found.job["spec"] == before["spec"]
    assert found.condition("QuotaReserved") == "True/QuotaReserved"
    found.status(replicaStatuses={"Worker": {"active": 0}}, conditions=[condition("Suspended")]).settle()
    assert found.condition("QuotaReserved").startswith("False/")
    found.admit().settle()
    found.status(conditions=[condition("Succeeded", message="done")]).settle()
    assert found.condition("Finished") == "True/Succeeded"
    assert found.events == ["CreatedWorkload", "Started", "Stopped", "Started", "FinishedWorkload"]


def test_a_replica_type_added_to_a_running_job_restarts_it_with_another_workload() -> None:
    """A job of another shape is suspended without a restore, and its Workload is replaced [KF12]."""
    found = harness(replicas={"Worker": replica(2)}).settle().admit().settle()
    first = found.workload.spec.pod_sets
    found.edit({"spec": {"pytorchReplicaSpecs": {"Master": replica()}}}).settle()
    assert found.job["spec"]["runPolicy"]["suspend"] is True
    assert [pod_set.name for pod_set in first] == ["worker"]
    assert [pod_set.name for pod_set in found.workload.spec.pod_sets] == ["master", "worker"]
    assert found.events == ["CreatedWorkload", "Started", "Stopped", "DeletedWorkload", "CreatedWorkload"]


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    "status",
    [
        {"conditions": None, "replicaStatuses": None},
        {"conditions": "none", "replicaStatuses": [1]},
        {"conditions": [{"type": None}], "replicaStatuses": {"Worker": {"active": -3}}},
        None,
    ],
)
def test_a_broken_status_does_not_stop_the_reconciler(kind: str, status: Tree | None) -> None:
    found = harness(kind).settle().admit().settle().edit({"status": status}).settle()
    assert found.job["spec"]["runPolicy"]["suspend"] is False
    assert found.condition("Admitted") == "True/Admitted"


def test_a_job_without_replica_specs_gets_no_workload_of_its_own_shape() -> None:
    """The API server refuses a Workload without pod sets; the reconciler only asks for one."""
    assert job(replicas={}).pod_sets(KUBEFLOW_OPTIONS) == ()


# --- The webhook ------------------------------------------------------------------------------------------------------


def validated(kind: str, tree: Tree, old: Tree | None = None) -> list[str]:
    """The type and the path of each error that the webhook returns."""
    row, facts = ROWS[kind], JobAdmissionFacts()
    found = (
        admission.validate_create(row, tree, facts, KINDS, KUBEFLOW_OPTIONS)
        if old is None
        else admission.validate_update(row, tree, old, facts, KINDS, KUBEFLOW_OPTIONS)
    )
    return [f"{error.type.removeprefix('FieldValue')} {error.path}" for error in found.errors]


BOTH = {labels.PODSET_REQUIRED_TOPOLOGY: "cloud.com/rack", labels.PODSET_PREFERRED_TOPOLOGY: "cloud.com/rack"}
SLICES = {
    labels.PODSET_REQUIRED_TOPOLOGY: "cloud.com/block",
    labels.PODSET_SLICE_REQUIRED_TOPOLOGY: "cloud.com/rack",
    labels.PODSET_SLICE_SIZE: "3",
}


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("annotations", "pods", "expected"),
    [
        ({}, 1, ""),
        ({labels.PODSET_REQUIRED_TOPOLOGY: "cloud.com/rack"}, 1, ""),
        (BOTH, 1, "Invalid {annotations}"),
        ({labels.PODSET_REQUIRED_TOPOLOGY: "not a label"}, 1, "Invalid {annotations}[K/podset-required-topology]"),
        (SLICES, 3, ""),
        (SLICES, 2, "Invalid {annotations}[K/podset-slice-size]"),
        ({labels.PODSET_SLICE_SIZE: "1"}, 1, "Forbidden {annotations}[K/podset-slice-size]"),
    ],
)
def test_topology_annotations_are_validated_where_the_template_is(
    kind: str, annotations: dict[str, str], pods: int, expected: str
) -> None:
    """[KF10], [MP5]"""
    specs = replica_specs(kind)
    tree = kubeflow_job(kind, {specs.types[-1]: replica(pods, annotations)})
    path = f"spec.{specs.field}[{specs.types[-1]}].template.metadata.annotations"
    shown = [expected.format(annotations=path).replace("K/", "kueue.x-k8s.io/")] if expected else []
    assert validated(kind, tree) == shown
    assert validated(kind, tree, kubeflow_job(kind)) == shown


def test_topology_annotations_are_not_validated_without_the_gate() -> None:
    """[KF10]"""
    tree, off = kubeflow_job("JAXJob", {"Worker": replica(1, BOTH)}), replace(KUBEFLOW_OPTIONS, topology=False)
    found = admission.validate_create(ROWS["JAXJob"], tree, JobAdmissionFacts(), KINDS, off)
    assert found.errors == ()


def metadata(name: str, value: str, where: str = "labels") -> Tree:
    return {"metadata": {where: {name: value}}}


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (metadata(labels.QUEUE_NAME, "UPPER"), "Invalid metadata.labels[K/queue-name]"),
        (metadata(labels.MAX_EXEC_TIME_SECONDS, "0"), "Invalid metadata.labels[K/max-exec-time-seconds]"),
        (
            metadata(labels.PREBUILT_WORKLOAD_NAME, "A_B", "annotations"),
            "Invalid metadata.annotations[K/prebuilt-workload-name]",
        ),
        (metadata(labels.ELASTIC_JOB, "true", "annotations"), "Forbidden metadata.annotations[K/elastic-job]"),
    ],
)
def test_shared_rules_apply_to_a_new_job(kind: str, fields: Tree, expected: str) -> None:
    """[KF10], [MP5]"""
    assert validated(kind, kubeflow_job(kind, **fields)) == [expected.replace("K/", "kueue.x-k8s.io/")]


@pytest.mark.parametrize("kind", KUBEFLOW)
def test_every_kind_takes_a_prebuilt_workload(kind: str) -> None:
    """[KF13]: a JAXJob too, unlike in Kueue, where MultiKueue would be refused by the worker's webhook."""
    assert validated(kind, kubeflow_job(kind, **metadata(labels.PREBUILT_WORKLOAD_NAME, "ready", "annotations"))) == []


@pytest.mark.parametrize("kind", TRAINING)
def test_rules_for_new_jobs_are_not_repeated_when_a_job_of_the_training_operator_is_updated(kind: str) -> None:
    """[KF10]"""
    old = kubeflow_job(kind)
    assert validated(kind, kubeflow_job(kind, **metadata(labels.QUEUE_NAME, "UPPER")), old) == []


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (metadata(labels.QUEUE_NAME, "other"), "Invalid metadata.labels[K/queue-name]"),
        (metadata(labels.PRIORITY_CLASS, "high"), "Invalid metadata.labels[K/priority-class]"),
        (metadata(labels.MAX_EXEC_TIME_SECONDS, "5"), "Invalid metadata.labels[K/max-exec-time-seconds]"),
        (
            metadata(labels.PREBUILT_WORKLOAD_NAME, "ready", "annotations"),
            "Invalid metadata.annotations[K/prebuilt-workload-name]",
        ),
    ],
)
def test_metadata_of_a_running_job_is_immutable(kind: str, fields: Tree, expected: str) -> None:
    """[KF10], [MP5]"""
    running: dict[str, Any] = {"spec": {"runPolicy": {"suspend": False}}}
    old, new = kubeflow_job(kind, **running), kubeflow_job(kind, **running, **fields)
    assert validated(kind, new, old) == [expected.replace("K/", "kueue.x-k8s.io/")]
    assert validated(kind, kubeflow_job(kind, **fields), kubeflow_job(kind)) == []


@pytest.mark.parametrize("kind", KUBEFLOW)
def test_a_new_job_with_a_queue_name_is_suspended(kind: str) -> None:
    """[KF4], [MP4]"""
    tree = kubeflow_job(kind, spec={"runPolicy": {"suspend": False}})
    held = admission.default(ROWS[kind], tree, JobAdmissionFacts(), KINDS, KUBEFLOW_OPTIONS)
    assert held["spec"]["runPolicy"]["suspend"] is True
    free = kubeflow_job(kind, spec={"runPolicy": {"suspend": False}}, metadata={"labels": None})
    assert admission.default(ROWS[kind], free, JobAdmissionFacts(), KINDS, KUBEFLOW_OPTIONS) == free
