"""Reading objects as types, and writing them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery import codec, meta
from kubemachinery.codec import DecodeError
from pykueue.api import kube, kueue, registry, schema

MANIFESTS = Path(__file__).resolve().parents[3] / "shared" / "reference" / "manifests"


# --- Reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 3}}', "spec.containers: expected array, got int"),
        (b"[]", "expected an object, got something else"),
        (b"{", "not JSON: Input data was truncated"),
        (b'{"kind": "\xff"}', "not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b'{"x": ' * 1_000_000, "nested more deeply than any object of the API"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        codec.decode(data, kube.Pod)
    assert str(refusal.value) == sentence


def test_equal_bytes_that_come_soon_again_share_one_tree() -> None:
    data = b'{"metadata": {"name": "a"}, "spec": {"n": [1]}}'
    first = codec.shared_tree(data)
    assert codec.shared_tree(bytes(bytearray(data))) is first
    assert first == codec.tree(data)
    assert codec.shared_tree(data.replace(b"1", b"2")) == {"metadata": {"name": "a"}, "spec": {"n": [2]}}


@pytest.mark.parametrize(
    "text", ['{"name": "a"}', '{"name": "a", "labels": null}', '{"labels": {"a": "b", "c": null}}']
)
def test_a_tree_from_json_is_converted_as_any_other(text: str) -> None:
    tree = codec.tree(text)
    assert codec.from_json_tree(tree, meta.ObjectMeta) == codec.from_tree(tree, meta.ObjectMeta)


def test_a_tree_from_json_that_does_not_fit_has_the_same_message() -> None:
    messages = []
    for convert in (codec.from_json_tree, codec.from_tree):
        with pytest.raises(codec.DecodeError) as error:
            convert({"labels": {"a": 1}}, meta.ObjectMeta)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_a_tree_that_is_nested_too_deeply_for_its_reader_is_unreadable() -> None:
    """A larger stack may have decoded it."""
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for convert in (codec.from_json_tree, codec.from_tree):
        with pytest.raises(codec.DecodeError, match="nested more deeply"):
            convert({"spec": deep}, kueue.Workload)


def test_null_means_absent_wherever_it_stands() -> None:
    """Clients in Go write null for empty lists and times: these objects must be readable."""
    job = codec.decode(
        b'{"metadata": {"creationTimestamp": null}, "spec": {"suspend": true, "template":'
        b' {"metadata": {"creationTimestamp": null, "labels": null}, "spec": {"containers": null}}}}',
        kube.Job,
    )
    assert job.spec.suspend is True
    assert job.spec.template.spec.containers == ()


# --- What people write ------------------------------------------------------------------------------------------------


def _manifests() -> list[Any]:
    documents = []
    for file in sorted(MANIFESTS.rglob("*.yaml")):
        for index, document in enumerate(yaml.safe_load_all(file.read_text())):
            if not isinstance(document, dict):
                continue
            found = registry.ALL.find(document.get("apiVersion", ""), document.get("kind", ""))
            if found is not None and found[1].type is not None:
                name = f"{file.relative_to(MANIFESTS)}:{index}"
                documents.append(pytest.param(found[1].type, document, id=name))
    return documents or [
        pytest.param(None, None, marks=pytest.mark.skip(reason="../shared/reference/manifests is not here"))
    ]


def _unread(raw: Any, read: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Places of `raw` that `read` does not have, and what is there."""
    if isinstance(raw, dict) and isinstance(read, dict):
        for key, value in raw.items():
            inner = f"{place}.{key}".removeprefix(".")
            yield from _unread(value, read[key], inner) if key in read else [(inner, value)]
    elif isinstance(raw, list) and isinstance(read, list):
        for value, seen in zip(raw, read, strict=True):
            yield from _unread(value, seen, f"{place}[]")
    elif raw != read:
        yield place, raw


@pytest.mark.parametrize(("type_", "document"), _manifests())
def test_manifests_round_trip_without_loss(type_: Any, document: Any) -> None:
    raw = json.loads(json.dumps(document, default=str))
    value = codec.from_tree(raw, type_)
    assert codec.decode(codec.encode(value), type_) == value
    if type_ in kueue.KINDS:
        # Of our own kinds every field is known, except inside a pod template. What means no more than its absence would
        # may stay out when it is written.
        defaults = {line.path: line.default for line in schema.describe(registry.KUEUE.of(type_))}
        lost = {place: value for place, value in _unread(raw, codec.to_tree(value)) if ".template." not in place}
        assert {place: value for place, value in lost.items() if value and json.dumps(value) != defaults[place]} == {}
