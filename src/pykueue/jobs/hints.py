"""Hints of this project on jobs and their Workloads: who submitted the job, how long it is expected to run, and the
deadline that its controller enforces. Kueue ignores them."""

from __future__ import annotations

from collections.abc import Iterator

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error
from pykueue.api.validation.job_metadata import annotation, annotation_path
from pykueue.jobs.interface import GenericJob


def submitted(tree: Tree, user: str) -> Tree:
    """A new job with the user name of its creation; a value of the client is overwritten [HI9]."""
    if not user or annotation(tree, labels.SUBMITTED_BY) == user:
        return tree
    annotations = {**ObjectView(tree).annotations, labels.SUBMITTED_BY: user}
    return unstructured.put(tree, ("metadata", "annotations"), annotations)


def on_workload(job: GenericJob, *, enabled: bool) -> dict[str, str]:
    """The hints that a Workload gets from its job; `enabled` is the gate WorkloadHints."""
    found: dict[str, str] = {}
    if expected := job.annotations.get(labels.EXPECTED_TIME):
        found[labels.EXPECTED_TIME] = expected
    if not enabled:
        return found
    if user := job.annotations.get(labels.SUBMITTED_BY):
        found[labels.SUBMITTED_BY] = user
    if deadline := _deadline(job):
        found[labels.ACTIVE_DEADLINE_SECONDS] = str(deadline)
    return found


def _deadline(job: GenericJob) -> int:
    """The seconds after which the controller of the job ends it; 0 without a deadline."""
    found = unstructured.get(job.tree, *job.row.deadline_path) if job.row.deadline_path else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def warnings(job: GenericJob) -> Iterator[str]:
    """An expected run time that the deadline does not allow: the job will be ended before."""
    deadline = _deadline(job)
    try:
        expected = meta.parse_duration(job.annotations.get(labels.EXPECTED_TIME, "0s")) // meta.SECOND
    except meta.TimeError:
        return
    if deadline and expected > deadline:
        yield f"the expected run time of {expected} s is longer than the time limit of {deadline} s"


def validate(tree: Tree) -> Iterator[FieldError]:
    """The expected run time is a positive duration [RT3]."""
    text = annotation(tree, labels.EXPECTED_TIME)
    if not text:
        return
    path = annotation_path(labels.EXPECTED_TIME)
    try:
        if meta.parse_duration(text) < meta.SECOND:
            yield field_error.invalid(path, text, "must be at least a second")
    except meta.TimeError as error:
        yield field_error.invalid(path, text, str(error))


def validate_update(new: Tree, old: Tree) -> Iterator[FieldError]:
    """Who submitted a job never changes."""
    name = labels.SUBMITTED_BY
    if annotation(new, name) != annotation(old, name):
        yield field_error.immutable(annotation_path(name), annotation(new, name))
