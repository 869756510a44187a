"""Conditions of pods and Jobs as JSON trees. `lastTransitionTime` changes only when the status of a condition does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kubemachinery import meta, unstructured
from kubemachinery.unstructured import Tree


class ConditionUpdate(NamedTuple):
    """A condition to set. `at` is when its status changed; None stands for now."""

    type: str
    holds: bool
    reason: str = ""
    message: str = ""
    at: int | None = None


def merge(status: Mapping[str, Any], updates: Iterable[ConditionUpdate], now: int) -> list[Tree]:
    """Return the conditions of a status with the updates applied."""
    found = {unstructured.text(each.get("type")): dict(each) for _, each in unstructured.entries(status, "conditions")}
    for one in updates:
        before = found.get(one.type, {})
        truth = "True" if one.holds else "False"
        changed = before.get("status") != truth
        moment = meta.format_time(now if one.at is None else one.at) if changed else before.get("lastTransitionTime")
        found[one.type] = {
            "type": one.type,
            "status": truth,
            "lastProbeTime": before.get("lastProbeTime"),
            "lastTransitionTime": moment,
            **({"reason": one.reason} if one.reason else {}),
            **({"message": one.message} if one.message else {}),
        }
    return list(found.values())


def find_true(status: Mapping[str, Any], type_: str) -> Mapping[str, Any] | None:
    """Return the condition of that type if its status is True."""
    for _, each in unstructured.entries(status, "conditions"):
        if each.get("type") == type_ and each.get("status") == "True":
            return each
    return None
