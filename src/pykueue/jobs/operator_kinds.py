"""Kinds of other API groups that are watched or read beside jobs, without the modules of the job kinds."""

from __future__ import annotations

from typing import Final

from kubemachinery.kinds import Kind, Scope, Version

_RAY: Final = (Version("v1", storage=True),)
RAY_CLUSTER: Final = Kind("ray.io", "RayCluster", "rayclusters", _RAY, subresources=("status",))
RAY_JOB: Final = Kind("ray.io", "RayJob", "rayjobs", _RAY, subresources=("status",))
RAY_SERVICE: Final = Kind("ray.io", "RayService", "rayservices", _RAY, subresources=("status",))

_TRAINER: Final = "trainer.kubeflow.org"
_TRAINER_VERSIONS: Final = (Version("v1alpha1", storage=True),)
TRAINING_RUNTIME: Final = Kind(_TRAINER, "TrainingRuntime", "trainingruntimes", _TRAINER_VERSIONS)
CLUSTER_TRAINING_RUNTIME: Final = Kind(
    _TRAINER, "ClusterTrainingRuntime", "clustertrainingruntimes", _TRAINER_VERSIONS, scope=Scope.CLUSTER
)
JOB_SET: Final = Kind("jobset.x-k8s.io", "JobSet", "jobsets", (Version("v1alpha2", storage=True),))

# An owner between a pod and its Deployment, and no job itself.
REPLICA_SET: Final = Kind("apps", "ReplicaSet", "replicasets", (Version("v1", storage=True),))
