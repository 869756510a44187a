"""Coverage by package, as a Markdown table: `make coverage` prints it from the report of `coverage json`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path, PurePath


def table(report: str) -> str:
    """The rows of a `coverage json` report: executed and all statements of each package, and of all packages."""
    statements, executed = Counter[str](), Counter[str]()
    for name, file in json.loads(report)["files"].items():
        for package in (_package(name), "all"):
            statements[package] += file["summary"]["num_statements"]
            executed[package] += file["summary"]["covered_lines"]
    packages = [*sorted(set(statements) - {"all"}), "all"]
    rows = [f"| `{name}` | {statements[name]} | {_percent(executed[name], statements[name])} |" for name in packages]
    return "\n".join(["| package | statements | executed |", "| --- | ---: | ---: |", *rows])


def _package(name: str) -> str:
    """The import package and its sub-package, of `src/pykueue/core/preemption/fair.py`: `pykueue.core`."""
    folders = PurePath(name).parts[1:-1]
    return ".".join(folders[:2])


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text(encoding="utf-8")))
