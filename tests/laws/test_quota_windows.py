"""Laws of quota windows: instants and effective quotas against an independent calculation (QS-L1, QS-L4 to QS-L7)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.meta import HOUR, MINUTE, SECOND
from pykueue import calendars
from pykueue.api.quota_schedule import QuotaWindow
from pykueue.core.queue import FlavorResource, Quota
from pykueue.state.quota_windows import (
    QuotaOwner,
    QuotaWindows,
    ScheduledWindows,
    WindowQuota,
    WindowSpan,
)

YEAR = 2027
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


def instant(moment: datetime) -> int:
    return round(moment.timestamp()) * SECOND


def local_start(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """The start of a window on a day, worked out without cron: the first time at which the local clock shows that time
    of day or a later one. Clocks change by half hours, and windows begin at them."""
    wanted = (day, hour, minute)
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=16)
    while True:
        shown = moment.astimezone(zone)
        if (shown.date(), shown.hour, shown.minute) >= wanted:
            return moment
        moment += timedelta(minutes=30)


@pytest.mark.parametrize("zone_name", ZONES)
@pytest.mark.parametrize("clock", ["01:30", "02:00", "02:30", "03:00", "14:00"])
def test_a_daily_window_begins_once_on_every_day_of_a_year_and_lasts_elapsed_time(zone_name: str, clock: str) -> None:
    """QS-L1: both clock changes are in the year."""
    zone, (hour, minute) = ZoneInfo(zone_name), map(int, clock.split(":"))
    begin, end = datetime(YEAR, 1, 1, tzinfo=zone), datetime(YEAR + 1, 1, 1, tzinfo=zone)
    window = QuotaWindow("daily", cron=f"{minute} {hour} * * *", duration="1h")
    found = list(calendars.spans(window, zone_name, instant(begin), instant(end)))
    days = [date(YEAR, 1, 1) + timedelta(days=n) for n in range(365)]
    assert [span.start for span in found] == [instant(local_start(day, hour, minute, zone)) for day in days]
    assert {span.end - span.start for span in found} == {HOUR}


def test_a_start_in_the_skipped_hour_is_moved_to_its_end_and_one_in_the_repeated_hour_happens_once() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    window = QuotaWindow("night", cron="30 2 * * *", duration="1h")

    def on(day: datetime) -> list[str]:
        spans = calendars.spans(window, "Europe/Berlin", instant(day) + HOUR, instant(day + timedelta(hours=20)))
        return [datetime.fromtimestamp(span.start // SECOND, berlin).isoformat() for span in spans]

    assert on(datetime(2027, 3, 28, tzinfo=berlin)) == ["2027-03-28T03:00:00+02:00"]
    assert on(datetime(2027, 10, 31, tzinfo=berlin)) == ["2027-10-31T02:30:00+02:00"]


# --- Effective quotas -------------------------------------------------------------------------------------------------

PAIR = FlavorResource("plain", "gpu")
QUEUES = ("a", "b", "c")
times = st.integers(0, 60).map(lambda minutes: minutes * MINUTE)


@st.composite
def schedules(draw: st.DrawFn, name: str) -> ScheduledWindows:
    spans = []
    for window in range(draw(st.integers(1, 3))):
        start = draw(times)
        spans.append(WindowSpan(f"w{window}", start, start + draw(st.integers(1, 30)) * MINUTE))
    quotas = []
    for queue in draw(st.lists(st.sampled_from(QUEUES), unique=True, min_size=1)):
        if draw(st.booleans()):
            quotas.append(WindowQuota(queue, *PAIR, nominal=draw(st.integers(0, 20))))
        else:
            quotas.append(WindowQuota(queue, *PAIR, change=draw(st.integers(-20, 20))))
    return ScheduledWindows(name, tuple(quotas), tuple(spans))


some_schedules = st.tuples(schedules("s0"), schedules("s1"), schedules("s2"))
BASE = {PAIR: Quota(10)}


def nominal(windows: QuotaWindows, queue: str) -> int:
    return windows.quotas(QuotaOwner(False, queue), BASE)[PAIR].nominal


def expected_nominal(all_schedules: tuple[ScheduledWindows, ...], queue: str, now: int) -> int:
    """The nominal quota, worked out from the text of rule QS1 and QS4, minute by minute."""
    sets: list[tuple[int, str, str, int]] = []
    total = 0
    for schedule in all_schedules:
        covering = [span for span in schedule.spans if span.start <= now < span.end]
        for quota in schedule.quotas:
            if covering and quota.name == queue:
                if quota.nominal is not None:
                    sets += [(-span.start, schedule.schedule, span.window, quota.nominal) for span in covering]
                total += quota.change
    base = min(sets)[3] if sets else BASE[PAIR].nominal
    return max(0, base + total)


@given(some_schedules, st.lists(times, min_size=1, max_size=12))
def test_the_effective_quota_is_that_of_the_rules_at_any_sequence_of_instants(
    drawn: tuple[ScheduledWindows, ...], instants: list[int]
) -> None:
    """QS-L1, and QS-L7: clocks that are set back, and a state that begins at the last instant, give the same."""
    windows = QuotaWindows()
    windows.replace_all(drawn)
    for now in instants:
        windows.advance(now)
        assert [nominal(windows, queue) for queue in QUEUES] == [
            expected_nominal(drawn, queue, now) for queue in QUEUES
        ]
    restarted = QuotaWindows()
    restarted.replace_all(drawn)
    restarted.advance(instants[-1])
    assert restarted.windows_in_force == windows.windows_in_force
    assert restarted.next_edge == windows.next_edge


@given(some_schedules, times)
def test_a_deleted_schedule_leaves_nothing_behind(drawn: tuple[ScheduledWindows, ...], now: int) -> None:
    """QS-L6."""
    windows, without = QuotaWindows(), QuotaWindows()
    windows.replace_all(drawn)
    windows.advance(now)
    windows.replace_all(drawn[:2])
    without.replace_all(drawn[:2])
    windows.advance(now)
    without.advance(now)
    assert [nominal(windows, queue) for queue in QUEUES] == [nominal(without, queue) for queue in QUEUES]
    assert windows.next_edge == without.next_edge


@given(st.integers(0, 10), times, st.lists(times, max_size=6))
def test_the_sum_over_the_targets_of_a_reservation_is_constant(amount: int, start: int, instants: list[int]) -> None:
    """QS-L4."""
    moved = (WindowQuota("a", *PAIR, change=-amount), WindowQuota("b", *PAIR, change=amount))
    windows = QuotaWindows()
    windows.replace_all([ScheduledWindows("r", moved, (WindowSpan("w", start, start + 10 * MINUTE),))])
    for now in (start, *instants):
        windows.advance(now)
        assert sum(nominal(windows, queue) for queue in QUEUES) == 3 * BASE[PAIR].nominal


@given(some_schedules, times)
def test_the_next_edge_is_the_next_change(drawn: tuple[ScheduledWindows, ...], now: int) -> None:
    """Between an instant and its next edge nothing changes, so that one timer is enough."""
    windows = QuotaWindows()
    windows.replace_all(drawn)
    windows.advance(now)
    until = windows.next_edge or now + HOUR
    before = [nominal(windows, queue) for queue in QUEUES]
    assert [expected_nominal(drawn, queue, until - SECOND) for queue in QUEUES] == before


@st.composite
def repeated_schedules(draw: st.DrawFn, name: str) -> ScheduledWindows:
    """A schedule with windows that begin again and again, also while they are in force."""
    spans = []
    for window in range(draw(st.integers(1, 2))):
        length = draw(st.integers(1, 30)) * MINUTE
        spans += [
            WindowSpan(f"w{window}", start, start + length) for start in draw(st.lists(times, max_size=8, unique=True))
        ]
    quota = WindowQuota(draw(st.sampled_from(QUEUES)), *PAIR, change=draw(st.integers(-20, 20)))
    return ScheduledWindows(name, (quota,), tuple(sorted(spans, key=lambda span: (span.start, span.window))))


@given(st.tuples(repeated_schedules("s0"), repeated_schedules("s1"), schedules("s2")), times)
def test_the_edges_ahead_are_those_of_all_occurrences_each_with_what_its_windows_give(
    drawn: tuple[ScheduledWindows, ...], now: int
) -> None:
    windows = QuotaWindows()
    windows.replace_all(drawn)
    found = list(windows.edges_with_quotas(now))
    coming = [(each.schedule, span) for each in drawn for span in each.spans if span.end > now]
    assert [edge.at for edge in found] == windows.edges(now)
    for edge in found:
        assert edge.given == windows.given_at(edge.at)
        assert set(edge.begun) == {(name, span.window) for name, span in coming if span.start == edge.at}
        assert set(edge.ended) == {(name, span.window) for name, span in coming if span.end == edge.at}
