"""Defaulting of absent fields, in two steps:

* `schema_defaults`: the defaults of the CRD's schema (`stopPolicy: None` …). An API server applies them on every read
  and write, in the requested version.
* `webhook_defaults`: what pykueue's webhook sets when an object is created, in v1beta2 only.

`apply` is both, in the order of a creation; `for_plan` defaults a manifest that no server has stored.
Any JSON is accepted; a value of an unexpected type passes unchanged. Defaulting is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubemachinery import unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import conversion, labels, own_schemas
from pykueue.api.validation.gates import ValidationGates

_GATES: Final = ValidationGates()


def schema_defaults(tree: Tree) -> Tree:
    """`tree` with the defaults of its schema; unchanged when its kind is not one of pykueue's."""
    schema = own_schemas.find(tree)
    defaulted = tree if schema is None else schema.default(tree)
    return defaulted if isinstance(defaulted, dict) else tree


def webhook_defaults(tree: Tree, gates: ValidationGates = _GATES) -> Tree:
    """`tree` with the defaults of the webhook on creation; objects of the older version are unchanged."""
    if tree.get("apiVersion") != f"{conversion.GROUP}/{conversion.HUB}":
        return tree
    default = _BY_KIND.get(unstructured.text(tree.get("kind")))
    return tree if default is None else default(tree, gates)


def apply(tree: Tree, gates: ValidationGates = _GATES) -> Tree:
    """`tree` as it is stored when it is created."""
    return webhook_defaults(schema_defaults(tree), gates)


def for_plan(tree: Tree) -> Tree:
    """`tree` as if it had been created on a server and read back in v1beta2."""
    return apply(conversion.convert(schema_defaults(tree), conversion.HUB))


def _keep_while_in_use(tree: Tree) -> Tree:
    finalizers = unstructured.get(tree, "metadata", "finalizers") or []
    if not isinstance(finalizers, list) or labels.RESOURCE_IN_USE_FINALIZER in finalizers:
        return tree
    return unstructured.put(tree, ("metadata", "finalizers"), [*finalizers, labels.RESOURCE_IN_USE_FINALIZER])


def _with_spec(tree: Tree) -> Tree:
    """An object without a spec gets an empty one, with the defaults of the schema."""
    return tree if "spec" in tree else schema_defaults({**tree, "spec": {}})


def _cluster_queue(tree: Tree, gates: ValidationGates) -> Tree:
    """A label requirement without a key or an operator gets an empty one, so that validation refuses its value."""
    demand = unstructured.each(lambda entry: {"key": "", "operator": "", **entry})
    tree = unstructured.changed(_keep_while_in_use(_with_spec(tree)), ("spec", "resourceGroups"), _quota_of_nothing)
    return unstructured.changed(tree, ("spec", "namespaceSelector", "matchExpressions"), demand)


def _quota_of_nothing(groups: Any) -> Any:
    """A resource without a quota gets the zero that the schema requires."""
    quota = unstructured.each(lambda entry: {"nominalQuota": "0", **entry})
    flavor = unstructured.each(lambda entry: unstructured.changed(entry, ("resources",), quota))
    return unstructured.each(lambda group: unstructured.changed(group, ("flavors",), flavor))(groups)


def _resource_flavor(tree: Tree, gates: ValidationGates) -> Tree:
    """A taint without a key or an effect gets an empty one, so that validation refuses its value."""
    taint = unstructured.each(lambda entry: {"key": "", "effect": "", **entry})
    return unstructured.changed(_keep_while_in_use(_with_spec(tree)), ("spec", "nodeTaints"), taint)


def _workload(tree: Tree, gates: ValidationGates) -> Tree:
    """Without partial admission `minCount` is removed."""
    if gates.partial_admission:
        return tree
    return unstructured.changed(
        tree, ("spec", "podSets"), unstructured.each(lambda entry: unstructured.without(entry, ("minCount",)))
    )


_BY_KIND: Final[dict[str, Callable[[Tree, ValidationGates], Tree]]] = {
    "ClusterQueue": _cluster_queue,
    "ResourceFlavor": _resource_flavor,
    "Workload": _workload,
}
