"""Files as users write them: what is read, and how a mistake is reported."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kubemachinery import yaml_documents
from kubemachinery.errors import UsageError

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))


def trees(text: str) -> list[object]:
    return [document.tree for document in yaml_documents.parse(text, "x.yaml")]


def test_several_documents_stand_in_one_file_and_empty_ones_do_not_count() -> None:
    assert trees("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_document_has_its_source() -> None:
    assert [d.source for d in yaml_documents.parse("a: 1\n---\nb: 2\n", "x.yaml")] == [
        "x.yaml document 1",
        "x.yaml document 2",
    ]


def test_json_is_yaml() -> None:
    assert trees('{"a": [1, 2.5, "x", null, true]}') == [{"a": [1, 2.5, "x", None, True]}]


def test_a_time_stays_the_text_that_was_written() -> None:
    assert trees("at: 2026-01-01T00:00:00Z\n") == [{"at": "2026-01-01T00:00:00Z"}]


def test_keys_become_text() -> None:
    assert trees("1: a\ntrue: b\n") == [{"1": "a", "true": "b"}]


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("one: &one {a: 1, b: 2}\ntwo: {a: 3, <<: *one}\n", {"a": 3, "b": 2}),  # what is written overrules
        ("one: &one {a: 1}\ntwo: {<<: [*one, {a: 2, b: 3}]}\n", {"a": 1, "b": 3}),  # the first wins
    ],
)
def test_a_mapping_can_be_merged_into_another(text: str, merged: object) -> None:
    [tree] = trees(text)
    assert isinstance(tree, dict)
    assert tree["two"] == merged


def test_merges_of_merges_are_not_multiplied() -> None:
    lines = [f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}" for i in range(1, 30)]
    [tree] = trees("\n".join(["m0: &m0 {a: 1}", *lines]))
    assert isinstance(tree, dict)
    assert tree["m29"] == {"a": 1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: {<<: 5}\n", "x.yaml: line 1, column 9: << requires a mapping, or a list of mappings"),
        ("a: {<<: {b: 1}, <<: {c: 1}}\n", "x.yaml: line 1, column 17: the key '<<' is written twice"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml: line 3, column 1: the key 'a' is written twice"),
        ("a: [1\n", "x.yaml: line 2, column 1:"),
        ("? [a]\n: b\n", "x.yaml: line 1, column 3: a key must be a plain value"),
        ("a: !!python/object:os.system x\n", "x.yaml: line 1, column 4:"),
        ("a: &x [*x]\n", "x.yaml: is not usable YAML or JSON: document 1 expands to more than"),
        (BOMB, "x.yaml: is not usable YAML or JSON: document 1 expands to more than"),
        ("[" * 5000 + "]" * 5000, "x.yaml: is not usable YAML or JSON"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        trees(text)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_missing_or_binary_file_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml: No such file"):
        list(yaml_documents.read(tmp_path / "none.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(UsageError, match=r"bytes\.yaml: is not UTF-8 \(byte 3\)"):
        list(yaml_documents.read(tmp_path / "bytes.yaml"))


@pytest.mark.parametrize("text", ["- " * 50_000 + "1", "[" * 5_000 + "]" * 5_000, "? " * 50_000 + "1"])
def test_what_is_nested_too_deep_is_refused_before_it_can_end_the_program(text: str) -> None:
    with pytest.raises(UsageError, match="deeper than 200 levels"):
        list(yaml_documents.parse(text, "deep.yaml"))


def test_many_brackets_side_by_side_are_not_deep() -> None:
    text = "items: [" + ", ".join("{a: [1]}" for _ in range(500)) + "]"
    [document] = yaml_documents.parse(text, "flat.yaml")
    assert len(document.tree["items"]) == 500


def test_a_device_without_an_end_is_refused_by_its_size() -> None:
    with pytest.raises(UsageError, match="/dev/zero: is larger than 64 MiB"):
        list(yaml_documents.read(Path("/dev/zero")))


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a: 1\n",))
    writer.start()
    assert [document.tree for document in yaml_documents.read(pipe)] == [{"a": 1}]
    writer.join()
