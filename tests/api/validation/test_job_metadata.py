"""Validation of the queueing metadata of any job, on create and on update."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api.validation import ValidationGates, admission_gates, job_metadata, topology_annotations

Tree = dict[str, Any]
GATES = ValidationGates()
PREFIX = "kueue.x-k8s.io/"


def job(annotations: Tree | None = None, **labels: str) -> Tree:
    """Labels and annotations by their short names, with dashes as underscores."""
    return {"metadata": {"labels": spelt(labels), "annotations": spelt(annotations or {})}}


def spelt(short: Tree) -> Tree:
    return {PREFIX + name.replace("_", "-"): value for name, value in short.items()}


def label(name: str) -> str:
    return f"metadata.labels[{PREFIX}{name}]"


def note(name: str) -> str:
    return f"metadata.annotations[{PREFIX}{name}]"


def paths(errors: Any) -> list[str]:
    return [error.path for error in errors]


@pytest.mark.parametrize(
    ("tree", "refused"),
    [
        (job(), []),
        (job(queue_name="a.b"), []),
        (job(queue_name="Bad_Queue"), [label("queue-name")]),
        (job(max_exec_time_seconds="60"), []),
        (job(max_exec_time_seconds="0"), [label("max-exec-time-seconds")]),
        (job(max_exec_time_seconds="-5"), [label("max-exec-time-seconds")]),
        (job(max_exec_time_seconds="soon"), [label("max-exec-time-seconds")]),
        (job(prebuilt_workload_name="Bad_Name"), [label("prebuilt-workload-name")]),
        (job({"prebuilt_workload_name": "Bad_Name"}), [note("prebuilt-workload-name")]),
        (job({"elastic_job": "true"}), []),
        (job({"admission_gated_by": "nonsense"}), [note("admission-gated-by")]),
    ],
)
def test_a_new_job(tree: Tree, refused: list[str]) -> None:
    errors = job_metadata.validate_create(tree, GATES, takes_prebuilt=True, takes_elastic=True)
    assert paths(errors) == refused


def test_a_kind_refuses_what_it_does_not_support() -> None:
    tree = job({"elastic_job": "true"}, prebuilt_workload_name="w")
    errors = job_metadata.validate_create(tree, GATES, takes_prebuilt=False, takes_elastic=False)
    assert paths(errors) == [label("prebuilt-workload-name"), note("elastic-job")]


def test_a_name_too_long_for_a_label_is_read_from_the_annotation_whatever_the_gate() -> None:
    off = ValidationGates(workload_identifier_annotations=False)
    short, long = job({"prebuilt_workload_name": "w"}), job({"prebuilt_workload_name": "w" * 64})
    assert job_metadata.prebuilt_name(short, off) == ""
    assert job_metadata.prebuilt_name(short, GATES) == "w"
    assert job_metadata.prebuilt_name(long, off) == "w" * 64


# (what changes, old, new, refused while running, refused while suspended)
CHANGES = [
    ("queue", job(queue_name="a"), job(queue_name="b"), [label("queue-name")], []),
    (
        "execution time",
        job(max_exec_time_seconds="1"),
        job(max_exec_time_seconds="2"),
        [label("max-exec-time-seconds")],
        [],
    ),
    ("class added", job(), job(priority_class="high"), [label("priority-class")], []),
    ("class changed", job(priority_class="low"), job(priority_class="high"), [], []),
    ("class removed", job(priority_class="low"), job(), [label("priority-class")], [label("priority-class")]),
    ("prebuilt", job(), job(prebuilt_workload_name="w"), [label("prebuilt-workload-name")], []),
    ("elastic", job(), job({"elastic_job": "true"}), [note("elastic-job")], [note("elastic-job")]),
    (
        "gate added",
        job(),
        job({"admission_gated_by": "a.io/x"}),
        [note("admission-gated-by")],
        [note("admission-gated-by")],
    ),
    (
        "prebuilt misnamed",
        job(prebuilt_workload_name="Bad_Name"),
        job(prebuilt_workload_name="Bad_Name"),
        [],
        [label("prebuilt-workload-name")],
    ),
    (
        "gates misspelt",
        job({"admission_gated_by": "a"}),
        job({"admission_gated_by": "a"}),
        [note("admission-gated-by")],
        [note("admission-gated-by")],
    ),
    ("another annotation", job(), job({"note": "hello"}), [], []),
]


@pytest.mark.parametrize(
    ("old", "new", "running", "suspended"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_a_change(old: Tree, new: Tree, running: list[str], suspended: list[str]) -> None:
    for is_suspended, expected in ((False, running), (True, suspended)):
        errors = job_metadata.validate_update(
            new,
            old,
            GATES,
            suspended=is_suspended,
            was_suspended=is_suspended,
            takes_prebuilt=True,
            default_queue_exists=False,
        )
        assert paths(errors) == expected


@pytest.mark.parametrize(("default_queue_exists", "refused"), [(True, [label("queue-name")]), (False, [])])
def test_a_queue_name_cannot_be_removed_where_a_default_would_take_its_place(
    default_queue_exists: bool, refused: list[str]
) -> None:
    errors = job_metadata.validate_update(
        job(),
        job(queue_name="a"),
        GATES,
        suspended=True,
        was_suspended=True,
        takes_prebuilt=True,
        default_queue_exists=default_queue_exists,
    )
    assert paths(errors) == refused


# --- Admission gates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "messages"),
    [
        ("", 0),
        ("example.com/budget", 0),
        ("example.com/budget, example.com/data", 0),
        ("example.com/budget,,example.com/data", 1),
        ("example.com/budget,", 1),
        ("example.com/budget,example.com/budget", 1),
        ("budget", 1),
        ("example.com/", 1),
        ("Example.com/budget", 1),
        (f"example.com/{'b' * 52}", 1),
    ],
)
def test_gates_are_a_list_of_domains_with_paths(written: str, messages: int) -> None:
    errors = list(admission_gates.validate_create(job({"admission_gated_by": written})))
    assert paths(errors) == [note("admission-gated-by")] * messages


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("a.io/x,a.io/y", "a.io/y", False),
        ("a.io/x,a.io/y", " a.io/y , a.io/x ", False),
        ("a.io/x", "", False),
        ("a.io/x", "a.io/y", True),
        ("", "a.io/x", True),
    ],
)
def test_gates_only_ever_get_fewer(old: str, new: str, refused: bool) -> None:
    errors = admission_gates.validate_update(job({"admission_gated_by": new}), job({"admission_gated_by": old}))
    assert bool(list(errors)) is refused


# --- Topology annotations ---------------------------------------------------------------------------------------------


def layers(*pairs: tuple[str, int]) -> str:
    return "[" + ", ".join(f'{{"topology": "{topology}", "size": {size}}}' for topology, size in pairs) + "]"


SLICES = "podset_slice_required_topology"
LAYERS = "podset_slice_required_topology_constraints"
AT_LAYERS = note("podset-slice-required-topology-constraints")
TOPOLOGY = [
    ("one mode", {"podset_required_topology": "example.com/rack"}, []),
    ("two modes", {"podset_required_topology": "rack", "podset_preferred_topology": "rack"}, ["metadata.annotations"]),
    ("a level that is no label", {"podset_required_topology": "@rack"}, [note("podset-required-topology")]),
    (
        "a slice's level that is no label",
        {SLICES: "@", "podset_slice_size": "1"},
        [note("podset-slice-required-topology")],
    ),
    ("unconstrained", {"podset_unconstrained_topology": "true"}, []),
    ("unconstrained is a truth", {"podset_unconstrained_topology": "yes"}, [note("podset-unconstrained-topology")]),
    ("a slice", {SLICES: "rack", "podset_slice_size": "2"}, []),
    ("a slice without a size", {SLICES: "rack"}, [note("podset-slice-size")]),
    ("a size without a slice", {"podset_slice_size": "2"}, [note("podset-slice-size")]),
    ("a size in words", {SLICES: "rack", "podset_slice_size": "two"}, [note("podset-slice-size")]),
    ("a size of nothing", {SLICES: "rack", "podset_slice_size": "0"}, [note("podset-slice-size")]),
    ("a group", {"podset_group_name": "g", "podset_required_topology": "rack"}, []),
    (
        "a group with a number",
        {"podset_group_name": "7", "podset_required_topology": "rack"},
        [note("podset-group-name")],
    ),
    ("a group without a level", {"podset_group_name": "g"}, [note("podset-group-name")]),
    (
        "a group with slices",
        {"podset_group_name": "g", "podset_required_topology": "rack", SLICES: "rack", "podset_slice_size": "1"},
        [note("podset-group-name")] * 2,
    ),
    ("layers", {LAYERS: layers(("block", 8), ("rack", 4), ("host", 2))}, []),
    ("layers that are no list", {LAYERS: "{}"}, [AT_LAYERS]),
    ("layers that are no JSON", {LAYERS: "["}, [AT_LAYERS]),
    ("no layers", {LAYERS: "[]"}, [AT_LAYERS]),
    ("four layers", {LAYERS: layers(("a", 8), ("b", 4), ("c", 2), ("d", 1))}, [AT_LAYERS]),
    ("a layer twice", {LAYERS: layers(("a", 4), ("a", 2))}, [f"{AT_LAYERS}[1].topology"]),
    ("a layer of nothing", {LAYERS: layers(("a", 4), ("b", 0))}, [f"{AT_LAYERS}[1].size"]),
    ("a layer that does not divide the one above", {LAYERS: layers(("a", 4), ("b", 3))}, [f"{AT_LAYERS}[1].size"]),
    ("layers with a slice", {LAYERS: layers(("a", 4)), SLICES: "a", "podset_slice_size": "4"}, [AT_LAYERS] * 2),
    (
        "layers with a group",
        {LAYERS: layers(("a", 4)), "podset_group_name": "g", "podset_required_topology": "a"},
        [note("podset-group-name")],
    ),
]


@pytest.mark.parametrize(("notes", "refused"), [row[1:] for row in TOPOLOGY], ids=[row[0] for row in TOPOLOGY])
def test_topology_annotations(notes: Tree, refused: list[str]) -> None:
    errors = topology_annotations.validate(job(notes)["metadata"], "metadata", GATES)
    assert paths(errors) == refused


def test_layers_need_their_gate() -> None:
    metadata = job({LAYERS: layers(("a", 1))})["metadata"]
    errors = topology_annotations.validate(metadata, "metadata", ValidationGates(tas_multi_layer_topology=False))
    assert paths(errors) == [AT_LAYERS]


@pytest.mark.parametrize(
    ("notes", "refused"),
    [
        ({"podset_slice_size": "4"}, []),
        ({"podset_slice_size": "5"}, [note("podset-slice-size")]),
        ({LAYERS: layers(("a", 4), ("b", 2))}, []),
        ({LAYERS: layers(("a", 6), ("b", 2))}, [AT_LAYERS]),
    ],
)
def test_a_slice_is_no_larger_than_its_pod_set(notes: Tree, refused: list[str]) -> None:
    errors = list(topology_annotations.validate_size(job(notes)["metadata"], "metadata", 4))
    assert paths(errors) == refused
    assert {error.message for error in errors} <= {"must not be greater than pod set count 4"}
