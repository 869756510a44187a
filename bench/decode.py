"""How long it takes to read one Workload: as our types, as plain dicts, and as pydantic models if installed.

    python -m bench decode [--json FILE] [--seconds S]

The Workload is of the size that a cluster really holds (about 3 KiB): two pod sets with several containers, a status
with admission, conditions and managed fields. Figures are the best of several rounds, in microseconds; the ratio is to
our own. Never a test: a slow machine is not a broken one.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import timeit
from collections.abc import Callable
from functools import reduce
from operator import or_
from time import perf_counter
from types import GenericAlias
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import structs

from kubemachinery import codec
from kubemachinery.meta import ObjectMeta
from pykueue.api.kueue import Workload

TARGET_MICROSECONDS = 30.0
KEPT = 15_000


def workload() -> dict[str, Any]:
    """A Workload as an API server sends it."""
    time = "2025-01-31T09:30:00Z"

    def container(name: str, cpu: str, memory: str, gpu: int) -> dict[str, Any]:
        return {
            "name": name,
            "image": f"registry.example/team/{name}@sha256:{'0123456789abcdef' * 4}",
            "command": ["python", "-m", "train", "--epochs=90", "--batch=256"],
            "env": [{"name": "RANK", "value": "0"}, {"name": "WORLD_SIZE", "value": "8"}],
            "resources": {
                "requests": {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu},
                "limits": {"memory": memory, "nvidia.com/gpu": gpu},
            },
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "IfNotPresent",
        }

    def pod_set(name: str, count: int) -> dict[str, Any]:
        return {
            "name": name,
            "count": count,
            "template": {
                "metadata": {"labels": {"app": "train", "role": name}},
                "spec": {
                    "containers": [container(name, "8", "64Gi", 8)],
                    "restartPolicy": "Never",
                    "nodeSelector": {"zone": "a"},
                    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}}],
                },
            },
        }

    def condition(kind: str) -> dict[str, Any]:
        message = f"{kind} in ClusterQueue team-vision"
        return {
            "type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": time,
            "observedGeneration": 1,
        }  # fmt: skip

    def assignment(name: str, count: int) -> dict[str, Any]:
        return {
            "name": name,
            "count": count,
            "flavors": {"cpu": "a100", "memory": "a100", "nvidia.com/gpu": "a100"},
            "resourceUsage": {"cpu": str(8 * count), "memory": f"{64 * count}Gi", "nvidia.com/gpu": str(8 * count)},
        }

    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "job-train-resnet-3f2a1",
            "namespace": "team-vision",
            "uid": "7f0c1a52-6a8e-4a53-9c0f-2a6f0b8f5d11",
            "resourceVersion": "184467",
            "generation": 1,
            "creationTimestamp": time,
            "labels": {"kueue.x-k8s.io/job-uid": "2a6f0b8f-5d11-4a53-9c0f-7f0c1a526a8e"},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "train-resnet",
                    "uid": "2a6f0b8f-5d11-4a53-9c0f-7f0c1a526a8e",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "active": True,
            "queueName": "vision",
            "priority": 1000,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "podSets": [pod_set("launcher", 1), pod_set("worker", 8)],
        },
        "status": {
            "admission": {
                "clusterQueue": "team-vision",
                "podSetAssignments": [assignment("launcher", 1), assignment("worker", 8)],
            },
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
        },
    }


def pydantic_model(type_: type[msgspec.Struct]) -> Any:
    """The same type as a pydantic model, field for field."""
    import pydantic
    from pydantic.alias_generators import to_camel

    config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)
    make: Any = pydantic.create_model
    models: dict[type, Any] = {}

    def model(struct: type[msgspec.Struct]) -> Any:
        if struct not in models:
            fields = {member.name.rstrip("_"): (swapped(member.type) | None, None) for member in structs.fields(struct)}
            models[struct] = make(struct.__name__, __config__=config, **fields)
        return models[struct]

    def swapped(annotation: Any) -> Any:
        if get_origin(annotation) is Annotated:
            return swapped(get_args(annotation)[0])
        if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
            return model(annotation)
        arguments = [swapped(argument) for argument in get_args(annotation) if argument not in (type(None), ...)]
        if get_origin(annotation) is tuple:
            return GenericAlias(tuple, (arguments[0], ...))
        if get_origin(annotation) is dict:
            return GenericAlias(dict, tuple(arguments))
        return reduce(or_, arguments) if arguments else annotation

    return model(type_)


def microseconds(work: Callable[[], Any], seconds: float) -> float:
    """The best of several rounds: the figure least disturbed by other load."""
    timer = timeit.Timer(work)
    once = max(timer.timeit(200) / 200, 1e-9)
    number = max(100, int(seconds / 5 / once))
    return min(timer.repeat(5, number)) / number * 1e6


def kept_microseconds(data: bytes, count: int) -> float:
    """What reading one costs while all stay in memory, as in an informer: the garbage collector counts here."""
    gc.collect()
    start = perf_counter()
    kept = [codec.decode(data, Workload) for _ in range(count)]
    return (perf_counter() - start) / len(kept) * 1e6


def measure(seconds: float) -> list[dict[str, Any]]:
    data = json.dumps(workload(), separators=(",", ":")).encode()
    value = codec.decode(data, Workload)
    raw = codec.tree(data)

    class Identity(msgspec.Struct, frozen=True):
        metadata: ObjectMeta = ObjectMeta()

    work: dict[str, Callable[[], Any]] = {
        "read as Workload": lambda: codec.decode(data, Workload),
        "read its metadata only": lambda: codec.decode(data, Identity),
        "read as plain dicts (msgspec)": lambda: codec.tree(data),
        "read as plain dicts (json)": lambda: json.loads(data),
        "write a Workload": lambda: codec.encode(value),
        "write plain dicts (json)": lambda: json.dumps(raw),
    }
    try:
        model = pydantic_model(Workload)
        work["read as pydantic models"] = lambda: model.model_validate_json(data)
    except ImportError:
        print("pydantic is not installed: its row is left out", file=sys.stderr)
    figures = {name: microseconds(call, seconds) for name, call in work.items()}
    figures[f"read and keep {KEPT}, each"] = kept_microseconds(data, KEPT)
    own = figures["read as Workload"]
    return [
        {"what": name, "bytes": len(data), "microseconds": round(figure, 2), "ratio": round(figure / own, 2)}
        for name, figure in figures.items()
    ]


SMALLEST = ("--seconds=0.01",)


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure how long it takes to read and write one Workload.")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each row (default 1)")
    arguments = parser.parse_args(given)
    rows = measure(arguments.seconds)
    print(f"one Workload of {rows[0]['bytes']} bytes; target: read in {TARGET_MICROSECONDS:g} µs or less")
    for row in rows:
        print(f"{row['what']:<32} {row['microseconds']:>9.2f} µs   × {row['ratio']:.2f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"bench": "decode", "target_microseconds": TARGET_MICROSECONDS, "rows": rows}, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
