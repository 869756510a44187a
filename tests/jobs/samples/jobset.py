"""A JobSet of two replicated jobs: one driver, and two workers of two pods each."""

from __future__ import annotations

from typing import Any

from jobs.samples import JobSample, condition, metadata, template
from kubemachinery import patches
from kubemachinery.unstructured import Tree


def replicated(name: str, replicas: int = 1, pods: int = 1, cpu: str = "1") -> Tree:
    """One replicated job."""
    spec = {"parallelism": pods, "completions": pods, "template": template(cpu)}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job_set(name: str = "pair", **fields: Any) -> Tree:
    """A JobSet with the queue name `lq`, as the server stores it after the webhook."""
    given: Tree = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(name),
        "spec": {"suspend": True, "replicatedJobs": [replicated("driver"), replicated("worker", 2, 2)]},
    }
    merged: Tree = patches.merge(given, fields)
    return merged


def statuses(driver: Tree, worker: Tree) -> Tree:
    """The rows of `status.replicatedJobsStatus`, in another order than in the spec."""
    return {"replicatedJobsStatus": [{"name": "worker", **worker}, {"name": "driver", **driver}]}


SAMPLES = (
    JobSample(
        "jobset.x-k8s.io/jobset",
        job_set,
        running=statuses({"active": 1, "ready": 1}, {"active": 2, "ready": 2}),
        stopped=statuses({"active": 0, "ready": 0, "suspended": 1}, {"active": 0, "ready": 0, "suspended": 2}),
        succeeded=statuses({"succeeded": 1}, {"succeeded": 2}) | {"conditions": [condition("Completed", "done")]},
        failed={"conditions": [condition("Failed", "broken")]},
    ),
)
