"""A RayCluster, a RayJob with a submitter, and a RayService."""

from __future__ import annotations

from jobs.ray_objects import ray_cluster, ray_job, ray_service, template
from jobs.samples import JobSample, condition
from kubemachinery.unstructured import Tree


def _job() -> Tree:
    return ray_job(mode="K8sJobMode", submitterPodTemplate=template())


SAMPLES = (
    JobSample(
        "ray.io/raycluster",
        ray_cluster,
        running={"state": "ready", "availableWorkerReplicas": 1, "head": {"podName": "ray-head"}},
        stopped={"state": "suspended", "availableWorkerReplicas": 0, "head": {"podName": ""}},
    ),
    JobSample(
        "ray.io/rayjob",
        _job,
        running={"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterStatus": {"state": "ready"}},
        stopped={"jobDeploymentStatus": "Suspended", "jobStatus": "", "rayClusterStatus": {"state": ""}},
        succeeded={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
        failed={"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "broken"},
    ),
    JobSample(
        "ray.io/rayservice",
        ray_service,
        running={"conditions": [condition("Ready")]},
        stopped={"conditions": [{**condition("Ready"), "status": "False"}]},
    ),
)
