"""`-o jsonpath=…`: templates as kubectl fills them in."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.errors import UsageError
from pykueue.cli.jsonpath import Template

TREE: dict[str, Any] = {
    "kind": "Thing",
    "metadata": {"name": "x", "labels": {"kueue.x-k8s.io/queue": "q"}},
    "things": [
        {"name": "one", "n": 1, "parts": [1, 2]},
        {"name": "two", "n": 2, "parts": []},
        {"name": "three", "n": 3},
    ],
    "list": [3, 1, 2],
    "none": [],
    "map": {"z": False, "k": {"deep": [1, {"x": "<y>"}]}},
    "nulls": [None],
    "half": 0.5,
    "big": 123456789.25,
    "whole": [100000.0],
}

TABLE = [
    # Text, and what stands in braces
    ("", ""),
    ("names: {.things[*].name}.", "names: one two three."),
    ("{ .kind }{.list[0]}{.list[1]}", "Thing31"),
    (r"""{"}"}{'single'}{'it\'s'}{"a\nb"}""", "}singleit'sa\nb"),
    ("{1}{1.5}{true}", "11.5true"),
    # Values: scalars as Go prints them, all else as JSON
    ("{.half} {.big} {.nulls[0]} {.map.z}", "0.5 1.2345678925e+08 null false"),
    ("{.map} {.whole}", r'{"k":{"deep":[1,{"x":"\u003cy\u003e"}]},"z":false} [100000]'),
    # Fields
    (r"{.metadata.labels.kueue\.x-k8s\.io/queue}", "q"),
    (r"{.metadata.labels['kueue\.x-k8s\.io/queue']}", "q"),
    ("{.missing}{.missing.more}{.missing[0]}{.kind.more}", ""),
    # Places, slices and unions
    ("{.list[0]} {.list[-1]} {.list[0,2]}", "3 2 3 2"),
    ("{.list[:]} {.list[1:]} {.list[:2]} {.list[-2:]} {.list[::2]} {.list[1:1]}", "3 1 2 1 2 3 1 1 2 3 2 "),
    ("{.none[*]}{.nulls[0][0]}", ""),
    ("{.metadata['name', 'labels']}", 'x {"kueue.x-k8s.io/queue":"q"}'),
    ("{.things[*]['name','n']}", "one two three 1 2 3"),
    # Everything, and everything below
    ("{.list.*} {.things[*].n}", "3 1 2 1 2 3"),
    ("{.things..name} {..deep[0]} {..x}", "one two three 1 <y>"),
    # Filters
    ("{.things[?(@.n==2)].name} {.things[?(@.n!=2)].name} {.things[?(@.n >= 2)].name}", "two one three two three"),
    ("""{.things[?(@.name=="two")].n}{.things[?(@.name=='a)]')].n}{.things[?(@.missing==2)].n}""", "2"),
    ("{.things[?(@.parts)].name} {.list[?(@>1)]}", "one two 3 2"),
    # Ranges, in which a path starts from the item, whatever it begins with
    (r'{range .things[*]}{.name}{"\t"}{.n}{"\n"}{end}', "one\t1\ntwo\t2\nthree\t3\n"),
    ("{range .things[*]}{.name}{range .parts[*]}-{@}{end};{end}{.kind}", "one-1-2;two;three;Thing"),
    ("{range .things[*]}{$.kind}{$.name}{end}{range .none[*]}x{end}", "onetwothree"),
]


@pytest.mark.parametrize(("template", "filled"), TABLE)
def test_a_template_is_filled_in_as_kubectl_does(template: str, filled: str) -> None:
    assert Template(template).fill(TREE) == filled


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kubectl_makes_the_same_of_all_of_them(tmp_path: Path) -> None:
    file, mark = tmp_path / "thing.json", "\n=====\n"
    file.write_text(json.dumps({"apiVersion": "v1", **TREE}))
    whole = mark.join(template for template, _ in TABLE)
    command = ["kubectl", "patch", "--local", "-f", str(file), "--type", "merge", "-p", "{}", "-o", f"jsonpath={whole}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.split(mark) == [filled for _, filled in TABLE]


def test_the_values_can_be_had_as_lists_of_json() -> None:
    assert Template("{.things[*].n}{.kind}").fill_as_json(TREE) == (
        '[\n    1,\n    2,\n    3\n]\n[\n    "Thing"\n]\n'
    )  # fmt: skip


def test_a_key_may_have_points_without_escapes() -> None:
    """Where kubectl would look for keys in keys."""
    assert Template("{.metadata.labels['kueue.x-k8s.io/queue']}").fill(TREE) == "q"
    assert Template("{.}").fill({"a": 1}) == '{"a":1}'


@pytest.mark.parametrize("template", ["{.missing}", "{.things[*].missing}", "{range .missing[*]}{end}"])
def test_what_is_missing_can_be_refused(template: str) -> None:
    with pytest.raises(UsageError, match="there is no missing"):
        Template(template).fill(TREE, allow_missing=False)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{.items", "a brace is not closed"),
        ("{range .items[*]}", "a range without an end"),
        ("{end}", "an end without a range"),
        ("{.items[}", "is not understood"),
        ("{.items[a]}", "is not understood"),
        ("{items}", "is not understood"),
        ('{"a}', "a brace is not closed"),
        (r'{"\q"}', "is no escape"),
        ("{.list[5]}", "there is no place 5 in a list of 3"),
        ("{.list[0:9]}", "there is no part 0:9 of a list of 3"),
        ("{.list[2:1]}", "there is no part 2:1 of a list of 3"),
        ("{.list[::0]}", "a step of 0 leads nowhere"),
        ("{.map[*]}", "a map is no list"),
        ("{.kind[0]}", "text is no list"),
        ("{.map[?(@.x)]}", "a map is no list, and cannot be filtered"),
        ('{.things[?(@.n=="2")]}', "a number and text cannot be compared"),
        ("{.things[?(@.n=!2)]}", "=! compares nothing"),
        ("{.things[?(@.n==2]}", "a filter without an end"),
    ],
)
def test_one_that_is_wrong_is_a_sentence(template: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        Template(template).fill(TREE)
    assert sentence in str(refused.value)


_WORDS = (
    *(
        "{",
        "}",
        ".",
        "..",
        "[",
        "]",
        "*",
        ":",
        ",",
        "-1",
        "2",
        "@",
        "$",
        "(",
        ")",
        "[?(",
        ")]",
        "==",
        "<",
        "'a'",
        '"b"',
    ),
    *("range ", "{end}", "{range .things[*]}", ".things", ".map", ".name", "true", "1.5", " ", "\\"),
)


@given(st.one_of(st.text(), st.lists(st.sampled_from(_WORDS), max_size=12).map("".join)), st.booleans())
def test_any_text_is_filled_in_or_refused_in_a_sentence(text: str, allow_missing: bool) -> None:
    with contextlib.suppress(UsageError):
        Template(text).fill(TREE, allow_missing=allow_missing)
