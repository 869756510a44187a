"""The public baseline load, drained: Workloads arrive, are admitted, run for a while and end.

    python -m bench drain [--scale=0.1] [--on=embedded|real|all] [--caps=50,300,0] [--webhooks] [--json=FILE]
                          [--beside="MANAGER --feature-gates=…" --crds=FOLDER]

Five cohorts of six ClusterQueues; into each queue come small, medium and large Workloads at a steady pace. The manager
is ours, in a process of its own; this process is the rest of the cluster: it creates the Workloads, sets `Finished`
for each after its runtime, and clears the reservation of each that was evicted, as a job would. `embedded` is the
server of `pykueue up` with the manager inside, `real` a kube-apiserver and etcd with `pykueue manager` beside it, once
for each cap on its requests a second (0: none). Scale 1 is 15,000 Workloads; the pace stays, there are fewer of them.
The public benchmark has no webhooks, so the real server is led to ours only with `--webhooks`. Another manager of the
same API, started with `--kubeconfig` and `--config` as ours is, runs at each cap right after ours where `--beside`
names it: only what one run compares can be called faster.

The floor is what no scheduler can beat: the last arrival and its runtime, or all the work divided by all the quota.
Never a test: a slow machine is not a broken one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

from bench import _measure
from bench._engines import Engine, another, embedded, ours, real
from bench._load import Load

SMALLEST = ("--scale=0.002", "--caps=0", "--limit=240")


COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("finished", lambda run: f"{run['finished']}/{run['workloads']}"),
    ("wall s", lambda run: f"{run['wall_seconds']:.1f}"),
    ("x floor", lambda run: f"{run['wall_to_floor']:.2f}"),
    ("small s", lambda run: f"{run['seconds_to_admission']['small']:.2f}"),
    ("medium s", lambda run: f"{run['seconds_to_admission']['medium']:.2f}"),
    ("large s", lambda run: f"{run['seconds_to_admission']['large']:.2f}"),
    ("quota", lambda run: f"{run['quota_used']:.0%}"),
    ("evicted", lambda run: f"{run['evictions']}"),
    ("req/adm", lambda run: f"{run['requests_per_admission']:.2f}"),
    ("cpu ms/adm", lambda run: f"{run['manager_cpu_ms_per_admission']:.2f}"),
    ("MiB", lambda run: f"{run['manager_memory_mib']:.0f}"),
    ("load", lambda run: f"{run['machine_load']:.1f}"),
)


def table(runs: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':18}" + "".join(f"{title:>12}" for title, _ in COLUMNS)]
    for name, run in runs.items():
        lines.append(f"{name:18}" + "".join(f"{show(run):>12}" for _, show in COLUMNS))
        by_verb = ", ".join(
            f"{what} {times / max(1, run['admissions']):.2f}" for what, times in run["requests"].items()
        )
        lines.append(f"{'':18}  requests per admission: {by_verb}")
        if run["left"]:
            lines.append(f"{'':18}  not finished: {run['left']}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="drain", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1, help="1 is 15,000 Workloads")
    parser.add_argument(
        "--on", choices=["embedded", "real", "all"], help="by default all, where the binaries are there"
    )
    parser.add_argument("--caps", default="50,300,0", help="requests a second of the manager on the real server")
    parser.add_argument("--webhooks", action="store_true", help="let the real server ask the manager about every write")
    parser.add_argument("--beside", help="the command of another manager, measured on the real server after ours")
    parser.add_argument("--crds", type=Path, help="the folder with the CRDs of that manager")
    parser.add_argument("--limit", type=float, default=900.0, help="give up a run after so many seconds")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    if options.beside and not options.crds:
        parser.error("--beside needs --crds, the CRDs that manager works with")
    load = Load(scale=options.scale)
    runs: dict[str, dict[str, Any]] = {}
    for name, engine in _engines(options):
        with engine as started:
            runs[name] = _measure.run(started, load, options.limit)
        print(table({name: runs[name]}), flush=True)
    print(f"\n{load.total} Workloads, floor {load.floor_seconds:.1f} s")
    print(table(runs))
    if options.json:
        options.json.write_text(json.dumps(runs, indent=2))
    return 0 if all(map(_measure.is_complete, runs.values())) else 1


def _engines(options: argparse.Namespace) -> Iterator[tuple[str, contextlib.AbstractContextManager[Engine]]]:
    from cluster import assets

    if options.on != "real":
        yield "embedded", embedded()
    if options.on in ("real", "all") or (options.on is None and (assets.folder() / "kube-apiserver").exists()):
        for cap in map(int, options.caps.split(",")):
            limit = f"{cap}/s" if cap else "no cap"
            yield f"real, {limit}", real(cap, ours(webhooks=options.webhooks))
            if options.beside:
                yield f"beside, {limit}", real(cap, another(shlex.split(options.beside), options.crds))


if __name__ == "__main__":
    sys.exit(main())
