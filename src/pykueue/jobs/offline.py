"""Jobs that stand in files: the Workload that each would get on a server, for those who plan without one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from kubemachinery import unstructured
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels
from pykueue.jobs import admission, kinds, pod, pod_group, selection, workloads
from pykueue.jobs.actions import EmitJobEvent
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod_group import PodGroup
from pykueue.jobs.workload_sync import Matched
from pykueue.jobs.workloads import MissingClass


@dataclass(frozen=True, slots=True)
class OfflineContext:
    """What else decides about it."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # their labels
    default_queues: Collection[str] = ()  # the namespaces that have one
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = field(default_factory=dict)
    priority_classes: Mapping[str, kube.PriorityClass] = field(default_factory=dict)


def row_of(tree: Tree) -> JobIntegration | None:
    """The kind of a job that can be queued. Pods that name no queue count as what they are: they hold room on their
    nodes; and so do those that have one already, or belong to something larger."""
    row = _known().of(tree)
    if row is None or row.implementation is None or (row.of_pods and not _waits_for_a_queue(tree)):
        return None
    return row


def _waits_for_a_queue(tree: Tree) -> bool:
    placed, parent = unstructured.get(tree, "spec", "nodeName"), pod.annotation(tree, labels.POD_SUSPENDING_PARENT)
    return bool(selection.queue_name(tree)) and selection.controller(tree) is None and not (placed or parent)


def why_not(tree: Tree) -> str:
    """Why an object that is no job of such a kind plays no part."""
    row = _known().of(tree)
    return "has no part in scheduling" if row is None else "is of a kind that cannot be queued in this version"


def frameworks() -> list[str]:
    """All that can be queued, for whoever does not know what a manager would be told to queue."""
    return [row.framework for row in _known() if row.implementation is not None]


@cache
def _known() -> JobKinds:
    return kinds.load()


def unit(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> tuple[str, str, str]:
    """What gets one Workload: a job, or all pods of a group."""
    job = row.job(tree)
    group = pod.group_name(tree, options) if row.of_pods else ""
    return (f"group of {row.kind.plural}" if group else row.kind.kind, job.namespace, group or job.name)


def workload(
    row: JobIntegration, members: Sequence[Tree], around: OfflineContext, options: IntegrationOptions, now: Nanoseconds
) -> Tree | str:
    """The Workload of a job, or of the pods of a group; or why it gets none."""
    if row.framework not in options.frameworks:
        return f"is not queued: integrations.frameworks of the Configuration does not name {row.framework}"
    namespace = row.job(members[0]).namespace
    marks = around.namespaces.get(namespace, {})
    facts = JobAdmissionFacts(
        namespace=marks,
        default_queue=namespace in around.default_queues,
        default_priority_class=labels.DEFAULT_PRIORITY_CLASS in around.workload_priority_classes,
    )
    submitted = [admission.default(row, tree, facts, _known(), options) for tree in members]
    job = row.job(submitted[0])
    if not selection.is_managed(row, job.tree, marks, options):
        return "names no queue"
    if row.of_pods and pod.group_name(job.tree, options):
        job = PodGroup(row, submitted, options, now)
    if job.outcome() is not None:
        return "is over"
    if trouble := _incomplete(job, options, now):
        return trouble
    pod_sets = job.pod_sets(options)
    known = JobFacts(
        workload_priority_classes=around.workload_priority_classes, priority_classes=around.priority_classes
    )
    rank = workloads.priority(job, pod_sets, known)
    if isinstance(rank, MissingClass):
        return f"waits for {rank}, which is not there"
    return workloads.build(job, pod_sets, rank, options)


def _incomplete(job: GenericJob, options: IntegrationOptions, now: Nanoseconds) -> str:
    """Why no Workload would be made for a group as it is."""
    if not isinstance(job, PodGroup):
        return ""
    found = pod_group.find(job, JobFacts(), options, now)
    if isinstance(found, Matched):
        return ""
    notes = [action.note for action in found if isinstance(action, EmitJobEvent)]
    return f"is in a group that waits: {notes[0]}" if notes else "is in a group that no Workload is made for"
