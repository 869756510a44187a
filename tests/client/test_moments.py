"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from kubemachinery.errors import UsageError
from pykueue.client.moments import moment

# A Monday.
NOW = int(datetime(2026, 11, 16, 12, 30, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", "2026-11-16T12:30:00+00:00"),
        ("today", "2026-11-16T00:00:00+00:00"),
        ("yesterday", "2026-11-15T00:00:00+00:00"),
        ("monday", "2026-11-16T00:00:00+00:00"),
        ("Tue", "2026-11-10T00:00:00+00:00"),
        ("sunday", "2026-11-15T00:00:00+00:00"),
        ("9:05", "2026-11-16T09:05:00+00:00"),
        ("-30d", "2026-10-17T12:30:00+00:00"),
        ("-90m", "2026-11-16T11:00:00+00:00"),
        ("-2w", "2026-11-02T12:30:00+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
        ("2026-11-01T08:15", "2026-11-01T08:15:00+00:00"),
        ("2026-11-01T08:15:00+02:00", "2026-11-01T06:15:00+00:00"),
        ("2026-11-01t08:15:00z", "2026-11-01T08:15:00+00:00"),
    ],
)
def test_a_time_is_read(text: str, wanted: str) -> None:
    assert moment(text, "--since", NOW, UTC) == int(datetime.fromisoformat(wanted).timestamp())


def test_a_day_on_which_the_clocks_change_begins_at_its_own_midnight() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert moment("2026-10-25", "--since", NOW, berlin) == int(datetime(2026, 10, 24, 22, tzinfo=UTC).timestamp())
    assert moment("2026-10-26", "--since", NOW, berlin) == int(datetime(2026, 10, 25, 23, tzinfo=UTC).timestamp())


@pytest.mark.parametrize("text", ["", "gestern", "2026-13-01", "25:00", "-d", "t", "99999-01-01", "-1000000w"])
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="must be a date such as 2026-11-01"):
        moment(text, "--since", NOW, UTC)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_the_api_cannot_write_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not in the years 1 to 9999 of UTC"):
        moment(text, "--since", NOW, UTC)
