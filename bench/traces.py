"""How long a policy comparison takes, and what it measures.

    python -m bench traces [--jobs=50000] [--trace=FILE ...] [--procs=N] [--one-pool] [--json=FILE]

Without a file, a week of jobs is generated: 15 ClusterQueues of one cohort that take back what they lent, at a load of
90 %; it is compared with StrictFIFO. A file is in the Standard Workload Format, or the CSV of the Philly trace (columns
timestamp, duration, num_gpus and cluster); it is compared under BestEffortFIFO and StrictFIFO. `--one-pool` makes one
ClusterQueue of all queues. The two replays run side by side where there are cores, as in `pykueue whatif --trace`; the
processor seconds are those of all processes. The limit for the generated week is five minutes of either.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import resource
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from bench import _weeks
from msgspec.structs import replace

from kubemachinery import process, quantity
from pykueue.analysis import planner, traces
from pykueue.analysis.planner import Case
from pykueue.analysis.policy_comparison import compare
from pykueue.analysis.replay_processes import processes_for
from pykueue.analysis.traces import SwfMapping, Trace
from pykueue.api import kueue
from pykueue.history import swf

SMALLEST = ("--jobs=300",)


def of_file(path: Path) -> Trace:
    """The trace of a file. Lines that are no jobs are left out: public traces have some."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", errors="replace")
    is_csv = path.name.endswith(".csv")
    text = _philly(text) if is_csv else text
    resource_name = "nvidia.com/gpu" if is_csv else "cpu"
    mapping = SwfMapping(per_processor={resource_name: quantity.parse("1")})
    return traces.of_swf(swf.read(text, path.name, leave_out=True), path.name, mapping)


def _philly(text: str) -> str:
    """The lines of the CSV as Standard Workload Format."""
    rows = list(csv.DictReader(text.splitlines()))
    moments = [int(datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()) for row in rows]
    queues = {name: number for number, name in enumerate(sorted({row["cluster"] for row in rows}), start=1)}
    first = min(moments)
    lines = [
        f"{n} {at - first} -1 {max(1, int(float(row['duration'])))} {row['num_gpus']} -1 -1 {row['num_gpus']}"
        f" -1 -1 1 1 1 1 {queues[row['cluster']]} 1 -1 -1"
        for n, (row, at) in enumerate(zip(rows, moments, strict=True), start=1)
    ]
    return "\n".join([f"; UnixStartTime: {first}", *lines])


def one_pool(trace: Trace) -> Trace:
    """The trace with all jobs in one namespace and ClusterQueue. Run times are learned by LocalQueues: there is one for
    each namespace and user."""
    jobs = (msgspec.structs.replace(job, namespace="pool", queue=f"{job.namespace}-{job.queue}") for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def case_of(trace: Trace, procs: int | None, **spec: Any) -> Case:
    """The queues of a trace, with a number of processors in all, and with fields of the ClusterQueues replaced."""
    # A mapping of its own: the pool has one ClusterQueue for all namespaces.
    name = next(iter(_requested(trace)))
    queues = traces.queues_of(trace.jobs, procs or _processors(trace, name), {name: quantity.parse("1")})
    return planner.read(()).with_objects(_with(queues, spec))


def _requested(trace: Trace) -> dict[str, Any]:
    return dict(trace.jobs[0].pod_sets[0].template.spec.containers[0].resources.requests)


def _processors(trace: Trace, name: str) -> int:
    groups = [each.spec.resource_groups[0] for each in trace.objects if isinstance(each, kueue.ClusterQueue)]
    return sum(quantity.parse(str(group.flavors[0].resources[0].nominal_quota)).rounded(0) for group in groups)


def _with(objects: Iterable[msgspec.Struct], spec: dict[str, Any]) -> Iterator[msgspec.Struct]:
    for thing in objects:
        if isinstance(thing, kueue.ClusterQueue):
            thing = msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, **spec))
        yield thing


def _processor_seconds() -> float:
    """The processor time of this process and of the ones that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(trace: Trace, procs: int | None, base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The figures of one comparison, and what it cost."""
    cases = [case_of(trace, procs, **each) for each in (base, change)]
    began, spent = time.monotonic(), _processor_seconds()
    with process.rare_garbage_collection():  # as `pykueue whatif --trace` does
        found = compare(trace, *cases, warm_up=0.0, processes=processes_for(trace))
    elapsed, seconds = time.monotonic() - began, _processor_seconds() - spent
    return {
        "jobs": len(trace.jobs),
        "seconds": round(elapsed, 1),
        "processor seconds": round(seconds, 1),
        "ms per job and replay": round(seconds * 1000 / len(trace.jobs) / 2, 2),
        "MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "processes": min(2, processes_for(trace)),
        "decisions": [column.replay.decisions for column in found.columns],
        "complete": found.is_complete,
        "columns": {
            column.name: {figure.key: figure.value for figure in column.figures if figure.value is not None}
            for column in found.columns
        },
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench traces")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--trace", action="append", type=Path, default=[])
    parser.add_argument("--procs", type=int, default=None)
    parser.add_argument("--one-pool", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    strict = {"queueing_strategy": "StrictFIFO"}
    reclaims = {"preemption": kueue.ClusterQueuePreemption(reclaim_within_cohort="Any")}
    figures = {}
    if options.trace:
        for path in options.trace:
            trace = one_pool(of_file(path)) if options.one_pool else of_file(path)
            figures[path.name] = measured(trace, options.procs, {}, strict)
    else:
        text = _weeks.week(options.jobs)
        trace = traces.of_swf(swf.read(text, "generated"), "a generated week", SwfMapping())
        figures["generated"] = measured(trace, options.procs, reclaims, {**reclaims, **strict})
    for name, found in figures.items():
        shown = {key: value for key, value in found.items() if key != "columns"}
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in shown.items()))
        for column, values in found["columns"].items():
            waiting = values.get("waiting.mean", 0.0) / 3600
            use = ", ".join(f"{key} {value:.3f}" for key, value in values.items() if key.startswith("use."))
            print(f"  {column}: mean waiting {waiting:.3f} h, {use}, evictions {values['evictions']}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0 if all(found["complete"] for found in figures.values()) else 1
