"""A SparkApplication with two executors."""

from __future__ import annotations

from jobs.samples import JobSample
from jobs.test_spark_application import spark
from kubemachinery.unstructured import Tree


def state(name: str, **more: str | Tree | None) -> Tree:
    return {"applicationState": {"state": name}, **more}


SAMPLES = (
    JobSample(
        "sparkoperator.k8s.io/sparkapplication",
        spark,
        running=state("RUNNING", executorState={"e1": "RUNNING", "e2": "RUNNING"}),
        stopped=state("SUSPENDED", executorState=None),
        succeeded=state("COMPLETED"),
        failed=state("FAILED"),
        has_variables=False,
        has_templates=False,
    ),
)
