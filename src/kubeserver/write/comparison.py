"""Comparison of two versions of an object."""

from __future__ import annotations

from typing import Any

from kubemachinery import patches
from kubeserver.protocol import bodies
from kubeserver.registry.strategy import Resource, Tree


def equal(new: Any, old: Any) -> bool:
    """Whether two values are equal as JSON. In Python True == 1 == 1.0, so only a negative answer is final."""
    if new is old:
        return True
    return bool(new == old) and (bodies.encode(new) == bodies.encode(old) or patches.same(new, old))


def sharing(sent: Tree, old: Tree) -> Tree:
    """Return what was sent, with every unchanged part taken from `old`."""
    return {key: old[key] if key in old and equal(part, old[key]) else part for key, part in sent.items()}


def same(new: Tree, old: Tree) -> bool:
    """Whether a write would change nothing but the times in managedFields."""
    if _differ(new, old, {"metadata"}):
        return False
    return equal(_comparable(new["metadata"]), _comparable(old["metadata"]))


def spec_changed(resource: Resource, new: Tree, old: Tree, subresource: str = "") -> bool:
    """Whether a change increments the generation: status does not, of metadata only what the kind names."""
    counted = () if subresource else resource.generation_metadata
    if any(not equal(new["metadata"].get(key), old["metadata"].get(key)) for key in counted):
        return True
    return _differ(new, old, {"metadata", "apiVersion", "kind"} | ({"status"} if resource.has_status else set()))


def _differ(new: Tree, old: Tree, aside: set[str]) -> bool:
    return any(not equal(new.get(key), old.get(key)) for key in (new.keys() | old.keys()) - aside)


def _comparable(details: Tree) -> Tree:
    owners = [{**owner, "time": ""} for owner in details.get("managedFields") or ()]
    return {**details, "managedFields": owners, "resourceVersion": ""}
