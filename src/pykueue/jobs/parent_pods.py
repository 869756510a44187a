"""Pods of StatefulSets and LeaderWorkerSets: the shape that must not change, and the marks that put a pod in its group.

The controller of a parent creates pods from the template, and the pod webhook gates them. Only then does the
reconciler of the parent put each pod into the group of its Workload [PP4]: a template that named the group would be
rolled out again whenever the name changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubemachinery import meta, quantity, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error
from pykueue.jobs import pod as pods
from pykueue.jobs.actions import Actions, ReplaceObject
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_group import holds_quota

# --- The shape --------------------------------------------------------------------------------------------------------


def shape_changes(new: object, old: object, path: str) -> Iterator[FieldError]:
    """The fields of a pod spec that decide about quota and placement, and that differ: each is immutable while the
    parent is managed, since its Workload was admitted with them [SS3]."""
    yield from _changes(_shape(new), _shape(old), path)


def _shape(spec: object) -> Tree:
    return pods.shape(unstructured.mapping(spec))


def _changes(new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for key in dict.fromkeys((*new, *old)):
        ours, theirs, place = new.get(key), old.get(key), f"{path}.{key}"
        if key in ("containers", "initContainers"):
            yield from _container_changes(unstructured.sequence(ours), unstructured.sequence(theirs), place)
        elif _exact(ours) != _exact(theirs):
            yield field_error.immutable(place, ours)


def _container_changes(new: list[Tree], old: list[Tree], path: str) -> Iterator[FieldError]:
    if len(new) != len(old):
        yield field_error.immutable(path, new)
        return
    for number, (ours, theirs) in enumerate(zip(new, old, strict=True)):
        for key in (("resources", "requests"), ("ports",)):
            after, before = unstructured.get(ours, *key), unstructured.get(theirs, *key)
            if _exact(after) != _exact(before):
                yield field_error.immutable(f"{path}[{number}].{'.'.join(key)}", after)


def requests(spec: object) -> Any:
    """What the containers of a pod spec request, in a form in which equal amounts are equal."""
    found = _shape(spec)
    return [
        [
            _exact(unstructured.get(container, "resources", "requests"))
            for container in unstructured.sequence(found.get(key))
        ]
        for key in ("containers", "initContainers")
    ]


def _exact(value: Any) -> Any:
    """A value in which absent equals empty, and equal quantities are equal."""
    if isinstance(value, dict):
        return {key: _exact(entry) for key, entry in value.items()} or None
    if isinstance(value, list):
        return [_exact(entry) for entry in value] or None
    if isinstance(value, str):
        try:
            return str(quantity.parse(value))
        except quantity.QuantityError:
            return value
    return value


# --- Marks ------------------------------------------------------------------------------------------------------------


def in_group(pod: PodView, name: str, total: int, role: str, options: IntegrationOptions) -> Tree:
    """A pod that belongs to the group of the Workload `name`, and that the pod reconciler handles."""
    annotations = {labels.POD_GROUP_TOTAL_COUNT: str(total), labels.ROLE_HASH: role}
    marks = {labels.MANAGED: "true"}
    as_annotations = options.identifier_annotations
    (annotations if as_annotations else marks)[labels.POD_GROUP_NAME] = name
    # A label value has at most 63 characters; a longer name is an annotation in any case [PP6].
    is_long = len(name) > meta.LABEL_LENGTH
    (annotations if as_annotations or is_long else marks)[labels.PREBUILT_WORKLOAD_NAME] = name
    return ObjectView(pod.with_labels(marks)).with_annotations(annotations)


def replaced(pod: PodView, after: Tree) -> Actions:
    """The write of a pod that changed."""
    return () if after == pod.tree else (ReplaceObject(pods.KIND, pod.tree, after),)


def without_gates(pod: PodView) -> Tree:
    return pods.without_gates(pod.tree, labels.ADMISSION_GATE, labels.TOPOLOGY_GATE)


def are_active(members: Iterable[PodView], options: IntegrationOptions, now: Nanoseconds) -> bool:
    """Whether some of the pods still use the quota of their Workload."""
    return any(holds_quota(pod, options, now) for pod in members)
