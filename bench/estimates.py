"""How good estimates of run times are: each job of a trace is estimated when it is submitted, and learned when it ends.

    python -m bench estimates [--trace=FILE ...] [--jobs=5000] [--seed=0] [--repeats=3] [--json=FILE]

Files are those of `bench traces`; without one, a week is generated. The pinball loss at 0.5 and 0.9 is the mean over
the jobs after the first 500, in seconds. Where jobs have limits, it is also given as a share of that of the limit taken
as the estimate. Coverage is the share of jobs that ran no longer than their P90; the aim is 85 to 95 %. Jobs are taken
to start when they are submitted, so that runs are learned somewhat earlier than they would be.

Beside it stand losses to compare with:
- of a generated week, `known`: that of an estimate that knows the distribution of each program, which no estimate is
  expected to fall below; and `best learner`: that of one that knows how the programs were drawn, but learns their run
  times from the runs that have ended;
- of a file, `hindsight`: the least loss with one value for all jobs of the same user, LocalQueue, name shape, pod sets
  and limit, chosen with all of their runs known. It is 0 for a job that has no like. An estimate that follows changes
  could fall below it.

The time of a lookup is that of the estimate and of both quantiles. Processor time is taken of whole passes, of learning
with and without lookups, in turns; making the records is left out.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import _best, _weeks
from bench.traces import of_file
from msgspec.structs import replace

from pykueue.analysis import trace_replay, traces
from pykueue.analysis.traces import SwfMapping, Trace, TraceJob
from pykueue.core.name_shape import name_shape
from pykueue.history import swf
from pykueue.history.learning import RunTimes
from pykueue.history.records import FINISHED, Attempt, Outcome, WorkloadRecord

SMALLEST = ("--jobs=700", "--repeats=1")
_FIRST: Final = 500
_SHARES: Final = (0.5, 0.9)

# Quantiles of a job at each of the shares.
Quantiles = tuple[float, ...]


def ended(job: TraceJob) -> WorkloadRecord:
    """The record of a job that started when it was submitted: a file has no better time."""
    run = job.run_seconds or 0
    attempt = Attempt(job.submitted, job.namespace, job.submitted, job.submitted, job.submitted + run, FINISHED)
    return replace(trace_replay.record_of(job), attempts=(attempt,), outcome=Outcome.SUCCEEDED)


def pinball(actual: float, estimated: float, share: float) -> float:
    """The loss of a quantile: too low costs `share` a second, too high the rest."""
    return share * (actual - estimated) if actual >= estimated else (1 - share) * (estimated - actual)


class Life:
    """The jobs of a trace in the order of their submissions and ends, with their records."""

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self.submitted = [trace_replay.record_of(job) for job in jobs]
        self.ended = [ended(job) for job in jobs]
        self.runs = [job.run_seconds or 0 for job in jobs]
        # The number of a job, and whether it ends; of one moment, ends come first.
        self.order: list[tuple[int, bool]] = []
        running: list[tuple[int, int]] = []
        for number, job in enumerate(jobs):
            while running and running[0][0] <= job.submitted:
                self.order.append((heapq.heappop(running)[1], True))
            self.order.append((number, False))
            heapq.heappush(running, (job.submitted + self.runs[number], number))

    def quantiles(self) -> list[Quantiles | None]:
        """The quantiles of each job when it was submitted; None without an estimate."""
        learned, found = RunTimes(), list[Quantiles | None]()
        for number, is_end in self.order:
            if is_end:
                learned.learn(self.ended[number])
            else:
                estimate = learned.estimate(self.submitted[number])
                found.append(None if estimate is None else tuple(map(estimate.quantile, _SHARES)))
        return found

    def learned(self) -> RunTimes:
        """What is learned of the runs, without an estimate on the way."""
        found = RunTimes()
        for number, is_end in self.order:
            if is_end:
                found.learn(self.ended[number])
        return found


def seconds_of(life: Life, repeats: int) -> tuple[list[float], list[float]]:
    """The microseconds of processor time of a lookup and of learning a run, in each of the passes."""
    lookups, learning = [], []
    for _ in range(repeats):
        began = time.process_time()
        life.learned()
        alone = time.process_time() - began
        began = time.process_time()
        life.quantiles()
        both = time.process_time() - began
        ends = sum(is_end for _, is_end in life.order)
        lookups.append((both - alone) * 1e6 / len(life.runs))
        learning.append(alone * 1e6 / max(1, ends))
    return lookups, learning


def hindsight(life: Life) -> list[Quantiles]:
    """The quantiles of all runs of the class of each job after the first ones, of those that are to come as well."""
    classes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    keys = [(r.user, r.namespace, r.queue, name_shape(r.job), r.shape, r.limit_seconds) for r in life.submitted]
    for key, run in list(zip(keys, life.runs, strict=True))[_FIRST:]:
        classes[key].append(run)
    found = {key: _quantiles(sorted(runs)) for key, runs in classes.items()}
    return [found.get(key, (0.0, 0.0)) for key in keys]


def _quantiles(ordered: list[int]) -> Quantiles:
    return tuple(float(ordered[max(1, math.ceil(share * len(ordered) - 1e-9)) - 1]) for share in _SHARES)


def known(week: Sequence[_weeks.WeekJob]) -> list[Quantiles]:
    """The quantiles of the distributions that the run times of a generated week were drawn from."""
    return [tuple(_best.known_quantile(job.program, share) for share in _SHARES) for job in week]


def best_learner(week: Sequence[_weeks.WeekJob], life: Life) -> list[Quantiles]:
    """The quantiles of an estimate that knows everything of a generated week but the run times of its programs."""
    return list(_learner(week, life))


def _learner(week: Sequence[_weeks.WeekJob], life: Life) -> Iterator[Quantiles]:
    programs: dict[_weeks.WeekProgram, _best.LearnedProgram] = defaultdict(_best.LearnedProgram)
    for number, is_end in life.order:
        program = week[number].program
        if is_end:
            programs[program].learn(week[number].ran)
        else:
            learned = programs[program]
            yield tuple(learned.quantile(share, program.limit) if number >= _FIRST else 0.0 for share in _SHARES)


def measured(trace: Trace, repeats: int, week: Sequence[_weeks.WeekJob] = ()) -> dict[str, Any]:
    """The figures of a trace; of a generated one, `week` has its jobs."""
    life = Life(trace.jobs)
    own = life.quantiles()
    lookups, learning = seconds_of(life, repeats)
    numbers = [number for number, each in enumerate(own) if each is not None and number >= _FIRST]
    rows: dict[str, Sequence[Quantiles | None]] = {"": own}
    if week:
        rows |= {"best learner": best_learner(week, life), "known": known(week)}
    else:
        rows["hindsight"] = hindsight(life)
    found: dict[str, Any] = {
        "jobs": len(trace.jobs),
        "estimated": len(numbers),
        "without an estimate": sum(each is None for each in own),
        "µs of a lookup": _range(lookups),
        "µs of learning a run": _range(learning),
    }
    for place, share in enumerate(_SHARES):
        covered = sum(life.runs[n] <= _at(own[n], place) for n in numbers)
        found[f"P{share * 100:.0f} covers"] = round(covered / max(1, len(numbers)), 3)
    limits = {n: trace.jobs[n].limit_seconds for n in numbers}
    for place, share in enumerate(_SHARES):
        by_limit = sum(pinball(life.runs[n], limit, share) for n, limit in limits.items() if limit)
        for name, quantiles in rows.items():
            losses = {n: pinball(life.runs[n], _at(quantiles[n], place), share) for n in numbers}
            label = f"{name} loss {share}".strip()
            found[label] = round(sum(losses.values()) / max(1, len(losses)), 1)
            if by_limit:
                of_limited = sum(loss for n, loss in losses.items() if limits[n])
                found[f"{label} (share of the limit's)"] = round(of_limited / by_limit, 3)
    return found


def _at(quantiles: Quantiles | None, place: int) -> float:
    return quantiles[place] if quantiles is not None else 0.0


def _range(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench estimates")
    parser.add_argument("--trace", action="append", type=Path, default=[])
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = {path.name: measured(of_file(path), options.repeats) for path in options.trace}
    if not figures:
        text = _weeks.week(options.jobs, seed=options.seed)
        trace = traces.of_swf(swf.read(text, "generated"), "a generated week", SwfMapping())
        figures[trace.source] = measured(trace, options.repeats, list(_weeks.drawn(options.jobs, seed=options.seed)))
    for name, found in figures.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.items()))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0
