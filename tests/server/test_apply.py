"""Who owns which field, rule by rule, on a small kind that has every sort of list and map."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from contracts import ownership
from kubeserver.apply import (
    Applied,
    ApplyConflicts,
    ApplyRefused,
    ApplyTarget,
    FieldConflict,
    Shape,
    apply,
    track_update,
)

Tree = dict[str, Any]

V1 = ownership.API_VERSION
SHAPE = Shape.of(ownership.SCHEMA)
MAIN = ApplyTarget(V1, {V1: SHAPE}, has_status=True)
STATUS = ApplyTarget(V1, {V1: SHAPE}, subresource="status", has_status=True)
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def mixture(**parts: Any) -> Tree:
    return {"apiVersion": V1, "kind": ownership.KIND, "metadata": {"name": "one"}, **parts}


def applied(
    live: Tree | None, manager: str, *, force: bool = False, target: ApplyTarget = MAIN, now: str = EARLY, **parts: Any
) -> Tree:
    outcome = apply(live, mixture(**parts), manager=manager, force=force, target=target, now=now)
    assert isinstance(outcome, Applied), outcome
    # What the store adds, and what marks the object as stored before.
    return {**outcome.tree, "metadata": {**outcome.tree["metadata"], "uid": "u"}}


def updated(live: Tree | None, manager: str, *, target: ApplyTarget = MAIN, now: str = EARLY, **parts: Any) -> Tree:
    new = {**(live or mixture()), **parts}
    entries = track_update(live, new, manager=manager, target=target, now=now)
    return {**new, "metadata": {**new["metadata"], "uid": "u", "managedFields": entries}}


def owned(tree: Tree, manager: str) -> Any:
    found = [entry for entry in tree["metadata"].get("managedFields", ()) if entry["manager"] == manager]
    assert len(found) <= 1
    return found[0]["fieldsV1"] if found else None


# --- what is owned ----------------------------------------------------------------------------------------------------


def test_an_applier_owns_the_leaves_of_its_configuration() -> None:
    tree = applied(None, "a", spec={"text": "x", "struct": {"a": "y"}})
    assert owned(tree, "a") == {"f:spec": {"f:text": {}, "f:struct": {"f:a": {}}}}


def test_identifying_fields_are_never_owned() -> None:
    assert "managedFields" not in applied(None, "a")["metadata"]


def test_an_item_of_a_keyed_list_is_owned_by_its_key_and_by_its_fields() -> None:
    tree = applied(None, "a", spec={"items": [{"name": "one", "value": "x"}]})
    assert owned(tree, "a") == {"f:spec": {"f:items": {'k:{"name":"one"}': {".": {}, "f:name": {}, "f:value": {}}}}}


def test_a_key_that_is_left_out_counts_with_its_default() -> None:
    tree = applied(None, "a", spec={"ports": [{"port": 80}]})
    assert list(owned(tree, "a")["f:spec"]["f:ports"]) == ['k:{"port":80,"protocol":"TCP"}']


def test_an_item_of_a_set_is_owned_by_its_value() -> None:
    tree = applied(None, "a", spec={"set": ["x", "y"]})
    assert owned(tree, "a") == {"f:spec": {"f:set": {'v:"x"': {}, 'v:"y"': {}}}}


def test_the_spelling_of_an_element_is_that_of_the_public_server() -> None:
    """Other servers' entries and ours are compared as texts: what a web page could trip over is escaped."""
    tree = applied(None, "a", spec={"items": [{"name": "a<b&c>"}]})
    assert list(owned(tree, "a")["f:spec"]["f:items"]) == [r'k:{"name":"a\u003cb\u0026c\u003e"}']
    outcome = apply(
        tree, mixture(spec={"items": [{"name": "a<b&c>"}]}), manager="b", force=False, target=MAIN, now=LATE
    )
    assert isinstance(outcome, Applied)


@pytest.mark.parametrize("field", ["atomicList", "atomicMap", "atomicStruct"])
def test_what_is_one_value_is_owned_as_one(field: str) -> None:
    value: Any = ["x"] if field == "atomicList" else {"a": "x"}
    assert owned(applied(None, "a", spec={field: value}), "a") == {"f:spec": {f"f:{field}": {}}}


def test_a_creator_owns_every_path_it_brought() -> None:
    tree = updated(None, "a", spec={"granular": {"k": "v"}})
    assert owned(tree, "a") == {"f:spec": {".": {}, "f:granular": {".": {}, "f:k": {}}}}


def test_the_main_endpoint_does_not_own_status_and_the_status_endpoint_owns_nothing_else() -> None:
    tree = applied(None, "a", spec={"text": "x"}, status={"text": "y"})
    assert owned(tree, "a") == {"f:spec": {"f:text": {}}}
    tree = applied(tree, "b", target=STATUS, spec={"text": "x"}, status={"number": 1})
    assert owned(tree, "b") == {"f:status": {"f:number": {}}}


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_another_value_for_a_field_of_another_manager_is_a_conflict() -> None:
    live = applied(None, "a", spec={"text": "x"})
    outcome = apply(live, mixture(spec={"text": "y"}), manager="b", force=False, target=MAIN, now=LATE)
    assert outcome == ApplyConflicts((FieldConflict('"a"', ".spec.text"),))
    assert isinstance(outcome, ApplyConflicts)
    assert outcome.message == 'Apply failed with 1 conflict: conflict with "a": .spec.text'
    assert outcome.causes == [{"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": ".spec.text"}]


def test_a_conflict_with_an_update_names_its_version_and_subresource() -> None:
    live = updated(None, "a", spec={"text": "x"})
    outcome = apply(live, mixture(spec={"text": "y"}), manager="b", force=False, target=MAIN, now=LATE)
    assert isinstance(outcome, ApplyConflicts)
    assert [one.manager for one in outcome.conflicts] == [f'"a" using {V1}']


def test_the_same_value_is_shared_and_not_a_conflict() -> None:
    tree = applied(applied(None, "a", spec={"text": "x"}), "b", spec={"text": "x"})
    assert owned(tree, "a") == owned(tree, "b") == {"f:spec": {"f:text": {}}}


def test_force_takes_the_field() -> None:
    tree = applied(applied(None, "a", spec={"text": "x", "number": 1}), "b", force=True, spec={"text": "y"})
    assert tree["spec"] == {"text": "y", "number": 1}
    assert owned(tree, "a") == {"f:spec": {"f:number": {}}}
    assert owned(tree, "b") == {"f:spec": {"f:text": {}}}


# --- leaving fields out -----------------------------------------------------------------------------------------------


def test_a_field_that_is_applied_no_longer_is_removed() -> None:
    tree = applied(applied(None, "a", spec={"text": "x", "number": 1}), "a", spec={"text": "x"})
    assert tree["spec"] == {"text": "x"}


def test_a_field_applied_no_longer_stays_while_another_manager_owns_it() -> None:
    live = applied(applied(None, "a", spec={"text": "x"}), "b", spec={"text": "x"})
    tree = applied(live, "a", spec={"number": 1})
    assert tree["spec"] == {"text": "x", "number": 1}
    assert owned(tree, "a") == {"f:spec": {"f:number": {}}}


def test_an_item_of_a_keyed_list_is_removed_as_a_whole() -> None:
    """An item without its key would be no item: `[{}]` once made a scheduler fall over."""
    items = [{"name": "one", "value": "x"}, {"name": "two"}]
    tree = applied(applied(None, "a", spec={"items": items}), "a", spec={"items": items[1:]})
    assert tree["spec"] == {"items": [{"name": "two"}]}


def test_fields_of_other_managers_in_an_item_stay_when_its_owner_stops_applying_it() -> None:
    live = applied(None, "a", spec={"items": [{"name": "one", "value": "x"}]})
    live = applied(live, "b", spec={"items": [{"name": "one", "count": 1}]})
    tree = applied(live, "a", spec={})
    assert tree["spec"] == {"items": [{"name": "one", "count": 1}]}


def test_items_of_both_take_the_order_of_the_configuration_and_others_stay() -> None:
    live = updated(None, "a", spec={"set": ["x", "y", "z"]})
    tree = applied(live, "b", spec={"set": ["z", "x"]})
    assert tree["spec"]["set"] == ["y", "z", "x"]


def test_applying_null_keeps_a_map_with_content() -> None:
    live = applied(None, "a", spec={"granular": {"k": "v"}})
    tree = applied(live, "b", spec={"granular": None})
    assert tree["spec"]["granular"] == {"k": "v"}


# --- updates ----------------------------------------------------------------------------------------------------------


def test_an_update_owns_the_fields_that_it_changes() -> None:
    live = applied(None, "a", spec={"text": "x", "number": 1})
    tree = updated(live, "b", spec={"text": "y", "number": 1})
    assert owned(tree, "a") == {"f:spec": {"f:number": {}}}
    assert owned(tree, "b") == {"f:spec": {"f:text": {}}}


def test_a_field_that_is_removed_leaves_all_its_owners() -> None:
    live = applied(applied(None, "a", spec={"text": "x", "number": 1}), "b", spec={"text": "x"})
    tree = updated(live, "c", spec={"number": 1})
    assert owned(tree, "a") == {"f:spec": {"f:number": {}}}
    assert owned(tree, "b") is None


def test_an_update_that_changes_nothing_leaves_no_trace() -> None:
    live = applied(None, "a", spec={"text": "x"})
    assert updated(live, "b", now=LATE)["metadata"]["managedFields"] == live["metadata"]["managedFields"]


def test_truth_is_not_one() -> None:
    """Where nothing is declared, `true` and `1` are different values, though Python takes them for equal."""
    live = applied(None, "a", spec={"anything": {"k": 1}})
    tree = updated(live, "b", spec={"anything": {"k": True}})
    assert owned(tree, "b") == {"f:spec": {"f:anything": {"f:k": {}}}}


# --- the entries ------------------------------------------------------------------------------------------------------


def test_time_moves_only_with_a_change() -> None:
    live = applied(None, "a", now=EARLY, spec={"text": "x"})
    same = applied(live, "a", now=LATE, spec={"text": "x"})
    assert same["metadata"]["managedFields"][0]["time"] == EARLY
    other = applied(live, "a", now=LATE, spec={"text": "y"})
    assert other["metadata"]["managedFields"][0]["time"] == LATE


def test_appliers_come_first_then_the_older_then_by_name() -> None:
    tree = updated(None, "z", now=EARLY, spec={"text": "x"})
    tree = updated(tree, "b", now=LATE, spec={"text": "x", "number": 1})
    tree = updated(tree, "a", now=LATE, spec={"text": "x", "number": 1, "flag": True})
    tree = applied(tree, "m", now=LATE, spec={"either": 1})
    assert [entry["manager"] for entry in tree["metadata"]["managedFields"]] == ["m", "z", "a", "b"]


def test_the_oldest_of_many_writers_are_folded() -> None:
    tree = updated(None, "writer-00", spec={"granular": {"k0": "v"}})
    for number in range(1, 15):
        granular = {**tree["spec"]["granular"], f"k{number}": "v"}
        tree = updated(tree, f"writer-{number:02}", now=f"2026-01-01T00:00:{number:02}Z", spec={"granular": granular})
    managers = [entry["manager"] for entry in tree["metadata"]["managedFields"]]
    assert len(managers) == 10
    assert managers[0] == "ancient-changes"
    assert {f"f:k{number}" for number in range(6)} <= owned(tree, "ancient-changes")["f:spec"]["f:granular"].keys()


def test_fields_without_managers_get_before_first_apply_at_the_first_apply() -> None:
    live = {**mixture(spec={"text": "x"}), "metadata": {"name": "one", "uid": "u"}}
    assert track_update(live, live, manager="a", target=MAIN, now=EARLY) == []
    tree = applied(live, "b", force=True, spec={"text": "y"})
    assert owned(tree, "b") == {"f:spec": {"f:text": {}}}
    assert owned(tree, "before-first-apply") == {"f:spec": {}}


@pytest.mark.parametrize("sent", [[], [{}]])
def test_managers_can_be_cleared(sent: list[Any]) -> None:
    live = applied(None, "a", spec={"text": "x"})
    new = {**live, "metadata": {**live["metadata"], "managedFields": sent}}
    assert track_update(live, new, manager="b", target=MAIN, now=LATE) == []


def test_an_empty_list_does_not_clear_the_managers_of_a_custom_object() -> None:
    custom = replace(MAIN, custom=True)
    live = applied(None, "a", target=custom, spec={"text": "x"})
    owners = live["metadata"]["managedFields"]
    for sent, left in (([], owners), ([{}], [])):
        new = {**live, "metadata": {**live["metadata"], "managedFields": sent}}
        assert track_update(live, new, manager="b", target=custom, now=LATE) == left


@pytest.mark.parametrize(
    "sent",
    [
        "nonsense",
        [{"manager": "m", "operation": "Eat", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV2", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}],
        [{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"k:{": {}}}],
    ],
)
def test_managers_that_make_no_sense_are_ignored(sent: Any) -> None:
    live = applied(None, "a", spec={"text": "x"})
    new = {**live, "metadata": {**live["metadata"], "managedFields": sent}}
    assert track_update(live, new, manager="b", target=MAIN, now=LATE) == live["metadata"]["managedFields"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"zzz": 1}, ".spec.zzz: field not declared in schema"),
        ({"text": 1}, ".spec.text: expected a string, got 1"),
        ({"items": [{"name": "a"}, {"name": "a"}]}, '.spec.items: duplicate entries for key [name="a"]'),
        ({"items": [{"value": "x"}]}, ".spec.items[0]: an item has none of the keys of its list: name"),
        ({"set": [{}]}, ".spec.set[0]: an item of a set must be a plain value"),
        ({"granular": "x"}, ".spec.granular: expected an object, got 'x'"),
    ],
)
def test_a_configuration_that_cannot_be_merged_is_refused_with_the_place(spec: Tree, why: str) -> None:
    outcome = apply(None, mixture(spec=spec), manager="a", force=True, target=MAIN, now=EARLY)
    assert outcome == ApplyRefused(why)


def test_managed_fields_in_a_configuration_are_refused() -> None:
    configuration = {**mixture(), "metadata": {"name": "one", "managedFields": []}}
    assert isinstance(apply(None, configuration, manager="a", force=True, target=MAIN, now=EARLY), ApplyRefused)


# --- versions and schemas ---------------------------------------------------------------------------------------------

V2 = f"{ownership.GROUP}/v2"
_RENAMED = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"words": {"type": "string"}}}}}


def _convert(tree: Tree, api_version: str) -> Tree:
    old, new = ("text", "words") if api_version == V2 else ("words", "text")
    spec = {new if key == old else key: value for key, value in tree.get("spec", {}).items()}
    return {**tree, "apiVersion": api_version, "spec": spec}


def test_an_owner_in_another_version_is_asked_in_its_own_words() -> None:
    shapes = {V1: SHAPE, V2: Shape.of(_RENAMED)}
    new_target = ApplyTarget(V2, shapes, convert=_convert)
    live = _convert(applied(None, "a", spec={"text": "x"}), V2)
    configuration = {"apiVersion": V2, "kind": ownership.KIND, "metadata": {"name": "one"}, "spec": {"words": "y"}}
    outcome = apply(live, configuration, manager="b", force=False, target=new_target, now=LATE)
    assert outcome == ApplyConflicts((FieldConflict('"a"', ".spec.text"),))


def test_an_applier_that_changes_its_version_keeps_one_entry() -> None:
    shapes = {V1: SHAPE, V2: Shape.of(_RENAMED)}
    live = _convert(applied(None, "a", spec={"text": "x"}), V2)
    configuration = {"apiVersion": V2, "kind": ownership.KIND, "metadata": {"name": "one"}, "spec": {"words": "x"}}
    outcome = apply(
        live, configuration, manager="a", force=False, target=ApplyTarget(V2, shapes, convert=_convert), now=LATE
    )
    assert isinstance(outcome, Applied)
    assert outcome.tree["spec"] == {"words": "x"}
    assert owned(outcome.tree, "a") == {"f:spec": {"f:words": {}}}


def test_managers_in_a_version_that_is_not_served_any_more_are_dropped() -> None:
    live = applied(None, "a", spec={"text": "x"})
    live["metadata"]["managedFields"][0]["apiVersion"] = f"{ownership.GROUP}/v0"
    tree = applied(live, "b", spec={"text": "y"})
    assert owned(tree, "a") is None


def test_what_has_become_one_value_is_owned_as_one() -> None:
    live = applied(None, "a", spec={"granular": {"k": "v"}, "set": ["x"]})
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {}}}}
    schema["properties"]["spec"]["properties"] = {  # type: ignore[index]
        "granular": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
        "set": {"type": "array", "items": {"type": "string"}},
        "text": {"type": "string"},
    }
    tree = applied(live, "b", target=ApplyTarget(V1, {V1: Shape.of(schema)}), spec={"text": "x"})
    assert owned(tree, "a") == {"f:spec": {"f:granular": {}, "f:set": {}}}


# --- kubectl's two ways -----------------------------------------------------------------------------------------------

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _client_side() -> Tree:
    text = f'{{"apiVersion":"{V1}","kind":"Mixture","metadata":{{"name":"one"}},"spec":{{"text":"x"}}}}'
    new = mixture(spec={"text": "x"})
    new["metadata"]["annotations"] = {_LAST_APPLIED: text}
    return updated(new, "kubectl-client-side-apply") | updated(None, "kubectl-client-side-apply", **new)


def test_kubectl_inherits_what_it_applied_from_the_clients_side() -> None:
    tree = applied(_client_side(), "kubectl", spec={"text": "y"})
    assert tree["spec"]["text"] == "y"
    assert '"text":"y"' in tree["metadata"]["annotations"][_LAST_APPLIED]


def test_only_kubectl_inherits_client_side_fields() -> None:
    outcome = apply(_client_side(), mixture(spec={"text": "y"}), manager="b", force=False, target=MAIN, now=LATE)
    assert isinstance(outcome, ApplyConflicts)


def test_neither_argument_is_changed() -> None:
    live = applied(None, "a", spec={"items": [{"name": "one", "value": "x"}], "granular": {"k": "v"}})
    configuration = mixture(spec={"items": [{"name": "two"}]})
    before = repr((live, configuration))
    apply(live, configuration, manager="a", force=True, target=MAIN, now=LATE)
    assert repr((live, configuration)) == before
