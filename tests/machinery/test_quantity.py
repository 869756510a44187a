"""Kubernetes quantities: every recorded spelling, and the arithmetic on them."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from kubemachinery import quantity
from kubemachinery.quantity import QuantityError, QuantityFormat, parse

RECORDED = Path(__file__).parents[1] / "data" / "quantities.jsonl.gz"


def test_every_recorded_spelling_reads_as_recorded_or_is_refused_as_recorded() -> None:
    """4243 spellings with canonical text, 64-bit value and milli value, and sign, as the public type gives them."""
    differences = []
    with gzip.open(RECORDED) as lines:
        cases = [msgspec.json.decode(line) for line in lines]
    for case in cases:
        spelling = case.pop("in")
        try:
            read = parse(spelling)
            answer = {
                "canonical": read.canonical,
                "value": read.value(),
                "milli": read.milli_value(),
                "sign": read.sign,
            }
        except QuantityError:
            answer = {"err": True}
        if answer != case:
            differences.append((spelling, answer, case))
    assert len(cases) == 4243
    assert differences == []


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("2048Ki", "2Mi"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0.001Ki", "1024m"),
        ("0Ki", "0"),
        ("1e3", "1e3"),
        ("12.0e3", "12e3"),
        ("-1.5", "-1500m"),
    ],
)
def test_the_canonical_text_has_no_fraction_and_the_largest_suffix_of_its_family(text: str, canonical: str) -> None:
    assert parse(text).canonical == canonical


def test_json_numbers_are_quantities_too() -> None:
    assert parse(2).canonical == "2"
    assert parse(0.5).canonical == "500m"
    assert parse(1e21) == parse("1e21")
    assert parse(1e-7) == parse("100n")
    assert parse(2**70).rounded() == 2**70


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty text"),
        ("ten", "'ten' is not a quantity; use 2 or 500m"),
        ("1KB", "'1KB' is not a quantity; use 2 or 500m"),
        ("1.2.3", "'1.2.3' is not a quantity"),
        ("1e9999999999", "'1e9999999999' has an exponent beyond"),
        ("Pi", "'Pi' has a suffix and no number"),
        ("9" * 5000, "5000 characters"),
        (float("nan"), "'nan'"),
        (float("inf"), "'inf'"),
    ],
)
def test_a_refusal_names_the_text_and_what_is_wrong_with_it(text: str | float, words: str) -> None:
    with pytest.raises(QuantityError) as refusal:
        parse(text)
    assert words in str(refusal.value)


def test_a_quantity_is_equal_to_another_spelling_of_the_same_number_and_hashes_alike() -> None:
    assert parse("1000m") == parse("1") == parse("1e0")
    assert len({parse("1Ki"), parse("1024"), parse("1.024k")}) == 1
    assert parse("1") != "1"


def test_quantities_are_ordered_by_their_number() -> None:
    spelt = ["1Gi", "1G", "-3", "0", "1n", "999M"]
    assert [str(q) for q in sorted(map(parse, spelt))] == ["-3", "0", "1n", "999M", "1G", "1Gi"]
    assert parse("1Ki") > parse("1k") >= parse("1000") <= parse("1001")
    assert not parse("1") < parse("1000m")
    assert not parse("1") > parse("1000m")
    assert parse("0m") == quantity.ZERO
    assert not parse("0m")
    assert parse("1n")


def test_arithmetic_is_exact_and_keeps_the_suffix_family_of_its_left_side() -> None:
    assert str(parse("1Gi") + parse("512M")) == "1548576Ki"
    assert str(parse("100m") + parse("900m")) == "1"
    assert str(parse("1Gi") - parse("1Gi")) == "0"
    assert str(parse("0") + parse("1Gi")) == "1Gi"
    assert str(-parse("1Gi")) == "-1Gi"
    assert str(parse("300m") * 4) == "1200m"
    assert (parse("1") - parse("1n")).canonical == "999999999n"


def test_a_sum_may_outgrow_what_can_be_spelt_and_keeps_the_largest_binary_suffix() -> None:
    assert str(parse("4Ei") + parse("4Ei")) == "8Ei"
    assert str(parse("4Ei") * 1024) == "4096Ei"
    assert (parse("4Ei") * 1024).rounded() == 2**72


def test_a_quantity_is_made_no_finer_than_nano() -> None:
    assert quantity.Quantity(1, -12) == parse("1n")
    assert quantity.Quantity(-1001, -12) == parse("-2n")


def test_a_product_of_quantities_rounds_what_is_finer_than_nano_away_from_zero() -> None:
    assert parse("1.5").times(parse("2Gi")).rounded() == 3 * 2**30
    assert parse("1n").times(parse("500m")) == parse("1n")
    assert parse("1n").times(parse("-500m")) == parse("-1n")


def test_rounding_to_units_goes_away_from_zero_at_any_size() -> None:
    assert parse("1500m").rounded() == 2
    assert parse("-1500m").rounded() == -2
    assert parse("0.0003").rounded(-3) == 1
    assert parse("1e30").rounded(-3) == 10**33


def test_a_binary_quantity_stops_at_the_largest_64_bit_number_and_a_decimal_one_does_not() -> None:
    assert parse("16Ei").rounded() == 2**63 - 1
    assert parse("16E").rounded() == 16 * 10**18
    assert parse("16Ei").format is QuantityFormat.BINARY
