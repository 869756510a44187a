"""SparkApplications: pod sets made from the fields of driver and executors, starting, stopping, states, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS, JobHarness, flavor
from kubemachinery import patches
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import admission, spark_application
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

(ROW,) = KINDS.enabled(("sparkoperator.k8s.io/sparkapplication",))
SPARK_OPTIONS = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, ROW.framework))


def spark(**spec: Any) -> Tree:
    """The application `pi`: a driver and two executors."""
    given: Tree = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {
            "name": "pi",
            "namespace": "main",
            "uid": "uid-pi",
            "resourceVersion": "1",
            "labels": {labels.QUEUE_NAME: "lq"},
        },
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "suspend": True,
            "driver": {"coreRequest": "1", "memory": "512m", "serviceAccount": "spark"},
            "executor": {"instances": 2, "coreRequest": "1", "memory": "512m"},
        },
    }
    merged: Tree = patches.merge(given, {"spec": spec})
    return merged


def job(**spec: Any) -> GenericJob:
    return ROW.job(spark(**spec))


def with_state(state: str | None, **status: Any) -> GenericJob:
    return ROW.job({**spark(), "status": {"applicationState": {"state": state}, **status}})


def templates(of: GenericJob) -> tuple[Tree, Tree]:
    driver, executor = of.pod_sets(SPARK_OPTIONS)
    return driver["template"], executor["template"]


def errors(tree: Tree, **options: Any) -> list[str]:
    found = admission.validate_create(ROW, tree, JobAdmissionFacts(), KINDS, replace(SPARK_OPTIONS, **options))
    return [error.path for error in found.errors]


# --- Pod sets ---------------------------------------------------------------------------------------------------------


def test_driver_and_executors_are_two_pod_sets() -> None:
    """[SP1] The worked example."""
    driver, executor = job().pod_sets(SPARK_OPTIONS)
    resources = {"requests": {"cpu": "1", "memory": "512Mi"}}
    assert driver == {
        "name": "driver",
        "count": 1,
        "template": {
            "metadata": {},
            "spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": resources}]},
        },
    }
    assert (executor["name"], executor["count"]) == ("executor", 2)
    assert executor["template"]["spec"]["containers"][0]["name"] == "spark-kubernetes-executor"


@pytest.mark.parametrize(("instances", "expected"), [(None, 0), (0, 0), (3, 3), (-1, 0)])
def test_executors_are_counted_by_their_instances(instances: int | None, expected: int) -> None:
    """[SP1] The pod set is there even without any."""
    _, executor = job(executor={"instances": instances}).pod_sets(SPARK_OPTIONS)
    assert executor["count"] == expected


def test_pods_have_the_fields_of_their_role() -> None:
    """[SP2] Volumes that are mounted, containers, placement, limits, GPUs, labels."""
    role = {
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "data", "mountPath": "/more"},
            {"name": "absent", "mountPath": "/absent"},
            {"name": "spark-local-dir-1", "mountPath": "/tmp"},
        ],
        "initContainers": [{"name": "init", "image": "i"}],
        "sidecars": [{"name": "side", "image": "s"}, {"name": "side", "image": "s"}, {"name": "side", "image": "t"}],
        "priorityClassName": "high",
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "coreLimit": "2",
        "memoryLimit": "1g",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 2},
        "labels": {"a": "role", "b": "role"},
        "annotations": {"n": "role"},
        "template": {
            "metadata": {"labels": {"a": "template", "c": "template"}},
            "spec": {"containers": [{"name": "unused"}]},
        },
    }
    volumes = [{"name": "spare"}, {"name": "data", "emptyDir": {}}, {"name": "spark-local-dir-1"}]
    driver, executor = templates(job(driver=role, volumes=volumes))
    assert driver == {
        "metadata": {"labels": {"a": "role", "b": "role", "c": "template"}, "annotations": {"n": "role"}},
        "spec": {
            "volumes": [{"name": "data", "emptyDir": {}}],
            "initContainers": [{"name": "init", "image": "i"}],
            "containers": [
                {
                    "name": "spark-kubernetes-driver",
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "data", "mountPath": "/more"},
                    ],
                    "resources": {
                        "requests": {"cpu": "1", "memory": "512Mi"},
                        "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"},
                    },
                },
                {"name": "side", "image": "s"},
                {"name": "side", "image": "t"},
            ],
            "priorityClassName": "high",
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    }
    assert list(executor["spec"]) == ["containers"]


def test_fields_that_make_no_request() -> None:
    """[SP3] `cores`, `memoryOverhead` and `sparkConf`; a GPU needs a name and a number."""
    role = {"coreRequest": None, "memory": None, "cores": 4, "memoryOverhead": "1g", "gpu": {"quantity": 1}}
    driver, executor = templates(job(driver=role, executor={"gpu": {"name": "g", "quantity": 0}}, sparkConf={"a": "b"}))
    assert driver["spec"] == {"containers": [{"name": "spark-kubernetes-driver"}]}
    assert "limits" not in executor["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("512m", "512Mi"),
        ("512mb", "512Mi"),
        ("4g", "4Gi"),
        ("4G", "4Gi"),
        ("4GB", "4Gi"),
        ("1k", "1Ki"),
        ("2t", "2Ti"),
        ("1PB", "1Pi"),
        ("1048576", "1048576"),
        ("100b", "100"),
        ("1Gi", "1Gi"),
        ("1.5Gi", "1.5Gi"),
        ("lots", "lots"),
        (None, None),
    ],
)
def test_memory_is_read_as_java_reads_it(written: Any, expected: Any) -> None:
    """[SP4] In upper case, too, unlike in Kueue."""
    assert spark_application.memory(written) == expected


def test_topology_request_is_read_from_role_and_template() -> None:
    """[SP5] Without index labels."""
    rack = {labels.PODSET_REQUIRED_TOPOLOGY: "rack"}
    of = job(driver={"annotations": rack}, executor={"template": {"metadata": {"annotations": rack}}})
    assert [pod_set["topologyRequest"] for pod_set in of.pod_sets(SPARK_OPTIONS)] == [{"required": "rack"}] * 2


def test_common_node_selector_is_part_of_both_pod_sets() -> None:
    """[SP2] Flavors are chosen with it, unlike in Kueue."""
    driver, executor = templates(job(nodeSelector={"disk": "ssd"}, driver={"nodeSelector": {"own": "x"}}))
    assert driver["spec"]["nodeSelector"] == executor["spec"]["nodeSelector"] == {"disk": "ssd"}


# --- Starting and stopping --------------------------------------------------------------------------------------------


def infos(**fields: Any) -> tuple[PodSetInfo, PodSetInfo]:
    return (
        PodSetInfo(name="driver", count=1, node_selector={"pool": "a"}, **fields),
        PodSetInfo(name="executor", count=2, node_selector={"pool": "b"}, **fields),
    )


def started(of: GenericJob, given: tuple[PodSetInfo, ...]) -> Tree:
    tree = of.started(given)
    assert not isinstance(tree, PodSetConflict)
    return tree


def test_admission_is_merged_into_the_roles() -> None:
    """[SP7] Scheduling gates are in the template of the role, which is created for them."""
    toleration = {"key": "spot", "operator": "Exists"}
    gate = {"name": "kueue.x-k8s.io/topology"}
    tree = started(
        job(driver={"labels": {"mine": "1"}}),
        infos(labels={"l": "1"}, annotations={"n": "1"}, tolerations=(toleration,), scheduling_gates=(gate,)),
    )
    assert tree["spec"]["suspend"] is False
    driver = tree["spec"]["driver"]
    assert driver["labels"] == {"mine": "1", "l": "1"}
    assert driver["annotations"] == {"n": "1"}
    assert driver["nodeSelector"] == {"pool": "a"}
    assert driver["tolerations"] == [toleration]
    assert driver["template"] == {
        "spec": {"containers": [{"name": "spark-kubernetes-driver"}], "schedulingGates": [gate]}
    }
    assert tree["spec"]["executor"]["nodeSelector"] == {"pool": "b"}


def test_common_node_selector_moves_into_both_roles() -> None:
    """[SP7] Each role gets it with the labels of its own flavor."""
    tree = started(job(nodeSelector={"disk": "ssd"}), infos())
    assert "nodeSelector" not in tree["spec"]
    assert tree["spec"]["driver"]["nodeSelector"] == {"disk": "ssd", "pool": "a"}
    assert tree["spec"]["executor"]["nodeSelector"] == {"disk": "ssd", "pool": "b"}


def test_contradiction_and_wrong_number_are_conflicts() -> None:
    """[SP7] A retry does not resolve them."""
    assert isinstance(job(executor={"nodeSelector": {"pool": "red"}}).started(infos()), PodSetConflict)
    assert isinstance(job(nodeSelector={"pool": "red"}).started(infos()), PodSetConflict)
    assert isinstance(job().started(infos()[:1]), PodSetConflict)


def test_stop_restores_the_roles() -> None:
    """[SP8] Exactly; only a common node selector stays in the roles."""
    role = {
        "labels": {"mine": "1"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "template": {"metadata": {"labels": {"inherited": "1"}}, "spec": {"containers": [{"name": "c"}]}},
    }
    for spec in ({}, {"driver": role}, {"executor": role}):
        harness = JobHarness(spark(**spec), options=SPARK_OPTIONS).settle()
        before = harness.job
        harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
        harness.admit().settle()
        assert harness.job["spec"]["driver"]["nodeSelector"] == {"pool": "blue"}
        harness.evict().settle()
        assert harness.job == before


def test_stop_keeps_the_common_node_selector_in_the_roles() -> None:
    """[SP8] Both roles run on the same nodes as before."""
    harness = JobHarness(spark(nodeSelector={"disk": "ssd"}), options=SPARK_OPTIONS).settle()
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.admit().settle()
    harness.evict().settle()
    spec = harness.job["spec"]
    assert "nodeSelector" not in spec
    assert spec["driver"]["nodeSelector"] == spec["executor"]["nodeSelector"] == {"disk": "ssd"}


def test_stop_sets_the_instances_of_the_pod_set() -> None:
    """[SP8] With another number of pod sets nothing is restored."""
    of = job(executor={"instances": 5})
    assert of.restored(infos())["spec"]["executor"]["instances"] == 2
    assert of.restored(infos()[:1]) == of.tree


# --- State ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "active", "outcome"),
    [
        ("", False, None),
        (None, False, None),
        ("SUBMITTED", True, None),
        ("RUNNING", True, None),
        ("PENDING_RERUN", True, None),
        ("INVALIDATING", True, None),
        ("SUCCEEDING", True, None),
        ("FAILING", True, None),
        ("SUSPENDING", True, None),
        ("RESUMING", True, None),
        ("UNKNOWN", True, None),
        ("SUSPENDED", False, None),
        ("COMPLETED", False, True),
        ("FAILED", False, False),
        ("SUBMISSION_FAILED", False, False),
    ],
)
def test_states_of_the_operator(state: str | None, active: bool, outcome: bool | None) -> None:
    """[SP9] and [SP10]. In Kueue only RUNNING is active."""
    of = with_state(state)
    assert of.is_active() is active
    end = of.outcome()
    assert (None if end is None else end.success) is outcome


def test_message_of_the_end_is_that_of_the_operator() -> None:
    """[SP10]"""
    status = {"applicationState": {"state": "FAILED", "errorMessage": "driver exited with 1"}}
    end = ROW.job({**spark(), "status": status}).outcome()
    assert end is not None
    assert end.message == "driver exited with 1"


@pytest.mark.parametrize(
    ("state", "executors", "ready"),
    [
        ("RUNNING", {"e1": "RUNNING", "e2": "COMPLETED"}, True),
        ("RUNNING", {"e1": "RUNNING", "e2": "PENDING"}, False),
        ("RUNNING", None, False),
        ("SUBMITTED", {"e1": "RUNNING", "e2": "RUNNING"}, False),
    ],
)
def test_ready_when_driver_and_all_executors_run(state: str, executors: Tree | None, ready: bool) -> None:
    """[SP11]"""
    assert with_state(state, executorState=executors).are_pods_ready() is ready


def test_application_without_executors_is_ready_when_it_runs() -> None:
    """[SP11]"""
    status = {"applicationState": {"state": "RUNNING"}}
    assert ROW.job({**spark(executor={"instances": None}), "status": status}).are_pods_ready()


# --- The webhook ------------------------------------------------------------------------------------------------------


def test_managed_applications_run_in_cluster_mode_with_a_fixed_size() -> None:
    """[SP12] Only managed ones are refused."""
    tree = spark(mode="client", dynamicAllocation={"enabled": True})
    assert errors(tree) == ["spec.mode", "spec.dynamicAllocation.enabled"]
    unmanaged = patches.merge(tree, {"metadata": {"labels": None}})
    assert errors(unmanaged) == []
    assert errors(unmanaged, manage_without_queue=True) == ["spec.mode", "spec.dynamicAllocation.enabled"]
    assert errors(spark(dynamicAllocation={"enabled": False})) == []


DYNAMIC = {"spark.dynamicAllocation.enabled": "True"}
COUNTED = {"spark.executor.instances": "50"}


@pytest.mark.parametrize(
    ("conf", "instances", "expected"),
    [
        (DYNAMIC, 2, ["spec.sparkConf[spark.dynamicAllocation.enabled]"]),
        ({"spark.dynamicAllocation.enabled": "false"}, 2, []),
        (COUNTED, None, ["spec.executor.instances"]),
        (COUNTED, 2, []),
        ({}, None, []),
    ],
    ids=["dynamic", "not dynamic", "number", "number beside the field", "neither"],
)
def test_properties_by_which_executors_run_without_quota_are_refused(
    conf: dict[str, str], instances: int | None, expected: list[str]
) -> None:
    """[SP12] Only for managed applications, and not if a stored one had them before: it could not be suspended."""
    tree = spark(executor={"instances": instances}, sparkConf=conf)
    unmanaged = patches.merge(tree, {"metadata": {"labels": None}})
    assert errors(tree) == expected
    assert errors(unmanaged) == []
    for before, found in ((tree, []), (unmanaged, expected), (spark(), expected)):
        result = admission.validate_update(ROW, tree, before, JobAdmissionFacts(), KINDS, SPARK_OPTIONS)
        assert [error.path for error in result.errors] == found


def test_elastic_and_prebuilt_applications_are_refused() -> None:
    """[SP12] The kind supports neither."""
    marks = {labels.ELASTIC_JOB: "true", labels.PREBUILT_WORKLOAD_NAME: "w"}
    found = errors(patches.merge(spark(), {"metadata": {"annotations": marks}}))
    assert sorted(found) == sorted(f"metadata.annotations[{key}]" for key in marks)


def test_amounts_that_cannot_be_read_are_refused() -> None:
    """[SP4] At their field."""
    tree = spark(driver={"memory": "lots", "coreLimit": "many"}, executor={"memoryLimit": "4GGi", "coreRequest": ["1"]})
    wrong = ["spec.driver.coreLimit", "spec.driver.memory", "spec.executor.coreRequest", "spec.executor.memoryLimit"]
    assert errors(tree) == wrong
    assert errors(patches.merge(tree, {"metadata": {"labels": None}})) == []


def test_topology_annotations_are_checked_for_each_role() -> None:
    """[SP13] At `spec.driver.annotations` and `spec.executor.annotations`."""
    both = {labels.PODSET_REQUIRED_TOPOLOGY: "rack", labels.PODSET_PREFERRED_TOPOLOGY: "rack"}
    sized = {labels.PODSET_SLICE_REQUIRED_TOPOLOGY: "rack", labels.PODSET_SLICE_SIZE: "3"}
    assert errors(spark(driver={"annotations": both})) == ["spec.driver.annotations"]
    assert errors(spark(executor={"annotations": sized})) == [f"spec.executor.annotations[{labels.PODSET_SLICE_SIZE}]"]
    assert errors(spark(driver={"annotations": both}), topology=False) == []


def test_update_is_validated_if_the_application_is_or_was_managed() -> None:
    """[SP13] With the gate, the queue name of a running application cannot be removed."""
    before = spark(suspend=False)
    after = patches.merge(before, {"metadata": {"labels": None}, "spec": {"mode": "client"}})
    options = replace(SPARK_OPTIONS, validate_ray_and_spark_updates=False)
    assert admission.validate_update(ROW, after, before, JobAdmissionFacts(), KINDS, options).errors == ()
    found = admission.validate_update(ROW, after, before, JobAdmissionFacts(), KINDS, SPARK_OPTIONS).errors
    assert [error.path for error in found] == [f"metadata.labels[{labels.QUEUE_NAME}]"]
    unmanaged = patches.merge(before, {"metadata": {"labels": None}})
    assert admission.validate_update(ROW, after, unmanaged, JobAdmissionFacts(), KINDS, SPARK_OPTIONS).errors == ()
    managed = patches.merge(after, {"metadata": {"labels": {labels.QUEUE_NAME: "lq"}}})
    found = admission.validate_update(ROW, managed, managed, JobAdmissionFacts(), KINDS, options).errors
    assert [error.path for error in found] == ["spec.mode"]


def test_stored_amount_that_cannot_be_read_leads_to_an_event() -> None:
    """[SP4] No Workload is created for an application that was stored while no webhook was called."""
    harness = JobHarness(spark(driver={"memory": "lots"}), options=SPARK_OPTIONS).settle()
    assert harness.workloads == {}
    assert harness.events == ["Warning ErrWorkloadCompose"]
    assert "spec.driver.memory" in harness.retries[0]


# --- From creation to the end -----------------------------------------------------------------------------------------


def test_application_is_started_evicted_restored_and_finished() -> None:
    harness = JobHarness(spark(), options=SPARK_OPTIONS).settle()
    before = harness.job["spec"]
    assert harness.workload.metadata.name.startswith("sparkapplication-pi-")
    harness.admit().settle().status(applicationState={"state": "RUNNING"}).settle()
    assert harness.condition("PodsReady") == "False/WaitForStart"
    harness.status(executorState={"e1": "RUNNING", "e2": "RUNNING"}).settle()
    assert harness.condition("PodsReady") == "True/Started"
    harness.evict().settle()
    assert harness.job["spec"] == before
    harness.status(applicationState={"state": "SUSPENDING"}).settle()
    assert harness.condition("QuotaReserved").startswith("True")
    harness.status(applicationState={"state": "SUSPENDED"}).settle()
    assert harness.condition("QuotaReserved").startswith("False")
    harness.admit().settle().status(applicationState={"state": "COMPLETED"}).settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert harness.events == ["CreatedWorkload", "Started", "Stopped", "Started", "FinishedWorkload"]
