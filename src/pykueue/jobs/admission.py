"""The one webhook of all kinds: what a new job gets, and what is refused. Pure functions of trees.

A new job of ours is held back before anybody can start it: suspended, or a pod gated. Whether it is ours is asked in
`selection`, as everywhere. The default LocalQueue and the default WorkloadPriorityClass are filled in first, and only
for jobs that stand for themselves: what belongs to a job that is ours follows that one.

Owners are read only for objects that would be changed otherwise (`asks_for_owners`): a job that is not ours by itself
passes without a single request. Where an owner cannot be read, see `owners`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import job_metadata
from pykueue.jobs import selection, unreadable_owners
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.selection import Ancestry


@dataclass(frozen=True)
class JobAdmissionFacts:
    """What the webhook needs to know beside the object."""

    # The labels of the namespace, which are always there when an object is created in it.
    namespace: Mapping[str, str] = field(default_factory=dict)
    ancestry: Ancestry = field(default_factory=Ancestry)
    # The namespace has a LocalQueue `default` that is not stopped.
    default_queue: bool = False
    # There is a WorkloadPriorityClass `default`.
    default_priority_class: bool = False


@dataclass(frozen=True)
class AdmissionResult:
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()


# --- Defaulting -------------------------------------------------------------------------------------------------------


def default(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> Tree:
    """A new job as it is stored. Asked on CREATE only."""
    if _is_parented(row, tree):
        # Everything else is the parent's business.
        return row.job(tree).defaulted(options)
    belongs = selection.belongs(facts.ancestry, facts.namespace, kinds, options)
    if row.of_pods and (belongs or not _concerns(row, tree, facts, options)):
        return tree
    tree = _with_defaults(row, tree, facts, kinds, options)
    if belongs or not _is_held(row, tree, facts, options):
        return tree
    held, unread = row.job(tree).defaulted(options), facts.ancestry.unread
    return held if unread is None else unreadable_owners.marked(held, unread)


def asks_for_owners(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> bool:
    """Whether it matters to whom a new job belongs: without an ancestor it would be held, or a pod be changed at all.
    An ancestor only ever leads to fewer changes, so that everything else is decided without it."""
    if selection.controller(tree) is None or _is_parented(row, tree):
        return False
    alone = default(row, tree, replace(facts, ancestry=Ancestry()), kinds, options)
    if row.of_pods:
        return alone is not tree
    return _is_held(row, _with_defaults(row, tree, facts, kinds, options), facts, options)


def _is_parented(row: JobIntegration, tree: Tree) -> bool:
    return row.of_pods and labels.POD_SUSPENDING_PARENT in row.job(tree).annotations


def _concerns(row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, options: IntegrationOptions) -> bool:
    """Whether a pod is looked at: it names a queue, or its namespace is selected."""
    named = selection.queue_name(tree) and not options.selector_always_respected
    return bool(named) or selection.selects(row, facts.namespace, options)


def _is_held(row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, options: IntegrationOptions) -> bool:
    """Whether a new job must not start by itself.

    With the gate ManagedJobsNamespaceSelectorAlwaysRespected, a job outside that names a queue is held as well, and
    nobody will ever start it: it asked for a queue, so running it freely would be worse.
    """
    if row.job(tree).is_deleting and options.skip_ancestors_of_deleted:
        return False
    return bool(selection.queue_name(tree)) or selection.is_managed(row, tree, facts.namespace, options)


def _with_defaults(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> Tree:
    owner = selection.controller(tree)
    if owner is not None and selection.is_managed_kind(owner, kinds, options):
        return tree
    selected = selection.selects(row, facts.namespace, options)
    if facts.default_queue and selected and not selection.queue_name(tree):
        tree = _labelled(tree, labels.QUEUE_NAME, labels.DEFAULT_LOCAL_QUEUE)
    wants_class = options.default_priority_class and facts.default_priority_class
    if wants_class and not unstructured.get(tree, "metadata", "labels", labels.PRIORITY_CLASS):
        tree = _labelled(tree, labels.PRIORITY_CLASS, labels.DEFAULT_PRIORITY_CLASS)
    return tree


def _labelled(tree: Tree, key: str, value: str) -> Tree:
    marks = unstructured.mapping(unstructured.get(tree, "metadata", "labels"))
    return unstructured.put(tree, ("metadata", "labels"), {**marks, key: value})


# --- Validation -------------------------------------------------------------------------------------------------------


def validate_create(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> AdmissionResult:
    """What is wrong with a new job, and what its author should know."""
    job = row.job(tree)
    found = [*_new(row, job, options), *job.validate_create(options), *job.validate_new(options)]
    return AdmissionResult(_once(found), _warnings(row, job, kinds, options))


def validate_update(
    row: JobIntegration, new: Tree, old: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> AdmissionResult:
    """What is wrong with `new` in place of `old`."""
    job, before = row.job(new), row.job(old)
    errors = job_metadata.validate_update(
        new,
        old,
        options.validation,
        suspended=job.is_suspended(),
        was_suspended=before.is_suspended(),
        takes_prebuilt=row.takes_prebuilt,
        default_queue_exists=facts.default_queue,
    )
    repeated = _new(row, job, options) if row.repeats_rules else ()
    found = [*errors, *repeated, *job.validate_create(options), *job.validate_update(before, options)]
    parented = labels.POD_SUSPENDING_PARENT in job.annotations
    return AdmissionResult(_once(found), () if parented else _warnings(row, job, kinds, options))


def _new(row: JobIntegration, job: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
    """The rules for a new job of any kind."""
    return job_metadata.validate_create(
        job.tree, options.validation, takes_prebuilt=row.takes_prebuilt, takes_elastic=row.takes_elastic
    )


def _once(errors: list[FieldError]) -> tuple[FieldError, ...]:
    return tuple({(error.path, error.message): error for error in errors}.values())


def _warnings(row: JobIntegration, job: GenericJob, kinds: JobKinds, options: IntegrationOptions) -> tuple[str, ...]:
    warnings = list(job.warnings(options))
    if unreadable_owners.is_marked(job.tree):
        owner = job.annotations[labels.UNREAD_OWNER]
        warnings.append(f"its owner {owner} could not be read: it is held, without a Workload, until that succeeds")
    reference = selection.controller(job.tree)
    if (
        row.of_pods
        and job.labels.get(labels.MANAGED) == "true"
        and reference is not None
        and selection.is_managed_kind(reference, kinds, options)
    ):
        warnings.append(f"the owner of the pod is managed already; {labels.MANAGED}=true may not do what you expect")
    return tuple(warnings)
