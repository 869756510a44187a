"""How long `pykueue up` takes from nothing to the first admission, in an empty data directory and in one that was used;
and the processor time of the commands that users type most.

    python -m bench start [--times=5] [--json=FILE]

Beside the wall time stands the processor time, which a busy machine changes less. All processes run from compiled
bytecode, as pip installs it: the first round compiles it, and is not counted. Never a test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench import _engines, _load

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.clock import SystemClock

_SMALL = _load.BASELINE_CLASSES[0]


def first_admission(folder: Path, name: str, commands: dict[str, list[float]] | None = None) -> dict[str, float]:
    """Seconds from the start of the process until it serves, and until a Workload is admitted. The processor time of
    commands against it is added to `commands`."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    began = time.monotonic()
    with _engines.process_of(
        sys.executable, "-m", "pykueue", "up", "--data-dir", str(folder), "--runner", "none"
    ) as process:
        _engines.until(kubeconfig.exists, process)
        serves = time.monotonic() - began
        asyncio.run(_admitted(kubeconfig, name))
        figures = {
            "serves": serves,
            "first admission": time.monotonic() - began,
            "processor": _engines.cpu_seconds(process.pid),
            "MiB": _engines.memory_mib(process.pid),
        }
        if commands is not None:
            for command, seconds in command_seconds(kubeconfig, name).items():
                commands.setdefault(command, []).append(seconds)
        return figures


def command_seconds(kubeconfig: Path, workload: str) -> dict[str, float]:
    """The processor time of one run of each command."""
    commands = {
        "--help": ["--help"],
        "queue": ["queue", "-n", _load.NAMESPACE],
        "explain": ["explain", f"workload/{workload}", "-n", _load.NAMESPACE],
        "explain (waits)": ["explain", f"workload/{_waiting(workload)}", "-n", _load.NAMESPACE],
        "submit": ["submit", "--dry-run", "-n", _load.NAMESPACE, "-q", "cq-0-0", "--", "true"],
    }
    found = {}
    for name, arguments in commands.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "pykueue", *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found[name] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


def _waiting(workload: str) -> str:
    """The name of a Workload that requests more than its queue has, beside one that is admitted."""
    return f"{workload}-waits"


async def _admitted(kubeconfig: Path, name: str) -> None:
    target = client_config.from_files([kubeconfig])
    client = ApiClient(client_config.connect(target, SystemClock(), user_agent="bench"), random.Random(1))
    try:
        if await client.find(_load.WORKLOAD, "first", _load.NAMESPACE) is None:
            for kind, tree in _load.Load().objects():
                await client.create(kind, tree)
        await client.create(_load.WORKLOAD, _load.workload(name, "cq-0-0", _SMALL))
        async with asyncio.timeout(60):
            while True:
                found = await client.get(_load.WORKLOAD, name, _load.NAMESPACE)
                if found.get("status", {}).get("admission"):
                    break
                await asyncio.sleep(0.01)
        await client.create(_load.WORKLOAD, _load.workload(_waiting(name), "cq-0-0", replace(_SMALL, cpu=100_000)))
    finally:
        await client.close()


def measured_round(runs: dict[str, list[dict[str, float]]], commands: dict[str, list[float]], number: int) -> None:
    """Start a server in an empty data directory, then again in the same one, and run each command; append the
    figures."""
    with tempfile.TemporaryDirectory() as home:
        runs.setdefault("empty", []).append(first_admission(Path(home), "first"))
        runs.setdefault("used", []).append(first_admission(Path(home), f"second-{number}", commands))


SMALLEST = ("--times=1",)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="start", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    runs: dict[str, list[dict[str, float]]] = {"empty": [], "used": []}
    commands: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        measured_round({}, {}, 0)
        for number in range(1, options.times + 1):
            measured_round(runs, commands, number)
    figures = {
        name: {what: median(run[what] for run in several) for what in several[0]} for name, several in runs.items()
    }
    print(f"{'median':8}" + "".join(f"{what:>18}" for what in figures["empty"]))
    for name, row in figures.items():
        print(f"{name:8}" + "".join(f"{value:18.2f}" for value in row.values()))
    of_commands = {name: median(seconds) for name, seconds in commands.items()}
    for name, seconds in of_commands.items():
        spread = f"{min(commands[name]):.2f} to {max(commands[name]):.2f}"
        print(f"pykueue {name:16}{seconds:6.2f} s of processor time ({spread})")
    if options.json:
        options.json.write_text(json.dumps({**figures, "commands": of_commands}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
