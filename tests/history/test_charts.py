"""Charts: well-formed SVG without scripts and references, the same bytes for the same input."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pykueue.history.charts import ChartLine, LineChart, duration_step, nice_step, svg


def chart(**more: object) -> LineChart:
    lines = (
        ChartLine("a & <b>", [(0.0, 0.0), (5.0, 10.0), (6.0, None), (8.0, 4.0), (10.0, 2.0)]),
        ChartLine("steps", [(0.0, 1.0), (10.0, 3.0)], is_step=True),
    )
    found = {"title": "Use <of> cpu", "lines": lines, "x_text": str, "y_text": lambda value: f"{value:g}", **more}
    return LineChart(**found)  # type: ignore[arg-type]


def paths(text: str) -> list[str]:
    return [each.get("d") or "" for each in ElementTree.fromstring(text).iter() if each.tag.endswith("path")]


def test_a_chart_is_well_formed_and_refers_to_nothing() -> None:
    text = svg(chart())
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "a & <b>" in [each.text for each in root.iter()]
    assert "script" not in text
    assert "href" not in text
    assert text == svg(chart())


def test_a_missing_value_breaks_the_line_and_steps_have_right_angles() -> None:
    # Two parts of the first line, the steps, and a short line in the legend for each.
    drawn = [path for path in paths(svg(chart())) if "h22" not in path]
    assert [path[0] for path in drawn] == ["M", "M", "M"]
    assert [path.count("L") for path in drawn] == [1, 1, 0]
    assert drawn[2].count("H") == drawn[2].count("V") == 1


def test_the_largest_value_is_inside_the_chart() -> None:
    numbers = [float(part) for path in paths(svg(chart())) for part in path.replace("M", " ").replace("L", " ").split()
               if part.replace(".", "", 1).isdigit()]  # fmt: skip
    assert min(numbers) >= 0


@pytest.mark.parametrize("lines", [(), (ChartLine("none", []),), (ChartLine("one", [(3.0, 0.0)]),)])
def test_a_chart_without_extent_is_drawn(lines: tuple[ChartLine, ...]) -> None:
    ElementTree.fromstring(svg(chart(lines=lines)))


@pytest.mark.parametrize(("top", "step"), [(1.0, 0.2), (10.0, 2.0), (11.0, 5.0), (100.0, 20.0), (0.04, 0.01)])
def test_steps_of_an_axis_are_round_numbers(top: float, step: float) -> None:
    assert nice_step(top) == pytest.approx(step)


@pytest.mark.parametrize(("top", "step"), [(4, 1), (61, 15), (7000, 1800), (90_000, 21_600), (86_400 * 9, 86_400 * 2)])
def test_steps_of_durations_are_whole_units(top: float, step: float) -> None:
    assert duration_step(top) == step
