"""The webhook of all job kinds: what a new job gets, and what is refused. Pure functions of trees.

A new managed job is held before it can start: suspended, or a pod gated. `selection` decides whether it is managed. The
default LocalQueue and the default WorkloadPriorityClass are filled in first, and only for jobs without a managed
ancestor: a child of a managed job follows its ancestor.

Owners are read only for objects that would otherwise be changed (`needs_owners`): a job that is not managed by itself
passes without a request. `unreadable_owners` has the rules for owners that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from kubemachinery.field_errors import FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import job_metadata
from pykueue.jobs import hints, selection, unreadable_owners
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.interface import GenericJob, RelatedObjects
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions


class JobAdmissionFacts(msgspec.Struct, frozen=True):
    """What the webhook needs to know in addition to the object."""

    # The labels of the namespace, which exists whenever an object is created in it.
    namespace: Mapping[str, str] = msgspec.field(default_factory=dict)
    ancestry: Ancestry = msgspec.field(default_factory=Ancestry)
    # The namespace has a LocalQueue `default` that is not stopped.
    default_queue: bool = False
    # A WorkloadPriorityClass `default` exists.
    default_priority_class: bool = False
    # The user name of the request.
    user: str = ""
    # The related objects of the job that exist, and of the job before an update.
    related: RelatedObjects = msgspec.field(default_factory=dict)
    old_related: RelatedObjects = msgspec.field(default_factory=dict)


class AdmissionResult(msgspec.Struct, frozen=True):
    """The field errors and warnings of one job."""

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    # Why the pod sets cannot be built; empty if they can, or if there are errors.
    problem: str = ""


# --- Defaulting -------------------------------------------------------------------------------------------------------


def default(
    row: JobIntegration,
    tree: Tree,
    facts: JobAdmissionFacts,
    kinds: JobKinds,
    options: IntegrationOptions,
    old: Tree | None = None,
) -> Tree:
    """A new job as it is stored; or, of a kind with `defaults_on_update`, one that replaces `old`."""
    if row.parent_type is not None:
        return _default_parent(row, tree, facts, kinds, options, is_new=old is None)
    if old is not None:
        before = row.job(old, facts.old_related)
        return row.job(tree, facts.related).defaulted_update(before, options) if row.defaults_on_update else tree
    if _has_suspending_parent(row, tree):
        # Its parent decides about everything but the gates.
        return row.job(tree, facts.related).defaulted(options)
    if row.of_pods and row.framework not in options.frameworks:
        return tree  # implied by another framework: the reconciler would never start it [JF2]
    is_child = selection.has_managed_ancestor(facts.ancestry, facts.namespace, kinds, options)
    if row.of_pods and (is_child or not _is_considered(row, tree, facts, options)):
        return tree
    tree = row.job(_with_defaults(row, tree, facts, kinds, options), facts.related).prepared(options)
    if is_child or not _is_held(row, tree, facts, options):
        return tree
    if options.workload_hints:
        tree = hints.submitted(tree, facts.user)
    held, unread = row.job(tree, facts.related).defaulted(options), facts.ancestry.unread
    return held if unread is None else unreadable_owners.marked(held, unread)


def owner_refusal(row: JobIntegration, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions) -> str:
    """Why a new job is refused because of its owners, which are read only if they matter; empty if it is not.

    Nothing would ever start such a job: it would be held, and no Workload be created for it [JF21].
    """
    problem = facts.ancestry.problem
    if not problem or selection.has_managed_ancestor(facts.ancestry, facts.namespace, kinds, options):
        return ""
    return f"the {row.kind.kind} {problem}"


def needs_owners(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> bool:
    """Whether the owners of a new job matter: without a managed ancestor the job would be held, or a pod be changed.
    An ancestor only ever leads to fewer changes, so that every other job is decided without it."""
    if ObjectView(tree).controller is None or _has_suspending_parent(row, tree):
        return False
    if row.parent_type is not None:
        held = _is_held(row, _with_defaults(row, tree, facts, kinds, options), facts, options)
        return held and not row.parent(tree).is_of_another
    alone = default(row, tree, replace(facts, ancestry=Ancestry()), kinds, options)
    if row.of_pods:
        return alone is not tree
    return _is_held(row, _with_defaults(row, tree, facts, kinds, options), facts, options)


def _has_suspending_parent(row: JobIntegration, tree: Tree) -> bool:
    return row.of_pods and labels.POD_SUSPENDING_PARENT in ObjectView(tree).annotations


def _is_considered(row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, options: IntegrationOptions) -> bool:
    """Whether a pod is considered: it has a queue name, or its namespace is selected."""
    named = selection.queue_name(ObjectView(tree)) and not options.selector_always_respected
    return bool(named) or selection.selects(row, facts.namespace, options)


def _is_held(row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, options: IntegrationOptions) -> bool:
    """Whether a new job must not start by itself.

    With the gate ManagedJobsNamespaceSelectorAlwaysRespected, a job with a queue name in a namespace that is not
    selected is held as well, and never started: running it without quota, although it asks for a queue, would be worse.
    """
    job = ObjectView(tree)
    if job.is_deleting and options.skip_ancestors_of_deleted:
        return False
    return bool(selection.queue_name(job)) or selection.is_managed(row, job, facts.namespace, options)


def _with_defaults(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> Tree:
    job = ObjectView(tree)
    owner = job.controller
    if owner is not None and selection.is_managed_kind(owner, kinds, options):
        return tree
    selected = selection.selects(row, facts.namespace, options)
    if facts.default_queue and selected and not selection.queue_name(job):
        tree = job.with_labels({labels.QUEUE_NAME: labels.DEFAULT_LOCAL_QUEUE})
    has_default_class = options.default_priority_class and facts.default_priority_class
    if has_default_class and not job.labels.get(labels.PRIORITY_CLASS):
        tree = ObjectView(tree).with_labels({labels.PRIORITY_CLASS: labels.DEFAULT_PRIORITY_CLASS})
    return tree


def _default_parent(
    row: JobIntegration,
    tree: Tree,
    facts: JobAdmissionFacts,
    kinds: JobKinds,
    options: IntegrationOptions,
    *,
    is_new: bool,
) -> Tree:
    """A kind made of pods, with its templates marked if it is managed. The default queue and class are for new objects
    only: with an update they would change the template, and so restart the pods [PP11]."""
    if row.parent(tree).is_of_another:
        return tree
    if is_new:
        tree = _with_defaults(row, tree, facts, kinds, options)
    if not _is_managed_parent(row, tree, facts, kinds, options):
        return tree
    return row.parent(tree).defaulted(options)


def _is_managed_parent(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> bool:
    """Whether a kind made of pods is managed by itself [PP2]."""
    is_child = selection.has_managed_ancestor(facts.ancestry, facts.namespace, kinds, options)
    return not is_child and _is_held(row, tree, facts, options)


# --- Validation -------------------------------------------------------------------------------------------------------


def validate_create(
    row: JobIntegration, tree: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> AdmissionResult:
    """Errors and warnings of a new job."""
    if row.parent_type is not None:
        parent = row.parent(tree)
        return AdmissionResult(() if parent.is_of_another else _once([*parent.validate_create(options)]))
    job = row.job(tree, facts.related)
    if not job.is_validated(None, options):
        return AdmissionResult(warnings=_warnings(row, job, kinds, options))
    rules = (*_new(row, job, options), *hints.validate(tree))
    found = [*rules, *job.validate_create(options), *job.validate_new(options)]
    return _result(row, job, found, _warnings(row, job, kinds, options), options)


def validate_update(
    row: JobIntegration, new: Tree, old: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> AdmissionResult:
    """Errors and warnings of `new` in place of `old`."""
    if row.parent_type is not None:
        return _validate_parent_update(row, new, old, facts, kinds, options)
    job, before = row.job(new, facts.related), row.job(old, facts.old_related)
    if not job.is_validated(before, options):
        return AdmissionResult(warnings=_warnings(row, job, kinds, options))
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
    hinted = (*hints.validate(new), *(hints.validate_update(new, old) if options.workload_hints else ()))
    found = [*errors, *repeated, *hinted, *job.validate_create(options), *job.validate_update(before, options)]
    has_parent = labels.POD_SUSPENDING_PARENT in job.annotations
    return _result(row, job, found, () if has_parent else _warnings(row, job, kinds, options), options)


def _validate_parent_update(
    row: JobIntegration, new: Tree, old: Tree, facts: JobAdmissionFacts, kinds: JobKinds, options: IntegrationOptions
) -> AdmissionResult:
    parent = row.parent(new)
    if parent.is_of_another:
        return AdmissionResult()
    managed = _is_managed_parent(row, new, facts, kinds, options)
    found = [*parent.validate_create(options), *parent.validate_update(row.parent(old), options, managed=managed)]
    return AdmissionResult(_once(found))


def _result(
    row: JobIntegration,
    job: GenericJob,
    found: list[FieldError],
    warnings: tuple[str, ...],
    options: IntegrationOptions,
) -> AdmissionResult:
    """Pod sets are built to validate topology requests, so that a job without them is refused only with the gate."""
    errors = _once(sorted(found, key=lambda error: error.path) if row.sorts_errors else found)
    problem = job.pod_sets_problem(options) if options.topology and not errors else ""
    return AdmissionResult(errors, warnings, problem)


def _new(row: JobIntegration, job: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
    """The rules for a new job of any kind."""
    if not job.applies_shared_rules():
        return iter(())
    return job_metadata.validate_create(
        job.tree, options.validation, takes_prebuilt=row.takes_prebuilt, takes_elastic=row.takes_elastic
    )


def _once(errors: list[FieldError]) -> tuple[FieldError, ...]:
    return tuple({(error.path, error.message): error for error in errors}.values())


def _warnings(row: JobIntegration, job: GenericJob, kinds: JobKinds, options: IntegrationOptions) -> tuple[str, ...]:
    warnings = [*job.warnings(options), *hints.warnings(job)]
    if unreadable_owners.is_marked(job):
        title = job.annotations[labels.UNREAD_OWNER]
        warnings.append(
            f"its owner {title} could not be read: the job is held without a Workload until the owner can be read"
        )
    owner = job.controller
    if (
        row.of_pods
        and job.labels.get(labels.MANAGED) == "true"
        and owner is not None
        and selection.is_managed_kind(owner, kinds, options)
    ):
        warnings.append(f"the owner of the pod is managed; the label {labels.MANAGED}=true may have unexpected effects")
    return tuple(warnings)
