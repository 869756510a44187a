"""TrainJobs: pod sets rendered from the runtime, the patch that admission is written to, waiting stops, refusals."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS, JobHarness, flavor
from kubemachinery import patches, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import admission, related, training_runtime
from pykueue.jobs.actions import EmitJobEvent, ReplaceObject
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.offline import OfflineContext
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

(ROW,) = KINDS.enabled(("trainer.kubeflow.org/trainjob",))
TRAINER_OPTIONS = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, ROW.framework))
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
MANAGER = "kueue.x-k8s.io/manager"


def replicated(name: str, step: str = "", container: str = "node", **spec: Any) -> Tree:
    """A replicated job of a runtime, with one container."""
    main = {"name": container, "image": "base:1", "resources": {"requests": {"cpu": "1"}}}
    template: Tree = {"spec": {"template": {"spec": {"containers": [main], **spec}}}}
    return {"name": name, "template": ({"metadata": {"labels": {STEP: step}}} if step else {}) | template}


NODE = replicated("node", "trainer")


def runtime(*jobs: Tree, policy: Tree | None = None, **fields: Any) -> Tree:
    """The ClusterTrainingRuntime `plain`."""
    given: Tree = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain"},
        "spec": {
            "mlPolicy": {"numNodes": 1} if policy is None else policy,
            "template": {"spec": {"replicatedJobs": list(jobs or (NODE,))}},
        },
    }
    merged: Tree = patches.merge(given, fields)
    return merged


def train_job(**spec: Any) -> Tree:
    """A TrainJob of the runtime `plain`, as the server stores it after the webhook."""
    given: Tree = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "train",
            "namespace": "main",
            "uid": "uid-train",
            "resourceVersion": "1",
            "labels": {labels.QUEUE_NAME: "lq"},
        },
        "spec": {
            "suspend": True,
            "runtimeRef": {"name": "plain", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}],
        },
    }
    merged: Tree = patches.merge(given, {"spec": spec})
    return merged


def user_patch(name: str, template: Tree, manager: str = "user") -> Tree:
    """A runtime patch of the pods of one replicated job."""
    job = {"name": name, "template": {"spec": {"template": template}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def job(tree: Tree, *objects: Tree) -> GenericJob:
    return ROW.job(tree, related.among(ROW, tree, OfflineContext(related=objects or (runtime(),)).find))


def pod_sets(tree: Tree, *objects: Tree) -> list[tuple[str, int]]:
    return [(each["name"], each["count"]) for each in job(tree, *objects).pod_sets(TRAINER_OPTIONS)]


def container(tree: Tree, runtime: Tree, number: int = 0) -> Tree:
    """The first container of a rendered replicated job."""
    rendered = training_runtime.render(tree, runtime)["spec"]["replicatedJobs"][number]
    found: Tree = rendered["template"]["spec"]["template"]["spec"]["containers"][0]
    return found


def pod_spec(tree: Tree, runtime: Tree, number: int = 0) -> Tree:
    rendered = training_runtime.render(tree, runtime)["spec"]["replicatedJobs"][number]
    found: Tree = rendered["template"]["spec"]["template"]["spec"]
    return found


# --- Rendering --------------------------------------------------------------------------------------------------------

MPI = {"mpi": {"runLauncherAsNode": True}}
LAUNCHER = replicated("launcher", "trainer")
WORKERS = replicated("node")
STEPS = (
    replicated("dataset-initializer", "dataset-initializer", "dataset-initializer"),
    replicated("model-initializer", "model-initializer", "model-initializer"),
    NODE,
)


@pytest.mark.parametrize(
    ("jobs", "policy", "nodes", "expected"),
    [
        (STEPS, {"torch": {}}, 4, [("dataset-initializer", 1), ("model-initializer", 1), ("node", 4)]),
        ((LAUNCHER, WORKERS), MPI, 4, [("launcher", 1), ("node", 3)]),
        ((LAUNCHER, WORKERS), MPI, 1, [("launcher", 1), ("node", 1)]),
        ((LAUNCHER, WORKERS), {"mpi": {}}, 4, [("launcher", 1), ("node", 4)]),
        ((LAUNCHER, WORKERS), {"mpi": {}, "numNodes": 3}, None, [("launcher", 3), ("node", 1)]),
        ((NODE,), {"numNodes": 3}, None, [("node", 3)]),
        ((NODE,), {"numNodes": 3}, 2, [("node", 2)]),
        ((NODE,), {}, None, [("node", 1)]),
        ((NODE,), {"jax": {}, "numNodes": 3}, 5, [("node", 5)]),
        ((NODE,), {"xgboost": {}}, 5, [("node", 5)]),
    ],
)
def test_pods_are_counted_by_steps_and_policy(
    jobs: tuple[Tree, ...], policy: Tree, nodes: int | None, expected: list[tuple[str, int]]
) -> None:
    """[TJ1] Steps 3 and 4, with the worked examples."""
    assert pod_sets(train_job(trainer={"numNodes": nodes}), runtime(*jobs, policy=policy)) == expected


def test_parallelism_counts_without_a_policy() -> None:
    """[TJ1] Step 3: the policy decides about the step `trainer` only where there is one."""
    wide: Tree = patches.merge(NODE, {"template": {"spec": {"parallelism": 5}}})
    other: Tree = {**wide, "name": "other", "template": {"spec": wide["template"]["spec"]}}
    without: Tree = patches.merge(runtime(wide, other), {"spec": {"mlPolicy": None}})
    assert pod_sets(train_job(), without) == [("node", 5), ("other", 5)]
    assert pod_sets(train_job(), runtime(wide, other)) == [("node", 1), ("other", 5)]


def test_replicas_of_steps_are_one() -> None:
    """[TJ1] Steps 7 and 8; other replicated jobs keep theirs."""
    jobs = [{**replicated(name, step), "replicas": 3} for name, step in (("node", "trainer"), ("other", ""))]
    assert pod_sets(train_job(), runtime(*jobs)) == [("node", 1), ("other", 3)]


def test_resources_of_the_train_job_replace_those_of_the_runtime() -> None:
    """[TJ1] Step 5: resource by resource, in the container `node`."""
    needs = {"requests": {"cpu": "4"}, "limits": {"gpu": "1"}}
    tree = train_job(trainer={"resourcesPerNode": needs})
    node = deepcopy(NODE)
    main = node["template"]["spec"]["template"]["spec"]["containers"][0]
    main["resources"]["requests"]["memory"] = "1Gi"
    assert container(tree, runtime(node))["resources"] == {
        "requests": {"cpu": "4", "memory": "1Gi"},
        "limits": {"gpu": "1"},
    }
    without: Tree = patches.merge(runtime(node), {"spec": {"mlPolicy": None}})
    assert container(tree, without)["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    mpi = runtime(LAUNCHER, WORKERS, policy=MPI)
    assert container(tree, mpi, 1)["resources"]["requests"] == {"cpu": "4"}
    plain = runtime(LAUNCHER, WORKERS, policy={"mpi": {}})
    assert container(tree, plain, 1)["resources"]["requests"] == {"cpu": "1"}


def test_trainer_replaces_image_command_and_variables() -> None:
    """[TJ1] Step 8."""
    base = deepcopy(NODE)
    main = base["template"]["spec"]["template"]["spec"]["containers"][0]
    base["template"]["spec"]["template"]["spec"]["containers"] = [
        {**main, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"name": "other", "image": "o"},
    ]
    trainer = {
        "image": "mine:2",
        "command": ["tune", "run"],
        "args": ["x"],
        "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}],
    }
    tree = train_job(trainer=trainer)
    found = container(tree, runtime(base, policy={"torch": {}}))
    assert (found["image"], found["command"], found["args"]) == ("mine:2", ["tune", "run"], ["x"])
    assert found["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]
    assert tree["spec"]["trainer"]["command"] == ["tune", "run"]


def test_initializers_get_their_source() -> None:
    """[TJ1] Step 7."""
    dataset = {"storageUri": "s3://d", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "key"}}
    found = container(train_job(initializer={"dataset": dataset, "model": {"storageUri": "s3://m"}}), runtime(*STEPS))
    assert found["env"] == [{"name": "STORAGE_URI", "value": "s3://d"}, {"name": "A", "value": "1"}]
    assert found["envFrom"] == [{"secretRef": {"name": "key"}}]


def test_patches_of_users_are_merged_in_order() -> None:
    """[TJ1] Step 2: lists by their keys, tolerations as a whole; the patch of the manager is left out."""
    base = replicated(
        "node",
        "trainer",
        nodeSelector={"a": "1"},
        tolerations=[{"key": "old"}],
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    first = user_patch(
        "node",
        {
            "metadata": {"labels": {"l": "1"}},
            "spec": {
                "nodeSelector": {"b": "2"},
                "tolerations": [{"key": "new"}],
                "volumes": [{"name": "w", "emptyDir": {}}],
                "containers": [{"name": "node", "volumeMounts": [{"name": "w", "mountPath": "/w"}]}],
            },
        },
    )
    second = user_patch("node", {"spec": {"nodeSelector": {"b": "3"}}}, "other")
    ours = user_patch("node", {"spec": {"nodeSelector": {"pool": "blue"}}}, MANAGER)
    unknown = user_patch("absent", {"spec": {"nodeSelector": {"c": "4"}}}, "third")
    tree = train_job(runtimePatches=[ours, first, second, unknown])
    spec = pod_spec(tree, runtime(replicated("first"), base), 1)
    assert spec["nodeSelector"] == {"a": "1", "b": "3"}
    assert spec["tolerations"] == [{"key": "new"}]
    assert {volume["name"] for volume in spec["volumes"]} == {"v", "w"}
    assert (spec["containers"][0]["image"], spec["containers"][0]["volumeMounts"][0]["name"]) == ("base:1", "w")
    assert pod_sets(tree, runtime(replicated("first"), base)) == [("first", 1), ("node", 1)]


def test_gang_schedulers_label_the_pods() -> None:
    """[TJ1] Step 9."""
    of = runtime(spec={"podGroupPolicy": {"coscheduling": {}}})
    (pod_set,) = job(train_job(), of).pod_sets(TRAINER_OPTIONS)
    assert pod_set["template"]["metadata"]["labels"] == {"scheduling.x-k8s.io/pod-group": "train"}


def test_rendering_changes_neither_the_runtime_nor_the_train_job() -> None:
    """[TJ1] In Kueue the command of torchtune is extended in the TrainJob itself."""
    of, tree = runtime(*STEPS, policy={"torch": {}}), train_job(trainer={"numNodes": 2, "command": ["tune", "run"]})
    copies = deepcopy((of, tree))
    training_runtime.render(tree, of)
    assert (of, tree) == copies


@pytest.mark.parametrize("broken", [{}, {"spec": None}, {"spec": {"template": {"spec": {"replicatedJobs": "x"}}}}])
def test_broken_runtime_has_no_pod_sets(broken: Tree) -> None:
    """[TJ1] The Workload is refused then, and the job gets an Event."""
    of = {**runtime(), "spec": broken.get("spec")}
    assert job(train_job(), of).pod_sets(TRAINER_OPTIONS) == ()


def test_pod_sets_have_the_topology_of_a_job_set() -> None:
    """[TJ2]"""
    annotated = {"metadata": {"annotations": {labels.PODSET_REQUIRED_TOPOLOGY: "rack"}}}
    (pod_set,) = job(train_job(runtimePatches=[user_patch("node", annotated)])).pod_sets(TRAINER_OPTIONS)
    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": labels.JOB_COMPLETION_INDEX,
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 1,
    }


@pytest.mark.parametrize(
    ("reference", "kind", "namespace"),
    [
        ({"name": "r"}, "ClusterTrainingRuntime", ""),
        ({"name": "r", "kind": "TrainingRuntime"}, "TrainingRuntime", "main"),
        ({"name": "r", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"}, "ClusterTrainingRuntime", ""),
        ({"name": "r", "kind": "Other"}, None, ""),
        ({"name": "r", "apiGroup": "example.com"}, None, ""),
        ({}, None, ""),
        (None, None, ""),
    ],
)  # fmt: skip
def test_runtime_is_of_the_cluster_unless_the_reference_names_another(
    reference: Tree | None, kind: str | None, namespace: str
) -> None:
    """[TJ1]"""
    tree = unstructured.put(train_job(), ("spec", "runtimeRef"), reference)
    found = [(each.kind.kind, each.namespace, each.name) for each in ROW.related(tree)]
    assert found == ([] if kind is None else [(kind, namespace, "r")])


# --- Starting and stopping --------------------------------------------------------------------------------------------


def info(name: str = "node", **fields: Any) -> PodSetInfo:
    return PodSetInfo(name=name, count=1, node_selector={"pool": "blue"}, **fields)


def patch_of(tree: Tree) -> list[Tree]:
    """The replicated jobs in the patch of the manager."""
    (patch,) = [each for each in tree["spec"]["runtimePatches"] if each["manager"] == MANAGER]
    found: list[Tree] = patch["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs", [])
    return found


def test_start_writes_the_patch_and_then_the_flag() -> None:
    """[TJ5] The operator refuses changes of the patch of a TrainJob that runs."""
    toleration, gate = {"key": "spot", "operator": "Exists"}, {"name": "g"}
    given = info(labels={"l": "1"}, annotations={"n": "1"}, tolerations=(toleration,), scheduling_gates=(gate,))
    actions = job(train_job()).start([given], "note")
    assert not isinstance(actions, PodSetConflict)
    first, second, event = actions
    assert isinstance(first, ReplaceObject)
    assert isinstance(second, ReplaceObject)
    assert isinstance(event, EmitJobEvent)
    template = {
        "metadata": {"labels": {"l": "1"}, "annotations": {"n": "1"}},
        "spec": {"nodeSelector": {"pool": "blue"}, "tolerations": [toleration], "schedulingGates": [gate]},
    }
    assert first.after["spec"]["suspend"] is True
    assert patch_of(first.after) == [{"name": "node", "template": {"spec": {"template": template}}}]
    assert second.before == first.after
    assert second.after == unstructured.put(first.after, ("spec", "suspend"), False)


def test_repeated_start_replaces_the_patch() -> None:
    """[TJ5] The first write succeeded and the second failed."""
    first, *_ = job(train_job()).start([info()], "note")  # type: ignore[misc]
    assert isinstance(first, ReplaceObject)
    again = job(first.after).start([info()], "note")
    assert not isinstance(again, PodSetConflict)
    (write,) = [action for action in again if isinstance(action, ReplaceObject)]
    assert write.after["spec"]["suspend"] is False
    assert len(patch_of(write.after)) == 1


def test_tolerations_of_the_template_are_repeated_in_the_patch() -> None:
    """[TJ5] The operator replaces the list, and Kueue loses them."""
    of = runtime(replicated("node", "trainer", tolerations=[{"key": "mine"}]))
    tree = job(train_job(), of).started([info(tolerations=({"key": "spot"}, {"key": "mine", "operator": "Equal"}))])
    assert not isinstance(tree, PodSetConflict)
    spec = patch_of(tree)[0]["template"]["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "mine"}, {"key": "spot"}]
    tree = job(train_job(), of).started([info()])
    assert not isinstance(tree, PodSetConflict)
    assert "tolerations" not in patch_of(tree)[0]["template"]["spec"]["template"]["spec"]


def test_missing_patch_is_added_at_the_start() -> None:
    """[TJ5] The TrainJob was created while no webhook was called; patches of users stay."""
    mine = user_patch("node", {"spec": {"nodeSelector": {"a": "1"}}})
    tree = job(train_job(runtimePatches=[mine])).started([info()])
    assert not isinstance(tree, PodSetConflict)
    assert tree["spec"]["runtimePatches"][0] == mine
    assert len(patch_of(tree)) == 1


def test_wrong_number_of_assignments_is_a_conflict() -> None:
    """[TJ5] A retry does not resolve it."""
    assert isinstance(job(train_job()).start([info(), info("other")], "note"), PodSetConflict)


ACTIVE = [{"name": "node", "active": 1, "ready": 1, "succeeded": 0}]
INACTIVE = [{"name": "node", "active": 0, "ready": 0, "succeeded": 0}]


def running() -> JobHarness:
    """A TrainJob whose job is active, on a flavor with a node label."""
    harness = JobHarness(train_job(), options=TRAINER_OPTIONS, related_objects=(runtime(),))
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    return harness.settle().admit().settle().status(jobsStatus=ACTIVE).settle()


def test_stop_waits_until_no_job_is_active() -> None:
    """[TJ6] The flag at once; the patch, the Event and the release of quota later."""
    harness = running()
    harness.evict().settle()
    assert harness.job["spec"]["suspend"] is True
    assert patch_of(harness.job) != []
    assert harness.condition("QuotaReserved").startswith("True")
    assert "Stopped" not in harness.events
    assert "active" in harness.retries[-1]
    harness.status(jobsStatus=INACTIVE).settle()
    assert patch_of(harness.job) == []
    assert harness.job["metadata"].get("annotations", {}) == {}
    assert harness.condition("QuotaReserved").startswith("False")
    assert harness.events.count("Stopped") == 1
    writes = harness.writes
    harness.settle()
    assert (harness.writes, harness.events.count("Stopped")) == (writes, 1)


def test_deleted_workload_keeps_its_finalizer_until_the_stop_is_complete() -> None:
    """[TJ6] Its quota is in use until then."""
    harness = running()
    harness.delete_workload().settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.workload.metadata.finalizers != ()
    harness.status(jobsStatus=INACTIVE).settle()
    assert patch_of(harness.job) == []
    assert harness.workload.metadata.deletion_timestamp is None, "a new one was created"


def test_train_job_is_admitted_again_while_its_stop_waits() -> None:
    """[TJ6] The stop is completed first."""
    harness = running()
    harness.evict().settle()
    harness.status(jobsStatus=INACTIVE).settle()
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False
    assert patch_of(harness.job)[0]["template"]["spec"]["template"]["spec"] == {"nodeSelector": {"pool": "blue"}}


def test_runtime_that_changes_does_not_restart_a_train_job_that_runs() -> None:
    """[TJ11] A suspended one without quota follows it."""
    harness = running()
    writes = harness.writes
    larger = runtime(policy={"numNodes": 3})
    harness.around = OfflineContext(related=(larger,))
    assert harness.settle().writes == writes
    harness.evict().settle()
    assert harness.workload.spec.pod_sets[0].count == 1
    harness.status(jobsStatus=INACTIVE).settle()
    assert harness.workload.spec.pod_sets[0].count == 3


def test_runtime_that_is_deleted_does_not_hinder_a_stop() -> None:
    """[TJ11] A start waits for it."""
    harness = running()
    harness.around = OfflineContext()
    harness.evict().settle()
    harness.status(jobsStatus=INACTIVE).settle()
    assert patch_of(harness.job) == []
    assert harness.condition("QuotaReserved").startswith("False")
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is True
    assert "does not exist" in harness.retries[-1]


# --- State ------------------------------------------------------------------------------------------------------------


def with_status(**status: Any) -> GenericJob:
    return job({**train_job(), "status": status}, runtime(replicated("first"), NODE))


@pytest.mark.parametrize(
    ("rows", "active", "ready", "reclaimable"),
    [
        (None, False, False, {}),
        ([], False, False, {}),
        ([{"name": "first", "active": 1}, {"name": "node"}], True, False, {}),
        ([{"name": "node", "ready": 1, "active": 1}, {"name": "first", "succeeded": 1}], True, True, {"first": 1}),
        ([{"name": "node", "succeeded": 2}], False, True, {}),
        ([{"name": "node", "succeeded": -1, "active": -1}, {"name": 7}, None], False, False, {}),
        ([{"name": "other", "succeeded": 1, "ready": 1}], False, True, {}),
    ],
)
def test_states_of_the_replicated_jobs(rows: Any, active: bool, ready: bool, reclaimable: dict[str, int]) -> None:
    """[TJ7], [TJ9] and [TJ10]; a broken status is no obstacle."""
    of = with_status(jobsStatus=rows)
    assert (of.is_active(), of.are_pods_ready(), of.reclaimable()) == (active, ready, reclaimable)


def test_reclaimable_pods_are_those_of_succeeded_replicas() -> None:
    """[TJ10] All pods of the trainer step."""
    tree = {**train_job(trainer={"numNodes": 4}), "status": {"jobsStatus": [{"name": "node", "succeeded": 1}]}}
    assert job(tree).reclaimable() == {"node": 4}


def test_train_job_without_its_runtime_is_not_ready() -> None:
    """[TJ9]"""
    tree = {**train_job(), "status": {"jobsStatus": []}}
    assert not ROW.job(tree).are_pods_ready()


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([{"type": "Complete", "status": "True", "message": "done"}], ("done", True)),
        ([{"type": "Failed", "status": "True", "message": "broken"}], ("broken", False)),
        ([{"type": "Failed", "status": "True"}, {"type": "Complete", "status": "True"}], ("TrainJob finished successfully", True)),
        ([{"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "True"}], None),
    ],
)  # fmt: skip
def test_end_is_a_condition(conditions: list[Tree], expected: tuple[str, bool] | None) -> None:
    """[TJ8]"""
    end = with_status(conditions=conditions).outcome()
    assert (None if end is None else (end.message, end.success)) == expected


# --- The webhook ------------------------------------------------------------------------------------------------------


def facts(tree: Tree, *objects: Tree) -> JobAdmissionFacts:
    return JobAdmissionFacts(related=related.among(ROW, tree, OfflineContext(related=objects).find))


def default(tree: Tree) -> Tree:
    return admission.default(ROW, tree, facts(tree, runtime()), KINDS, TRAINER_OPTIONS)


def test_new_train_job_is_suspended_and_gets_one_patch() -> None:
    """[TJ3] Once, and only if it is managed."""
    new = train_job(suspend=None, runtimePatches=None)
    held = default(new)
    assert held["spec"]["suspend"] is True
    assert held["spec"]["runtimePatches"] == train_job()["spec"]["runtimePatches"]
    assert default(held) == held
    unmanaged: Tree = patches.merge(new, {"metadata": {"labels": None}})
    assert default(unmanaged) == unmanaged


def test_missing_runtime_is_refused() -> None:
    """[TJ4] With topology-aware scheduling, and only for managed TrainJobs."""
    tree = train_job()
    result = admission.validate_create(ROW, tree, facts(tree), KINDS, TRAINER_OPTIONS)
    assert result.problem == "TrainJob train refers to ClusterTrainingRuntime plain, which does not exist"
    off = replace(TRAINER_OPTIONS, topology=False)
    assert admission.validate_create(ROW, tree, facts(tree), KINDS, off).problem == ""
    unmanaged: Tree = patches.merge(tree, {"metadata": {"labels": None}})
    assert admission.validate_create(ROW, unmanaged, facts(tree), KINDS, TRAINER_OPTIONS).problem == ""
    other = unstructured.put(tree, ("spec", "runtimeRef", "kind"), "Other")
    result = admission.validate_create(ROW, other, facts(tree), KINDS, TRAINER_OPTIONS)
    assert result.problem == "TrainJob train refers to Other plain, which is no training runtime"


def test_topology_annotations_are_checked_in_the_rendered_templates() -> None:
    """[TJ4] On create and update; the message names where the annotations come from."""
    both = {labels.PODSET_REQUIRED_TOPOLOGY: "rack", labels.PODSET_PREFERRED_TOPOLOGY: "rack"}
    tree = train_job(runtimePatches=[user_patch("node", {"metadata": {"annotations": both}})])
    (error,) = admission.validate_create(ROW, tree, facts(tree, runtime()), KINDS, TRAINER_OPTIONS).errors
    assert error.path == "job[node].annotations"
    assert error.message.endswith("of the training runtime and of spec.runtimePatches of the TrainJob")
    updated = admission.validate_update(ROW, tree, train_job(), facts(tree, runtime()), KINDS, TRAINER_OPTIONS)
    assert [each.path for each in updated.errors] == ["job[node].annotations"]
    sized = {labels.PODSET_SLICE_REQUIRED_TOPOLOGY: "rack", labels.PODSET_SLICE_SIZE: "3"}
    tree = train_job(runtimePatches=[user_patch("node", {"metadata": {"annotations": sized}})])
    (error,) = admission.validate_create(ROW, tree, facts(tree, runtime()), KINDS, TRAINER_OPTIONS).errors
    assert error.path == f"job[node].annotations[{labels.PODSET_SLICE_SIZE}]"


def test_train_job_for_multikueue_is_named_in_a_warning() -> None:
    tree = train_job(managedBy="kueue.x-k8s.io/multikueue")
    result = admission.validate_create(ROW, tree, facts(tree, runtime()), KINDS, TRAINER_OPTIONS)
    assert "MultiKueue is not implemented" in result.warnings[0]
