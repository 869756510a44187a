"""Reading objects as types and writing changes back into the trees they came as."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from pykueue.api import codec, kube, kueue, registry, schema
from pykueue.api.codec import DecodeError

MANIFESTS = Path(__file__).resolve().parents[3] / "shared" / "reference" / "manifests"


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_an_object_is_read_as_the_type_that_it_says_it_is() -> None:
    value = codec.decode_any(b'{"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": true}}', registry.ALL)
    assert isinstance(value, kube.Job)
    assert value.spec.suspend is True


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"apiVersion": "v9", "kind": "Pod"}', "unknown kind 'Pod' in apiVersion 'v9'"),
        (
            b'{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload"}',
            "Workload in apiVersion kueue.x-k8s.io/v1beta1 must be converted to kueue.x-k8s.io/v1beta2 first",
        ),
        (b'{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 3}}', "spec.containers: expected array, got int"),
        (b"[]", "expected an object, got something else"),
        (b"{", "not JSON: Input data was truncated"),
        (b'{"kind": "\xff"}', "not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b'{"x": ' * 100_000, "nested more deeply than any object of the API"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        codec.decode_any(data, registry.ALL)
    assert str(refusal.value) == sentence


def test_null_means_absent_wherever_it_stands() -> None:
    """Clients in Go write null for empty lists and times; a reader that chokes on it is blind to half the world."""
    job = codec.decode(
        b'{"metadata": {"creationTimestamp": null}, "spec": {"suspend": true, "template":'
        b' {"metadata": {"creationTimestamp": null, "labels": null}, "spec": {"containers": null}}}}',
        kube.Job,
    )
    assert job.spec.suspend is True
    assert job.spec.template.spec.containers == ()


def test_a_list_is_read_with_its_revision() -> None:
    listing = codec.decode_list(
        b'{"kind": "CohortList", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}',
        kueue.Cohort,
    )
    assert listing.metadata.resource_version == "7"
    assert [cohort.metadata.name for cohort in listing.items] == ["a"]


def test_one_poison_entry_of_a_list_stops_none_of_the_others() -> None:
    listing = codec.decode_list(
        b'{"items": [{"metadata": {"name": "a"}}, {"spec": {"parentName": 5}},'
        b' {"metadata": {"name": "c", "labels": null}}]}',
        kueue.Cohort,
    )
    assert [cohort.metadata.name for cohort in listing.items] == ["a", "c"]
    assert [str(error) for error in listing.refused] == ["items[1]: spec.parentName: expected str, got int"]


# --- Writing back -----------------------------------------------------------------------------------------------------

RAW: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "ns", "labels": {"a": "1"}, "someday": {"x": 1}},
    "spec": {
        "active": True,
        "podSets": [
            {"name": "leader", "count": 1, "template": {"spec": {"containers": [], "volumes": [{"name": "v"}]}}},
            {"name": "main", "count": 3, "fresh": "kept", "template": {"spec": {"hostNetwork": True}}},
        ],
    },
    "status": {
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "R",
                "message": "",
                "lastTransitionTime": "t",
                "by": 1,
            },
            {"type": "Admitted", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "t", "by": 2},
        ]
    },
}


def _workload() -> kueue.Workload:
    return codec.from_tree(RAW, kueue.Workload)


def test_writing_back_no_change_changes_nothing() -> None:
    before = _workload()
    assert codec.write_back(RAW, before, before) is RAW


def test_a_change_deep_inside_leaves_its_surroundings_alone() -> None:
    before = _workload()
    leader, main = before.spec.pod_sets
    replaced = msgspec.structs.replace(main, count=5)
    after = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, pod_sets=(leader, replaced)))
    wanted = copy.deepcopy(RAW)
    wanted["spec"]["podSets"][1]["count"] = 5
    untouched = copy.deepcopy(RAW)
    assert codec.write_back(RAW, before, after) == wanted
    assert untouched == RAW


def test_entries_of_keyed_lists_are_found_again_by_their_keys() -> None:
    """Dropping the first condition and changing the second must not give one the unknown fields of the other."""
    before = _workload()
    _, admitted = before.status.conditions
    changed = msgspec.structs.replace(admitted, status="False")
    after = msgspec.structs.replace(before, status=msgspec.structs.replace(before.status, conditions=(changed,)))
    conditions = codec.write_back(RAW, before, after)["status"]["conditions"]
    assert conditions == [{**RAW["status"]["conditions"][1], "status": "False"}]


def test_a_field_that_is_taken_away_goes_and_a_new_one_comes() -> None:
    before = _workload()
    metadata = msgspec.structs.replace(before.metadata, labels={"b": "2"}, annotations={"c": "3"})
    written = codec.write_back(RAW, before, msgspec.structs.replace(before, metadata=metadata))["metadata"]
    assert written == {
        "name": "w",
        "namespace": "ns",
        "labels": {"b": "2"},
        "annotations": {"c": "3"},
        "someday": {"x": 1},
    }


def test_entries_of_lists_without_keys_are_found_again_by_what_they_hold() -> None:
    raw = {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "x": 1}, {"coveredResources": ["gpu"], "x": 2}]}}
    before = codec.from_tree(raw, kueue.ClusterQueue)
    first, second = before.spec.resource_groups
    turned = msgspec.structs.replace(first, covered_resources=("memory",))
    spec = msgspec.structs.replace(before.spec, resource_groups=(second, turned))
    groups = codec.write_back(raw, before, msgspec.structs.replace(before, spec=spec))["spec"]["resourceGroups"]
    # The second moved to the front unchanged and brought its unknown field along. The other has changed and moved, so
    # that nothing says which one it was.
    assert groups[0] == {"coveredResources": ["gpu"], "x": 2}
    assert groups[1]["coveredResources"] == ["memory"]
    assert "x" not in groups[1]


def test_an_entry_that_is_changed_in_its_place_keeps_what_no_type_names() -> None:
    raw = {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "x": 1}, {"coveredResources": ["gpu"], "x": 2}]}}
    before = codec.from_tree(raw, kueue.ClusterQueue)
    first, second = before.spec.resource_groups
    changed = msgspec.structs.replace(second, covered_resources=("memory",))
    spec = msgspec.structs.replace(before.spec, resource_groups=(first, changed))
    groups = codec.write_back(raw, before, msgspec.structs.replace(before, spec=spec))["spec"]["resourceGroups"]
    assert groups[0] is raw["spec"]["resourceGroups"][0]
    assert groups[1]["coveredResources"] == ["memory"]
    assert groups[1]["x"] == 2


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
def test_manifests_that_people_write_are_read_and_written_without_loss(type_: Any, document: Any) -> None:
    raw = json.loads(json.dumps(document, default=str))
    value = codec.from_tree(raw, type_)
    assert codec.decode(codec.encode(value), type_) == value
    assert codec.write_back(raw, value, value) == raw
    if type_ in kueue.KINDS:
        # Of our own kinds every field is known, except inside a pod template. What says no more than its absence would
        # may stay out when it is written.
        defaults = {line.path: line.default for line in schema.describe(registry.KUEUE.of(type_))}
        lost = {place: value for place, value in _unread(raw, codec.to_tree(value)) if ".template." not in place}
        assert {place: value for place, value in lost.items() if value and json.dumps(value) != defaults[place]} == {}
