"""The figures of a measurement as a table, beside the targets that some of them have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Figures = dict[str, float]
# By the name of a figure: "at most" or "at least", and the limit.
Targets = Mapping[str, tuple[str, float]]


def table(figures: Figures, targets: Targets) -> str:
    lines = [f"{'figure':36}{'must':>16}"]
    for name, value in figures.items():
        must = " ".join(map(str, targets.get(name, ())))
        lines.append(f"{name:36}{must:>16}{value:12.2f}")
    return "\n".join(lines)


def save(figures: Figures, targets: Targets, path: Path) -> None:
    path.write_text(json.dumps({"targets": targets, **figures}, indent=2) + "\n")
