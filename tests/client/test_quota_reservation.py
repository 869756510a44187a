"""Advance reservations: when they begin, what they write, and what the list of windows shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, strategies

from kubemachinery import codec, meta
from kubemachinery.errors import UsageError
from pykueue import calendars
from pykueue.api import validation
from pykueue.api.quota_schedule import QuotaSchedule
from pykueue.cli import main
from pykueue.client import quota_reservation
from pykueue.client.quota_reservation import QuotaReservation

# A Monday.
NOW = meta.parse_time("2026-11-16T12:00:00Z")
CLASS = QuotaReservation(
    name="class-101",
    resource="nvidia.com/gpu",
    amount="16",
    flavor="a100",
    source="research",
    target="class-101",
    at="tue 14:00",
    length="2h",
    repeat="weekly",
    time_zone="Europe/Berlin",
)


def schedule(reservation: QuotaReservation) -> QuotaSchedule:
    return codec.from_tree(reservation.document(NOW), QuotaSchedule)


def test_a_weekly_reservation_is_a_valid_schedule_that_moves_the_amount() -> None:
    tree = CLASS.document(NOW)
    assert validation.validate(tree) == []
    assert list(calendars.problems(tree)) == []
    assert tree["spec"]["windows"] == [{"name": "reservation", "cron": "0 14 * * 2", "duration": "2h"}]
    changes = [target["flavors"][0]["resources"][0]["change"] for target in tree["spec"]["targets"]]
    assert changes == ["-16", "16"]


def test_a_reservation_may_keep_its_quota_free_before_it_begins() -> None:
    made = replace(CLASS, ends_before=True)
    assert validation.validate(made.document(NOW)) == []
    assert schedule(made).spec.approach == "EndBefore"
    assert calendars.scheduled_windows(schedule(made), NOW).ends_before
    assert not calendars.scheduled_windows(schedule(CLASS), NOW).ends_before


def test_the_command_writes_the_approach(capsys: pytest.CaptureFixture[str]) -> None:
    words = "reserve class-101 --gpus 16 --flavor a100 --from research --for 2h --weekly --dry-run -o yaml --end-before"
    main([*words.split(), "--at", "tue 14:00"])
    assert "approach: EndBefore" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("at", "start", "end"),
    [
        ("tue 14:00", "2026-11-17T13:00:00Z", "2026-11-17T15:00:00Z"),
        ("14:00", "2026-11-16T13:00:00Z", "2026-11-16T15:00:00Z"),
        ("12:30", "2026-11-17T11:30:00Z", "2026-11-17T13:30:00Z"),
        ("2026-12-18T09:00", "2026-12-18T08:00:00Z", "2026-12-18T10:00:00Z"),
        ("2026-12-18T09:00Z", "2026-12-18T09:00:00Z", "2026-12-18T11:00:00Z"),
        # Clocks skip from 02:00 to 03:00: the end of that hour, as for cron [QS5]. They repeat an hour: the first one.
        ("2027-03-28T02:30", "2027-03-28T01:00:00Z", "2027-03-28T03:00:00Z"),
        ("2027-10-31T02:30", "2027-10-31T00:30:00Z", "2027-10-31T02:30:00Z"),
    ],
)
def test_a_single_reservation_begins_at_the_next_such_time(at: str, start: str, end: str) -> None:
    made = replace(CLASS, at=at, repeat="").document(NOW)
    assert made["spec"]["windows"] == [{"name": "reservation", "start": start, "end": end}]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"at": "someday 14:00"}, "--at someday 14:00: must be a weekday with a time"),
        ({"at": "2020-01-01", "repeat": ""}, "is in the past"),
        ({"at": "tue 14:00", "repeat": "daily"}, "a weekday repeats weekly, not daily"),
        ({"at": "14:00", "repeat": "weekly"}, "weekly needs a weekday with a time"),
        ({"repeat": "", "length": "2 hours"}, "is not a duration"),
        ({"at": "9999-12-31T23:59Z", "repeat": ""}, "the reservation ends after the year 9999"),
        ({"at": "tue 25:00", "repeat": ""}, "--at tue 25:00: must be a weekday with a time"),
        ({"at": "tue 14:60"}, "--at tue 14:60: weekly needs a weekday with a time"),
        ({"repeat": "", "time_zone": "Mars/Olympus"}, "is not a time zone"),
        ({"at": "tuesdayx 14:00", "repeat": ""}, "must be a weekday"),
        ({"at": "month 14:00"}, "must be a weekday"),
        ({"at": "0001-01-01T00:00", "repeat": "", "time_zone": "Asia/Tokyo"}, "is not in the years 1 to 9999 of UTC"),
        (
            {"at": "9999-12-31T23:59", "repeat": "", "time_zone": "America/New_York"},
            "is not in the years 1 to 9999 of UTC",
        ),
    ],
)
def test_a_reservation_that_cannot_be_read_is_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(CLASS, **changed).document(NOW)  # type: ignore[arg-type]


def test_the_list_has_every_window_until_the_end_and_names_those_that_clash() -> None:
    exam = replace(CLASS, name="exam", target="exam", at="2026-11-17T15:00", repeat="")
    other = replace(CLASS, name="other", source="biology", target="other", at="2026-11-17T15:00", repeat="")
    end = quota_reservation.until("+14d", NOW)
    found = quota_reservation.rows(map(schedule, (CLASS, exam, other)), NOW, end)
    assert [(row.schedule, meta.format_time(row.start), row.clashes) for row in found] == [
        ("class-101", "2026-11-17T13:00:00Z", ("exam",)),
        ("exam", "2026-11-17T14:00:00Z", ("class-101",)),
        ("other", "2026-11-17T14:00:00Z", ()),
        ("class-101", "2026-11-24T13:00:00Z", ()),
    ]
    assert found[0].quotas == "research a100 nvidia.com/gpu -16, class-101 a100 nvidia.com/gpu +16"


def overlapping(minutes: list[tuple[int, int]], name: str) -> QuotaSchedule:
    """A schedule with windows that begin after so many minutes and last so long."""
    times = [(NOW + start * meta.MINUTE, NOW + (start + length) * meta.MINUTE) for start, length in minutes]
    tree = CLASS.document(NOW)
    tree["metadata"]["name"] = name
    tree["spec"]["windows"] = [
        {"name": f"w{number}", "start": meta.format_time(start), "end": meta.format_time(end)}
        for number, (start, end) in enumerate(times)
    ]
    return codec.from_tree(tree, QuotaSchedule)


WINDOWS = strategies.lists(strategies.tuples(strategies.integers(0, 50), strategies.integers(1, 30)), max_size=6)


@given(WINDOWS.filter(bool), WINDOWS.filter(bool))
def test_windows_clash_if_both_are_in_force_at_a_time(
    mine: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    found = quota_reservation.rows([overlapping(mine, "mine"), overlapping(other, "other")], NOW, NOW + meta.HOUR)
    for row in found:
        start, end = ((at - NOW) // meta.MINUTE for at in (row.start, row.end))
        name, rest = ("other", other) if row.schedule == "mine" else ("mine", mine)
        meets = any(start < begin + length and begin < end for begin, length in rest)
        assert row.clashes == ((name,) if meets else ())


@pytest.mark.parametrize(
    ("zone", "clock", "instant"),
    [
        ("Australia/Lord_Howe", "2027-10-03T02:10:00", "2027-10-02T15:30:00+00:00"),
        ("America/New_York", "2027-03-14T02:59:59", "2027-03-14T07:00:00+00:00"),
        ("America/New_York", "2027-11-07T01:30:00", "2027-11-07T05:30:00+00:00"),
        ("Europe/Berlin", "2027-03-28T03:00:00", "2027-03-28T01:00:00+00:00"),
    ],
)
def test_a_local_time_that_clocks_skip_is_the_end_of_the_gap(zone: str, clock: str, instant: str) -> None:  # [QS5]
    found = calendars.at_local_time(datetime.fromisoformat(clock), calendars.zone(zone))
    assert found == datetime.fromisoformat(instant)


@pytest.mark.parametrize("amount", ["0", "-2", "x", ""])
def test_an_amount_that_is_not_positive_is_refused(amount: str, capsys: pytest.CaptureFixture[str]) -> None:
    what = ["--resource", f"cpu={amount}", "--flavor", "f", "--from", "a", "--at", "tue 14:00", "--for", "2h"]
    with pytest.raises(SystemExit) as caught:
        main(["reserve", "b", *what, "--dry-run=client"])
    assert caught.value.code == 2
    assert f"cpu={amount} is not a resource with a positive amount" in capsys.readouterr().err


def test_a_second_resource_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    what = ["--flavor", "f", "--from", "a", "--at", "tue 14:00", "--for", "2h"]
    with pytest.raises(SystemExit) as caught:
        main(["reserve", "b", "--resource", "cpu=4", "--resource", "memory=8Gi", *what, "--dry-run=client"])
    assert caught.value.code == 2
    assert "--resource cpu=4 --resource memory=8Gi: one reservation is of one resource" in capsys.readouterr().err


@pytest.mark.parametrize(("resource", "amount"), [("cpu", "1e30"), ("nvidia.com/gpu", "9223372036854775807")])
def test_an_amount_that_counts_as_unlimited_is_refused(
    resource: str, amount: str, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["--resource", f"{resource}={amount}", "--flavor", "f", "--from", "a", "--at", "tue 14:00", "--for", "2h"]
    with pytest.raises(SystemExit) as caught:
        main(["reserve", "b", *what, "--dry-run=client"])
    assert caught.value.code == 2
    assert f"{resource}={amount} is more than a quota can be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"target": "research"}, "reserve: ClusterQueue research cannot give quota to itself; name another with --to"),
        ({"repeat": "", "length": "0s"}, "--for 0s: must be longer than 0s"),
        ({"repeat": "", "length": "-2h"}, "--for -2h: must be longer than 0s"),
    ],
)
def test_a_reservation_without_an_effect_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        replace(CLASS, **given).document(NOW)
    assert str(caught.value) == sentence


def test_windows_are_listed_for_ten_years_at_most() -> None:
    assert quota_reservation.until("+520w", NOW) == NOW + 520 * 7 * 24 * meta.HOUR
    for text in ("+521w", "+999999w", "+99999d"):
        with pytest.raises(UsageError, match=r"must be at most \+520w, which is ten years"):
            quota_reservation.until(text, NOW)
