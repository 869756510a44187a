"""Our rules and limits refuse what those of the public API refuse, in the same places, and nothing else."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubemachinery import structural
from kubemachinery.kinds import Kind
from pykueue.api import registry, schema

PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "reference" / "crds"

# Words that rules ask for, and a few that they do not.
WORDS = (
    "a", "b", "", "main", "Exists", "Equal", "NoSchedule", "NoExecute", "QuotaReserved", "Admitted",
    "kubernetes.io/hostname", "rack", "In",
)  # fmt: skip


def trees(of: dict[str, Any], place: str = "") -> st.SearchStrategy[Any]:
    """Objects that keep to the types and limits of a schema, so that it is the rules that decide."""
    if "enum" in of:
        return st.sampled_from(of["enum"])
    if of.get("x-kubernetes-int-or-string"):
        return st.sampled_from([0, 1, "2", "500m"])
    match of["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(of.get("minimum", 0), of.get("minimum", 0) + 2)
        case "string" if of.get("format") == "date-time":
            return st.just("2025-01-31T09:30:00Z")
        case "string":
            pattern = re.compile(of.get("pattern", "").replace("^(?i)", "(?i)^"))
            return st.sampled_from([w for w in WORDS if pattern.search(w) and len(w) >= of.get("minLength", 0)])
        case "array":
            keys = of.get("x-kubernetes-list-map-keys", ())
            unique = (lambda entry: tuple(entry.get(key, "main") for key in keys)) if keys else None
            if of.get("x-kubernetes-list-type") == "set":
                unique = lambda entry: entry  # noqa: E731
            least = of.get("minItems", 0)
            return st.lists(trees(of["items"], f"{place}[]"), min_size=least, max_size=least + 2, unique_by=unique)
    if "additionalProperties" in of:
        return st.dictionaries(st.sampled_from(["a", "b"]), trees(of["additionalProperties"]), max_size=2)
    # What pods hold is not for these rules, and neither is who an object is.
    if place.endswith((".template", ".metadata")):
        return st.just({})
    members = {name: trees(member, f"{place}.{name}") for name, member in of.get("properties", {}).items()}
    # The rules of a Workload read these fields; without them no rule applies.
    needed = {*of.get("required", ()), *({"spec", "status"} & members.keys())}
    return st.fixed_dictionaries(
        {name: member for name, member in members.items() if name in needed},
        optional={name: member for name, member in members.items() if name not in needed},
    )


@cache
def _public(plural: str, version: str) -> dict[str, Any]:
    document = yaml.safe_load((PUBLIC / f"{plural}.yaml").read_text())
    found: dict[str, Any] = next(
        entry["schema"]["openAPIV3Schema"] for entry in document["spec"]["versions"] if entry["name"] == version
    )
    return found


@cache
def _prepared(row: Kind, version: str) -> tuple[structural.Structural, structural.Structural, st.SearchStrategy[Any]]:
    public = _public(row.plural, version)
    return structural.compile(public), structural.compile(schema.of(row, version)), trees(public)


def _refusals(compiled: structural.Structural, new: Any, old: Any) -> list[tuple[str, str]]:
    defaulted = compiled.default(new)
    stored = None if old is None else compiled.default(old)
    return sorted((error.path, str(error.type)) for error in compiled.validate(defaulted, stored))


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public schemas (../shared/reference/crds) are not here")
@pytest.mark.parametrize(
    ("row", "version"),
    [(row, version.name) for row in registry.KUEUE for version in row.versions],
    ids=lambda value: value.kind if isinstance(value, Kind) else value,
)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_public_api_refuses_is_refused_here_in_the_same_place(
    row: Kind, version: str, data: st.DataObject
) -> None:
    public, ours, objects = _prepared(row, version)
    new, old = data.draw(objects), data.draw(st.none() | objects)
    if old is not None and _refusals(public, old, None):
        # What is stored was valid once. Here a part of the new object is what it was; that part may break no rule.
        old = None
    assert _refusals(ours, new, old) == _refusals(public, new, old)
