"""Which devices a pod gets, and how its processes learn of them: by number, in environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kubemachinery import quantity, unstructured
from kubemachinery.unstructured import Tree

# Resources that are no devices: shared by measure, not handed out one by one.
_MEASURED: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_VISIBLE: Final = {"nvidia.com/gpu": "CUDA_VISIBLE_DEVICES", "amd.com/gpu": "ROCR_VISIBLE_DEVICES"}


def counts(amounts: Mapping[str, str]) -> dict[str, int]:
    """The devices among some amounts of resources, by resource."""
    return {
        name: quantity.parse(text).value()
        for name, text in sorted(amounts.items())
        if name not in _MEASURED and not name.startswith("hugepages-")
    }


def wanted(pod: Tree) -> dict[str, int]:
    """How many devices a pod asks for; init containers use those of the others."""
    total: dict[str, int] = {}
    for _, container in unstructured.entries(pod, "spec", "containers"):
        for name, count in _of(container).items():
            total[name] = total.get(name, 0) + count
    for _, container in unstructured.entries(pod, "spec", "initContainers"):
        for name, count in _of(container).items():
            total[name] = max(total.get(name, 0), count)
    return total


def _of(container: Mapping[str, object]) -> dict[str, int]:
    return counts(unstructured.texts(unstructured.get(container, "resources", "limits")))


def assign(
    asked: Mapping[str, int], present: Mapping[str, int], taken: Iterable[Mapping[str, tuple[int, ...]]]
) -> dict[str, tuple[int, ...]] | None:
    """The lowest numbers that nobody has; None where there are not enough."""
    held: dict[str, set[int]] = {}
    for share in taken:
        for name, numbers in share.items():
            held.setdefault(name, set()).update(numbers)
    found: dict[str, tuple[int, ...]] = {}
    for name, count in asked.items():
        free = [number for number in range(present.get(name, 0)) if number not in held.get(name, set())]
        if len(free) < count:
            return None
        found[name] = tuple(free[:count])
    return found


def part(pod: Tree, container: Tree, share: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """What one container gets of its pod's share. An init container has the first ones, for it runs alone."""
    before: dict[str, int] = {}
    for _, other in unstructured.entries(pod, "spec", "containers"):
        if other.get("name") == container.get("name"):
            break
        for name, count in _of(other).items():
            before[name] = before.get(name, 0) + count
    else:
        before.clear()
    return {
        name: share.get(name, ())[before.get(name, 0) : before.get(name, 0) + count]
        for name, count in _of(container).items()
    }


def environment(share: Mapping[str, tuple[int, ...]], present: Mapping[str, int]) -> dict[str, str]:
    """What tells a process its share. Where the machine has graphics processors, no share means none of them."""
    told = {}
    for name in sorted({*share, *(name for name in present if name in _VISIBLE)}):
        numbers = ",".join(map(str, share.get(name, ())))
        if name in share:
            told[f"PYKUEUE_DEVICES_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = numbers
        if name in _VISIBLE:
            told[_VISIBLE[name]] = numbers
    return told
