"""The JobSet of a TrainJob, rendered from its training runtime, as far as quota depends on it [TJ1].

The operator of TrainJobs renders the same JobSet and adds what the pods need at run time: variables, ports and volumes
of the machine-learning framework. Those are left out here, as in Kueue. Nothing is changed in place: neither the
runtime nor the TrainJob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubemachinery import strategic_merge, unstructured
from kubemachinery.patches import PatchError
from kubemachinery.unstructured import Tree

# The manager of the runtime patch in which admission is written.
PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"

_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
_INITIALIZERS: Final = {"dataset-initializer": "dataset", "model-initializer": "model"}
# The name of the training container, and of the replicated job that has the workers of an MPI job.
_NODE: Final = "node"
_POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
_POD_TEMPLATE: Final = ("template", "spec", "template")


def _merged_by(key: str, items: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key, "items": items or {}}


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"properties": properties}


# How lists are merged that a runtime patch may contain; all other lists are replaced.
_CONTAINER: Final = _object(env=_merged_by("name"), volumeMounts=_merged_by("mountPath"))
_POD_SPEC: Final = _object(
    containers=_merged_by("name", _CONTAINER),
    initContainers=_merged_by("name", _CONTAINER),
    volumes=_merged_by("name"),
    imagePullSecrets=_merged_by("name"),
    schedulingGates=_merged_by("name"),
)
_JOB_TEMPLATE: Final = _object(spec=_object(template=_object(spec=_POD_SPEC)))
_JOB_SET_SPEC: Final = _object(replicatedJobs=_merged_by("name", _object(template=_JOB_TEMPLATE)))


def render(train_job: Tree, runtime: Tree) -> Tree:
    """The JobSet of a TrainJob, without its metadata."""
    spec = unstructured.mapping(train_job.get("spec"))
    policy = unstructured.get(runtime, "spec", "mlPolicy")
    jobs = [
        _with_pods(_rendered(job, spec, policy), _count(job, spec, policy))
        for job in _patched(unstructured.get(runtime, "spec", "template", "spec"), spec)
    ]
    if unstructured.get(runtime, "spec", "podGroupPolicy", "coscheduling") is not None:
        group = unstructured.text(unstructured.get(train_job, "metadata", "name"))
        jobs = [unstructured.put(job, (*_POD_TEMPLATE, "metadata", "labels", _POD_GROUP), group) for job in jobs]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": jobs}}


# --- Runtime patches --------------------------------------------------------------------------------------------------


def _patched(template: object, spec: Mapping[str, Any]) -> list[Tree]:
    """The replicated jobs of the runtime, in its order, with the patches of the TrainJob. The patch of this manager is
    left out: what an admission added is not part of the pod sets."""
    merged: Tree = {"replicatedJobs": unstructured.sequence(unstructured.get(template, "replicatedJobs"))}
    names = [unstructured.text(unstructured.get(job, "name")) for job in merged["replicatedJobs"]]
    for _, patch in unstructured.entries(spec, "runtimePatches"):
        if patch.get("manager") == PATCH_MANAGER:
            continue
        jobs = [
            job
            for _, job in unstructured.entries(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
            if unstructured.text(job.get("name")) in names
        ]
        try:
            merged = strategic_merge.merge(merged, {"replicatedJobs": jobs}, _JOB_SET_SPEC)
        except PatchError:
            continue  # the operator refuses it, and nothing is created from it
    by_name = {unstructured.text(unstructured.get(job, "name")): job for job in merged["replicatedJobs"]}
    return [dict(unstructured.mapping(by_name[name])) for name in names]


# --- Counts -----------------------------------------------------------------------------------------------------------


def _step(job: Mapping[str, Any]) -> str:
    return unstructured.text(unstructured.get(job, "template", "metadata", "labels", _STEP))


def _runs_launcher_as_node(policy: object) -> bool:
    return unstructured.get(policy, "mpi", "runLauncherAsNode") is True


def _count(job: Mapping[str, Any], spec: Mapping[str, Any], policy: object) -> int:
    """How many pods a replicated job has: `spec.trainer.numNodes`, else `mlPolicy.numNodes`, else its parallelism."""
    is_trainer = _step(job) == _TRAINER
    count = unstructured.integer(unstructured.get(job, "template", "spec", "parallelism"))
    if is_trainer and policy is not None:
        count = unstructured.integer(unstructured.get(policy, "numNodes"))
    count = max(1 if count is None else count, 1)
    nodes = unstructured.integer(unstructured.get(spec, "trainer", "numNodes"))
    if nodes is None:
        return count
    if unstructured.get(policy, "mpi") is None:
        return max(nodes, 0) if is_trainer else count
    if job.get("name") != _NODE:
        return count
    # The launcher is one of the nodes.
    return max(nodes - 1, 1) if _runs_launcher_as_node(policy) else max(nodes, 0)


def _with_pods(job: Tree, count: int) -> Tree:
    job = unstructured.put(job, ("template", "spec", "parallelism"), count)
    return unstructured.put(job, ("template", "spec", "completions"), count)


# --- Containers -------------------------------------------------------------------------------------------------------


def _rendered(job: Tree, spec: Mapping[str, Any], policy: object) -> Tree:
    """A replicated job with what the TrainJob requests for its step."""
    step, trainer = _step(job), unstructured.mapping(spec.get("trainer"))
    is_worker = _runs_launcher_as_node(policy) and job.get("name") == _NODE
    if (step == _TRAINER and policy is not None) or is_worker:
        job = _with_container(job, _NODE, lambda found: _with_resources(found, trainer.get("resourcesPerNode")))
    if step == _TRAINER:
        job = {**job, "replicas": 1}
        job = _with_container(job, _NODE, lambda found: {**found, **_overrides(trainer)})
    if step == _TRAINER or is_worker:
        job = _with_container(job, _NODE, lambda found: _with_variables(found, _variables(trainer)))
    if step in _INITIALIZERS:
        source = unstructured.mapping(unstructured.get(spec, "initializer", _INITIALIZERS[step]))
        job = {**job, "replicas": 1}
        job = _with_container(job, step, lambda found: _initialized(found, source))
    return job


def _with_container(job: Tree, name: str, change: Callable[[Tree], Tree]) -> Tree:
    def change_named(container: Tree) -> Tree:
        return change(container) if container.get("name") == name else container

    return unstructured.changed(job, (*_POD_TEMPLATE, "spec", "containers"), unstructured.each(change_named))


def _with_resources(container: Tree, needs: object) -> Tree:
    """Requests and limits of the TrainJob replace those of the runtime, resource by resource."""
    before = unstructured.mapping(container.get("resources"))
    merged = {
        key: {**unstructured.mapping(before.get(key)), **unstructured.mapping(unstructured.get(needs, key))}
        for key in ("requests", "limits")
    }
    found = {**before, **{key: value for key, value in merged.items() if value}}
    return {**container, "resources": found} if found else container


def _overrides(trainer: Mapping[str, Any]) -> Tree:
    return {key: trainer[key] for key in ("image", "command", "args") if trainer.get(key) is not None}


def _variables(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (variable for _, variable in unstructured.entries(holder, "env"))


def _with_variables(container: Tree, variables: Iterable[Mapping[str, Any]]) -> Tree:
    """The container with these variables, each in the place of the one with its name."""
    found = {
        unstructured.text(unstructured.get(each, "name")): each for each in unstructured.sequence(container.get("env"))
    }
    found |= {unstructured.text(variable.get("name")): variable for variable in variables}
    return {**container, "env": list(found.values())} if found else container


def _initialized(container: Tree, source: Mapping[str, Any]) -> Tree:
    if source.get("storageUri") is not None:
        container = _with_variables(container, ({"name": "STORAGE_URI", "value": source["storageUri"]},))
    container = _with_variables(container, _variables(source))
    secret = unstructured.get(source, "secretRef", "name")
    if secret is not None:
        before = unstructured.sequence(container.get("envFrom"))
        container = {**container, "envFrom": [*before, {"secretRef": {"name": secret}}]}
    return container
