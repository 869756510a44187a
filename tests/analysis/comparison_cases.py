"""Traces and queues for tests of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubemachinery import yaml_documents
from kubemachinery.yaml_documents import Document
from pykueue.analysis import planner
from pykueue.analysis.planner import Case
from pykueue.analysis.policy_comparison import PolicyComparison
from pykueue.analysis.traces import Trace, TraceJob
from pykueue.api import kube, kueue

START = 1_800_000_000


def queue(
    name: str = "physics", cpu: int = 4, strategy: str = "BestEffortFIFO", cohort: str = "", **spec: Any
) -> list[dict[str, Any]]:
    """A ClusterQueue with one flavor, and its LocalQueue of the same name in the namespace `default`."""
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    own = {
        "queueingStrategy": strategy,
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        **({"cohortName": cohort} if cohort else {}),
        **spec,
    }
    api = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": own},
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": name},
        },
    ]


FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
FAIR = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
}


def case(*objects: dict[str, Any]) -> Case:
    return planner.read([Document(f"object {place}", tree) for place, tree in enumerate([FLAVOR, *objects])])


def of_text(text: str) -> Case:
    return planner.read(yaml_documents.parse(text, "test"))


def job(
    number: int,
    at: int,
    run: int | None = 100,
    cpus: int = 1,
    queue: str = "physics",
    priority: int = 0,
    **more: Any,
) -> TraceJob:
    container = kube.Container(name="main", resources=kube.ResourceRequirements(requests={"cpu": "1"}))
    template = kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
    return TraceJob(
        uid=f"{number:06d}",
        namespace="default",
        name=f"job-{number}",
        queue=queue,
        pod_sets=(kueue.PodSet(count=cpus, template=template),),
        submitted=START + at,
        run_seconds=run,
        priority=priority,
        **more,
    )


def trace(jobs: Sequence[TraceJob], end: int | None = None, **more: Any) -> Trace:
    """A trace from START; complete, unless it has an end."""
    ordered = tuple(sorted(jobs, key=lambda each: (each.submitted, each.uid)))
    last = max((each.submitted for each in ordered), default=START) + 1
    found: dict[str, Any] = {
        "source": "test",
        "begin": START,
        "end": last if end is None else START + end,
        "jobs": ordered,
        "is_complete": end is None,
        "has_recorded": False,
        **more,
    }
    return Trace(**found)


def starts(found: PolicyComparison, column: str) -> dict[str, int | None]:
    """The first starts of a column by job, after START."""
    shown = found.column(column)
    assert shown is not None, column
    return {each.job.name: None if each.started is None else each.started - START for each in shown.replay.outcomes}


Row = tuple[int, int, int, str, int]
"""A job: when it is submitted, how long it runs, its cpus, its queue and its priority."""


def jobs_of(rows: Sequence[Row]) -> list[TraceJob]:
    return [
        job(number, at, run=run, cpus=cpus, queue=name, priority=priority)
        for number, (at, run, cpus, name, priority) in enumerate(rows)
    ]


def two_queues(**spec: Any) -> Case:
    """Two ClusterQueues of a cohort that preempt within themselves, and take back what they lent."""
    preempts = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    return case(
        *queue("a", cpu=3, cohort="all", preemption=preempts, **spec),
        *queue("b", cpu=2, cohort="all", preemption=preempts, **spec),
    )
