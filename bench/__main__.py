"""`make bench`: every measurement in this folder, or the ones named.

A measurement is a module with `main(arguments) -> int` that prints a table and, with `--json FILE`, writes its figures.
Figures are ratios wherever two things can be compared in one run: machines differ, and so do their hours.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def main(arguments: list[str]) -> int:
    chosen = [argument for argument in arguments if not argument.startswith("-")] or names()
    unknown = [name for name in chosen if name not in names()]
    if unknown:
        print(f"bench: no measurement called {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    options = [argument for argument in arguments if argument.startswith("-")]
    worst = 0
    for name in chosen:
        print(f"== {name}", flush=True)
        worst = max(worst, int(importlib.import_module(f"bench.{name}").main(options) or 0))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
