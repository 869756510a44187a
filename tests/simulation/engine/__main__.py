"""`python -m simulation.engine --seeds 0-499 --jobs 2`: many runs; `--replay SEED`: one of them, printed.
With `--kill-at every`, each run is repeated for every write of its manager, which is killed there."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from simulation.engine import faults, simulation_run
from simulation.engine.faults import Kill
from simulation.engine.traits import TRAITS

_SHOWN = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.engine", description=__doc__)
    parser.add_argument("--seeds", default="0-99", metavar="FIRST-LAST", help="the seeds to run")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many processes share them")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print it")
    parser.add_argument("--kill-at", default="", metavar="WRITE", help="which write: 17, 17+ (just after it) or every")
    chosen = parser.parse_args(arguments)
    if chosen.kill_at not in ("", "every") and not chosen.kill_at.removesuffix("+").isdigit():
        parser.error(f"--kill-at {chosen.kill_at}: expected a number, as in 17 or 17+, or every")
    if chosen.replay is not None:
        if chosen.kill_at == "every":
            parser.error("--kill-at every goes with --seeds")
        return _replay(chosen.replay, Kill.read(chosen.kill_at) if chosen.kill_at else None)
    first, _, last = chosen.seeds.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        parser.error(f"--seeds {chosen.seeds}: expected two numbers, as in 0-99")
    if chosen.jobs < 1:
        parser.error(f"--jobs {chosen.jobs}: expected at least 1")
    seeds = range(int(first), int(last or first) + 1)
    if chosen.kill_at:
        if chosen.kill_at != "every":
            parser.error("--kill-at goes with --replay, unless it is every")
        return _soak(_killed(seeds, chosen.jobs))
    return _soak(_reports(seeds, chosen.jobs), len(seeds))


def _replay(seed: int, kill: Kill | None) -> int:
    report = simulation_run.run(seed, kill=kill)
    for line in report.trace:
        print(line)
    print(f"{report.revisions} revisions, {report.digest}")
    print(f"traits: {', '.join(sorted(report.traits)) or 'none'}")
    print(f"faults: {dict(sorted(report.faults.items()))}")
    for violation in report.violations:
        print(violation)
    return 1 if report.violations else 0


def _soak(reports: Iterator[simulation_run.Report], expected: int | None = None) -> int:
    began = time.perf_counter()
    fired: Counter[str] = Counter()
    revisions = failed = done = 0
    longest_wait_seconds = 0.0
    for report in reports:
        done += 1
        fired += report.faults
        fired.update(report.traits)
        revisions += report.revisions
        longest_wait_seconds = max(longest_wait_seconds, report.longest_wait_seconds)
        if report.violations:
            failed += 1
            _print(f"seed {report.seed}: {len(report.violations)} violations; {report.replay}")
            for violation in report.violations[:_SHOWN]:
                _print(f"    {violation}")
        rate = done / (time.perf_counter() - began) * 60
        _progress(f"{done} of {expected or 'some'} runs, {failed} with violations, {rate:.0f} a minute")
    _print(f"{done} runs, {failed} with violations, {revisions} revisions, {rate:.0f} a minute")
    print(f"longest time for which a Workload that fits was overtaken: {longest_wait_seconds:.1f} seconds")
    for name in (*TRAITS, *faults.FAULTS, *faults.TROUBLES):
        print(f"    {fired[name]:7} x {name}")
    return 1 if failed else 0


def _reports(seeds: Iterable[int], jobs: int) -> Iterator[simulation_run.Report]:
    """In the order of the seeds, not of completion."""
    if jobs == 1:
        yield from map(simulation_run.run, seeds)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(simulation_run.run, seeds, chunksize=4)


def _killed(seeds: range, jobs: int) -> Iterator[simulation_run.Report]:
    with ProcessPoolExecutor(jobs) as pool:
        for reports in pool.map(_killed_at_every_write, seeds):
            yield from reports


def _killed_at_every_write(seed: int) -> list[simulation_run.Report]:
    """The trace is printed by `--replay`; here it would only use memory."""
    found = []
    for report in simulation_run.killed_at_every_write(seed):
        report.trace = []
        found.append(report)
    return found


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _print(line: str) -> None:
    _progress("")
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
