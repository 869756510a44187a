"""AppWrappers: pod sets of wrapped objects, what admission writes beside them, and the states of the wrapper."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS, JobHarness, flavor
from kubemachinery import patches
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import admission, wrapped_pod_sets
from pykueue.jobs.admission import AdmissionResult, JobAdmissionFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo
from pykueue.jobs.wrapped_pod_sets import POD_INDEX_LABEL, SUB_GROUP_COUNT, SUB_GROUP_INDEX_LABEL

(ROW,) = KINDS.enabled(("workload.codeflare.dev/appwrapper",))
WRAPPER_OPTIONS = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, ROW.framework))
INDEX = labels.JOB_COMPLETION_INDEX


def template(cpu: str = "1", **metadata: Any) -> Tree:
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
    return ({"metadata": metadata} if metadata else {}) | {"spec": {"containers": [container]}}


def wrapped(api_version: str, kind: str, **spec: Any) -> Tree:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "inner"}, "spec": spec}


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "inner"}, **template()}
JOB_SET = wrapped(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    replicatedJobs=[
        {"name": "driver", "template": {"spec": {"parallelism": 1, "completions": 1, "template": template()}}},
        {
            "name": "worker",
            "replicas": 2,
            "template": {"spec": {"parallelism": 3, "completions": 2, "template": template()}},
        },
    ],
)


def component(inner: Tree, *pod_sets: Tree) -> Tree:
    return {"template": inner} | ({"podSets": list(pod_sets)} if pod_sets else {})


def app_wrapper(*components: Tree, **fields: Any) -> Tree:
    given: Tree = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {
            "name": "w",
            "namespace": "main",
            "uid": "uid-w",
            "resourceVersion": "1",
            "labels": {labels.QUEUE_NAME: "lq"},
        },
        "spec": {"suspend": True, "components": list(components or (component(POD),))},
    }
    merged: Tree = patches.merge(given, fields)
    return merged


def job(*components: Tree, **fields: Any) -> GenericJob:
    return ROW.job(app_wrapper(*components, **fields))


def counts(of: GenericJob) -> list[tuple[str, int]]:
    return [(pod_set["name"], pod_set["count"]) for pod_set in of.pod_sets(WRAPPER_OPTIONS)]


def refused(tree: Tree) -> AdmissionResult:
    return admission.validate_create(ROW, tree, JobAdmissionFacts(), KINDS, WRAPPER_OPTIONS)


def condition(type_: str, status: str = "True") -> Tree:
    return {"type": type_, "status": status}


# --- Pod sets ---------------------------------------------------------------------------------------------------------


def test_pod_sets_are_numbered_through_all_components() -> None:
    """[AW1] The worked example: a JobSet and a Pod."""
    assert counts(job(component(JOB_SET), component(POD))) == [("w-0", 1), ("w-1", 4), ("w-2", 1)]


def test_declared_pod_sets_replace_inferred_ones() -> None:
    """[AW1] A kind that the operator does not know needs them."""
    unknown = wrapped("example.com/v1", "Batch", groups=[{"template": template()}, {"template": template()}])
    declared = [{"path": f"template.spec.groups[{number}].template", "replicas": number + 2} for number in (0, 1)]
    assert counts(job(component(unknown, *declared))) == [("w-0", 2), ("w-1", 3)]
    assert counts(job(component(unknown, {"path": "template.spec.groups[1].template"}))) == [("w-0", 1)]


def test_status_of_the_operator_replaces_both() -> None:
    """[AW1] As soon as it has an entry for each component."""
    reported = {"podSets": [{"path": "template", "replicas": 7}]}
    assert counts(job(status={"componentStatus": [reported]})) == [("w-0", 7)]
    assert counts(job(component(POD), component(POD), status={"componentStatus": [reported]})) == [
        ("w-0", 1),
        ("w-1", 1),
    ]
    assert counts(job(status={"componentStatus": None})) == [("w-0", 1)]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (POD, [("template", 1, {})]),
        (
            wrapped("apps/v1", "Deployment", replicas=3, template=template()),
            [("template.spec.template", 3, {})],
        ),
        (wrapped("apps/v1", "StatefulSet", template=template()), [("template.spec.template", 1, {})]),
        (
            wrapped("batch/v1", "Job", parallelism=4, completions=2, template=template()),
            [("template.spec.template", 2, {POD_INDEX_LABEL: INDEX})],
        ),
        (
            wrapped("batch/v1", "Job", template=template()),
            [("template.spec.template", 1, {POD_INDEX_LABEL: INDEX})],
        ),
        (
            JOB_SET,
            [
                (
                    f"template.spec.replicatedJobs[{number}].template.spec.template",
                    count,
                    {
                        POD_INDEX_LABEL: INDEX,
                        SUB_GROUP_INDEX_LABEL: "jobset.sigs.k8s.io/job-index",
                        SUB_GROUP_COUNT: groups,
                    },
                )
                for number, count, groups in ((0, 1, "1"), (1, 4, "2"))
            ],
        ),
        (
            wrapped(
                "kubeflow.org/v1",
                "PyTorchJob",
                pytorchReplicaSpecs={"Worker": {"replicas": 2, "template": template()}, "Master": {"template": {}}},
            ),
            [
                (f"template.spec.pytorchReplicaSpecs.{role}.template", count, {POD_INDEX_LABEL: index})
                for role, count, index in (
                    ("Master", 1, "training.kubeflow.org/replica-index"),
                    ("Worker", 2, "training.kubeflow.org/replica-index"),
                )
            ],
        ),
        (
            wrapped(
                "ray.io/v1",
                "RayCluster",
                headGroupSpec={"template": template()},
                workerGroupSpecs=[{"replicas": 2, "numOfHosts": 4, "template": template()}],
            ),
            [("template.spec.headGroupSpec.template", 1, {}), ("template.spec.workerGroupSpecs[0].template", 2, {})],
        ),
        (
            wrapped("ray.io/v1", "RayJob", rayClusterSpec={"headGroupSpec": {"template": template()}}),
            [("template.spec.rayClusterSpec.headGroupSpec.template", 1, {})],
        ),
        (wrapped("ray.io/v1alpha1", "RayCluster", headGroupSpec={"template": template()}), []),
        (wrapped("example.com/v1", "Batch", template=template()), []),
        (wrapped("batch/v1", "Job", parallelism=-3), [("template.spec.template", 0, {POD_INDEX_LABEL: INDEX})]),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_pod_sets_are_inferred_from_known_kinds(inner: Tree, expected: list[tuple[str, int, Tree]]) -> None:
    """[AW2] By apiVersion and kind."""
    found = [(each.path, each.replicas, dict(each.annotations)) for each in wrapped_pod_sets.infer(inner)]
    assert found == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("template", ()),
        ("template.spec.template", ("spec", "template")),
        ("template.spec.jobs[2].template", ("spec", "jobs", 2, "template")),
        ("template[0].a", (0, "a")),
        ("spec.template", None),
        ("", None),
        ("template.", None),
        ("template.a[", None),
        ("template.a[x]", None),
        ("template.a[-1]", None),
        ("templates.spec", None),
    ],
)
def test_paths_have_fields_and_positions(path: str, expected: tuple[str | int, ...] | None) -> None:
    """[AW3] A path begins with `template`."""
    assert wrapped_pod_sets.parse_path(path) == expected


def test_copy_of_a_template_has_the_defaults_of_a_server() -> None:
    """[AW4] And only what quota depends on."""
    copied = wrapped_pod_sets.copied_template(
        {
            "metadata": {"labels": {"a": "b"}, "name": "x"},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "app",
                        "env": [{"name": "A"}],
                        "ports": [{"containerPort": 80}],
                        "resources": {"requests": {"cpu": "0.0001", "memory": "1Gi"}, "limits": {"cpu": "2"}},
                    }
                ],
                "volumes": [{"name": "v"}],
                "nodeSelector": {"disk": "ssd"},
                "overhead": {"cpu": "1500u"},
                "terminationGracePeriodSeconds": 0,
            },
        }
    )
    assert copied == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "app",
                    "resources": {"requests": {"cpu": "1m", "memory": "1Gi"}, "limits": {"cpu": "2"}},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "Always",
                }
            ],
            "nodeSelector": {"disk": "ssd"},
            "overhead": {"cpu": "2m"},
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 0,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "preemptionPolicy": "PreemptLowerPriority",
        },
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("host:5000/app", "Always"),
        ("app:1", "IfNotPresent"),
        ("host:5000/app:1", "IfNotPresent"),
        ("app@sha256:00", "IfNotPresent"),
        ("app:latest@sha256:00", "Always"),
        ("", "IfNotPresent"),
    ],
)
def test_images_without_a_version_are_always_pulled(image: str, policy: str) -> None:
    """[AW4] As an API server defaults `imagePullPolicy`."""
    copied = wrapped_pod_sets.copied_template({"spec": {"containers": [{"name": "c", "image": image}]}})
    assert copied["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_sidecars_and_requests_of_the_pod_are_counted() -> None:
    """[AW4] Unlike in Kueue, where the copy drops them."""
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    pod = {**POD, "spec": {**template()["spec"], "initContainers": [sidecar], "resources": {"requests": {"cpu": "3"}}}}
    (pod_set,) = job(component(pod)).pod_sets(WRAPPER_OPTIONS)
    spec = pod_set["template"]["spec"]
    assert spec["initContainers"][0]["restartPolicy"] == "Always"
    assert spec["resources"] == {"requests": {"cpu": "3"}}


def test_topology_request_has_the_index_labels_of_the_pod_set() -> None:
    """[AW5] From annotations of the pod set; a sub-group count that is no number is ignored."""
    asked = template(annotations={labels.PODSET_REQUIRED_TOPOLOGY: "rack"})
    marks = {POD_INDEX_LABEL: "i", SUB_GROUP_INDEX_LABEL: "g", SUB_GROUP_COUNT: "2"}
    inner = wrapped("example.com/v1", "Batch", template=asked)
    of = job(component(inner, {"path": "template.spec.template", "replicas": 4, "annotations": marks}))
    (pod_set,) = of.pod_sets(WRAPPER_OPTIONS)
    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "i",
        "subGroupIndexLabel": "g",
        "subGroupCount": 2,
    }
    marks[SUB_GROUP_COUNT] = "two"
    of = job(component(inner, {"path": "template.spec.template", "annotations": marks}))
    (pod_set,) = of.pod_sets(WRAPPER_OPTIONS)
    assert "subGroupCount" not in pod_set["topologyRequest"]


# --- Starting and stopping --------------------------------------------------------------------------------------------


def info(number: int) -> PodSetInfo:
    return PodSetInfo(name=f"w-{number}", count=1, node_selector={"pool": f"p{number}"}, labels={"l": str(number)})


def test_admission_is_written_beside_the_templates() -> None:
    """[AW6] One entry for each pod set of each component."""
    of = job(component(JOB_SET), component(POD))
    started = of.started([info(0), info(1), info(2)])
    assert not isinstance(started, PodSetConflict)
    assert started["spec"]["suspend"] is False
    entries = [each["podSetInfos"] for each in started["spec"]["components"]]
    assert entries == [
        [{"nodeSelector": {"pool": f"p{number}"}, "labels": {"l": str(number)}} for number in (0, 1)],
        [{"nodeSelector": {"pool": "p2"}, "labels": {"l": "2"}}],
    ]
    assert [each["template"] for each in started["spec"]["components"]] == [JOB_SET, POD]


def test_wrong_number_of_assignments_is_a_conflict() -> None:
    """[AW6] A retry does not resolve it."""
    assert isinstance(job().started([info(0), info(1)]), PodSetConflict)


def test_pod_set_without_a_template_gets_an_empty_entry() -> None:
    """[AW6] It was stored while the webhook was away. In Kueue the start fails for good."""
    declared = [{"path": "template.nowhere"}, {"path": "template"}]
    of = job(component(POD, *declared))
    assert counts(of) == [("w-0", 1)]
    started = of.started([info(0)])
    assert not isinstance(started, PodSetConflict)
    (entry,) = started["spec"]["components"]
    assert entry["podSetInfos"] == [{}, {"nodeSelector": {"pool": "p0"}, "labels": {"l": "0"}}]


def test_stop_removes_what_the_start_wrote() -> None:
    """[AW7] Whatever the number of pod sets is by then."""
    of = job(component(JOB_SET), component(POD))
    started = of.started([info(0), info(1), info(2)])
    assert not isinstance(started, PodSetConflict)
    stopped = ROW.job(ROW.job(started).suspended()).restored(())
    assert stopped == of.tree


# --- State ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "active", "ready", "outcome"),
    [
        ({}, False, False, None),
        ({"conditions": None, "phase": None}, False, False, None),
        ({"conditions": [condition("QuotaReserved")]}, True, False, None),
        ({"conditions": [condition("QuotaReserved", "False")]}, False, False, None),
        ({"conditions": [condition("PodsReady"), condition("Odd", "Maybe")]}, False, True, None),
        ({"phase": "Succeeded"}, False, False, True),
        ({"phase": "Failed", "conditions": [condition("ResourcesDeployed")]}, False, False, None),
        ({"phase": "Failed", "conditions": [condition("ResourcesDeployed", "False")]}, False, False, False),
        ({"phase": "Failed"}, False, False, False),
        ({"phase": "Resetting"}, False, False, None),
    ],
)
def test_states_of_the_operator(status: Tree, active: bool, ready: bool, outcome: bool | None) -> None:
    """[AW8] and [AW9]."""
    of = job(status=status)
    assert (of.is_active(), of.are_pods_ready()) == (active, ready)
    end = of.outcome()
    assert (None if end is None else end.success) is outcome


# --- The webhook ------------------------------------------------------------------------------------------------------


def test_path_without_a_pod_template_is_refused_at_creation() -> None:
    """[AW3] Only for wrappers that may be managed, and not on update."""
    tree = app_wrapper(component(POD, {"path": "template"}, {"path": "template.spec.template"}))
    (error,) = refused(tree).errors
    assert (error.path, error.value) == ("spec.components[0].podSets[1].path", "template.spec.template")
    (error,) = refused(app_wrapper(component(wrapped("batch/v1", "Job")))).errors
    assert error.path == "spec.components[0].template"
    assert refused(patches.merge(tree, {"metadata": {"labels": None}})).errors == ()
    updated = admission.validate_update(ROW, tree, tree, JobAdmissionFacts(), KINDS, WRAPPER_OPTIONS)
    assert updated.errors == ()


def test_rules_for_new_jobs_are_not_repeated_on_update() -> None:
    """[AW10] A queue name that cannot exist is refused at creation only."""
    tree = app_wrapper(metadata={"labels": {labels.QUEUE_NAME: "No Name"}})
    assert [error.path for error in refused(tree).errors] == [f"metadata.labels[{labels.QUEUE_NAME}]"]
    before = app_wrapper()
    assert admission.validate_update(ROW, tree, before, JobAdmissionFacts(), KINDS, WRAPPER_OPTIONS).errors == ()


def test_wrapper_without_pod_sets_is_accepted_with_a_warning() -> None:
    """[AW2] Its Workload will be refused."""
    result = refused(app_wrapper(component(wrapped("example.com/v1", "Batch"))))
    assert result.errors == ()
    assert "contains no pod sets" in result.warnings[0]


def test_pods_that_the_operator_does_not_count_are_named_in_a_warning() -> None:
    """[AW2] Hosts of Ray groups, and the submitter of a RayJob."""
    cluster = {
        "headGroupSpec": {"template": template()},
        "workerGroupSpecs": [{"numOfHosts": 4, "template": template()}, {"template": template()}],
    }
    result = refused(app_wrapper(component(wrapped("ray.io/v1", "RayJob", rayClusterSpec=cluster))))
    hosts, submitter = result.warnings
    assert hosts == (
        "spec.components[0].template: spec.rayClusterSpec.workerGroupSpecs[0] has numOfHosts 4, and its hosts beyond"
        " the first are not counted against quota"
    )
    assert submitter == "spec.components[0].template: the pod that submits the RayJob is not counted against quota"
    assert len(refused(app_wrapper(component(wrapped("ray.io/v1", "RayCluster", **cluster)))).warnings) == 1
    http = wrapped("ray.io/v1", "RayJob", rayClusterSpec=cluster, submissionMode="HTTPMode")
    assert len(refused(app_wrapper(component(http))).warnings) == 1


# --- From creation to the end -----------------------------------------------------------------------------------------


def test_wrapper_is_started_evicted_restored_and_finished() -> None:
    """[AW8] Quota is held until the operator reports that it released the pods."""
    harness = JobHarness(app_wrapper(component(JOB_SET), component(POD)), options=WRAPPER_OPTIONS)
    before = harness.job
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle()
    assert harness.workload.metadata.name.startswith("appwrapper-w-")
    assert [(each.name, each.count) for each in harness.workload.spec.pod_sets] == [("w-0", 1), ("w-1", 4), ("w-2", 1)]
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False
    assert harness.job["spec"]["components"][1]["podSetInfos"][0]["nodeSelector"] == {"pool": "blue"}
    harness.status(conditions=[condition("QuotaReserved"), condition("PodsReady")]).settle()
    assert harness.condition("PodsReady") == "True/Started"
    harness.evict().settle()
    assert harness.job["spec"] == before["spec"]
    assert harness.condition("QuotaReserved").startswith("True")
    harness.status(conditions=[condition("QuotaReserved", "False")]).settle()
    assert harness.condition("QuotaReserved").startswith("False")
    harness.admit().settle().status(phase="Succeeded").settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert harness.events == ["CreatedWorkload", "Started", "Stopped", "Started", "FinishedWorkload"]
