"""Ray objects in tests: as the server stores them, suspended, with the queue name `lq`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS
from kubemachinery import patches
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs.interface import NO_RELATED, RelatedObjects
from pykueue.jobs.ray import RayKind

RAY = replace(OPTIONS, frameworks=("batch/job", "ray.io/raycluster", "ray.io/rayjob", "ray.io/rayservice"))
UID = "11111111-2222-3333-4444-555555555555"
ELASTIC = {labels.ELASTIC_JOB: "true"}


def template(cpu: str = "1", **fields: Any) -> Tree:
    container = {"name": "ray", "image": "ray:1", "resources": {"requests": {"cpu": cpu}}}
    merged: Tree = patches.merge({"metadata": {}, "spec": {"containers": [container]}}, fields)
    return merged


def group(name: str = "small", replicas: int | None = 1, **fields: Any) -> Tree:
    found: Tree = {"groupName": name, "rayStartParams": {}, "template": template(), **fields}
    return found if replicas is None else {**found, "replicas": replicas}


def cluster_spec(*groups: Tree, **fields: Any) -> Tree:
    head = {"rayStartParams": {}, "template": template()}
    return {"headGroupSpec": head, "workerGroupSpecs": list(groups or (group(),)), **fields}


def ray_cluster(*groups: Tree, metadata: Tree | None = None, status: Tree | None = None, **spec: Any) -> Tree:
    return _object("RayCluster", metadata, {"suspend": True, **cluster_spec(*groups), **spec}, status)


def ray_job(
    *groups: Tree,
    metadata: Tree | None = None,
    status: Tree | None = None,
    cluster: Tree | None = None,
    mode: str = "HTTPMode",
    **spec: Any,
) -> Tree:
    given = {
        "suspend": True,
        "submissionMode": mode,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": cluster_spec(*groups, **(cluster or {})),
    }
    return _object("RayJob", metadata, {**given, **spec}, status)


def ray_service(
    *groups: Tree, metadata: Tree | None = None, status: Tree | None = None, cluster: Tree | None = None
) -> Tree:
    config = {"suspend": True, **cluster_spec(*groups, **(cluster or {}))}
    return _object("RayService", metadata, {"serveConfigV2": "", "rayClusterConfig": config}, status)


def _object(kind: str, metadata: Tree | None, spec: Tree, status: Tree | None) -> Tree:
    given = {
        "name": "ray",
        "namespace": "main",
        "uid": UID,
        "resourceVersion": "1",
        "generation": 1,
        "labels": {labels.QUEUE_NAME: "lq"},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": patches.merge(given, metadata or {}),
        "spec": spec,
        "status": status or {},
    }


def view(tree: Tree, related: RelatedObjects = NO_RELATED) -> RayKind:
    row = KINDS.of(ObjectView(tree))
    assert row is not None
    job = row.job(tree, related)
    assert isinstance(job, RayKind)
    return job


def counts(tree: Tree, related: RelatedObjects = NO_RELATED) -> dict[str, int]:
    """The counts of the pod sets, by name."""
    return {pod_set["name"]: pod_set["count"] for pod_set in view(tree, related).pod_sets(RAY)}


def containers(tree: Tree, pod_set: str = "head") -> dict[str, Any]:
    """The requests of the containers of a pod set, by name."""
    (found,) = [each for each in view(tree).pod_sets(RAY) if each["name"] == pod_set]
    return {each["name"]: each["resources"]["requests"] for each in found["template"]["spec"]["containers"]}
