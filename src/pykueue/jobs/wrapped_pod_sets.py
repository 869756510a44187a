"""Pod templates inside the objects that an AppWrapper wraps: their paths, how many pods they have, and copies of them.

The operator of AppWrappers has the same rules, and its result counts once it is in the status of the wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kubemachinery import quantity, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs.jobset import JOB_INDEX
from pykueue.jobs.podsets import Spot

_PREFIX: Final = "workload.codeflare.dev.appwrapper/"
POD_INDEX_LABEL: Final = f"{_PREFIX}tas-pod-index-label"
SUB_GROUP_INDEX_LABEL: Final = f"{_PREFIX}tas-sub-group-index-label"
SUB_GROUP_COUNT: Final = f"{_PREFIX}tas-sub-group-count"

_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,6})\]")
_COUNT: Final = re.compile(r"[0-9]{1,10}")


class WrappedPodSet(msgspec.Struct, frozen=True):
    """A pod template inside a wrapped object, by its path: `template.spec.template`."""

    path: str
    replicas: int = 1
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


def read(holder: Mapping[str, Any]) -> tuple[WrappedPodSet, ...]:
    """The pod sets that a component declares, or its status reports."""
    return tuple(
        WrappedPodSet(
            unstructured.text(entry.get("path")),
            count_of(entry.get("replicas")),
            unstructured.texts(entry.get("annotations")),
        )
        for _, entry in unstructured.entries(holder, "podSets")
    )


def count_of(value: object, default: int = 1) -> int:
    """A number of pods: a value that is no number reads as `default`, a negative one as 0."""
    found = unstructured.integer(value)
    return default if found is None else max(found, 0)


def sub_group_count(wrapped: WrappedPodSet) -> int | None:
    written = wrapped.annotations.get(SUB_GROUP_COUNT, "")
    return int(written) if _COUNT.fullmatch(written) else None


# --- Paths ------------------------------------------------------------------------------------------------------------


def template_spot(wrapped: Mapping[str, Any], path: str) -> Spot | None:
    """Where a pod template is in a wrapped object; None if the path leads to no object with a spec [AW3]."""
    spot = parse_path(path)
    cursor: Any = wrapped
    for part in spot or ():
        if isinstance(part, int):
            found = unstructured.sequence(cursor)
            cursor = found[part] if part < len(found) else None
        else:
            cursor = unstructured.mapping(cursor).get(part)
    is_template = spot is not None and isinstance(unstructured.get(cursor, "spec"), dict)
    return spot if is_template else None


def parse_path(path: str) -> Spot | None:
    """`template.spec.jobs[0].template` as a path inside the wrapped object; None if it does not have this form."""
    head, rest = path[: len("template")], path[len("template") :]
    if head != "template":
        return None
    steps: list[str | int] = []
    while rest:
        step = _STEP.match(rest)
        if step is None:
            return None
        name, index = step.groups()
        steps.append(name if index is None else int(index))
        rest = rest[step.end() :]
    return tuple(steps)


# --- Inference --------------------------------------------------------------------------------------------------------

Inference: TypeAlias = Callable[[Mapping[str, Any]], Iterator[WrappedPodSet]]


def infer(wrapped: Mapping[str, Any]) -> tuple[WrappedPodSet, ...]:
    """The pod sets that the operator infers from a wrapped object; none of a kind that it does not know [AW2]."""
    kind = (unstructured.text(wrapped.get("apiVersion")), unstructured.text(wrapped.get("kind")))
    inference = _INFERENCES.get(kind)
    return tuple(inference(wrapped)) if inference is not None else ()


def _pod(wrapped: Mapping[str, Any]) -> Iterator[WrappedPodSet]:
    yield WrappedPodSet("template")


def _replicated(wrapped: Mapping[str, Any]) -> Iterator[WrappedPodSet]:
    replicas = count_of(unstructured.get(wrapped, "spec", "replicas"))
    yield WrappedPodSet("template.spec.template", replicas)


def _parallel_pods(spec: object) -> int:
    """How many pods a Job of this spec runs at the same time at most."""
    parallelism = count_of(unstructured.get(spec, "parallelism"))
    return min(parallelism, count_of(unstructured.get(spec, "completions"), parallelism))


def _job(wrapped: Mapping[str, Any]) -> Iterator[WrappedPodSet]:
    pods = _parallel_pods(wrapped.get("spec"))
    yield WrappedPodSet("template.spec.template", pods, {POD_INDEX_LABEL: labels.JOB_COMPLETION_INDEX})


def _job_set(wrapped: Mapping[str, Any]) -> Iterator[WrappedPodSet]:
    for number, job in unstructured.entries(wrapped, "spec", "replicatedJobs"):
        if job.get("template") is None:
            continue
        replicas = count_of(job.get("replicas"))
        yield WrappedPodSet(
            f"template.spec.replicatedJobs[{number}].template.spec.template",
            replicas * _parallel_pods(unstructured.get(job, "template", "spec")),
            {
                POD_INDEX_LABEL: labels.JOB_COMPLETION_INDEX,
                SUB_GROUP_INDEX_LABEL: JOB_INDEX,
                SUB_GROUP_COUNT: str(replicas),
            },
        )


def _pytorch_job(wrapped: Mapping[str, Any]) -> Iterator[WrappedPodSet]:
    for role in ("Master", "Worker"):
        found = unstructured.mapping(unstructured.get(wrapped, "spec", "pytorchReplicaSpecs", role))
        if found.get("template") is not None:
            path = f"template.spec.pytorchReplicaSpecs.{role}.template"
            yield WrappedPodSet(path, count_of(found.get("replicas")), {POD_INDEX_LABEL: _REPLICA_INDEX})


def _ray(*cluster: str) -> Inference:
    prefix = ".".join(("template", *cluster))

    def inference(wrapped: Mapping[str, Any]) -> Iterator[WrappedPodSet]:
        yield WrappedPodSet(f"{prefix}.headGroupSpec.template")
        for number, group in unstructured.entries(wrapped, *cluster, "workerGroupSpecs"):
            if group.get("template") is not None:
                yield WrappedPodSet(f"{prefix}.workerGroupSpecs[{number}].template", count_of(group.get("replicas")))

    return inference


_INFERENCES: Final[Mapping[tuple[str, str], Inference]] = {
    ("v1", "Pod"): _pod,
    ("apps/v1", "Deployment"): _replicated,
    ("apps/v1", "StatefulSet"): _replicated,
    ("batch/v1", "Job"): _job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _job_set,
    ("kubeflow.org/v1", "PyTorchJob"): _pytorch_job,
    ("ray.io/v1", "RayCluster"): _ray("spec"),
    ("ray.io/v1", "RayJob"): _ray("spec", "rayClusterSpec"),
}


def uncounted_pods(wrapped: Mapping[str, Any]) -> Iterator[str]:
    """Pods of Ray objects that the operator does not infer [AW2]. They cannot be declared either: the operator refuses
    pod sets that differ from those it infers."""
    if wrapped.get("apiVersion") != "ray.io/v1" or wrapped.get("kind") not in ("RayCluster", "RayJob"):
        return
    is_job = wrapped.get("kind") == "RayJob"
    cluster = ("spec", "rayClusterSpec") if is_job else ("spec",)
    for number, group in unstructured.entries(wrapped, *cluster, "workerGroupSpecs"):
        hosts = count_of(group.get("numOfHosts"))
        if hosts > 1:
            place = ".".join((*cluster, f"workerGroupSpecs[{number}]"))
            yield f"{place} has numOfHosts {hosts}, and its hosts beyond the first are"
    if is_job and unstructured.get(wrapped, "spec", "submissionMode") in (None, "", "K8sJobMode"):
        yield "the pod that submits the RayJob is"


# --- Copies of pod templates ------------------------------------------------------------------------------------------

# What the copy keeps of a container and of a pod spec as it is written, in addition to what has a default.
_CONTAINER_FIELDS: Final = ("name", "image", "command", "args", "securityContext", "restartPolicy")
_POD_FIELDS: Final = (
    "nodeSelector",
    "nodeName",
    "affinity",
    "tolerations",
    "priorityClassName",
    "topologySpreadConstraints",
    "resources",
    "resourceClaims",
    "runtimeClassName",
)
_POD_DEFAULTS: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "preemptionPolicy": "PreemptLowerPriority",
}


def copied_template(template: Mapping[str, Any]) -> Tree:
    """The part of a pod template that quota depends on, with the defaults of an API server: wrapped objects were not
    defaulted by one [AW4]."""
    spec = unstructured.mapping(template.get("spec"))
    copied: Tree = {key: spec[key] for key in _POD_FIELDS if spec.get(key)}
    for key in ("initContainers", "containers"):
        found = [_copied_container(container) for _, container in unstructured.entries(spec, key)]
        if found or key == "containers":
            copied[key] = found
    copied |= {key: _or(spec.get(key), default) for key, default in _POD_DEFAULTS.items()}
    if spec.get("overhead"):
        copied["overhead"] = _amounts(spec["overhead"])
    metadata = {key: unstructured.texts(unstructured.get(template, "metadata", key)) for key in _METADATA}
    return {"metadata": {key: value for key, value in metadata.items() if value}, "spec": copied}


_METADATA: Final = ("labels", "annotations")


def _copied_container(container: Mapping[str, Any]) -> Tree:
    copied: Tree = {key: container[key] for key in _CONTAINER_FIELDS if container.get(key)}
    needs = unstructured.mapping(container.get("resources"))
    resources: Tree = {key: _amounts(needs[key]) for key in ("requests", "limits") if needs.get(key)}
    if needs.get("claims"):
        resources["claims"] = needs["claims"]
    if resources:
        copied["resources"] = resources
    image = unstructured.text(container.get("image"))
    defaults = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if _is_latest(image) else "IfNotPresent",
    }
    return copied | {key: _or(container.get(key), default) for key, default in defaults.items()}


def _or(value: Any, default: Any) -> Any:
    return default if value is None or value == "" else value


def _is_latest(image: str) -> bool:
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return bool(image) and (tag == "latest" if colon else not digest)


def _amounts(written: object) -> Any:
    return {name: _in_milli(amount) for name, amount in written.items()} if isinstance(written, dict) else written


def _in_milli(amount: Any) -> Any:
    """An amount rounded up to thousandths, the precision that an API server stores. What is no amount is returned as it
    is, and refused with the Workload."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return amount
    try:
        found = quantity.parse(amount)
    except quantity.QuantityError:
        return amount
    rounded = quantity.Quantity(found.rounded(-3), -3, found.format)
    return amount if rounded == found else rounded.canonical
