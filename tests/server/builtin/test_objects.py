"""Objects of the built-in kinds as a real kube-apiserver completed, stored and printed them; ours come out alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import probing
from kubemachinery import meta
from kubeserver.builtin.kinds import RESOURCES

Tree = dict[str, Any]

_LINES = (Path(__file__).parents[1] / "recorded" / "objects.jsonl").read_bytes().splitlines()
_ROWS = [msgspec.json.decode(line) for line in _LINES]
_BASES = {kind.name: kind.base for kind in probing.kinds()}
_AGE = re.compile(r"^\d+s$|^<unknown>$")


@pytest.fixture(params=_ROWS, ids=lambda row: row["kind"])
def row(request: pytest.FixtureRequest) -> Tree:
    found: Tree = request.param
    return found


def _resource(tree: Tree) -> Any:
    (found,) = [one for one in RESOURCES if (one.api_version, one.kind) == (tree["apiVersion"], tree["kind"])]
    return found


def _without_words(tree: Tree) -> Tree:
    """Messages of conditions are our own."""
    status = tree.get("status")
    if not isinstance(status, dict) or "conditions" not in status:
        return tree
    conditions = [{**one, "message": ""} for one in status["conditions"]]
    return {**tree, "status": {**status, "conditions": conditions}}


def test_an_object_is_completed_as_it_was(row: Tree) -> None:
    """Defaults, labels, tolerations, taints, selectors, status: all that the server adds of its own."""
    recorded, base = row["json"], _BASES[row["kind"]]
    resource = _resource(recorded)
    given = msgspec.json.decode(msgspec.json.encode(base))
    ours = resource.rules.default(resource.rules.prune(given))
    for key in ("uid", "creationTimestamp", "generation", "resourceVersion", "namespace", "managedFields"):
        if key in recorded["metadata"]:
            ours["metadata"][key] = recorded["metadata"][key]
    resource.rules.on_create(ours)
    assert resource.rules.validate(ours, None, "") == []
    assert _without_words(ours) == _without_words(_without_allocated(recorded, base))


def _without_allocated(tree: Tree, base: Tree) -> Tree:
    """The addresses of a Service that asked for none: nothing allocates them here (`registry.unsupported`)."""
    if tree["kind"] != "Service" or "clusterIP" in base["spec"]:
        return tree
    spec = {key: value for key, value in tree["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    return {**tree, "spec": spec}


def test_reading_what_is_stored_changes_nothing(row: Tree) -> None:
    resource = _resource(row["json"])
    again = msgspec.json.decode(msgspec.json.encode(row["json"]))
    assert resource.rules.default(resource.rules.prune(again)) == row["json"]
    assert list(resource.rules.unknown(row["json"])) == []


def test_it_is_printed_as_it_was(row: Tree) -> None:
    resource = _resource(row["json"])
    assert [[one.name, one.type, one.format, one.priority] for one in resource.columns] == row["columns"]
    now = meta.parse_time(row["json"]["metadata"]["creationTimestamp"])
    for column, ours, theirs in zip(resource.columns, resource.cells(row["json"], now), row["cells"], strict=True):
        if not (isinstance(theirs, str) and _AGE.match(theirs)):
            assert ours == theirs, column.name
