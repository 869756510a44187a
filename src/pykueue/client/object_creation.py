"""Queues and flavors from command-line options, in the syntax of kueuectl.

FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT,FLAVOR:...     quotas and limits
KEY=VALUE:EFFECT,KEY:EFFECT                           taints
KEY=VALUE:EFFECT,KEY=VALUE,KEY,:EFFECT                tolerations
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubemachinery import quantity
from kubemachinery.errors import UsageError
from kubemachinery.unstructured import Tree
from pykueue.api import kueue

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FLAVOR: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
# Options and the quota fields they set, in reading order.
LIMITS: Final = {"nominal-quota": "nominalQuota", "borrowing-limit": "borrowingLimit", "lending-limit": "lendingLimit"}


def words(texts: Iterable[str]) -> list[str]:
    """The values of a repeated, comma-separated option."""
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def cluster_queue(
    name: str,
    *,
    cohort: str = "",
    strategy: str = "",
    namespace_labels: Mapping[str, str] | None = None,
    reclaim_within_cohort: str = "",
    within_cluster_queue: str = "",
    limits: Mapping[str, Sequence[str]],
) -> Tree:
    """A ClusterQueue; it selects every namespace unless labels are given."""
    selector: Tree = {"matchLabels": dict(namespace_labels)} if namespace_labels else {}
    preemption = {"reclaimWithinCohort": reclaim_within_cohort, "withinClusterQueue": within_cluster_queue}
    spec: Tree = {
        "cohortName": cohort,
        "queueingStrategy": strategy,
        "namespaceSelector": selector,
        "preemption": {field: value for field, value in preemption.items() if value},
        "resourceGroups": resource_groups(limits),
    }
    kept = {field: value for field, value in spec.items() if value or field == "namespaceSelector"}
    return {"apiVersion": kueue.API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": kept}


def resource_groups(limits: Mapping[str, Sequence[str]]) -> list[Tree]:
    """The resource groups: flavors with the same resources form a group, in the given order."""
    flavors: dict[str, dict[str, Tree]] = {}
    for option, field in LIMITS.items():
        for flavor, amounts in _flavor_amounts(option, limits.get(option, ())):
            resources = flavors.setdefault(flavor, {name: {"name": name} for name in amounts})
            if resources.keys() != amounts.keys():
                raise UsageError(f"--{option}: flavor {flavor} must have the resources {', '.join(resources)}")
            for name, amount in amounts.items():
                resources[name][field] = amount
    groups: dict[frozenset[str], Tree] = {}
    for flavor, resources in flavors.items():
        covered = frozenset(resources)
        clash = next((other for other in groups if other & covered and other != covered), None)
        if clash is not None:
            raise UsageError(f"flavor {flavor} shares some of its resources, and not all, with an earlier flavor")
        group = groups.setdefault(covered, {"coveredResources": list(resources), "flavors": []})
        quotas = [{"nominalQuota": "0", **resource} for resource in resources.values()]
        group["flavors"].append({"name": flavor, "resources": quotas})
    return list(groups.values())


def _flavor_amounts(option: str, texts: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    seen: set[str] = set()
    for word in words(texts):
        flavor, colon, rest = word.partition(":")
        pairs = [pair.strip().partition("=") for pair in rest.split(";") if pair.strip()]
        if not colon or not _FLAVOR.fullmatch(flavor.strip()) or not pairs:
            raise UsageError(f"--{option} {word}: must be FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT")
        if flavor.strip() in seen:
            raise UsageError(f"--{option} {word}: flavor {flavor.strip()} is given twice")
        seen.add(flavor.strip())
        amounts: dict[str, str] = {}
        for name, equals, amount in pairs:
            if name in amounts:
                raise UsageError(f"--{option} {word}: resource {name} is given twice")
            try:
                quantity.parse(amount if equals else "")
            except quantity.QuantityError:
                raise UsageError(f"--{option} {word}: {name}={amount} is not a quantity") from None
            amounts[name] = amount
        yield flavor.strip(), amounts


def local_queue(name: str, namespace: str, cluster_queue_name: str) -> Tree:
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue_name},
    }


def resource_flavor(
    name: str, *, labels: Mapping[str, str], taints: Sequence[str] = (), tolerations: Sequence[str] = ()
) -> Tree:
    spec: Tree = {
        "nodeLabels": dict(labels),
        "nodeTaints": list(_taints(taints)),
        "tolerations": [_toleration(word) for word in words(tolerations)],
    }
    kept = {field: value for field, value in spec.items() if value}
    tree: Tree = {"apiVersion": kueue.API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}}
    return {**tree, "spec": kept} if kept else tree


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE pairs of an option, as a dict."""
    found = {}
    for word in words(texts):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise UsageError(f"--{option} {word}: must be KEY=VALUE")
        found[key] = value
    return found


def _taints(texts: Sequence[str]) -> Iterator[Tree]:
    seen: set[tuple[str, str]] = set()
    for word in words(texts):
        key, value, effect = _parted("node-taints", word)
        if not key or not effect:
            raise UsageError(f"--node-taints {word}: must be KEY=VALUE:EFFECT or KEY:EFFECT")
        if (key, effect) in seen:
            raise UsageError(f"--node-taints {word}: duplicate key and effect")
        seen.add((key, effect))
        yield {"key": key, "effect": effect, **({"value": value} if value is not None else {})}


def _toleration(word: str) -> Tree:
    key, value, effect = _parted("tolerations", word)
    if not key and (not effect or value is not None):
        raise UsageError(f"--tolerations {word}: must be KEY=VALUE:EFFECT, KEY:EFFECT, KEY=VALUE, KEY or :EFFECT")
    found: dict[str, Any] = {"key": key, "operator": "Exists" if value is None else "Equal"}
    found |= {"value": value, "effect": effect}
    return {field: part for field, part in found.items() if part}


def _parted(option: str, word: str) -> tuple[str, str | None, str]:
    rest, _, effect = word.partition(":")
    key, equals, value = rest.partition("=")
    if effect and effect not in EFFECTS:
        raise UsageError(f"--{option} {word}: the effect must be one of {', '.join(EFFECTS)}")
    return key, value if equals else None, effect
