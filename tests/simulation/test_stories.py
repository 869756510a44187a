"""Stories from seeds: whatever goes wrong in between, what was stored obeys the laws, and the same seed tells it again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pykueue.simulate import faults, story

# As many as take about half a minute; `python -m pykueue.simulate --seeds 0-9999` runs more.
SEEDS = range(16)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_story_obeys_the_laws(seed: int) -> None:
    report = story.run(seed)
    assert not report.violations, "\n".join([report.replay, *map(str, report.violations)])
    assert report.seen["QuotaReserved QuotaReserved"] > 0, "nobody was admitted, so nothing was shown"


def test_the_same_seed_tells_the_same_story_whatever_the_hash_seed() -> None:
    code = "from pykueue.simulate import story; print(story.run(3).digest)"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    assert len(told) == 1
    assert told != {f"{story.run(4).digest}\n"}, "another seed is another story"


@pytest.mark.parametrize("name", faults.FAULTS)
def test_every_fault_strikes(name: str) -> None:
    """A fault that never fires has shown nothing. Here it is the only one, and at its worst."""
    weather = {name: 1.0 if name.startswith("watch") else 0.5}
    if name in ("watch dropped", "watch refused"):
        weather[name] = 0.3  # at 1.0 nobody would ever see anything
    report = story.run(1, weather=weather)
    assert report.faults[name] > 0
    assert not report.violations, "\n".join(map(str, report.violations))
