"""PriorityClasses and RuntimeClasses, and the priorities that every cluster has."""

from __future__ import annotations

from typing import Final

from kubemachinery import meta
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, forbidden, invalid, named, required

# Users stay below this; what is above keeps the cluster itself alive.
HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_SYSTEM: Final = "system-"

SYSTEM_CLASSES: Final[tuple[Tree, ...]] = tuple(
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": description,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for name, value, description in (
        ("system-node-critical", 2_000_001_000, "For pods without which a node does not work."),
        ("system-cluster-critical", 2_000_000_000, "For pods without which the cluster does not work."),
    )
)
_KNOWN: Final = {row["metadata"]["name"]: row for row in SYSTEM_CLASSES}


def validate_priority_class(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    if old is None:
        yield from checks.enums("scheduling.v1.PriorityClass", new)
    name, value = new["metadata"].get("name", ""), new.get("value", 0)
    if name.startswith(_SYSTEM):
        known = _KNOWN.get(name)
        if known is None or known["value"] != value:
            yield forbidden("metadata.name", f"names that begin with {_SYSTEM} belong to the cluster itself")
    elif value > HIGHEST_USER_PRIORITY:
        yield forbidden("value", f"more than {HIGHEST_USER_PRIORITY} is for the cluster itself")
    if old is not None:
        if old.get("value", 0) != value:
            yield forbidden("value", "stays as it is: pods have it already")
        if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
            yield invalid("preemptionPolicy", new.get("preemptionPolicy"), checks.IMMUTABLE)


def validate_runtime_class(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    handler = new.get("handler", "")
    if not handler:
        yield required("handler")
    else:
        yield from named(meta.check_label_name, handler, "handler")
    yield from checks.amounts(new.get("overhead", {}).get("podFixed", {}), "overhead.podFixed")
    yield from checks.labels(new.get("scheduling", {}).get("nodeSelector"), "scheduling.nodeSelector")
    if old is not None:
        yield from checks.immutable(new, old, "", "handler")
