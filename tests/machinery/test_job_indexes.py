"""Texts of completion indexes: parsed, counted without listing them, and formatted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery import job_indexes

BILLIONS = 2**31 - 1
indexes = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("1,3-5", [1, 3, 4, 5]),
        ("3-5,4-6,1", [1, 3, 4, 5, 6]),
        ("8-12", [8, 9]),
        ("5-3,x,-1,2-,1-2-3,²", [2]),
        ("9" * 5000, []),
    ],
)
def test_parse_skips_what_is_no_index_or_too_high(text: str, expected: list[int]) -> None:
    assert list(job_indexes.parse(text, 10)) == expected


@given(indexes, indexes, st.integers(0, 45))
def test_counts_equal_those_of_the_listed_indexes(left: set[int], right: set[int], below: int) -> None:
    texts = [job_indexes.format(left), job_indexes.format(right)]
    assert job_indexes.count(texts, below) == len({index for index in left | right if index < below})
    assert job_indexes.among(left, texts[1], below) == len({index for index in left & right if index < below})
    assert set(job_indexes.parse(texts[0], below)) == {index for index in left if index < below}


def test_billions_of_indexes_are_counted_without_being_listed() -> None:
    text = f"0-{BILLIONS}"
    assert job_indexes.count([text, "5-7"], BILLIONS) == BILLIONS
    assert job_indexes.among({1, BILLIONS - 1, BILLIONS}, text, BILLIONS) == 2
