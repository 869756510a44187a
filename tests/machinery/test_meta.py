"""Metadata as the API spells it: times, durations, names, and types that survive partial objects."""

from __future__ import annotations

import msgspec
import pytest

from kubemachinery import meta
from kubemachinery.meta import HOUR, MILLISECOND, MINUTE, SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.1234567899Z", 123_456_789),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T18:30:00-05:30", 0),
        ("2024-02-29T12:00:00Z", 1_709_208_000 * SECOND),
        ("1969-12-31T23:59:59Z", -SECOND),
    ],
)
def test_a_time_is_nanoseconds_since_1970_whatever_its_offset(text: str, nanoseconds: int) -> None:
    assert meta.parse_time(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00:00",
        "2024-01-01t00:00:00z",
        "2024-01-01T00:00:00+0200",
        "2024-01-01T00:00:00+25:00",
        "2024-01-01T00:00:00+02:60",
        "20240101T000000Z",
        "٢٠٢٤-01-01T00:00:00Z",
    ],
)
def test_a_time_that_is_not_rfc_3339_is_refused_by_name(text: str) -> None:
    with pytest.raises(meta.TimeError) as refusal:
        meta.parse_time(text)
    assert repr(text) in str(refusal.value)


def test_a_time_is_written_in_utc_to_the_second_and_a_micro_time_with_six_digits() -> None:
    time = meta.parse_time("2024-05-06T07:08:09.987654321+01:00")
    assert meta.format_time(time) == "2024-05-06T06:08:09Z"
    assert meta.format_micro_time(time) == "2024-05-06T06:08:09.987654Z"
    assert meta.format_micro_time(time - time % SECOND) == "2024-05-06T06:08:09.000000Z"


def test_a_year_keeps_its_four_digits() -> None:
    assert meta.format_time(meta.parse_time("0001-01-01T00:00:00Z")) == "0001-01-01T00:00:00Z"
    with pytest.raises(meta.TimeError):
        meta.format_time(meta.parse_time("9999-12-31T23:59:59Z") + SECOND)


@pytest.mark.parametrize(
    ("text", "nanoseconds", "written"),
    [
        ("0", 0, "0s"),
        ("1h30m", HOUR + 30 * MINUTE, "1h30m0s"),
        ("90m", HOUR + 30 * MINUTE, "1h30m0s"),
        ("500ms", 500 * MILLISECOND, "500ms"),
        ("1.5s", 1500 * MILLISECOND, "1.5s"),
        (".5s", 500 * MILLISECOND, "500ms"),
        ("1.s", SECOND, "1s"),
        ("-2h0.5s", -(2 * HOUR + 500 * MILLISECOND), "-2h0m0.5s"),
        ("5m", 5 * MINUTE, "5m0s"),
        ("3us", 3000, "3µs"),
        ("3µs", 3000, "3µs"),
        ("3μs", 3000, "3µs"),
        ("7ns", 7, "7ns"),
        ("1.000001s", SECOND + 1000, "1.000001s"),
    ],
)
def test_a_duration_is_read_in_any_mix_of_units_and_written_in_one_way(
    text: str, nanoseconds: int, written: str
) -> None:
    assert meta.parse_duration(text) == nanoseconds
    assert meta.format_duration(nanoseconds) == written
    assert meta.parse_duration(written) == nanoseconds


def test_the_longest_duration_fills_64_bits() -> None:
    assert meta.parse_duration("9223372036854775807ns") == 2**63 - 1
    with pytest.raises(meta.TimeError):
        meta.parse_duration("9223372036854775808ns")


@pytest.mark.parametrize("text", ["", "1", "s", "-", ".s", "1d", "1 s", "1h-1m", "300000000h", "9" * 5000 + "s"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(meta.TimeError):
        meta.parse_duration(text)


def test_names_are_refused_with_one_sentence_for_each_thing_wrong() -> None:
    assert meta.check_label_name("team-a") == ()
    assert len(meta.check_label_name("-" * 64)) == 2
    assert meta.check_label_name("team.a")
    assert meta.check_label_name("") == meta.check_label_name("A")
    assert meta.check_label_name("9a") == ()
    assert meta.check_label_1035_name("9a")
    assert meta.check_subdomain_name("a.b-c.9") == ()
    assert meta.check_subdomain_name("a..b")
    assert meta.check_subdomain_name("a\n")
    assert meta.check_subdomain_name("a" * 253) == ()
    assert meta.check_subdomain_name("a" * 254) == ("must be no more than 253 characters",)


def test_a_qualified_name_is_a_name_with_at_most_one_domain_before_it() -> None:
    for good in ("cpu", "Some_Name.x", "nvidia.com/gpu", "a/" + "b" * 63):
        assert meta.check_qualified_name(good) == ()
    for bad in ("", "/gpu", "nvidia.com/", "a/b/c", "NVIDIA.com/gpu", "a/" + "b" * 64, "-x", "x_", "a//b"):
        assert meta.check_qualified_name(bad), bad
    assert meta.check_qualified_name("/gpu") == ("the part before '/' must not be empty",)
    assert meta.check_qualified_name("nvidia.com/") == ("the name must not be empty",)


def test_a_label_value_may_be_empty_and_mixed_in_case_but_not_long_or_spaced() -> None:
    assert meta.check_label_value("") == ()
    assert meta.check_label_value("Team_A.1") == ()
    assert meta.check_label_value("team a")
    assert meta.check_label_value("a" * 64)


def test_a_partial_object_decodes_and_absent_fields_are_not_written() -> None:
    metadata = msgspec.json.decode(b'{"name":"a","creationTimestamp":null,"unknown":1}', type=meta.ObjectMeta)
    assert metadata == meta.ObjectMeta(name="a")
    assert msgspec.json.encode(metadata) == b'{"name":"a"}'


def test_a_condition_writes_the_texts_that_its_schema_requires_even_when_empty() -> None:
    written = msgspec.json.decode(msgspec.json.encode(meta.Condition(type="Admitted", status="True")))
    assert written == {"type": "Admitted", "status": "True", "reason": "", "message": "", "lastTransitionTime": ""}


def test_controller_is_the_owner_with_controller_true() -> None:
    job = meta.OwnerReference(kind="Job", name="j", controller=True)
    owners = (meta.OwnerReference(kind="Queue", name="q"), job)
    assert meta.ObjectMeta(owner_references=owners).controller == job
    assert meta.ObjectMeta(owner_references=owners[:1]).controller is None
