"""Every benchmark runs at its smallest size, so that a change that breaks one fails here and not at the next measurement.

Speed is not asserted: the figures must be there, be numbers, and be finite.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEASUREMENTS = sorted(path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("_"))
# These start servers; the real kube-apiserver is left to the cluster tests below.
ON_SERVERS = ("apiserver", "drain", "kinds")
# These start the real kube-apiserver always.
ON_REAL_SERVERS = ("differences", "peer", "profiles", "writes")


def measured(tmp_path: Path, name: str, *options: str) -> Any:
    """The figures that one benchmark writes at its smallest size."""
    target = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", name, "--smallest", f"--json={target}", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(target.read_text())


def numbers(figures: Any) -> Iterator[float]:
    if isinstance(figures, dict):
        for each in figures.values():
            yield from numbers(each)
    elif isinstance(figures, list):
        for each in figures:
            yield from numbers(each)
    elif isinstance(figures, int | float) and not isinstance(figures, bool):
        yield figures


@pytest.mark.parametrize("name", [name for name in MEASUREMENTS if name not in ON_REAL_SERVERS])
def test_benchmark_runs_at_its_smallest_size(name: str, tmp_path: Path) -> None:
    figures = list(numbers(measured(tmp_path, name, *(["--on=embedded"] if name in ON_SERVERS else []))))
    assert any(figure > 0 for figure in figures)
    assert all(math.isfinite(figure) for figure in figures)


@pytest.mark.cluster
@pytest.mark.parametrize("name", [*ON_SERVERS, *ON_REAL_SERVERS])
def test_benchmark_runs_on_a_real_api_server(name: str, tmp_path: Path) -> None:
    options = [] if name in ON_REAL_SERVERS else ["--on=real"]
    assert any(figure > 0 for figure in numbers(measured(tmp_path, name, *options)))


def test_unknown_benchmark_is_refused_with_the_known_names() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "decodes"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"no measurement called decodes; there are {', '.join(MEASUREMENTS)}" in done.stderr
