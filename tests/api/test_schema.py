"""The documents derived from the types: structural, explained in every field, and the same as the public API."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery.kinds import Kind
from pykueue.api import kueue, registry, schema
from pykueue.install import kustomize, manifests

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
needs_public_schemas = pytest.mark.skipif(
    not (SHARED / "reference" / "crds").is_dir(), reason="the public schemas (../shared/reference/crds) are not here"
)

BOTH_VERSIONS = pytest.mark.parametrize(
    ("row", "version"),
    [(row, version.name) for row in registry.CUSTOM for version in row.versions],
    ids=lambda value: value.kind if isinstance(value, Kind) else value,
)

# The keywords of a structural schema, beside its nested schemas.
WORDS = {
    "description", "type", "format", "pattern", "enum", "default", "nullable", "required", "anyOf", "minLength",
    "maxLength", "minimum", "maximum", "minItems", "maxItems", "minProperties", "maxProperties", "properties", "items",
    "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
}  # fmt: skip


def _nested(tree: schema.Schema, place: str = "") -> Iterator[tuple[str, schema.Schema]]:
    yield place, tree
    for name, member in tree.get("properties", {}).items():
        yield from _nested(member, f"{place}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in tree:
            yield from _nested(tree[inner], f"{place}[]")


def _complaints(place: str, tree: schema.Schema) -> Iterator[str]:
    """The errors that Kubernetes returns for one node of a structural schema."""
    if unknown := tree.keys() - WORDS:
        yield f"{place}: {unknown}"
    if tree.get("x-kubernetes-int-or-string"):
        if "type" in tree or tree.get("anyOf") != [{"type": "integer"}, {"type": "string"}]:
            yield f"{place}: an int-or-string has the one anyOf and no type"
    elif "type" not in tree or "anyOf" in tree:
        yield f"{place}: needs a type and nothing but a type"
    if "properties" in tree and "additionalProperties" in tree:
        yield f"{place}: properties and additionalProperties exclude each other"
    if (tree.get("type") == "array") != ("items" in tree):
        yield f"{place}: items belong to arrays"
    if ("properties" in tree or "additionalProperties" in tree) and tree.get("type") != "object":
        yield f"{place}: properties belong to objects"
    for name in tree.get("required", ()):
        if name not in tree.get("properties", {}):
            yield f"{place}: requires {name}, which it does not have"
    keys = tree.get("x-kubernetes-list-map-keys", ())
    if (tree.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield f"{place}: a list of type map has keys, and no other"
    for key in keys:
        entry = tree["items"]
        if key not in entry["properties"] or (
            key not in entry.get("required", ()) and "default" not in entry["properties"][key]
        ):
            yield f"{place}: the key {key} is neither required nor defaulted"
    if tree.get("x-kubernetes-list-type") == "set" and tree["items"].get("type") in ("object", "array"):
        yield f"{place}: a set of objects"
    if "pattern" in tree:
        re.compile(tree["pattern"].replace("^(?i)", "(?i)^"))
    if "default" in tree and not tree.get("x-kubernetes-int-or-string"):
        python = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}[tree["type"]]
        if not isinstance(tree["default"], python):
            yield f"{place}: default {tree['default']!r} is no {tree['type']}"
        if "enum" in tree and tree["default"] not in tree["enum"]:
            yield f"{place}: default {tree['default']!r} is not one of the choices"
    for rule in tree.get("x-kubernetes-validations", ()):
        if not rule["message"] or "\n" in rule["message"] or rule["rule"].count("(") != rule["rule"].count(")"):
            yield f"{place}: a rule without a sentence, or with parentheses that do not match: {rule}"


@BOTH_VERSIONS
def test_every_schema_is_structural(row: Kind, version: str) -> None:
    derived = schema.of(row, version)
    assert [found for place, tree in _nested(derived) for found in _complaints(place, tree)] == []
    assert derived["properties"]["metadata"] == {"type": "object"}


@BOTH_VERSIONS
def test_kubectl_explain_describes_every_field(row: Kind, version: str) -> None:
    derived = schema.of(row, version)
    silent = [
        f"{place}.{name}"
        for place, tree in _nested(derived)
        for name, member in tree.get("properties", {}).items()
        if not member.get("description") and f"{place}.{name}" != ".metadata"
    ]
    assert silent == []
    assert derived["description"]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_nothing_in_a_pod_template_is_pruned(version: str) -> None:
    """Every field that a user writes in a pod is kept, known or unknown."""
    pod_set = _properties("workloads", version, "spec", "podSets")
    spec = pod_set["template"]["properties"]["spec"]
    closed = [
        place
        for place, tree in _nested(spec)
        if "properties" in tree and not tree.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert closed == []
    kept = {"annotations", "finalizers", "labels", "name", "namespace"}
    assert set(pod_set["template"]["properties"]["metadata"]["properties"]) == kept


def test_the_caller_may_change_what_it_gets() -> None:
    row = registry.ALL.named("cq")
    assert row is not None
    schema.of(row, "v1beta2")["properties"].clear()
    assert schema.of(row, "v1beta2")["properties"]


def test_schemas_of_two_kinds_share_no_part_that_a_caller_could_change() -> None:
    queue, cohort = registry.KUEUE.of(kueue.ClusterQueue), registry.KUEUE.of(kueue.Cohort)
    untouched = schema.of(cohort, "v1beta2")
    changed = schema.of(queue, "v1beta2")["properties"]["spec"]["properties"]["resourceGroups"]
    changed["items"]["properties"].clear()
    assert schema.of(cohort, "v1beta2") == untouched


def test_an_older_version_derives_only_what_differs() -> None:
    row = registry.KUEUE.of(kueue.Workload)
    schema._derived.cache_clear()
    schema._struct.cache_clear()
    schema.of(row, "v1beta2")
    before = schema._struct.cache_info().misses
    schema.of(row, "v1beta1")
    assert schema._struct.cache_info().misses - before < before / 10


def test_a_version_that_does_not_exist_has_no_schema() -> None:
    with pytest.raises(LookupError, match="has no version 'v1'"):
        schema.of(registry.KUEUE.rows[0], "v1")


# --- Versions ---------------------------------------------------------------------------------------------------------


def _properties(word: str, version: str, *path: str) -> dict[str, Any]:
    row = registry.KUEUE.named(word)
    assert row is not None
    tree = schema.of(row, version)
    for name in path:
        tree = tree["properties"][name]
        tree = tree.get("items", tree)
    properties: dict[str, Any] = tree["properties"]
    return properties


def test_v1beta1_spells_what_was_renamed_in_the_old_way() -> None:
    assert "cohort" in _properties("cq", "v1beta1", "spec")
    assert "cohortName" not in _properties("cq", "v1beta1", "spec")
    assert "flavorUsage" in _properties("lq", "v1beta1", "status")
    # The misspelling is part of the old API.
    assert "accumulatedPastExexcutionTimeSeconds" in _properties("kwl", "v1beta1", "status")


def test_v1beta1_keeps_what_v1beta2_gave_up_and_lacks_what_came_later() -> None:
    assert {"priorityClassName", "priorityClassSource"} <= _properties("kwl", "v1beta1", "spec").keys()
    assert not {"priorityClassRef", "preemptionGates"} & _properties("kwl", "v1beta1", "spec").keys()
    assert "concurrentAdmissionPolicy" not in _properties("cq", "v1beta1", "spec")
    assert _properties("cq", "v1beta1", "spec", "flavorFungibility")["whenCanBorrow"]["enum"][-1] == "Borrow"


def test_extension_fields_are_in_both_versions() -> None:
    """A client that still writes v1beta1 does not remove them."""
    for version in ("v1beta1", "v1beta2"):
        assert {"defaultLocalQueue", "excludeResourcePrefixes"} <= _properties("cq", version, "spec").keys()
        assert {"retryDelayMinutes", "preemptionPolicy"} <= _properties("ac", version, "spec").keys()
        assert "admissionChecksConditions" in _properties("kwl", version, "status")


# --- CustomResourceDefinitions ----------------------------------------------------------------------------------------


def test_kinds_that_change_shape_name_their_converter_and_no_other_does() -> None:
    service = {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert"}}
    strategies = {row.kind: schema.crd(row, webhook=service)["spec"]["conversion"] for row in registry.KUEUE}
    webhook = {"clientConfig": service, "conversionReviewVersions": ["v1"]}
    converted = {"ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "MultiKueueConfig", "Workload"}
    assert {
        kind for kind, found in strategies.items() if found == {"strategy": "Webhook", "webhook": webhook}
    } == converted
    assert {
        kind for kind, found in strategies.items() if found == {"strategy": "None"}
    } == strategies.keys() - converted


def test_the_old_version_is_deprecated_for_all_but_one_kind() -> None:
    versions = {row.kind: schema.crd(row)["spec"]["versions"] for row in registry.KUEUE}
    assert {kind for kind, (old, _) in versions.items() if not old.get("deprecated")} == {"MultiKueueConfig"}
    assert not any(new.get("deprecated") for _, new in versions.values())
    assert all("v1beta2" in old["deprecationWarning"] for old, _ in versions.values() if old.get("deprecated"))


def test_workloads_can_be_selected_by_the_queue_that_holds_their_quota() -> None:
    row = registry.KUEUE.named("workloads")
    assert row is not None
    old, new = schema.crd(row)["spec"]["versions"]
    assert new["selectableFields"] == [{"jsonPath": ".status.admission.clusterQueue"}]
    assert "selectableFields" not in old


def test_what_is_installed_is_what_the_folder_holds() -> None:
    """Written by `make docs`; run it again after changing a field."""
    wanted = {
        f"{crd['metadata']['name']}.yaml": kustomize.render([crd]) for crd in manifests.crds(manifests.InstallPlan())
    }
    found = {file.name: file.read_text() for file in (ROOT / "deploy" / "crds").glob("*.yaml")}
    assert found.keys() == wanted.keys()
    assert [name for name, text in wanted.items() if found[name] != text] == []


# --- Against the public API -------------------------------------------------------------------------------------------


@needs_public_schemas
def test_the_conformance_check_finds_no_difference() -> None:
    check = SHARED / "conformance" / "check_crds.py"
    result = subprocess.run(
        [sys.executable, str(check), "--pykueue", f"{sys.executable} -m pykueue"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 differences" in result.stdout


# Where these schemas have more than Kueue, by intention.
OWN_LIMITS = {
    # The check may also ask for its preemptions.
    (".status.admissionChecks[].state", "enum"),
    # A delay of less than nothing makes no sense; the public API keeps the field but does not read it.
    (".spec.retryDelayMinutes", "minimum"),
}


@needs_public_schemas
@pytest.mark.parametrize(
    ("row", "version"),
    [(row, version.name) for row in registry.KUEUE for version in row.versions],
    ids=lambda value: value.kind if isinstance(value, Kind) else value,
)
def test_no_limit_is_missing_and_none_is_added(row: Kind, version: str) -> None:
    """The conformance check asks whether all public limits are here. This one also asks whether others are."""
    words = runpy.run_path(str(SHARED / "conformance" / "check_crds.py"))["SAME"]
    document = yaml.safe_load((SHARED / "reference" / "crds" / f"{row.plural}.yaml").read_text())
    public = next(v["schema"]["openAPIV3Schema"] for v in document["spec"]["versions"] if v["name"] == version)
    ours = dict(_nested(schema.of(row, version)))
    differing = []
    for place, tree in _nested(public):
        if "x-collapsed" in tree:
            continue
        for word in (*words, "required"):
            if _sorted(tree.get(word)) != _sorted(ours[place].get(word)) and (place, word) not in OWN_LIMITS:
                differing.append((place, word, tree.get(word), ours[place].get(word)))
        rules, own_rules = (len(part.get("x-kubernetes-validations", ())) for part in (tree, ours[place]))
        if rules != own_rules:
            differing.append((place, "rules", rules, own_rules))
    assert differing == []


def _sorted(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value


# --- For people -------------------------------------------------------------------------------------------------------


def test_describe_returns_every_field_for_the_reference_pages() -> None:
    row = registry.KUEUE.named("workloads")
    assert row is not None
    lines = {line.path: line for line in schema.describe(row)}
    count = lines["spec.podSets[].count"]
    assert (count.type, count.required, count.default, count.limits) == ("integer", False, "1", ("minimum: 0",))
    assert count.meaning == "How many pods the set has."
    assert lines["status.admissionChecks[].state"].choices[0] == "Pending"
    assert lines["status.admissionChecks[].state"].required
    assert lines["spec.podSets"].type == "list of object"
    assert lines["status.admission.podSetAssignments[].resourceUsage"].type == "map of quantity"
    assert lines["spec.podSets"].rules == ("minCount must not be greater than count",)
    assert lines["spec"].rules == ("priority must be set when priorityClassRef is",)
    # Parents come before their children.
    paths = list(lines)
    assert paths.index("spec") < paths.index("spec.podSets") < paths.index("spec.podSets[].count")
