"""Jobs that stand in files: the Workload that each would get on a server, for those who plan without one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache

from pykueue.api import kube, kueue, labels
from pykueue.api.trees import Tree
from pykueue.jobs import admission, kinds, selection, workloads
from pykueue.jobs.admission import AdmissionFacts
from pykueue.jobs.facts import Facts
from pykueue.jobs.kinds import JobKinds, Row
from pykueue.jobs.options import Options
from pykueue.jobs.workloads import MissingClass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else decides about it."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # their labels
    default_queues: Collection[str] = ()  # the namespaces that have one
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = field(default_factory=dict)
    priority_classes: Mapping[str, kube.PriorityClass] = field(default_factory=dict)


def row_of(tree: Tree) -> Row | None:
    """The kind of a job that can be queued. Pods count as what they are: they hold room on their nodes."""
    row = _known().of(tree)
    return row if row is not None and row.implementation is not None and not row.of_pods else None


def why_not(tree: Tree) -> str:
    """Why an object that is no job of such a kind plays no part."""
    row = _known().of(tree)
    return "has no part in scheduling" if row is None else "is of a kind that cannot be queued in this version"


@cache
def _known() -> JobKinds:
    return kinds.load()


def workload(row: Row, tree: Tree, around: Surroundings, options: Options) -> Tree | str:
    """The Workload of a job, or why it gets none."""
    namespace = row.job(tree).namespace
    marks = around.namespaces.get(namespace, {})
    facts = AdmissionFacts(
        namespace=marks,
        default_queue=namespace in around.default_queues,
        default_priority_class=labels.DEFAULT_PRIORITY_CLASS in around.workload_priority_classes,
    )
    job = row.job(admission.default(row, tree, facts, _known(), options))
    if not selection.is_managed(row, job.tree, marks, options):
        return "names no queue"
    if job.outcome() is not None:
        return "is over"
    pod_sets = job.pod_sets(options)
    known = Facts(workload_priority_classes=around.workload_priority_classes, priority_classes=around.priority_classes)
    rank = workloads.priority(job, pod_sets, known)
    if isinstance(rank, MissingClass):
        return f"waits for {rank}, which is not there"
    return workloads.build(job, pod_sets, rank, options)
