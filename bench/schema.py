"""What a schema costs: pruning, defaulting and validating a Workload, beside reading the same bytes as JSON.

Our own CRD, and the public one where it lies beside this checkout. Reading JSON is the measure, because it is what a
server does with the same bytes anyway: a ratio of 3 means that everything a schema asks costs three times as much as
reading the object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from timeit import repeat
from typing import Any

import msgspec
import yaml

from kubemachinery import structural
from pykueue.api import registry, schema

_PUBLIC = Path(__file__).parents[1].parent / "shared" / "reference" / "crds" / "workloads.yaml"
_ROUNDS = 5
_TIMES = 300


def workload() -> dict[str, Any]:
    """A Workload as they come: two pod sets, an admission, five conditions."""
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
    }
    pod_set = {"count": 4, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    moment = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": type_, "status": "True", "reason": type_, "message": "as it should", "lastTransitionTime": moment}
        for type_ in ("QuotaReserved", "Admitted", "PodsReady")
    ]
    assignments = [
        {
            "name": name,
            "count": 4,
            "flavors": {"cpu": "default", "memory": "default", "nvidia.com/gpu": "a100"},
            "resourceUsage": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"},
        }
        for name in ("driver", "workers")
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "job-train-1a2b3", "namespace": "team-a", "labels": {"kueue.x-k8s.io/job-uid": "1"}},
        "spec": {
            "queueName": "main",
            "priority": 100,
            "active": True,
            "podSets": [{"name": "driver", **pod_set}, {"name": "workers", **pod_set}],
        },
        "status": {
            "conditions": conditions,
            "admission": {"clusterQueue": "team-a", "podSetAssignments": assignments},
        },
    }


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "our own", schema.of(registry.KUEUE.named("Workload"), "v1beta2")  # type: ignore[arg-type]
    if _PUBLIC.is_file():
        definition = yaml.safe_load(_PUBLIC.read_text())
        versions = {version["name"]: version for version in definition["spec"]["versions"]}
        yield "public", versions["v1beta2"]["schema"]["openAPIV3Schema"]


def microseconds(action: Callable[[], object], times: int) -> float:
    """Processor time, the best of a few rounds: whatever else the machine did, it did not make this faster."""
    return min(repeat(action, number=times, repeat=_ROUNDS, timer=process_time)) / times * 1e6


def measure(document: dict[str, Any], times: int) -> dict[str, float]:
    compiled = structural.compile(document)
    tree = compiled.default(compiled.prune(workload()))
    errors = compiled.validate(tree)
    if errors:
        raise SystemExit(f"bench: the Workload is not valid: {errors[0]}")
    data = json.dumps(tree).encode()
    old = msgspec.json.decode(data)
    return {
        "json.loads": microseconds(lambda: json.loads(data), times),
        "prune": microseconds(lambda: compiled.prune(tree), times),
        "default": microseconds(lambda: compiled.default(tree), times),
        "validate a create": microseconds(lambda: compiled.validate(tree), times),
        "validate an update": microseconds(lambda: compiled.validate(tree, old), times),
        "all of a create": microseconds(lambda: compiled.validate(compiled.default(compiled.prune(tree))), times),
        "compile the schema": microseconds(lambda: structural.compile(document), min(times, 3)),
    }


SMALLEST = ("--times=1",)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="schema", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=_TIMES, help="calls in each round")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(arguments)
    figures: dict[str, dict[str, float]] = {}
    for name, document in schemas():
        figures[name] = measure(document, given.times)
        unit = figures[name]["json.loads"]
        print(f"\n{name + ' CRD':24}{'µs':>10}{'of json.loads':>16}")
        for step, cost in figures[name].items():
            print(f"{step:24}{cost:10.1f}{cost / unit:15.1f}×")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
