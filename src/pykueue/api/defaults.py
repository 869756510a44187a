"""What an absent field means. Two parties fill it in, one after the other:

* `schema_defaults`: what the CRD's schema says (`stopPolicy: None` …). An API server does this on every read and write,
  in the version that it is asked in.
* `webhook_defaults`: what our webhook adds when an object is created, in v1beta2 only.

`apply` is both, as a creation meets them; `for_plan` is what becomes of a manifest that no server has seen.
Any JSON is accepted; what is not shaped as expected passes as it is. Doing it twice changes nothing.
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
    """`tree` with what its schema says of absent fields; as it is when it has no schema of ours."""
    schema = own_schemas.find(tree)
    defaulted = tree if schema is None else schema.default(tree)
    return defaulted if isinstance(defaulted, dict) else tree


def webhook_defaults(tree: Tree, gates: ValidationGates = _GATES) -> Tree:
    """`tree` with what our webhook adds on creation; objects of the older version are none of its business."""
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
    """An object without a spec gets an empty one, and with it what the schema says of absent fields."""
    return tree if "spec" in tree else schema_defaults({**tree, "spec": {}})


def _cluster_queue(tree: Tree, gates: ValidationGates) -> Tree:
    """A demand on labels without a key or an operator is written with an empty one, to be refused for what it says."""
    demand = unstructured.each(lambda entry: {"key": "", "operator": "", **entry})
    tree = unstructured.changed(_keep_while_in_use(_with_spec(tree)), ("spec", "resourceGroups"), _quota_of_nothing)
    return unstructured.changed(tree, ("spec", "namespaceSelector", "matchExpressions"), demand)


def _quota_of_nothing(groups: Any) -> Any:
    """A resource that is listed without a quota has none: the schema wants the zero written out."""
    quota = unstructured.each(lambda entry: {"nominalQuota": "0", **entry})
    flavor = unstructured.each(lambda entry: unstructured.changed(entry, ("resources",), quota))
    return unstructured.each(lambda group: unstructured.changed(group, ("flavors",), flavor))(groups)


def _resource_flavor(tree: Tree, gates: ValidationGates) -> Tree:
    """A taint without a key or an effect is written with an empty one, so that it is refused for what it says."""
    taint = unstructured.each(lambda entry: {"key": "", "effect": "", **entry})
    return unstructured.changed(_keep_while_in_use(_with_spec(tree)), ("spec", "nodeTaints"), taint)


def _workload(tree: Tree, gates: ValidationGates) -> Tree:
    """Without partial admission nobody may start with fewer pods than asked for."""
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
