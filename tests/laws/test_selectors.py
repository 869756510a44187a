"""Laws of selectors, held against trying every set of labels of a small world."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kubemachinery import selectors
from kubemachinery.meta import LabelSelector, LabelSelectorRequirement

KEYS = ["a", "b"]
VALUES = ["x", "y", "z"]
# One value that no selector names stands for all others.
WORLD = [
    {key: value for key, value in zip(KEYS, chosen, strict=True) if value is not None}
    for chosen in product([None, *VALUES, "other"], repeat=len(KEYS))
]

requirements = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        key=st.sampled_from(KEYS),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        LabelSelectorRequirement, key=st.sampled_from(KEYS), operator=st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
objects = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
    match_expressions=st.lists(requirements, max_size=3).map(tuple),
)


@given(st.none() | objects, st.none() | objects)
def test_two_selectors_overlap_exactly_when_some_labels_satisfy_both(
    a: LabelSelector | None, b: LabelSelector | None
) -> None:
    first, second = selectors.compile(a), selectors.compile(b)
    tried = any(first.matches(labels) and second.matches(labels) for labels in WORLD)
    assert selectors.overlaps(a, b) is tried
    assert selectors.overlaps(b, a) is tried


@given(objects)
def test_an_object_and_its_text_select_the_same(selector: LabelSelector) -> None:
    compiled = selectors.compile(selector)
    spelt = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
    text = ",".join(spelt[r.operator].format(r.key, ",".join(r.values)) for r in compiled.requirements)
    read = selectors.parse(text)
    assert [read.matches(labels) for labels in WORLD] == [compiled.matches(labels) for labels in WORLD]


@given(st.text(alphabet="ab,=!()<> in\\", max_size=15))
def test_any_text_is_a_selector_or_refused_and_nothing_else_happens(text: str) -> None:
    for read in (selectors.parse, selectors.parse_fields):
        try:
            read(text).matches({"a": "b"})
        except selectors.SelectorError:
            continue
