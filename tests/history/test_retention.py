"""The time by which old records are deleted follows no clock that is wrong [HI15]."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from pykueue.history import retention
from pykueue.history.retention import TRIED_SECONDS, ClockLook

HOUR, DAY, YEAR = 3600, 86_400, 365 * 86_400


def shown_hourly(*shown_ahead: int) -> tuple[ClockLook, ...]:
    """The looks of a manager whose clock is so much ahead at each hour."""
    looks: tuple[ClockLook, ...] = ()
    for hour, ahead in enumerate(shown_ahead):
        looks = retention.looked(looks, ClockLook(hour * HOUR, hour * HOUR + ahead))
    return looks


def test_a_clock_that_runs_evenly_has_one_look_and_its_own_time() -> None:
    looks = shown_hourly(*[0] * 500)
    assert looks == (ClockLook(499 * HOUR, 499 * HOUR),)
    assert retention.time(looks) == 499 * HOUR


def test_a_clock_that_is_ahead_counts_after_a_week_of_running() -> None:
    hours = TRIED_SECONDS // HOUR
    looks = shown_hourly(0, *[YEAR] * (hours - 1))
    assert retention.time(looks) == (hours - 1) * HOUR
    looks = shown_hourly(0, *[YEAR] * hours)
    assert retention.time(looks) == hours * HOUR + YEAR


def test_a_clock_that_was_ahead_and_is_put_back_never_counts() -> None:
    looks = shown_hourly(0, *[YEAR] * 100, *[0] * 100, *[YEAR] * 100)
    assert retention.time(looks) == 300 * HOUR


def test_a_clock_that_is_set_back_counts_at_once() -> None:
    assert retention.time(shown_hourly(0, 0, -YEAR)) == 2 * HOUR - YEAR


def test_many_starts_leave_one_look() -> None:
    """A manager that restarts all the time runs for no second that is counted."""
    looks: tuple[ClockLook, ...] = ()
    for start in range(1000):
        looks = retention.looked(looks, ClockLook(0, 10 * start))
    assert looks == (ClockLook(0, 0),)


@given(st.lists(st.tuples(st.integers(0, 2 * DAY), st.integers(-YEAR, YEAR)), min_size=1, max_size=60))
def test_the_time_is_the_least_that_a_look_of_the_last_week_gives(steps: list[tuple[int, int]]) -> None:
    ran = accumulate(step for step, _ in steps)
    every = [ClockLook(at, at + ahead) for at, (_, ahead) in zip(ran, steps, strict=True)]
    looks: tuple[ClockLook, ...] = ()
    for each in every:
        looks = retention.looked(looks, each)
    last = every[-1]
    recent = [each for each in every if each.ran > last.ran - TRIED_SECONDS]
    assert retention.time(looks) - looks[-1].ran == min(each.offset for each in recent)
    assert len(looks) <= len({each.ran for each in recent})
