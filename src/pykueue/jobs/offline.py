"""Jobs in files: the Workload that each would get on a server, for plans made without one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels, registry
from pykueue.jobs import admission, kinds, parent_reconcile, pod, related, selection, workloads
from pykueue.jobs.actions import CreateWorkload, EmitJobEvent, RetryWithBackoff
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob, Matched
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_group import PodGroup
from pykueue.jobs.pod_parent import ParentFacts
from pykueue.jobs.workloads import MissingClass

# How many Workloads one object may have in a plan.
WORKLOADS_MAX: Final = 10_000


class OfflineContext(msgspec.Struct, frozen=True):
    """The objects beside a job that decide about its Workload."""

    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)  # their labels
    default_queues: Collection[str] = ()  # the namespaces that have one
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = msgspec.field(default_factory=dict)
    priority_classes: Mapping[str, kube.PriorityClass] = msgspec.field(default_factory=dict)
    # Objects of `second_kinds`, as they are in the files.
    related: Sequence[Tree] = ()

    def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        """A related object."""
        key = (kind.group, kind.kind, namespace if kind.namespaced else "", name)
        return next((tree for tree in self.related if _key(tree, namespaced=kind.namespaced) == key), None)


def _key(tree: Tree, *, namespaced: bool) -> tuple[str, str, str, str]:
    view = ObjectView(tree)
    group, _, _ = view.api_version.rpartition("/")
    return group, view.kind, view.namespace if namespaced else "", view.name


def row_of(tree: Tree) -> JobIntegration | None:
    """The integration of a job that can be queued; None for pods without a queue name, with a node or with an owner,
    which only use capacity of their nodes."""
    row = _row_of(ObjectView(tree))
    if row is None or row.implementation is None:
        return None
    if row.parent_type is not None:
        return None if row.parent(tree).is_of_another else row
    return None if row.of_pods and not _waits_for_a_queue(tree) else row


def _waits_for_a_queue(tree: Tree) -> bool:
    pod = PodView(tree)
    is_placed = bool(pod.node_name or pod.annotations.get(labels.POD_SUSPENDING_PARENT))
    return bool(selection.queue_name(pod)) and pod.controller is None and not is_placed


def second_kind(tree: Tree) -> Kind | None:
    """The kind of an object that jobs of an integrated kind refer to; None for any other object."""
    view = ObjectView(tree)
    group, _, _ = view.api_version.rpartition("/")
    rows = (row for row in _known() if row.implementation is not None)
    return next((kind for row in rows for kind in row.reads if (kind.group, kind.kind) == (group, view.kind)), None)


def why_not(tree: Tree) -> str:
    """Why an object without an integration is left out."""
    row = _known().of(ObjectView(tree))
    return "has no part in scheduling" if row is None else "is of a kind that cannot be queued in this version"


def frameworks() -> list[str]:
    """Every implemented framework, for plans without a Configuration."""
    return [row.framework for row in _known() if row.implementation is not None]


@cache
def _known() -> JobKinds:
    return kinds.load()


_BUILT_IN: Final = JobKinds(kinds.BUILT_IN)


def _row_of(thing: ObjectView) -> JobIntegration | None:
    """The integration of an object. Those of other distributions are loaded for kinds that are not known without."""
    row = _BUILT_IN.of(thing)
    is_known = row is not None or registry.ALL.find(thing.api_version, thing.kind) is not None
    return row if is_known and (row is None or row.implementation is not None) else _known().of(thing)


def unit(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> tuple[str, str, str]:
    """The key of what gets one Workload: a job, or all pods of a group."""
    job = PodView(tree)
    group = job.group_name(options) if row.of_pods and row.parent_type is None else ""
    return (f"group of {row.kind.plural}" if group else row.kind.kind, job.namespace, group or job.name)


def workloads_of(
    row: JobIntegration, members: Sequence[Tree], around: OfflineContext, options: IntegrationOptions, now: Nanoseconds
) -> tuple[Tree, ...] | str:
    """The Workload of a job or of the pods of a group, the Workloads of a kind made of pods; or the reason why there
    are none."""
    if row.parent_type is None:
        found = _workload(row, members, around, options, now)
        return found if isinstance(found, str) else (found,)
    if not _known().is_enabled(row, options.frameworks):
        return _not_enabled(row)
    parent = row.parent(members[0])
    namespace = around.namespaces.get(parent.namespace, {})
    facts = _admission_facts(row, members[0], around)
    tree = admission.default(row, parent.tree, facts, _known(), options)
    if not selection.is_managed(row, ObjectView(tree), namespace, options):
        return "names no queue"
    count = row.parent(tree).workload_count
    if count > WORKLOADS_MAX:
        return f"requests {count} Workloads, maximum {WORKLOADS_MAX}"
    if not row.parent_type.is_reconciled:
        return _of_each_pod(tree, around, options, now)
    decided = parent_reconcile.reconcile(
        row,
        ParentFacts(
            tree=tree,
            creates_max=WORKLOADS_MAX,
            namespace=namespace,
            is_managed=True,
            workload_priority_classes=around.workload_priority_classes,
            priority_classes=around.priority_classes,
        ),
        options,
        now,
    )
    actions = [action for branch in decided for action in branch]
    waits = next((action.reason for action in actions if isinstance(action, RetryWithBackoff)), "")
    made = tuple(action.workload for action in actions if isinstance(action, CreateWorkload))
    return made or (f"waits: {waits}" if waits else "has no replicas")


def _of_each_pod(
    tree: Tree, around: OfflineContext, options: IntegrationOptions, now: Nanoseconds
) -> tuple[Tree, ...] | str:
    """The Workloads of a kind of which each pod is a job: one for each replica."""
    row = _known().framework(pod.FRAMEWORK)
    assert row is not None
    parent = ObjectView(tree)
    replicas = unstructured.integer(parent.spec.get("replicas"))
    template = unstructured.mapping(parent.spec.get("template"))
    made: list[Tree] = []
    for number in range(1 if replicas is None else max(0, replicas)):
        metadata = {
            **unstructured.mapping(template.get("metadata")),
            "name": f"{parent.name}-{number}",
            "namespace": parent.namespace,
        }
        one: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}
        found = _workload(row, (one,), around, options, now)
        if isinstance(found, str):
            return found
        made.append(found)
    return tuple(made) or "has no replicas"


def _not_enabled(row: JobIntegration) -> str:
    return f"is not queued: integrations.frameworks of the Configuration does not name {row.framework}"


def _admission_facts(row: JobIntegration, tree: Tree, around: OfflineContext) -> JobAdmissionFacts:
    namespace = ObjectView(tree).namespace
    return JobAdmissionFacts(
        namespace=around.namespaces.get(namespace, {}),
        default_queue=namespace in around.default_queues,
        default_priority_class=labels.DEFAULT_PRIORITY_CLASS in around.workload_priority_classes,
        related=related.among(row, tree, around.find),
    )


def _workload(
    row: JobIntegration, members: Sequence[Tree], around: OfflineContext, options: IntegrationOptions, now: Nanoseconds
) -> Tree | str:
    """The Workload of a job, or of the pods of a group; or the reason why it gets none."""
    if not _known().is_enabled(row, options.frameworks):
        return _not_enabled(row)
    facts = _admission_facts(row, members[0], around)
    submitted = [admission.default(row, tree, facts, _known(), options) for tree in members]
    job = row.job(submitted[0], facts.related)
    if not selection.is_managed(row, job, facts.namespace, options):
        return "names no queue"
    if row.of_pods and PodView(job.tree).group_name(options):
        job = PodGroup(row, [PodView(tree) for tree in submitted], options, now)
    if job.outcome() is not None:
        return "is finished"
    if problem := job.pod_sets_problem(options):
        return f"gets no Workload: {problem}"
    if problem := _incomplete(job, options, now):
        return problem
    pod_sets = job.pod_sets(options)
    if not pod_sets:
        return "gets no Workload: it has no pod templates"
    known = JobFacts(
        workload_priority_classes=around.workload_priority_classes, priority_classes=around.priority_classes
    )
    rank = workloads.priority(job, pod_sets, known)
    if isinstance(rank, MissingClass):
        return f"waits for {rank}, which does not exist"
    return workloads.build(job, pod_sets, rank, options)


def refusals(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> tuple[FieldError, ...]:
    """The errors with which the webhook would refuse a new job; none for a framework that is not enabled."""
    if not _known().is_enabled(row, options.frameworks):
        return ()
    facts = JobAdmissionFacts()
    submitted = admission.default(row, tree, facts, _known(), options)
    return admission.validate_create(row, submitted, facts, _known(), options).errors


def _incomplete(job: GenericJob, options: IntegrationOptions, now: Nanoseconds) -> str:
    """Why no Workload would be created for a group as it is."""
    found = job.find_workload(JobFacts(), options, now)
    if found is None or isinstance(found, Matched):
        return ""
    notes = [action.note for action in found if isinstance(action, EmitJobEvent)]
    return f"is in a group that waits: {notes[0]}" if notes else "is in a group for which no Workload is created"
