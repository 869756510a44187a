"""Decisions of the Deployment controller: a Deployment and its ReplicaSets in; changes of ReplicaSets out.

A template has one ReplicaSet. A new template is rolled out by scaling its ReplicaSet up and the older ones down, within
`maxSurge` and `maxUnavailable`; with strategy Recreate, after the older ones have no pods. Not implemented:
`progressDeadlineSeconds` (a rollout that makes no progress is not reported), proportional scaling of a rollout that is
under way, and adoption of ReplicaSets that the Deployment did not create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.runner import conditions, replica_set, replicas
from pykueue.runner.conditions import ConditionUpdate

KIND: Final = Kind("apps", "Deployment", "deployments", (Version("v1", storage=True),))
HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"


class DeploymentPlan(msgspec.Struct, frozen=True):
    """What to do, in this order: write the status, create and scale ReplicaSets, delete old ones."""

    status: Tree
    create: Tree | None = None
    # Each with its new number of replicas.
    scale: tuple[tuple[Tree, int], ...] = ()
    delete: tuple[Tree, ...] = ()


class _Set(ObjectView):
    """A ReplicaSet of the Deployment."""

    @property
    def replicas(self) -> int:
        return replicas.number(self.spec, "replicas", 1)

    @property
    def available(self) -> int:
        return unstructured.integer(self.status.get("availableReplicas")) or 0

    @property
    def has_pods(self) -> bool:
        return bool(self.replicas or self.status.get("replicas"))

    @property
    def revision(self) -> int:
        written = self.annotations.get(REVISION, "")
        return int(written) if written.isdigit() else 0

    @property
    def template(self) -> Any:
        """The template of the Deployment that it was made from."""
        return unstructured.without(dict(unstructured.mapping(self.spec.get("template"))), ("metadata", "labels", HASH))


def decide(tree: Tree, sets: Sequence[Tree], now: int) -> DeploymentPlan:
    """Return the plan for a Deployment; `sets` are the ReplicaSets that it owns."""
    owner = ObjectView(tree)
    owned = sorted(map(_Set, sets), key=lambda each: (each.revision, each.name))
    template = owner.spec.get("template")
    new = next((each for each in reversed(owned) if each.template == template), None)
    old = [each for each in owned if each is not new]
    status = _status(owner, owned, new, now)
    if owner.is_deleting:
        return DeploymentPlan(status)
    wanted = replicas.number(owner.spec, "replicas", 1)
    if owner.spec.get("paused") is True:
        running = [each for each in owned if each.replicas] or owned[-1:]
        return DeploymentPlan(status, scale=_scaled([(running[0], wanted)] if len(running) == 1 else []))
    if new is None:
        revision = 1 + max((each.revision for each in owned), default=0)
        return DeploymentPlan(status, create=_replica_set(owner, revision, 0 if old else wanted))
    recreates = unstructured.get(owner.spec, "strategy", "type") == "Recreate"
    changes = _recreated(new, old, wanted) if recreates else _rolled(owner, new, old, wanted)
    limit = replicas.number(owner.spec, "revisionHistoryLimit", 10)
    spent = [each.tree for each in old if not each.has_pods]
    return DeploymentPlan(status, scale=_scaled(changes), delete=tuple(spent[: max(0, len(spent) - limit)]))


def _scaled(changes: list[tuple[_Set, int]]) -> tuple[tuple[Tree, int], ...]:
    return tuple((each.tree, count) for each, count in changes if each.replicas != count)


def _recreated(new: _Set, old: list[_Set], wanted: int) -> list[tuple[_Set, int]]:
    if any(each.has_pods for each in old):
        return [(each, 0) for each in old]
    return [(new, wanted)]


def _rolled(owner: ObjectView, new: _Set, old: list[_Set], wanted: int) -> list[tuple[_Set, int]]:
    """One step of a rolling update: up as far as `maxSurge` allows, or else down as far as `maxUnavailable` does."""
    running = [each for each in old if each.replicas]
    if not running or new.replicas > wanted:
        return [(new, wanted)]
    surge, unavailable = _limits(owner, wanted)
    total = sum(each.replicas for each in (new, *running))
    if new.replicas < wanted and total < wanted + surge:
        return [(new, min(wanted, new.replicas + wanted + surge - total))]
    least = wanted - unavailable
    allowed = total - least - (new.replicas - new.available)
    changes: list[tuple[_Set, int]] = []
    left: dict[str, int] = {}
    # Pods that are not available end first: they serve nothing, and may wait for quota that the new ones need.
    for each in running:
        removed = min(max(allowed, 0), max(0, each.replicas - each.available))
        allowed -= removed
        left[each.name] = each.replicas - removed
    spare = sum(each.available for each in (new, *running)) - least
    for each in running:
        removed = min(max(spare, 0), max(allowed, 0), left[each.name], each.available)
        spare, allowed = spare - removed, allowed - removed
        changes.append((each, left[each.name] - removed))
    return changes


def _limits(owner: ObjectView, wanted: int) -> tuple[int, int]:
    rolling = unstructured.mapping(unstructured.get(owner.spec, "strategy", "rollingUpdate"))
    surge = replicas.share(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = min(wanted, replicas.share(rolling.get("maxUnavailable", "25%"), wanted, up=False))
    return surge, unavailable if surge or unavailable else 1


def _replica_set(owner: ObjectView, revision: int, count: int) -> Tree:
    template = dict(unstructured.mapping(owner.spec.get("template")))
    digits = replicas.template_hash(template)
    labels = {**unstructured.texts(unstructured.get(template, "metadata", "labels")), HASH: digits}
    selector = dict(unstructured.mapping(owner.spec.get("selector")))
    kept = {key: value for key, value in owner.annotations.items() if not key.startswith("kubectl.kubernetes.io/")}
    spec: Tree = {
        "replicas": count,
        "selector": {**selector, "matchLabels": {**unstructured.texts(selector.get("matchLabels")), HASH: digits}},
        "template": unstructured.put(template, ("metadata", "labels"), labels),
    }
    if owner.spec.get("minReadySeconds"):
        spec["minReadySeconds"] = owner.spec["minReadySeconds"]
    return {
        "apiVersion": replica_set.KIND.api_version,
        "kind": replica_set.KIND.kind,
        "metadata": {
            "name": f"{owner.name}-{digits}",
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": {**kept, REVISION: str(revision)},
            "ownerReferences": [replicas.reference(owner, KIND)],
        },
        "spec": spec,
    }


def _status(owner: ObjectView, owned: Sequence[_Set], new: _Set | None, now: int) -> Tree:
    def total(name: str, among: Sequence[_Set]) -> int:
        return sum(unstructured.integer(each.status.get(name)) or 0 for each in among)

    wanted = replicas.number(owner.spec, "replicas", 1)
    available, updated = total("availableReplicas", owned), total("replicas", [new] if new else [])
    _, unavailable = _limits(owner, wanted)
    is_available = available >= wanted - unavailable
    is_complete = updated == wanted == available == total("replicas", owned)
    found: Tree = {
        "replicas": total("replicas", owned),
        "updatedReplicas": updated,
        "readyReplicas": total("readyReplicas", owned),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(each.replicas for each in owned) - available),
        "observedGeneration": owner.generation,
    }
    updates = (
        ConditionUpdate(
            "Available",
            is_available,
            "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            f"Deployment {'has' if is_available else 'does not have'} minimum availability.",
        ),
        ConditionUpdate(
            "Progressing",
            True,
            "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated",
            "The rollout is complete." if is_complete else "The rollout is in progress.",
        ),
    )
    merged = conditions.merge(owner.status, updates, now)
    found["conditions"] = [
        {key: value for key, value in each.items() if key != "lastProbeTime"}
        | {"lastUpdateTime": each["lastTransitionTime"]}
        for each in merged
    ]
    return found
