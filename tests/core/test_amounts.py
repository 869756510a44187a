"""Amounts: scheduling rules AM1 to AM3, and how amounts are written."""

from __future__ import annotations

import pytest

from kubemachinery.quantity import parse
from pykueue.core import amounts
from pykueue.core.amounts import NOTHING_LEFT, UNLIMITED


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "0.0003", 1),
        ("cpu", "-0.0003", -1),
        ("memory", "1500m", 2),
        ("memory", "1Gi", 2**30),
        ("nvidia.com/gpu", "8", 8),
        ("cpu", "1e30", UNLIMITED),
        ("memory", "-1e30", NOTHING_LEFT),
    ],
)
def test_am1_am2_a_request_counts_in_its_unit_rounds_away_from_zero_and_clamps(
    resource: str, text: str, amount: int
) -> None:
    assert amounts.of_request(resource, parse(text)) == amount


def test_am3_a_quota_at_the_top_of_its_range_is_unlimited() -> None:
    top_cores = UNLIMITED // 1000
    assert amounts.of_quota("cpu", parse(str(top_cores))) == UNLIMITED
    assert amounts.of_quota("cpu", parse(str(top_cores - 1))) == (top_cores - 1) * 1000
    # The same figure as a request is an ordinary number of thousandths.
    assert amounts.of_request("cpu", parse(str(top_cores))) == top_cores * 1000
    assert amounts.of_quota("memory", parse(str(UNLIMITED))) == UNLIMITED
    assert amounts.of_quota("memory", parse(str(UNLIMITED - 1))) == UNLIMITED - 1
    assert amounts.of_quota("cpu", parse("1E")) == UNLIMITED


def test_unlimited_stays_unlimited_after_addition_and_subtraction() -> None:
    assert amounts.add(UNLIMITED, -5) == amounts.add(-5, UNLIMITED) == UNLIMITED
    assert amounts.subtract(UNLIMITED, 5) == UNLIMITED
    assert amounts.subtract(UNLIMITED, UNLIMITED) == 0
    assert amounts.subtract(5, UNLIMITED) == NOTHING_LEFT
    assert UNLIMITED > UNLIMITED - 1


def test_finite_amounts_saturate_and_never_wrap() -> None:
    assert amounts.add(UNLIMITED - 1, UNLIMITED - 1) == UNLIMITED
    assert amounts.add(NOTHING_LEFT, -1) == NOTHING_LEFT
    assert amounts.subtract(NOTHING_LEFT, 1) == NOTHING_LEFT
    assert amounts.subtract(3, 5) == -2
    assert amounts.multiply(2**62, 2) == UNLIMITED
    assert amounts.multiply(-(2**62), 3) == NOTHING_LEFT
    assert amounts.multiply(7, 3) == 21


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 2**30, "1Gi"),
        ("memory", 1536, "1536"),
        ("memory", 5000, "5k"),
        ("memory", 1000, "1k"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi"),
        ("ephemeral-storage", 0, "0"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("nvidia.com/gpu", 1000, "1k"),
        ("memory", UNLIMITED, "<unlimited>"),
    ],
)
def test_an_amount_is_written_in_the_suffixes_of_its_resource(resource: str, amount: int, text: str) -> None:
    assert amounts.text(resource, amount) == text
