"""Validation of Kueue's labels and annotations on jobs of every kind.

The metadata of a job names its queue, its priority, its maximum execution time and a prebuilt Workload. The rules are
the same for all kinds, so a kind passes its objects and what only it can determine: whether they are suspended, and
whether the kind supports the requested feature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.labels import (
    ELASTIC_JOB,
    MAX_EXEC_TIME_SECONDS,
    PREBUILT_WORKLOAD_NAME,
    PRIORITY_CLASS,
    QUEUE_NAME,
)
from pykueue.api.validation import admission_gates, field_error
from pykueue.api.validation.gates import ValidationGates
from pykueue.api.validation.workload_status import is_elastic

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


def label(tree: object, name: str) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", "labels", name))


def annotation(tree: object, name: str) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", "annotations", name))


def label_path(name: str) -> str:
    return f"metadata.labels[{name}]"


def annotation_path(name: str) -> str:
    return f"metadata.annotations[{name}]"


def validate_create(
    tree: Tree, gates: ValidationGates, *, takes_prebuilt: bool, takes_elastic: bool
) -> Iterator[FieldError]:
    """`takes_prebuilt`, `takes_elastic`: whether the kind of job supports Workloads made elsewhere, and slices."""
    yield from queue_name(tree)
    yield from prebuilt_workload(tree, gates, supported=takes_prebuilt)
    yield from max_exec_time(tree)
    if is_elastic(tree, gates) and not takes_elastic:
        yield field_error.forbidden(annotation_path(ELASTIC_JOB), "this kind of job cannot be elastic")
    if gates.admission_gated_by:
        yield from admission_gates.validate_create(tree)


def validate_update(
    new: Tree,
    old: Tree,
    gates: ValidationGates,
    *,
    suspended: bool,
    was_suspended: bool,
    takes_prebuilt: bool,
    default_queue_exists: bool,
) -> Iterator[FieldError]:
    """`default_queue_exists`: the namespace has a LocalQueue `default`, which is used for every job without a queue."""
    yield from _queue_name_change(new, old, suspended=suspended, default_queue_exists=default_queue_exists)
    if suspended or is_elastic(old, gates):
        yield from prebuilt_workload(new, gates, supported=takes_prebuilt)
    elif prebuilt_name(new, gates) != prebuilt_name(old, gates):
        yield field_error.immutable(prebuilt_path(new, gates), prebuilt_name(new, gates))
    if not (suspended and was_suspended) and label(new, MAX_EXEC_TIME_SECONDS) != label(old, MAX_EXEC_TIME_SECONDS):
        yield field_error.immutable(label_path(MAX_EXEC_TIME_SECONDS), label(new, MAX_EXEC_TIME_SECONDS))
    yield from priority_class_change(new, old, suspended=suspended)
    if is_elastic(new, gates) != is_elastic(old, gates):
        yield field_error.immutable(annotation_path(ELASTIC_JOB), annotation(new, ELASTIC_JOB))
    if gates.admission_gated_by:
        yield from admission_gates.validate_create(new)
        yield from admission_gates.validate_update(new, old)


def queue_name(tree: Tree) -> Iterator[FieldError]:
    yield from _named_object(unstructured.get(tree, "metadata", "labels", QUEUE_NAME), label_path(QUEUE_NAME))


def _named_object(name: object, path: str) -> Iterator[FieldError]:
    if isinstance(name, str):
        yield from field_error.invalid_each(path, name, meta.check_subdomain_name(name))


def _queue_name_change(new: Tree, old: Tree, *, suspended: bool, default_queue_exists: bool) -> Iterator[FieldError]:
    queue, before = label(new, QUEUE_NAME), label(old, QUEUE_NAME)
    if not suspended and queue != before:
        yield field_error.immutable(label_path(QUEUE_NAME), queue)
    if before and not queue and default_queue_exists:
        yield field_error.invalid(
            label_path(QUEUE_NAME), queue, "must not be removed where there is a default LocalQueue"
        )


def prebuilt_name(tree: object, gates: ValidationGates) -> str:
    """The Workload that a job brings along: as an annotation, or as a label where the name is short enough for one."""
    return (
        annotation(tree, PREBUILT_WORKLOAD_NAME)
        if _prebuilt_is_annotation(tree, gates)
        else label(tree, PREBUILT_WORKLOAD_NAME)
    )


def prebuilt_path(tree: object, gates: ValidationGates) -> str:
    return (
        annotation_path(PREBUILT_WORKLOAD_NAME)
        if _prebuilt_is_annotation(tree, gates)
        else label_path(PREBUILT_WORKLOAD_NAME)
    )


def _prebuilt_is_annotation(tree: object, gates: ValidationGates) -> bool:
    name = annotation(tree, PREBUILT_WORKLOAD_NAME)
    return bool(name) and (gates.workload_identifier_annotations or len(name) > meta.LABEL_LENGTH)


def prebuilt_workload(tree: Tree, gates: ValidationGates, *, supported: bool) -> Iterator[FieldError]:
    path = prebuilt_path(tree, gates)
    holder = "annotations" if _prebuilt_is_annotation(tree, gates) else "labels"
    yield from _named_object(unstructured.get(tree, "metadata", holder, PREBUILT_WORKLOAD_NAME), path)
    if prebuilt_name(tree, gates) and not supported:
        yield field_error.forbidden(path, "this kind of job cannot bring its Workload along")


def max_exec_time(tree: Tree) -> Iterator[FieldError]:
    seconds = unstructured.get(tree, "metadata", "labels", MAX_EXEC_TIME_SECONDS)
    if not isinstance(seconds, str):
        return
    if not _WHOLE_NUMBER.fullmatch(seconds):
        yield field_error.invalid(label_path(MAX_EXEC_TIME_SECONDS), seconds, "must be a whole number of seconds")
    elif int(seconds) <= 0:
        yield field_error.invalid(label_path(MAX_EXEC_TIME_SECONDS), seconds, "must be more than 0")


def priority_class_change(new: Tree, old: Tree, *, suspended: bool) -> Iterator[FieldError]:
    """The class cannot be added to a running job or removed from any job; it may be changed."""
    name, before = label(new, PRIORITY_CLASS), label(old, PRIORITY_CLASS)
    if name and not before and not suspended:
        yield field_error.invalid(label_path(PRIORITY_CLASS), name, "cannot be added to a job that is not suspended")
    if before and not name:
        yield field_error.invalid(label_path(PRIORITY_CLASS), name, "cannot be removed")
