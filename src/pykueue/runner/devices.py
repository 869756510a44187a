"""Assignment of devices to pods. Processes get the numbers of their devices in environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kubemachinery import quantity, unstructured
from kubemachinery.unstructured import Tree

# Resources that are shared by amount, not assigned as whole devices.
_MEASURED: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_VISIBLE: Final = {"nvidia.com/gpu": "CUDA_VISIBLE_DEVICES", "amd.com/gpu": "ROCR_VISIBLE_DEVICES"}


def counts(amounts: Mapping[str, str]) -> dict[str, int]:
    """Return the device counts among resource amounts, by resource name."""
    return {
        name: quantity.parse(text).value()
        for name, text in sorted(amounts.items())
        if name not in _MEASURED and not name.startswith("hugepages-")
    }


def requested(pod: Tree) -> dict[str, int]:
    """Return how many devices a pod requests; init containers reuse the devices of the main containers."""
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
    requested: Mapping[str, int], present: Mapping[str, int], taken: Iterable[Mapping[str, tuple[int, ...]]]
) -> dict[str, tuple[int, ...]] | None:
    """Return the lowest free device numbers; None if there are not enough."""
    held: dict[str, set[int]] = {}
    for share in taken:
        for name, numbers in share.items():
            held.setdefault(name, set()).update(numbers)
    found: dict[str, tuple[int, ...]] = {}
    for name, count in requested.items():
        free = [number for number in range(present.get(name, 0)) if number not in held.get(name, set())]
        if len(free) < count:
            return None
        found[name] = tuple(free[:count])
    return found


def part(pod: Tree, container: Tree, share: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the devices of one container out of the share of its pod. An init container gets the first ones, because
    it runs alone."""
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
    """Return the environment variables that name the devices. On a machine with GPUs a process without a share gets an
    empty list, so that it uses none."""
    variables = {}
    for name in sorted({*share, *(name for name in present if name in _VISIBLE)}):
        numbers = ",".join(map(str, share.get(name, ())))
        if name in share:
            variables[f"PYKUEUE_DEVICES_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = numbers
        if name in _VISIBLE:
            variables[_VISIBLE[name]] = numbers
    return variables
