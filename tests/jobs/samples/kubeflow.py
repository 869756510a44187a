"""One job of each kind of the Training Operator, and an MPIJob, with one pod of each replica type."""

from __future__ import annotations

from functools import partial

from jobs.samples import JobSample, condition, metadata, template
from kubemachinery.unstructured import Tree

# The replica specs of each kind. The tables of the integrations are not used: they are what is tested.
REPLICAS = {
    "PyTorchJob": ("v1", "pytorchReplicaSpecs", ("Master", "Worker")),
    "TFJob": ("v1", "tfReplicaSpecs", ("Chief", "PS", "Worker", "Evaluator")),
    "XGBoostJob": ("v1", "xgbReplicaSpecs", ("Master", "Worker")),
    "PaddleJob": ("v1", "paddleReplicaSpecs", ("Master", "Worker")),
    "JAXJob": ("v1", "jaxReplicaSpecs", ("Worker",)),
    "MPIJob": ("v2beta1", "mpiReplicaSpecs", ("Launcher", "Worker")),
}


def stored(kind: str) -> Tree:
    """A job with the queue name `lq`, as the server stores it after the webhook."""
    version, field, types = REPLICAS[kind]
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": metadata("train"),
        "spec": {
            "runPolicy": {"suspend": True},
            field: {type_: {"replicas": 1, "template": template()} for type_ in types},
        },
    }


SAMPLES = tuple(
    JobSample(
        f"kubeflow.org/{kind.lower()}",
        partial(stored, kind),
        running={"replicaStatuses": {"Worker": {"active": 1}}, "conditions": [condition("Running")]},
        stopped={"replicaStatuses": {"Worker": {"active": 0}}, "conditions": [condition("Suspended")]},
        succeeded={"replicaStatuses": {"Worker": {"active": 0}}, "conditions": [condition("Succeeded", "done")]},
        failed={"replicaStatuses": {"Worker": {"active": 0}}, "conditions": [condition("Failed", "broken")]},
    )
    for kind in REPLICAS
)
