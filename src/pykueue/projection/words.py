"""Forecasts for people: rounded times, and never a time without its bound [FC5]."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pykueue.projection.documents import ForecastDocument, ForecastItem

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
# By the distance in seconds: the minutes that times are rounded to.
_ROUNDING: Final = ((_HOUR, 1), (4 * _HOUR, 5), (12 * _HOUR, 15), (2 * _DAY, 60))


def rounded(at: datetime, now: datetime) -> str:
    """A time with the precision that its distance deserves: `14:20`, `Tue 09:00`, `Sunday`."""
    distance = max(0.0, (at - now).total_seconds())
    for limit, minutes in _ROUNDING:
        if distance <= limit:
            # Up: a time that is shown is not earlier than the forecast.
            step = minutes * _MINUTE
            day = at.replace(hour=0, minute=0, second=0, microsecond=0)
            seconds = (at - day).total_seconds()
            moment = day + timedelta(seconds=-(-seconds // step) * step)
            return moment.strftime("%H:%M" if moment.date() == now.date() else "%a %H:%M")
    return at.strftime("%A") if distance <= 6 * _DAY else at.strftime("%d %b")


def _local(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone()


def about(item: ForecastItem, now: datetime) -> str:
    """The cell of P50."""
    if item.p50 is not None:
        return rounded(_local(item.p50), now)
    return f"later than {_local(item.beyond).strftime('%A')}" if item.beyond is not None else ""


def by(item: ForecastItem, now: datetime) -> str:
    """The cell of P90."""
    if item.p90 is not None:
        return rounded(_local(item.p90), now)
    return f"later than {_local(item.beyond).strftime('%A')}" if item.beyond is not None else ""


def lines(found: ForecastDocument, item: ForecastItem, now: datetime) -> list[str]:
    """The section "When" of `explain`."""
    runs = f"{found.samples} {'run' if found.samples == 1 else 'runs'} ahead"
    known = "; ".join((runs, *found.assumes, *(() if found.complete else ("cut short",))))
    if item.reason:
        shown = [f"no forecast: {item.reason}"]
    elif item.p50 is None:
        shown = [f"{about(item, now)} ({known})"]
    elif item.p90 is None and item.beyond is None:
        shown = [f"about {about(item, now)}; too few runs ahead for a bound ({known})"]
    else:
        shown = [f"about {about(item, now)}, by {by(item, now)} in 9 of 10 cases ({known})"]
    if item.because and item.because_at is not None:
        shown.append(f"it starts after {item.because}, which is expected at {rounded(_local(item.because_at), now)}")
    if found.warning:
        shown.append(f"{found.warning}; made at {rounded(_local(found.made), now)}")
    return shown
