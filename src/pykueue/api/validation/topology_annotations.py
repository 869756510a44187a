"""Validation of the topology annotations on a pod template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kubemachinery import unstructured
from kubemachinery.field_errors import ErrorType, FieldError
from pykueue.api import labels
from pykueue.api.validation import field_error
from pykueue.api.validation import metadata as names
from pykueue.api.validation.gates import ValidationGates

REQUIRED: Final = labels.PODSET_REQUIRED_TOPOLOGY
PREFERRED: Final = labels.PODSET_PREFERRED_TOPOLOGY
UNCONSTRAINED: Final = labels.PODSET_UNCONSTRAINED_TOPOLOGY
GROUP: Final = labels.PODSET_GROUP_NAME
SLICE_TOPOLOGY: Final = labels.PODSET_SLICE_REQUIRED_TOPOLOGY
SLICE_SIZE: Final = labels.PODSET_SLICE_SIZE
LAYERS: Final = labels.PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS

LAYERS_MAX: Final = 3

_TRUTHS: Final = frozenset({"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"})
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_INT32_MAX: Final = 2**31 - 1


class AnnotatedPodSet(NamedTuple):
    """A pod set: the path of its template's annotations in messages, how many pods it has, and these annotations."""

    path: str
    pods: int
    annotations: Mapping[str, str]


class Layer(NamedTuple):
    """Slices of `size` pods, each within one domain of the level `topology`."""

    topology: str
    size: int


def validate(metadata: object, path: str, gates: ValidationGates) -> Iterator[FieldError]:
    """What is wrong with the topology annotations of the metadata at `path`."""
    annotations = unstructured.texts(unstructured.get(metadata, "annotations"))
    place = f"{path}.annotations"
    if sum(mode in annotations for mode in (REQUIRED, PREFERRED, UNCONSTRAINED)) > 1:
        yield field_error.invalid(
            place, annotations, f"may have one of {REQUIRED}, {PREFERRED} and {UNCONSTRAINED}, not more"
        )
    for level in (REQUIRED, PREFERRED, SLICE_TOPOLOGY):
        if level in annotations:
            yield from names.label_name(annotations[level], f"{place}[{level}]")
    if annotations.get(UNCONSTRAINED, "true") not in _TRUTHS:
        yield field_error.invalid(f"{place}[{UNCONSTRAINED}]", annotations[UNCONSTRAINED], "must be true or false")
    if GROUP in annotations:
        yield from _group(annotations, f"{place}[{GROUP}]")
    yield from _slices(annotations, f"{place}[{SLICE_SIZE}]")
    if LAYERS in annotations:
        yield from _layers(annotations, place, gates)


def _group(annotations: Mapping[str, str], place: str) -> Iterator[FieldError]:
    if _DIGITS.fullmatch(annotations[GROUP]):
        yield field_error.invalid(place, annotations[GROUP], "must not be a number")
    for other in (SLICE_SIZE, SLICE_TOPOLOGY):
        if other in annotations:
            yield field_error.forbidden(place, f"does not go with {other}")
    if REQUIRED not in annotations and PREFERRED not in annotations:
        yield field_error.forbidden(place, f"needs {REQUIRED} or {PREFERRED}")


def _slices(annotations: Mapping[str, str], place: str) -> Iterator[FieldError]:
    if SLICE_SIZE in annotations:
        size = _number(annotations[SLICE_SIZE])
        if size is None:
            yield field_error.invalid(place, annotations[SLICE_SIZE], "must be a whole number")
        elif size < 1:
            yield field_error.invalid(place, annotations[SLICE_SIZE], "must be at least 1")
    if SLICE_TOPOLOGY in annotations and SLICE_SIZE not in annotations:
        yield field_error.required(place, f"must be set together with {SLICE_TOPOLOGY}")
    if SLICE_SIZE in annotations and SLICE_TOPOLOGY not in annotations:
        yield field_error.forbidden(place, f"may only be set together with {SLICE_TOPOLOGY}")


def _layers(annotations: Mapping[str, str], path: str, gates: ValidationGates) -> Iterator[FieldError]:
    place = f"{path}[{LAYERS}]"
    if not gates.tas_multi_layer_topology:
        yield field_error.forbidden(place, "needs the feature gate TASMultiLayerTopology")
        return
    for other in (SLICE_TOPOLOGY, SLICE_SIZE):
        if other in annotations:
            yield field_error.forbidden(place, f"does not go with {other}")
    if GROUP in annotations:
        yield field_error.forbidden(f"{path}[{GROUP}]", f"does not go with {LAYERS}")
    layers = read_layers(annotations[LAYERS])
    if layers is None:
        yield field_error.invalid(
            place, annotations[LAYERS], 'must be a JSON list of objects {"topology": …, "size": …}'
        )
    elif not 1 <= len(layers) <= LAYERS_MAX:
        yield field_error.invalid(place, annotations[LAYERS], f"must have 1 to {LAYERS_MAX} layers, not {len(layers)}")
    else:
        yield from _nested(layers, place)


def _nested(layers: list[Layer], place: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, layer in enumerate(layers):
        yield from names.label_name(layer.topology, f"{place}[{i}].topology")
        if layer.topology in seen:
            yield field_error.duplicate(f"{place}[{i}].topology", layer.topology)
        seen.add(layer.topology)
        if layer.size < 1:
            yield field_error.invalid(f"{place}[{i}].size", layer.size, "must be at least 1")
    for i, (outer, inner) in enumerate(pairwise(layers), start=1):
        if inner.size > 0 and outer.size % inner.size:
            yield field_error.invalid(
                f"{place}[{i}].size", inner.size, f"must divide {outer.size}, the size of the layer above"
            )


def read_layers(text: str) -> list[Layer] | None:
    """The layers that the annotation spells, from the top down; `None` when it spells none."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(written, list):
        return None
    layers = [_layer(entry) for entry in written]
    return None if None in layers else [layer for layer in layers if layer is not None]


def _layer(entry: Any) -> Layer | None:
    topology, size = unstructured.get(entry, "topology") or "", unstructured.get(entry, "size") or 0
    if not isinstance(entry, dict) or not isinstance(topology, str) or unstructured.integer(size) is None:
        return None
    return Layer(topology, size) if abs(size) <= _INT32_MAX else None


def _number(text: str) -> int | None:
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and abs(number) <= _INT32_MAX else None


def validate_size(metadata: object, path: str, count: int) -> Iterator[FieldError]:
    """A slice is no larger than the pod set of `count` pods that it is cut from."""
    annotations = unstructured.texts(unstructured.get(metadata, "annotations"))
    message = f"must not be greater than pod set count {count}"
    size = _number(annotations.get(SLICE_SIZE, ""))
    if size is not None and size > count:
        yield field_error.invalid(f"{path}.annotations[{SLICE_SIZE}]", annotations[SLICE_SIZE], message)
    layers = read_layers(annotations.get(LAYERS, "[]"))
    if layers and layers[0].size > count:
        yield field_error.invalid(f"{path}.annotations[{LAYERS}]", layers[0].size, message)


def validate_groups(sets: Sequence[AnnotatedPodSet]) -> Iterator[FieldError]:
    """What is wrong with the pod set groups of a job: a group has two pod sets, one of them with one pod, and both
    request the same topology (JW5)."""
    groups: dict[str, list[AnnotatedPodSet]] = {}
    for each in sets:
        # A name without a level has no effect, and `validate` reports it.
        if GROUP in each.annotations and (REQUIRED in each.annotations or PREFERRED in each.annotations):
            groups.setdefault(each.annotations[GROUP], []).append(each)
    for name, members in groups.items():
        if len(members) != 2:
            for each in members:
                message = f"a group must have exactly 2 pod sets, and this one has {len(members)}"
                yield field_error.invalid(f"{each.path}[{GROUP}]", name, message)
            continue
        yield from _pair(name, *members)


def _pair(name: str, first: AnnotatedPodSet, second: AnnotatedPodSet) -> Iterator[FieldError]:
    if first.pods != 1 and second.pods != 1:
        counts = f"these have {first.pods} and {second.pods} pods"
        for each in (first, second):
            yield field_error.invalid(
                f"{each.path}[{GROUP}]", name, f"one of the two pod sets must have exactly 1 pod; {counts}"
            )
    if _level(first) != _level(second):
        for each, other in ((first, second), (second, first)):
            message = f"must have the same {REQUIRED} or {PREFERRED} as {other.path}, since both are in group {name}"
            yield FieldError(each.path, ErrorType.INVALID, message)


def _level(of: AnnotatedPodSet) -> tuple[str, str]:
    """The mode and the level of a topology request; the required one comes first, as in the request itself."""
    mode = REQUIRED if REQUIRED in of.annotations else PREFERRED
    return mode, of.annotations[mode]
