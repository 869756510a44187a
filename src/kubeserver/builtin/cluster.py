"""Namespaces, Nodes and Leases."""

from __future__ import annotations

from typing import Final

from kubemachinery import meta
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, invalid, named, required

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
FINALIZER: Final = "kubernetes"
_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


# --- Namespace --------------------------------------------------------------------------------------------------------


def on_create_namespace(namespace: Tree) -> None:
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace["spec"].get("finalizers", [])
    if FINALIZER not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, FINALIZER]
    _wear_name(namespace)


def on_update_namespace(new: Tree, old: Tree) -> None:
    new["spec"] = old["spec"]
    new["status"] = old["status"]
    _wear_name(new)


def _wear_name(namespace: Tree) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), NAMESPACE_LABEL: metadata.get("name", "")}


def validate_namespace(new: Tree, _old: Tree | None, _subresource: str) -> Errors:
    for finalizer in new.get("spec", {}).get("finalizers", ()):
        path = "spec.finalizers"
        yield from named(meta.check_qualified_name, finalizer, path)
        if "/" not in finalizer and finalizer != FINALIZER:
            yield invalid(path, finalizer, "must have a domain, as in example.com/name")


# --- Node -------------------------------------------------------------------------------------------------------------


def on_create_node(node: Tree) -> None:
    # The node is not known to be ready; its controller removes this taint.
    taints = node["spec"].get("taints", [])
    if not any(taint.get("key") == _NOT_READY["key"] for taint in taints):
        node["spec"]["taints"] = [*taints, dict(_NOT_READY)]


def validate_node(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    yield from checks.enums("core.v1.Node", new)
    taints = new["spec"].get("taints", ())
    for index, taint in enumerate(taints):
        path = f"spec.taints[{index}]"
        yield from named(meta.check_qualified_name, taint.get("key", ""), f"{path}.key")
        yield from named(meta.check_label_value, taint.get("value", ""), f"{path}.value")
        if not taint.get("effect"):
            yield required(f"{path}.effect")
    yield from checks.unique(
        (f"spec.taints[{index}]", (taint.get("key"), taint.get("effect"))) for index, taint in enumerate(taints)
    )
    for field in ("capacity", "allocatable"):
        yield from checks.amounts(new.get("status", {}).get(field, {}), f"status.{field}", dotted=True)
    if old is not None:
        for field in ("providerID", "podCIDR"):
            before, after = old["spec"].get(field), new["spec"].get(field)
            if before and after != before:
                yield checks.forbidden(f"spec.{field}", "stays as it was set first")


# --- Lease ------------------------------------------------------------------------------------------------------------


def validate_lease(new: Tree, _old: Tree | None, _subresource: str) -> Errors:
    spec = new["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be at least 1")
    if spec.get("leaseTransitions", 0) < 0:
        yield invalid("spec.leaseTransitions", spec["leaseTransitions"], "must not be negative")
    if spec.get("preferredHolder") and not spec.get("strategy"):
        yield checks.forbidden("spec.preferredHolder", "goes with a strategy")
