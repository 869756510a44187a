"""Line charts as SVG: the one plotter of the product, for reports and the dashboard.

A chart is text without scripts and without references to other files, so that it shows wherever it is put. The same
input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

import msgspec

from kubemachinery.meta import SECOND, format_time

WIDTH: Final = 720
HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 34, 30
# Distinct also for readers who do not see colours well: each line has a dash pattern of its own.
_COLOURS: Final = ("#666666", "#0b6bcb", "#d1461f", "#1f883d", "#8250df")
_DASHES: Final = ("2 3", "", "7 3", "1 2", "9 3 2 3")


class ChartLine(NamedTuple):
    """A line of a chart: its name and its points. None breaks the line."""

    name: str
    points: Sequence[tuple[float, float | None]]
    is_step: bool = False


class LineChart(msgspec.Struct, frozen=True):
    """Lines over one axis. `x_text` and `y_text` write the numbers at the axes."""

    title: str
    lines: Sequence[ChartLine]
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]
    # The axis begins at zero and ends at the largest value, or here if that is higher.
    y_least_top: float = 0.0
    # Whether the numbers of the axis are seconds: their steps are then whole minutes, hours and days.
    is_duration: bool = False


def svg(chart: LineChart) -> str:
    """The chart as one `svg` element."""
    points = [(x, y) for line in chart.lines for x, y in line.points if y is not None]
    left, right = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=1.0)
    right = right if right > left else left + 1
    highest = max((y for _, y in points), default=0.0)
    highest = max(highest, chart.y_least_top) or 1.0
    step = duration_step(highest) if chart.is_duration else nice_step(highest)
    top = step * math.ceil(highest / step - 1e-9)

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - left) / (right - left) * (WIDTH - _LEFT - _RIGHT)
        return across, HEIGHT - _BOTTOM - y / top * (HEIGHT - _TOP - _BOTTOM)

    names = ", ".join(line.name for line in chart.lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        ' font-family="sans-serif" font-size="11" fill="currentColor"',
        f' aria-label="{escape(chart.title)}: {escape(names)}">',
        f'<text x="{_LEFT}" y="13" font-size="13" font-weight="bold">{escape(chart.title)}</text>',
        *_axes(chart, step, top, left, right, place),
    ]
    for number, line in enumerate(chart.lines):
        parts += _line(line, number, place)
    parts += _legend([line.name for line in chart.lines])
    return "\n".join([*parts, "</svg>"])


_Place = Callable[[float, float], tuple[float, float]]


def _axes(chart: LineChart, step: float, top: float, left: float, right: float, place: _Place) -> list[str]:
    found = []
    for number in range(round(top / step) + 1):
        x, y = place(left, number * step)
        found.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}" stroke="currentColor"'
            f' stroke-opacity="{0.5 if number == 0 else 0.15}"/>'
        )
        text = escape(chart.y_text(number * step))
        found.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for number in range(5):
        value = left + (right - left) * number / 4
        x, _ = place(value, 0)
        anchor = ("start", "middle", "middle", "middle", "end")[number]
        text = escape(chart.x_text(value))
        found.append(f'<text x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{text}</text>')
    return found


def _line(line: ChartLine, number: int, place: _Place) -> list[str]:
    """One path for each unbroken part of a line."""
    found, path = [], list[str]()
    before: tuple[float, float] | None = None
    for x, y in (*line.points, (0.0, None)):
        if y is None:
            if path:
                found.append(_path(path, number))
            path, before = [], None
            continue
        across, up = place(x, y)
        if before is None:
            path.append(f"M{across:.1f} {up:.1f}")
        elif line.is_step:
            path.append(f"H{across:.1f}V{up:.1f}")
        else:
            path.append(f"L{across:.1f} {up:.1f}")
        before = (across, up)
    return found


def _path(path: Sequence[str], number: int) -> str:
    dash = _DASHES[number % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    colour = _COLOURS[number % len(_COLOURS)]
    return f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}/>'


def _legend(names: Sequence[str]) -> list[str]:
    found, x = [], float(_LEFT)
    for number, name in enumerate(names):
        found.append(_path([f"M{x:.1f} 24h22"], number))
        found.append(f'<text x="{x + 27:.1f}" y="28">{escape(name)}</text>')
        x += 27 + 6.5 * len(name) + 18
    return found


def nice_step(top: float) -> float:
    """A step between the numbers of an axis: 1, 2 or 5 times a power of ten, for at most five of them."""
    power = 10.0 ** math.floor(math.log10(top / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= top - 1e-9)


_DURATIONS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


def duration_step(top: float) -> float:
    """A step between the seconds of an axis, for at most five of them: whole minutes, hours or days."""
    found = next((seconds for seconds in _DURATIONS if seconds * 5 >= top - 1e-9), None)
    return float(found) if found is not None else 86_400 * nice_step(top / 86_400)


def date_text(seconds: float) -> str:
    """A time as month, day and time of day, in UTC."""
    return format_time(int(seconds) * SECOND)[5:16].replace("T", " ")
