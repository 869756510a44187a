"""The figures of `bench forecast` from forecasts that were saved: only what had started counts for a correction."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from bench import forecast
from bench.forecast import SavedForecast

HOUR = 3600


def row(number: int, wait: int | None, *, size: str = "small", seed: int = 1) -> SavedForecast:
    """A forecast of one hour and two, made in the given hour."""
    return SavedForecast("strict", seed, "q", size, number * HOUR, HOUR, 2 * HOUR, 3 * HOUR, wait)


def test_a_correction_follows_from_the_starts_until_then() -> None:
    # All wait for four hours: the raw P90 covers none, and the corrected one does once that is known.
    scores = forecast.scored([row(number, 4 * HOUR) for number in range(300)])
    assert not any(each.covered_raw for each in scores)
    assert not any(each.covered for each in scores[:4])
    assert all(each.covered for each in scores[250:])
    assert scores[0].baseline_error == 60


def test_a_workload_that_never_starts_is_not_covered() -> None:
    (score,) = forecast.scored([row(0, None)])
    assert not score.covered_raw
    assert not score.covered


def test_forecasts_that_teach_the_correction_are_left_out() -> None:
    rows = [
        row(number, HOUR if number < 50 else 5 * HOUR, size="big" if number % 2 else "small") for number in range(100)
    ]
    found = {each.size: each for each in forecast.judged(rows)}
    assert {size: each.scored for size, each in found.items()} == {"all": 50, "small": 25, "big": 25}
    assert found["all"].p90_raw == 0.0
    assert len(list(forecast.judged([*rows, *(row(number, HOUR, seed=2) for number in range(4))]))) == 3 + 2 + 3


def test_saved_forecasts_are_judged_without_running_a_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, figures = tmp_path / "scores.jsonl", tmp_path / "figures.json"
    saved.write_bytes(b"".join(msgspec.json.encode(row(number, HOUR)) + b"\n" for number in range(20)))
    assert forecast.main([f"--saved={saved}", f"--json={figures}"]) == 0
    assert "strict" in capsys.readouterr().out
    (small, every) = sorted(json.loads(figures.read_text())["calibration"], key=lambda each: each["size"], reverse=True)
    assert (small["size"], every["size"], every["scored"], every["p90_raw"]) == ("small", "all", 10, 1.0)
