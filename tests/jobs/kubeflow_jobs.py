"""Jobs of the Training Operator and of the MPI Operator, as the server stores them after the webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobs.job_harness import KINDS
from kubemachinery import patches
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs.mpi_job import MPIJob
from pykueue.jobs.training_operator import REPLICAS, ReplicaSpecs

TRAINING: Final = tuple(REPLICAS)
KUBEFLOW: Final = (*TRAINING, "MPIJob")
FRAMEWORKS: Final = tuple(f"kubeflow.org/{kind.lower()}" for kind in KUBEFLOW)
ROWS: Final = dict(zip(KUBEFLOW, KINDS.enabled(FRAMEWORKS), strict=True))


def replica_specs(kind: str) -> ReplicaSpecs:
    """The replica specs of a kind."""
    if kind != "MPIJob":
        return REPLICAS[kind]
    job = ROWS[kind].job({})
    assert isinstance(job, MPIJob)
    return job.replicas


def replica(replicas: int | None = 1, annotations: dict[str, str] | None = None, **spec: Any) -> Tree:
    """One replica spec; without `replicas` for None."""
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    template: Tree = {"spec": {"containers": [container], **spec}}
    found = {"template": template | ({"metadata": {"annotations": annotations}} if annotations else {})}
    return found if replicas is None else {"replicas": replicas, **found}


def kubeflow_job(kind: str, replicas: Mapping[str, Tree | None] | None = None, **fields: Any) -> Tree:
    """A suspended job named `alpha` in the queue `lq`, with one pod of each replica type unless given."""
    specs = replica_specs(kind)
    given: Tree = {
        "apiVersion": ROWS[kind].kind.api_version,
        "kind": kind,
        "metadata": {
            "name": "alpha",
            "namespace": "main",
            "uid": "uid-alpha",
            "resourceVersion": "1",
            "generation": 1,
            "labels": {labels.QUEUE_NAME: "lq"},
        },
        "spec": {
            "runPolicy": {"suspend": True},
            specs.field: {name: replica() for name in specs.types} if replicas is None else replicas,
        },
    }
    merged: Tree = patches.merge(given, fields)
    return merged


def condition(type_: str, status: str = "True", message: str = "") -> Tree:
    return {"type": type_, "status": status, "message": message, "reason": "Any"}
