"""Where the processor time of the manager goes: shares of its parts while it drains a load on a kube-apiserver.

    python -m bench profiles [--load=baseline] [--scale=0.05] [--rounds=1] [--before=SRC] [--after=SRC] [--json=FILE]

The manager records every few milliseconds of its processor time which part of it runs; start-up is not counted. With
`--before`, the `src` directory of an older commit (`git worktree add DIRECTORY COMMIT`), both run in turns, and the
table shows the processor ms of an admission that each part takes, before and after. The ratio is that of a round;
beside it is that of the processor time of the API server, which shows how much the machine changed meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

from bench import _measure
from bench._engines import ROOT, ours, real
from bench._load import LOADS, Load

SMALLEST = ("--load=burst", "--scale=0.1")
_SMALL_SHARE = 0.01
# Parts by the beginning of their names, the first match; the others are by package.
_PARTS = (
    ("kubemachinery.client.http", "HTTP client, TLS"),
    ("kubemachinery.http1", "HTTP client, TLS"),
    ("kubemachinery.client.client", "HTTP client, TLS"),
    ("ssl", "HTTP client, TLS"),
    ("aiohttp", "HTTP client, TLS"),
    ("yarl", "HTTP client, TLS"),
    ("multidict", "HTTP client, TLS"),
    ("kubemachinery.client.transport", "HTTP client, TLS"),
    ("kubemachinery.client.object_decoder", "decoding"),
    ("kubemachinery.codec", "decoding"),
    ("kubemachinery.client", "informers, work queues"),
    ("kubemachinery", "kubemachinery, others"),
    ("prometheus_client", "pykueue.observe"),
)


@dataclass
class Profile:
    """The runs of one source: processor ms of an admission, and the samples of each part."""

    samples: Counter[str] = field(default_factory=Counter)
    manager_ms: list[float] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)

    def ms(self, part: str) -> float:
        return median(self.manager_ms) * self.samples[part] / max(1, self.samples.total())


def title(part: str) -> str:
    """The row of the table that a recorded part counts for."""
    for beginning, name in _PARTS:
        if part.startswith(beginning):
            return name
    return ".".join(part.split(".")[:2])


def measure(source: Path, load: Load, into: Profile, limit_seconds: float) -> None:
    """Run the load once with the manager of this source."""
    with tempfile.TemporaryDirectory() as home:
        recorded = Path(home) / "samples"
        program = ours(webhooks=False)
        script = str(ROOT / "bench" / "_sampled_manager.py")
        command = ("env", f"PYTHONPATH={source}", sys.executable, script, str(recorded))
        configuration = {**program.configuration, **load.configuration}
        with real(0, replace(program, command=command, configuration=configuration)) as engine:
            figures: dict[str, Any] = _measure.run(engine, load, limit_seconds)
        began, ended = figures["measured_from_to"]
        for line in recorded.read_text().splitlines():
            at, part = line.split(" ", 1)
            if began <= float(at) <= ended:
                into.samples[title(part)] += 1
    into.manager_ms.append(figures["manager_cpu_ms_per_admission"])
    into.server_ms.append(figures["server_cpu_ms_per_admission"])


def table(profiles: dict[str, Profile]) -> list[str]:
    """A row for each part, the largest first; parts below a hundredth in all profiles are one row."""
    parts = sorted(
        {part for each in profiles.values() for part in each.samples}, key=lambda part: -_most(profiles, part)
    )
    large = [part for part in parts if _most(profiles, part) >= _SMALL_SHARE]
    lines = [
        "| part | " + " | ".join(f"{name}: ms | share" for name in profiles) + " |",
        "| --- |" + " --- | --- |" * len(profiles),
    ]
    for part in large:
        lines.append(
            f"| {part} | "
            + " | ".join(f"{each.ms(part):.2f} | {_share(each, part):.0%}" for each in profiles.values())
            + " |"
        )
    small = [sum(_share(each, part) for part in parts if part not in large) for each in profiles.values()]
    rest = zip(profiles.values(), small, strict=True)
    lines.append(
        "| others | " + " | ".join(f"{median(each.manager_ms) * it:.2f} | {it:.0%}" for each, it in rest) + " |"
    )
    lines.append("| all | " + " | ".join(f"{median(each.manager_ms):.2f} | " for each in profiles.values()) + " |")
    return lines


def _share(profile: Profile, part: str) -> float:
    return profile.samples[part] / max(1, profile.samples.total())


def _most(profiles: dict[str, Profile], part: str) -> float:
    return max(_share(each, part) for each in profiles.values())


def _ratios(before: list[float], after: list[float]) -> str:
    found = sorted(new / old for old, new in zip(before, after, strict=True))
    return f"{median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench profiles", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--load", choices=sorted(LOADS), default="baseline")
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=Path, help="the src directory of an older commit")
    parser.add_argument("--after", type=Path, default=ROOT / "src", help="that of a newer one (default: this one)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a run is given up")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    load = LOADS[chosen.load].scaled(chosen.scale)
    sources = {"before": chosen.before, "after": chosen.after} if chosen.before else {"after": chosen.after}
    for source in sources.values():
        if not (source / "pykueue").is_dir():
            raise SystemExit(f"bench: {source} has no directory pykueue")
    profiles = {name: Profile() for name in sources}
    for number in range(chosen.rounds):
        for name, source in sources.items():
            measure(source.resolve(), load, profiles[name], chosen.limit)
            print(f"  {number + 1}, {name}: {profiles[name].manager_ms[-1]:.2f} ms per admission", flush=True)
    print(*table(profiles), sep="\n")
    if len(profiles) > 1:
        before, after = profiles["before"], profiles["after"]
        print(f"manager, after : before {_ratios(before.manager_ms, after.manager_ms)}")
        print(f"API server, after : before {_ratios(before.server_ms, after.server_ms)}")
    if chosen.json:
        figures = {
            name: {"manager_ms": each.manager_ms, "server_ms": each.server_ms, "samples": dict(each.samples)}
            for name, each in profiles.items()
        }
        chosen.json.write_text(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
