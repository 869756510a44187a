"""Whatever JSON is sent as an object of a built-in kind, it is read and judged, or refused; nothing falls over."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import probing
from kubemachinery import status
from kubeserver.builtin.kinds import RESOURCES
from kubeserver.http import protobuf
from kubeserver.registry.strategy import Resource
from laws.json_trees import json_values, replaced, routes

Tree = dict[str, Any]

_KINDS = probing.kinds()


def _resource(kind: probing.Kind) -> Resource:
    (found,) = [one for one in RESOURCES if (one.api_version, one.kind) == (kind.base["apiVersion"], kind.base["kind"])]
    return found


def _received(resource: Resource, tree: Any) -> Tree | None:
    """The object as `rest` passes it to the rules, of the kind of the path; None where it is refused with 400."""
    if not isinstance(tree, dict):
        return None
    tree["apiVersion"], tree["kind"] = resource.api_version, resource.kind
    refused: status.StatusError | None = None
    try:
        return resource.rules.default(resource.rules.prune(tree))
    except status.StatusError as answer:
        refused = answer
    assert refused.code == 400
    assert refused.message
    return None


def _copy(tree: Tree) -> Tree:
    out: Tree = msgspec.json.decode(msgspec.json.encode(tree))
    return out


@settings(max_examples=300)
@given(st.sampled_from(_KINDS), routes, json_values)
def test_an_object_with_anything_anywhere_is_judged(kind: probing.Kind, route: list[int], value: Any) -> None:
    resource = _resource(kind)
    stored = _received(resource, _copy(kind.base))
    assert stored is not None
    resource.rules.on_create(stored)
    given_tree = replaced(_copy(kind.base), route, value)
    list(resource.rules.unknown(given_tree) if isinstance(given_tree, dict) else ())
    new = _received(resource, given_tree)
    if new is None:
        return
    errors = list(_judged(resource, new, None))
    assert all(error.path or error.message for error in errors)
    if not errors:
        assert all(resource.rules.warn(new, None))
    again = _received(resource, replaced(_copy(stored), route, value))
    if again is not None:
        resource.rules.on_update(again, _copy(stored))
        resource.rules.validate(again, stored, "")
        if resource.has_status:
            resource.rules.on_status(again, _copy(stored))
            resource.rules.validate(again, stored, "status")
    if resource.cells is not None and resource.columns is not None:
        assert len(resource.cells(new, 0)) == len(resource.columns)


def _judged(resource: Resource, new: Tree, old: Tree | None) -> Any:
    created = _copy(new)
    resource.rules.on_create(created)
    return resource.rules.validate(created, old, "")


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_body_or_are_refused(data: bytes) -> None:
    envelope = protobuf.MAGIC + b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12" + bytes([len(data)]) + data
    try:
        tree = protobuf.decode(envelope)
    except protobuf.ProtobufError:
        return
    assert tree["kind"] == "Pod"
