"""`python -m pykueue.simulate --seeds 0-499 --jobs 2`: many stories; `--replay SEED`: one of them, told."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from pykueue.simulate import faults, story
from pykueue.simulate.traits import TRAITS

_SHOWN = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pykueue.simulate", description=__doc__)
    parser.add_argument("--seeds", default="0-99", metavar="FIRST-LAST", help="which stories to run")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many processes share them")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one story and print it")
    chosen = parser.parse_args(arguments)
    if chosen.replay is not None:
        return _replay(chosen.replay)
    first, _, last = chosen.seeds.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        parser.error(f"--seeds {chosen.seeds}: expected two numbers, as in 0-99")
    if chosen.jobs < 1:
        parser.error(f"--jobs {chosen.jobs}: expected at least 1")
    return _soak(range(int(first), int(last or first) + 1), chosen.jobs)


def _replay(seed: int) -> int:
    report = story.run(seed)
    for line in report.trace:
        print(line)
    print(f"{report.revisions} revisions, {report.digest}")
    print(f"traits: {', '.join(sorted(report.traits)) or 'none'}")
    print(f"faults: {dict(sorted(report.faults.items()))}")
    for violation in report.violations:
        print(violation)
    return 1 if report.violations else 0


def _soak(seeds: range, jobs: int) -> int:
    began = time.perf_counter()
    fired: Counter[str] = Counter()
    revisions = failed = done = 0
    for report in _reports(seeds, jobs):
        done += 1
        fired += report.faults
        fired.update(report.traits)
        revisions += report.revisions
        if report.violations:
            failed += 1
            _say(f"seed {report.seed}: {len(report.violations)} violations; {report.replay}")
            for violation in report.violations[:_SHOWN]:
                _say(f"    {violation}")
        rate = done / (time.perf_counter() - began) * 60
        _progress(f"{done} of {len(seeds)} stories, {failed} of them wrong, {rate:.0f} a minute")
    _say(f"{done} stories, {failed} of them wrong, {revisions} revisions, {rate:.0f} a minute")
    for name in (*TRAITS, *faults.FAULTS, *faults.TROUBLES):
        print(f"    {fired[name]:7} x {name}")
    return 1 if failed else 0


def _reports(seeds: Iterable[int], jobs: int) -> Iterator[story.Report]:
    """In the order of the seeds, whoever is faster."""
    if jobs == 1:
        yield from map(story.run, seeds)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(story.run, seeds, chunksize=4)


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _say(line: str) -> None:
    _progress("")
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
