"""What an informer decodes of a watch event: all of the object, or all but a specification that is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubemachinery.client.object_decoder import DecodedEvent, ObjectDecoder
from pykueue.api import kube, kueue

Tree = dict[str, Any]


def workload(*, queue: str = "a", revision: int = 1, generation: int | None = 1, uid: str = "u", **status: Any) -> Tree:
    metadata: Tree = {"name": "w", "namespace": "ns", "uid": uid, "resourceVersion": str(revision)}
    if generation is not None:
        metadata |= {"generation": generation}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    return {"metadata": metadata, "spec": {"queueName": queue, "podSets": [pod_set]}, "status": status}


def line(type_: str, tree: Tree) -> bytes:
    return msgspec.json.encode({"type": type_, "object": tree})


def decoded(tree: Tree) -> kueue.Workload:
    return msgspec.convert(tree, kueue.Workload)


def read(decode: ObjectDecoder[Any], event: bytes, cached: Any = None) -> DecodedEvent[Any] | None:
    return decode.event(event, lambda metadata: cached)


def test_specification_of_the_cached_object_is_kept_while_the_generation_is_the_same() -> None:
    cached = decoded(workload())
    later = workload(revision=2, accumulatedPastExecutionTimeSeconds=7)
    found = read(ObjectDecoder(kueue.Workload, counts_generations=True), line("MODIFIED", later), cached)
    assert found is not None
    assert found.value == decoded(later)
    assert found.value.spec is cached.spec
    assert found.metadata is found.value.metadata


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(workload(queue="b", revision=2, generation=2), id="another generation"),
        pytest.param(workload(queue="b", revision=2, uid="v"), id="another object of the same name"),
        pytest.param(workload(queue="b", revision=2, generation=None), id="no generation"),
    ],
)
def test_specification_is_decoded_with(later: Tree) -> None:
    before = workload(generation=later["metadata"].get("generation", 0) if later["metadata"]["uid"] == "v" else 1)
    for cached in (decoded(before), None):
        found = read(ObjectDecoder(kueue.Workload, counts_generations=True), line("MODIFIED", later), cached)
        assert found is not None
        assert found.value == decoded(later)
        assert found.value.spec.queue_name == "b"


def test_specification_is_decoded_of_a_kind_that_does_not_count_generations() -> None:
    later = workload(queue="b", revision=2)
    found = read(ObjectDecoder(kueue.Workload), line("MODIFIED", later), decoded(workload()))
    assert found is not None
    assert found.value.spec.queue_name == "b"


def test_specification_is_decoded_of_an_object_that_has_other_fields_as_well() -> None:
    """A ConfigMap has its data beside the metadata; a change of it leaves the generation as it is."""

    def config_map(x: str) -> Tree:
        return {"metadata": {"name": "c", "uid": "u", "generation": 1}, "data": {"x": x}}

    cached = msgspec.convert(config_map("1"), kube.ConfigMap)
    found = read(ObjectDecoder(kube.ConfigMap, counts_generations=True), line("MODIFIED", config_map("2")), cached)
    assert found is not None
    assert found.value.data == {"x": "2"}


def test_value_whose_specification_was_decoded_is_passed_on() -> None:
    passed: list[kueue.Workload] = []

    def then(value: kueue.Workload) -> kueue.Workload:
        passed.append(value)
        return value

    decode = ObjectDecoder(kueue.Workload, counts_generations=True, then=then)
    added = read(decode, line("ADDED", workload()))
    assert added is not None
    read(decode, line("MODIFIED", workload(revision=2)), added.value)
    listed = decode(msgspec.json.encode(workload()))
    assert passed == [added.value, listed]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(line("DELETED", workload()), id="a deletion"),
        pytest.param(line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}), id="a bookmark"),
        pytest.param(line("ERROR", {"kind": "Status", "code": 410}), id="an error"),
        pytest.param(line("ADDED", workload() | {"spec": {"podSets": None}}), id="null in place of a list"),
        pytest.param(line("MODIFIED", workload() | {"metadata": None}), id="null in place of the metadata"),
        pytest.param(b'{"type":"ADDED","object"', id="half a line"),
    ],
)
def test_event_that_is_not_decoded_at_once(event: bytes) -> None:
    assert read(ObjectDecoder(kueue.Workload, counts_generations=True), event) is None


def test_managed_fields_are_skipped() -> None:
    tree = workload()
    tree["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": {"f:spec": {}}}]
    found = read(ObjectDecoder(kueue.Workload), line("ADDED", tree))
    assert found is not None
    assert found.value == decoded(workload())


def test_decoders_of_one_type_share_their_classes() -> None:
    """A process may have many informers of one kind, one after the other. Classes take memory and are hardly freed."""
    one, other = (ObjectDecoder(kueue.Workload, counts_generations=True) for _ in range(2))
    for decode in (one, other):
        read(decode, line("MODIFIED", workload()), decoded(workload()))
    assert one._read_event is other._read_event
    assert one._read_parts is other._read_parts
