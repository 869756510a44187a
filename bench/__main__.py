"""`make bench`: every measurement in this folder, or the ones named.

    python -m bench [NAME ...] [--smallest] [OPTION ...]

A measurement is a module with `main(arguments) -> int`, which prints a table and writes its figures to the file of
`--json=FILE`, and with `SMALLEST`, the options of its smallest run. `--smallest` adds those options: the tests run each
measurement that way, so that a benchmark that no longer works fails the build instead of the next person who measures.
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
    options = [argument for argument in arguments if argument.startswith("-") and argument != "--smallest"]
    worst = 0
    for name in chosen:
        print(f"== {name}", flush=True)
        measurement = importlib.import_module(f"bench.{name}")
        smallest = measurement.SMALLEST if "--smallest" in arguments else ()
        worst = max(worst, int(measurement.main([*smallest, *options]) or 0))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
