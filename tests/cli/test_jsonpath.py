"""`-o jsonpath=…`: templates as kubectl fills them in."""

from __future__ import annotations

import pytest

from pykueue.cli.jsonpath import Template
from pykueue.errors import UsageError

LIST = {
    "items": [
        {"metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue": "q"}}, "spec": {"active": True, "parts": [1, 2]}},
        {"metadata": {"name": "b"}, "spec": {"active": False, "parts": []}},
    ]
}


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{.items[*].metadata.name}", "a b"),
        ("{.items[0].metadata.name}", "a"),
        ("{.items[-1:].metadata.name}", "b"),
        ("{..name}", "a b"),
        ("{.items[?(@.spec.active==false)].metadata.name}", "b"),
        (r"{.items[0].metadata.labels.kueue\.x-k8s\.io/queue}", "q"),
        ("{.items[0].spec}", '{"active":true,"parts":[1,2]}'),
        ("{.items[0].spec.active}", "true"),
        ("names: {.items[*].metadata.name}.", "names: a b."),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.spec.active}{"\\n"}{end}', "a\ttrue\nb\tfalse\n"),
        ("{range .items[*]}{.metadata.name}{range .spec.parts[*]}-{@}{end};{end}", "a-1-2;b;"),
        ("{range .items[*]}{$.items[0].metadata.name}{end}", "aa"),
        ("{.items[*].missing}", ""),
        ('{"}"}', "}"),
        ("", ""),
    ],
)
def test_a_template_is_filled_in_as_kubectl_does(template: str, filled: str) -> None:
    assert Template(template).fill(LIST) == filled


def test_the_values_alone_can_be_had() -> None:
    assert Template("x {.items[*].spec.active} y").values(LIST) == [True, False]


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{.items", "a brace is not closed"),
        ("{range .items[*]}", "a range without an end"),
        ("{end}", "an end without a range"),
        ("{.items[}", "is not understood"),
        ('{"a}', "a brace is not closed"),
    ],
)
def test_one_that_is_wrong_is_a_sentence(template: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Template(template)
