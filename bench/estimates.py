"""How good estimates of run times are: each job of a trace is estimated when it is submitted, and learned when it ends.

    python -m bench estimates [--trace=FILE ...] [--jobs=5000] [--seed=0] [--json=FILE]

Files are those of `bench traces`; without one, a week is generated. The pinball loss at 0.5 and 0.9 is the mean over
the jobs after the first 500, in seconds, beside that of the limit taken as the estimate, where jobs have limits.
Coverage is the share of jobs that ran no longer than their P90; the aim is 85 to 95 %. Jobs are taken to start when
they are submitted, so that runs are learned somewhat earlier than they would be.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from pathlib import Path
from typing import Any

from bench import _weeks
from bench.traces import of_file
from msgspec.structs import replace

from pykueue.analysis import trace_replay, traces
from pykueue.analysis.traces import SwfMapping, Trace, TraceJob
from pykueue.history import swf
from pykueue.history.learning import RunTimes
from pykueue.history.records import FINISHED, Attempt, Outcome, WorkloadRecord

SMALLEST = ("--jobs=700",)
_FIRST = 500


def ended(job: TraceJob) -> WorkloadRecord:
    """The record of a job that started when it was submitted: a file has no better time."""
    run = job.run_seconds or 0
    attempt = Attempt(job.submitted, job.namespace, job.submitted, job.submitted, job.submitted + run, FINISHED)
    return replace(trace_replay.record_of(job), attempts=(attempt,), outcome=Outcome.SUCCEEDED)


def pinball(actual: float, estimated: float, share: float) -> float:
    """The loss of a quantile: too low costs `share` a second, too high the rest."""
    return share * (actual - estimated) if actual >= estimated else (1 - share) * (estimated - actual)


def measured(trace: Trace) -> dict[str, Any]:
    """Estimate, then learn, in the order of submissions and ends."""
    learned, running = RunTimes(), list[tuple[int, int, WorkloadRecord]]()
    rows: list[tuple[int, int, int, int | None]] = []
    unknown = 0
    began = time.process_time()
    for number, job in enumerate(trace.jobs):
        while running and running[0][0] <= job.submitted:
            learned.learn(heapq.heappop(running)[2])
        estimate = learned.estimate(trace_replay.record_of(job))
        run = job.run_seconds or 0
        if estimate is None:
            unknown += 1
        elif number >= _FIRST:
            rows.append((run, estimate.quantile(0.5), estimate.quantile(0.9), job.limit_seconds))
        heapq.heappush(running, (job.submitted + run, number, ended(job)))
    seconds = time.process_time() - began
    limited = [row for row in rows if row[3] is not None]
    found: dict[str, Any] = {
        "jobs": len(trace.jobs),
        "estimated": len(rows),
        "without an estimate": unknown,
        "µs per job": round(seconds * 1e6 / len(trace.jobs), 1),
        "P50 covers": round(sum(run <= p50 for run, p50, _, _ in rows) / max(1, len(rows)), 3),
        "P90 covers": round(sum(run <= p90 for run, _, p90, _ in rows) / max(1, len(rows)), 3),
    }
    for share, place in ((0.5, 1), (0.9, 2)):
        loss = sum(pinball(row[0], float(row[place] or 0), share) for row in rows) / max(1, len(rows))
        found[f"pinball {share}"] = round(loss, 1)
        if limited:
            by_limit = sum(pinball(row[0], float(row[3] or 0), share) for row in limited) / len(limited)
            own = sum(pinball(row[0], float(row[place] or 0), share) for row in limited) / len(limited)
            found[f"of that by limits {share}"] = round(own / by_limit, 3) if by_limit else 0.0
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench estimates")
    parser.add_argument("--trace", action="append", type=Path, default=[])
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    every = [of_file(path) for path in options.trace]
    if not every:
        text = _weeks.week(options.jobs, seed=options.seed)
        every = [traces.of_swf(swf.read(text, "generated"), "a generated week", SwfMapping())]
    figures = {trace.source: measured(trace) for trace in every}
    for name, found in figures.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.items()))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0
