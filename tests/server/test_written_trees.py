"""A write builds on the tree of the last one: as if it had been read from the store."""

from __future__ import annotations

from typing import Any

import pytest

from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.sqlite import StoreKey
from kubeserver.write.rest import WRITTEN_BYTES_MAX, WRITTEN_MAX, WrittenTrees
from server.conftest import CONFIG_MAPS, WIDGETS, Client, config_map, widget

Tree = dict[str, Any]


def entry(name: str, revision: int = 1, body: bytes = b"{}") -> ObjectEntry:
    return ObjectEntry(StoreKey("pods", "n", name), "u", revision, 1, body)


def test_only_the_revision_that_was_written_has_the_tree() -> None:
    trees, first, second = WrittenTrees(), entry("a"), entry("a", 2)
    trees.add(first, {"status": {}})
    assert trees.get(first) == {"status": {}}
    assert trees.get(second) is None
    trees.add(second, {"status": {"phase": "Running"}})
    assert trees.get(first) is None


def test_the_trees_of_the_last_writes_are_kept() -> None:
    trees = WrittenTrees()
    entries = [entry(f"p-{number}") for number in range(WRITTEN_MAX + 1)]
    for each in entries:
        trees.add(each, {})
    assert trees.get(entries[0]) is None
    assert all(trees.get(each) == {} for each in entries[1:])


def test_the_trees_of_large_objects_are_kept_up_to_a_number_of_bytes() -> None:
    trees, half = WrittenTrees(), bytes(WRITTEN_BYTES_MAX // 2)
    first, second, third = (entry(name, body=half) for name in ("a", "b", "c"))
    for each in (first, second, third):
        trees.add(each, {})
    assert [trees.get(each) for each in (first, second, third)] == [None, {}, {}]
    again = entry("b", 2, half)
    trees.add(again, {})
    assert [trees.get(each) for each in (third, again)] == [{}, {}], "the revision before does not count"
    trees.add(entry("d", body=bytes(WRITTEN_BYTES_MAX + 1)), {})
    trees.add(small := entry("e"), {})
    assert trees.get(small) == {}


def test_a_patch_builds_on_the_keys_that_are_stored(client: Client) -> None:
    """A number that is a key in YAML is a text in the stored JSON."""
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: keys}\ndata: {1: from-yaml}\n"
    client.post(CONFIG_MAPS, body, headers={"Content-Type": "application/yaml"}).ok()
    client.merge(f"{CONFIG_MAPS}/keys", {"data": {"1": "from-json"}}).ok()
    answer = client.get(f"{CONFIG_MAPS}/keys")
    assert answer.ok()["data"] == {"1": "from-json"}
    assert answer.body.count(b'"1"') == 1


@pytest.mark.parametrize("path", [CONFIG_MAPS, WIDGETS])
def test_a_write_that_is_refused_leaves_the_next_one_the_stored_object(client: Client, path: str) -> None:
    tree = config_map("refused", {"a": "1"}) if path == CONFIG_MAPS else widget("refused")
    made = client.post(path, tree).ok()
    client.merge(f"{path}/refused", {"metadata": {"labels": {"not a label!": "x"}}}).refused(422)
    client.delete(f"{path}/refused", {"preconditions": {"uid": "another"}}).refused(409)
    client.merge(f"{path}/refused", {"metadata": {"labels": {"kept": "x"}}}, dryRun="All").ok()
    # Nothing of these is in what follows, and a write without a change is none.
    same = client.merge(f"{path}/refused", {"metadata": {"labels": None}}).ok()
    assert same == made
    changed = client.merge(f"{path}/refused", {"metadata": {"labels": {"a": "b"}}}).ok()
    assert changed["metadata"]["labels"] == {"a": "b"}
    client.delete(f"{path}/refused").ok()


def test_an_object_that_waits_for_its_finalizers_keeps_everything_else(client: Client) -> None:
    tree = {**config_map("waits", {"a": "1"}), "immutable": True}
    tree["metadata"] |= {"finalizers": ["example.com/a"], "labels": {"a": "b"}}
    made = client.post(CONFIG_MAPS, tree).ok()
    client.delete(f"{CONFIG_MAPS}/waits").ok()
    left = client.get(f"{CONFIG_MAPS}/waits").ok()
    assert {key: left[key] for key in ("data", "immutable")} == {key: made[key] for key in ("data", "immutable")}
    assert left["metadata"]["labels"] == {"a": "b"}
    assert left["metadata"]["finalizers"] == ["example.com/a"]
    assert int(left["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    client.merge(f"{CONFIG_MAPS}/waits", {"metadata": {"finalizers": None}}).ok()
    client.get(f"{CONFIG_MAPS}/waits").refused(404)
