"""`python -m pykueue.simulate --seeds 0-499`: many stories; `--replay SEED`: one of them, told."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from pykueue.simulate import faults, story


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pykueue.simulate", description=__doc__)
    parser.add_argument("--seeds", default="0-99", metavar="FIRST-LAST", help="which stories to run")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one story and print it")
    chosen = parser.parse_args(arguments)
    if chosen.replay is not None:
        return _replay(chosen.replay)
    first, _, last = chosen.seeds.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        parser.error(f"--seeds {chosen.seeds}: expected two numbers, as in 0-99")
    return _soak(range(int(first), int(last or first) + 1))


def _replay(seed: int) -> int:
    report = story.run(seed)
    for line in report.trace:
        print(line)
    print(f"{report.revisions} revisions, {report.digest}")
    print(f"faults: {dict(sorted(report.faults.items()))}")
    for violation in report.violations:
        print(violation)
    return 1 if report.violations else 0


def _soak(seeds: range) -> int:
    began = time.perf_counter()
    fired: Counter[str] = Counter()
    revisions = failed = 0
    for seed in seeds:
        report = story.run(seed)
        fired += report.faults
        revisions += report.revisions
        if report.violations:
            failed += 1
            print(f"seed {seed}: {len(report.violations)} violations; {report.replay}")
            for violation in report.violations[:5]:
                print(f"    {violation}", flush=True)
    seconds = time.perf_counter() - began
    print(
        f"{len(seeds)} stories, {failed} of them wrong, {revisions} revisions, {len(seeds) / seconds * 60:.0f} a minute"
    )
    for name in faults.FAULTS:
        print(f"    {fired[name]:7} x {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
