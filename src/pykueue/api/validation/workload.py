"""Validation of a Workload beyond its schema: pod sets, annotations, and fields that a reservation makes immutable.

The rules of its status are in `workload_status`. All rules are checked on every write of the object and of its status.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import admission_gates, field_error, metadata, quotas, workload_status
from pykueue.api.validation.gates import ValidationGates
from pykueue.api.validation.semantic_equality import same
from pykueue.api.validation.workload_status import is_elastic, reserves_quota

_POD_SETS: Final = "spec.podSets"
_INT32: Final = range(-(2**31), 2**31)
_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,10}")


def validate_create(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    yield from _validate(tree, None, gates)


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    yield from _validate(new, old, gates)
    if reserves_quota(old):
        yield from _frozen_pod_sets(new, old, gates)
    yield from workload_status.validate_update(new, old, gates)
    if gates.admission_gated_by:
        yield from admission_gates.validate_update(new, old)


def _validate(tree: Tree, old: Tree | None, gates: ValidationGates) -> Iterator[FieldError]:
    yield from _pod_sets(tree, gates)
    yield from workload_status.validate(tree, old, gates)
    if gates.admission_gated_by:
        yield from admission_gates.validate_create(tree)
    if gates.priority_boost:
        yield from _priority_boost(tree)


def _pod_sets(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    flexible = 0
    for i, pod_set in unstructured.entries(tree, "spec", "podSets"):
        yield from _pod_set(pod_set, f"{_POD_SETS}[{i}]", gates)
        flexible += pod_set.get("minCount") is not None
    if flexible > 1:
        yield field_error.invalid(_POD_SETS, flexible, "at most one pod set may have a minCount")
    if flexible and is_elastic(tree, gates):
        yield field_error.invalid(_POD_SETS, flexible, "an elastic Workload cannot have a minCount")


def _pod_set(pod_set: Mapping[str, Any], path: str, gates: ValidationGates) -> Iterator[FieldError]:
    template = unstructured.mapping(pod_set.get("template"))
    if gates.workload_validation_for_pod_set_metadata:
        place = f"{path}.template.metadata"
        yield from metadata.label_map(unstructured.get(template, "metadata", "labels"), f"{place}.labels")
        yield from metadata.annotation_map(
            unstructured.get(template, "metadata", "annotations"), f"{place}.annotations"
        )
    for holder, place in _resource_holders(template, f"{path}.template.spec"):
        for field in ("requests", "limits"):
            yield from _resources(unstructured.get(holder, field), f"{place}.{field}", gates)
    if gates.tas_validate_workload_slice_size:
        yield from _slice_sizes(pod_set.get("topologyRequest"), f"{path}.topologyRequest")


def _resource_holders(template: Mapping[str, Any], path: str) -> Iterator[tuple[object, str]]:
    """The parts of a pod template with resource requests: containers, init containers, and the pod itself."""
    for containers in ("initContainers", "containers"):
        for j, container in unstructured.entries(template, "spec", containers):
            yield container.get("resources"), f"{path}.{containers}[{j}].resources"
    yield unstructured.get(template, "spec", "resources"), f"{path}.resources"


def _resources(resources: object, path: str, gates: ValidationGates) -> Iterator[FieldError]:
    for name, value in unstructured.mapping(resources).items():
        place = f"{path}[{name}]"
        if name == "pods":
            yield field_error.invalid(place, name, "the resource pods is counted by the queue and cannot be requested")
        if gates.workload_validate_resources_are_non_negative:
            yield from quotas.not_negative(value, place)


def _slice_sizes(request: object, path: str) -> Iterator[FieldError]:
    """A slice has a topology and a size, or neither. Sizes are checked here too: the CRD of Kueue 0.19 allows sizes of
    slices below 1."""
    topology, size = (
        unstructured.get(request, "podSetSliceRequiredTopology"),
        unstructured.get(request, "podSetSliceSize"),
    )
    place = f"{path}.podSetSliceSize"
    if topology is not None and size is None:
        yield field_error.required(place, "must be set together with podSetSliceRequiredTopology")
    elif topology is None and size is not None:
        yield field_error.forbidden(place, "may only be set together with podSetSliceRequiredTopology")
    elif size is not None:
        yield from _at_least_one(size, place)
    for i, layer in unstructured.entries(request, "podsetSliceRequiredTopologyConstraints"):
        yield from _at_least_one(layer.get("size"), f"{path}.podsetSliceRequiredTopologyConstraints[{i}].size")


def _at_least_one(size: object, path: str) -> Iterator[FieldError]:
    number = unstructured.integer(size)
    if number is not None and number < 1:
        yield field_error.invalid(path, size, "must be at least 1")


def _priority_boost(tree: Tree) -> Iterator[FieldError]:
    boost = unstructured.get(tree, "metadata", "annotations", labels.PRIORITY_BOOST)
    if boost is None:
        return
    if not _SIGNED.fullmatch(unstructured.text(boost)) or int(boost) not in _INT32:
        why = 'must be a whole number of 32 bits, such as "10", "-3" or "0"'
        yield field_error.invalid(f"metadata.annotations[{labels.PRIORITY_BOOST}]", boost, why)


def _frozen_pod_sets(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    """Quota was reserved for these very pods. Fewer of them, as in an elastic job that shrinks, still fit."""
    pod_sets, before = ([*unstructured.entries(tree, "spec", "podSets")] for tree in (new, old))
    if len(pod_sets) != len(before):
        yield field_error.immutable(_POD_SETS, unstructured.get(new, "spec", "podSets"))
        return
    for (i, pod_set), (_, was) in zip(pod_sets, before, strict=True):
        count, granted = unstructured.integer(pod_set.get("count")), unstructured.integer(was.get("count"))
        shrinks = count is not None and granted is not None and count < granted
        if shrinks and gates.elastic_jobs_via_workload_slices:
            pod_set = {**pod_set, "count": granted}
        if not same(dict(pod_set), dict(was)):
            # Not `podSets[0]`: this is how the path has always been spelt here.
            yield field_error.immutable(f"{_POD_SETS}.{i}", dict(pod_set))
