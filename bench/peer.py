"""This manager and Kueue's on the same loads, in one run: ratios with their spread.

    python -m bench peer [--loads=baseline,large,…] [--caps=0,300,50] [--scale=0.2] [--rounds=3] [--write] [--json=FILE]
                         [--earlier=FILE,…]

Kueue is built from its published Go module, once, like kube-apiserver. Each load runs on a fresh kube-apiserver and
etcd for each manager, one after the other; each round begins with the other manager. The ratio of a round is ours to
Kueue's; the table has the median of the rounds, with the smallest and the largest. `--write` puts the tables into
`docs/operations/measuring.md`. The loads are those of `bench/_load.py`; `--scale` multiplies the number of Workloads
of all loads but the burst. A load with a cap gets so many requests a second for each manager (0: no limit).

Loads can be measured one by one, each with a `--json` of its own; `--loads= --earlier=FILE,… --write` makes one table
of these files without a run. Only files beside the same version of Kueue are taken.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

import yaml
from bench import _measure
from bench._engines import ROOT, Program, another, ours, real
from bench._load import LOADS, Load

from pykueue import version

SMALLEST = ("--loads=burst", "--caps=0", "--rounds=1", "--scale=0.1", "--burst-too", "--alone", "--limit=240")
PAGE = ROOT / "docs" / "operations" / "measuring.md"
BEGIN, END = "<!-- peer: begin -->", "<!-- peer: end -->"
OURS, KUEUE = "pykueue", "Kueue"
# Of a run that has none, such as evictions of the burst, no ratio is shown.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Measure:
    """A figure of a run that is compared: its column, and where it is among the figures."""

    title: str
    value: Callable[[Mapping[str, Any]], float]


def _figure(name: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda run: float(run[name])


MEASURES = (
    Measure("wall s", _figure("wall_seconds")),
    Measure("mean s to admission, highest priority", _figure("highest_priority_mean_seconds")),
    Measure("P99", _figure("highest_priority_p99_seconds")),
    Measure("requests / admission", _figure("requests_per_admission")),
    Measure("manager ms / admission", _figure("manager_cpu_ms_per_admission")),
    Measure("manager MiB, peak", _figure("manager_peak_memory_mib")),
    Measure("server ms / admission", _figure("server_cpu_ms_per_admission")),
    Measure("evictions", _figure("evictions")),
    Measure("CPU s lost to evictions", _figure("lost_cpu_seconds")),
)

Runs = dict[str, list[dict[str, Any]]]


def programs(*, is_alone: bool) -> dict[str, Program]:
    """The managers that are compared."""
    found = {OURS: ours(webhooks=False)}
    if not is_alone:
        from cluster import assets

        built = assets.kueue()
        components = built.files / "config" / "components"
        published = yaml.safe_load((components / "manager" / "controller_manager_config.yaml").read_text())
        settings = {
            "controller": published["controller"],
            # Its visibility server would listen on all addresses.
            "featureGates": {"VisibilityOnDemand": False},
        }
        crds = components / "crd" / "bases"
        found[KUEUE] = another((str(built.binary),), crds, settings, certificates_in_etc="kueue/metrics/certs")
    return found


def measure(load: Load, cap: int, managers: Mapping[str, Program], rounds: int, limit: float) -> Runs:
    """The figures of each manager, round by round."""
    runs: Runs = {name: [] for name in managers}
    for number in range(rounds):
        for name in sorted(managers, reverse=number % 2 == 0):
            program = managers[name]
            program = replace(program, configuration={**program.configuration, **load.configuration})
            with real(cap, program) as engine:
                figures = _measure.run(engine, load, limit)
            runs[name].append(figures)
            state = "" if _measure.is_complete(figures) else f"; NOT FINISHED: {figures['left']}"
            for wave, each in enumerate(figures["waves"], 1):
                state += f"; wave {wave} created after {each['created']:.1f} s, admitted after {each['admitted']:.1f} s"
                state += f", WITHOUT {each['missing']} of it" if each["missing"] else ""
            evicted = f"evictions {figures['evictions_by_reason']}, {figures['lost_cpu_seconds']:.1f} CPU s lost"
            print(
                f"  round {number + 1}, {name}: {figures['wall_seconds']:.1f} s, {figures['admissions']} admissions, "
                f"{evicted}, load average {figures['machine_load']:.1f}{state}",
                flush=True,
            )
    return runs


def ratios(runs: Runs, each: Measure) -> list[float]:
    """Ours : Kueue's, sorted, of the rounds in which Kueue's figure is not 0."""
    pairs = zip(runs[OURS], runs.get(KUEUE, ()), strict=False)
    values = [(each.value(mine), each.value(other)) for mine, other in pairs]
    return sorted(mine / other for mine, other in values if other > _NEGLIGIBLE)


def table(results: Mapping[str, Runs]) -> list[str]:
    """A Markdown table: of each load and cap the medians of both managers, and the ratio with its spread."""
    lines = ["| load | figure | pykueue | Kueue | ratio (smallest to largest) |", "| --- | --- | --- | --- | --- |"]
    for name, runs in results.items():
        for each in MEASURES:
            mine = median(each.value(run) for run in runs[OURS])
            others = [each.value(run) for run in runs.get(KUEUE, ())]
            other = f"{median(others):.4g}" if others else "–"
            found = ratios(runs, each)
            ratio = f"{median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})" if found else "–"
            lines.append(f"| {name}{_rounds(runs)} | {each.title} | {mine:.4g} | {other} | {ratio} |")
    return lines


def _rounds(runs: Runs) -> str:
    number = len(runs[OURS])
    return f", {number} rounds" if number > 1 else ", 1 round"


def write(lines: list[str]) -> None:
    """Replace the tables of the page by these."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + tail)


def earlier(files: Iterable[Path]) -> dict[str, Runs]:
    """The figures that earlier runs wrote with `--json`."""
    results: dict[str, Runs] = {}
    for file in files:
        content = json.loads(file.read_text())
        if content[KUEUE] != _kueue():
            raise SystemExit(f"bench: {file} has figures beside Kueue {content[KUEUE]}, not {_kueue()}")
        results |= content["loads"]
    return results


def _kueue() -> str:
    from cluster.assets import partners

    return partners.KUEUE.version


def _cases(options: argparse.Namespace) -> Iterator[tuple[str, Load, int]]:
    for name in filter(None, options.loads.split(",")):
        is_scaled = name != "burst" or options.burst_too
        load = LOADS[name].scaled(options.scale if is_scaled else 1.0)
        for cap in map(int, options.caps.split(",")):
            limit = f"{cap} requests/s" if cap else "no cap"
            yield f"{name}, {load.total} Workloads, {limit}", load, cap


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peer", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loads", default=",".join(LOADS), help=f"of {', '.join(LOADS)}; empty: no run")
    parser.add_argument("--caps", default="0,300,50", help="requests a second of the manager")
    parser.add_argument("--scale", type=float, default=0.2, help="the share of the Workloads of each load")
    parser.add_argument("--burst-too", action="store_true", help="scale the burst of 300 Workloads, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900.0, help="give up a run after so many seconds")
    parser.add_argument("--alone", action="store_true", help="without Kueue, which need not be built")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--earlier", default="", help="show the figures of these files of earlier runs, too")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(filter(None, options.loads.split(","))) - set(LOADS)):
        parser.error(f"no load is called {', '.join(unknown)}; there are {', '.join(LOADS)}")
    results = earlier(map(Path, filter(None, options.earlier.split(","))))
    managers = programs(is_alone=options.alone) if options.loads else {}
    for name, load, cap in _cases(options):
        print(name, flush=True)
        results[name] = measure(load, cap, managers, options.rounds, options.limit)
        if options.json:
            options.json.write_text(json.dumps({KUEUE: _kueue(), "loads": results}, indent=2))
    lines = [_versions(), "", *table(results)]
    print("\n".join(lines))
    if options.write:
        write(lines)
    return (
        0
        if all(_measure.is_complete(run) for runs in results.values() for each in runs.values() for run in each)
        else 1
    )


def _versions() -> str:
    from cluster.assets import ETCD, partners

    python = platform.python_version()
    return (
        f"pykueue {version.__version__} on Python {python}, Kueue {_kueue()}, kube-apiserver "
        f"{partners.KUBERNETES}, etcd {ETCD}, {os.cpu_count()} cores."
    )


if __name__ == "__main__":
    sys.exit(main())
