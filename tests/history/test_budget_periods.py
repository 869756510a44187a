"""Periods of Budgets: local midnights in zones with and without clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.api.budget import BudgetEvery
from pykueue.history.budget_periods import LONGEST_SECONDS, BudgetCalendar

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600


def instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("every", "at", "start", "end"),
    [
        ("Day", "2026-11-16T12:00+01:00", "2026-11-16T00:00+01:00", "2026-11-17T00:00+01:00"),
        ("Week", "2026-11-16T00:00+01:00", "2026-11-16T00:00+01:00", "2026-11-23T00:00+01:00"),
        ("Week", "2026-11-15T23:59+01:00", "2026-11-09T00:00+01:00", "2026-11-16T00:00+01:00"),
        ("Week", "2027-01-01T00:00+01:00", "2026-12-28T00:00+01:00", "2027-01-04T00:00+01:00"),
        ("Month", "2026-02-28T23:59+01:00", "2026-02-01T00:00+01:00", "2026-03-01T00:00+01:00"),
        ("Month", "2026-12-31T23:59+01:00", "2026-12-01T00:00+01:00", "2027-01-01T00:00+01:00"),
        ("Quarter", "2026-11-16T00:00+01:00", "2026-10-01T00:00+02:00", "2027-01-01T00:00+01:00"),
        ("Year", "2028-02-29T00:00+01:00", "2028-01-01T00:00+01:00", "2029-01-01T00:00+01:00"),
        # [BU10] Months with a clock change: an hour shorter, an hour longer, from midnight to midnight.
        ("Month", "2026-03-29T12:00+02:00", "2026-03-01T00:00+01:00", "2026-04-01T00:00+02:00"),
        ("Month", "2026-10-25T12:00+01:00", "2026-10-01T00:00+02:00", "2026-11-01T00:00+01:00"),
        ("Day", "2026-03-29T12:00+02:00", "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"),
        ("Day", "2026-10-25T12:00+01:00", "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00"),
    ],
)
def test_a_period_lasts_from_local_midnight_to_local_midnight(every: str, at: str, start: str, end: str) -> None:
    found = BudgetCalendar(BudgetEvery(every), BERLIN).at(instant(at))
    assert found == (instant(start), instant(end))


def test_days_with_clock_changes_have_23_and_25_hours() -> None:
    calendar = BudgetCalendar(BudgetEvery.DAY, BERLIN)
    spring, autumn = calendar.at(instant("2026-03-29T12:00+02:00")), calendar.at(instant("2026-10-25T12:00+01:00"))
    assert (spring.end - spring.start, autumn.end - autumn.start) == (23 * HOUR, 25 * HOUR)


def test_a_day_whose_midnight_is_skipped_begins_with_its_first_instant() -> None:
    # Clocks in Beirut went from 23:59:59 on 25 March 2017 to 01:00 on the 26th.
    day = BudgetCalendar(BudgetEvery.DAY, ZoneInfo("Asia/Beirut")).at(instant("2017-03-26T12:00+03:00"))
    assert day == (instant("2017-03-26T01:00+03:00"), instant("2017-03-27T00:00+03:00"))


def test_a_day_whose_midnight_is_repeated_begins_with_the_first_of_them() -> None:
    # Clocks in Havana went from 00:59:59 back to 00:00 on 1 November 2026.
    zone = ZoneInfo("America/Havana")
    calendar = BudgetCalendar(BudgetEvery.DAY, zone)
    first, second = instant("2026-11-01T00:00-04:00"), instant("2026-11-01T00:00-05:00")
    assert calendar.at(second).start == first == calendar.at(first).start
    assert calendar.at(first - 1).end == first


def test_a_day_that_a_zone_left_out_is_no_period() -> None:
    # Samoa had no 30 December 2011.
    calendar = BudgetCalendar(BudgetEvery.DAY, ZoneInfo("Pacific/Apia"))
    before = calendar.at(instant("2011-12-29T12:00-10:00"))
    after = calendar.at(before.end)
    assert after.end > after.start >= before.end
    assert calendar.at(after.end).start == after.end


ZONES = ("UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata")


@given(
    st.sampled_from(list(BudgetEvery)),
    st.sampled_from(ZONES),
    st.integers(int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2060, 1, 1, tzinfo=UTC).timestamp())),
)
def test_periods_cover_time_without_gaps_and_overlaps(every: BudgetEvery, zone: str, moment: int) -> None:
    calendar = BudgetCalendar(every, ZoneInfo(zone))
    period = calendar.at(moment)
    assert period.start <= moment < period.end
    assert calendar.at(period.start) == calendar.at(period.end - 1) == period
    assert calendar.at(period.end).start == period.end
    assert calendar.at(period.start - 1).end == period.start
    assert period.end - period.start <= LONGEST_SECONDS[every] + int(timedelta(hours=26).total_seconds())


@pytest.mark.parametrize("moment", [-(10**15), 0, 10**15])
def test_times_of_a_broken_clock_are_in_some_period(moment: int) -> None:
    period = BudgetCalendar(BudgetEvery.WEEK, BERLIN).at(moment)
    assert period.start < period.end
