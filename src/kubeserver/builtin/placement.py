"""Validation of selectors, tolerations, affinities and topology spread constraints of pods."""

from __future__ import annotations

from kubemachinery import meta, selectors
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, forbidden, invalid, named, not_supported, required


def validate(spec: Tree, path: str) -> Errors:
    yield from checks.labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    gates = spec.get("schedulingGates", ())
    for index, gate in enumerate(gates):
        place = f"{path}.schedulingGates[{index}]"
        yield from named(meta.check_qualified_name, gate.get("name", ""), place)
    yield from checks.unique((f"{path}.schedulingGates[{i}]", gate.get("name")) for i, gate in enumerate(gates))
    if gates and spec.get("nodeName"):
        yield forbidden(f"{path}.nodeName", "a pod with scheduling gates is on no node yet")
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from _validate_toleration(toleration, f"{path}.tolerations[{index}]")
    affinity = spec.get("affinity", {})
    node = affinity.get("nodeAffinity", {})
    place = f"{path}.affinity.nodeAffinity"
    demanded = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if demanded is not None:
        yield from _validate_node_selector(demanded, f"{place}.requiredDuringSchedulingIgnoredDuringExecution")
    for index, preferred in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution", ())):
        at = f"{place}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _validate_weight(preferred, at)
        yield from _validate_term(preferred.get("preference", {}), f"{at}.preference")
    for field in ("podAffinity", "podAntiAffinity"):
        yield from _validate_pod_affinity(affinity.get(field, {}), f"{path}.affinity.{field}")
    for index, spread in enumerate(spec.get("topologySpreadConstraints", ())):
        at = f"{path}.topologySpreadConstraints[{index}]"
        if spread.get("maxSkew", 0) <= 0:
            yield invalid(f"{at}.maxSkew", spread.get("maxSkew", 0), "is at least 1")
        if not spread.get("topologyKey"):
            yield required(f"{at}.topologyKey", "must name the topology domain to spread over")
        if not spread.get("whenUnsatisfiable"):
            yield not_supported(f"{at}.whenUnsatisfiable", "", ("DoNotSchedule", "ScheduleAnyway"))
        yield from selectors.check(spread.get("labelSelector"), f"{at}.labelSelector")


def _validate_toleration(toleration: Tree, path: str) -> Errors:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        yield from named(meta.check_qualified_name, key, f"{path}.key")
    elif operator != "Exists":
        yield invalid(f"{path}.operator", operator, "without a key only Exists makes sense")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield invalid(f"{path}.effect", toleration.get("effect", ""), "tolerationSeconds belong to NoExecute")
    if operator in ("", "Equal"):
        for message in meta.check_label_value(toleration.get("value", "")):
            yield invalid(f"{path}.operator", toleration.get("value", ""), message)
    elif operator == "Exists" and toleration.get("value"):
        yield invalid(f"{path}.operator", toleration["value"], "Exists takes no value")


def _validate_node_selector(selector: Tree, path: str) -> Errors:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "needs a term")
    for index, term in enumerate(terms):
        yield from _validate_term(term, f"{path}.nodeSelectorTerms[{index}]")


def _validate_term(term: Tree, path: str) -> Errors:
    for index, expression in enumerate(term.get("matchExpressions", ())):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or ()
        if operator in ("In", "NotIn") and not values:
            yield required(f"{at}.values", "In and NotIn need values")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield forbidden(f"{at}.values", "Exists and DoesNotExist take no values")
        elif operator in ("Gt", "Lt") and len(values) != 1:
            yield required(f"{at}.values", "Gt and Lt need one value")
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
            yield invalid(f"{at}.operator", operator, "no selector knows this operator")
        yield from named(meta.check_qualified_name, expression.get("key", ""), f"{at}.key")


def _validate_weight(preferred: Tree, path: str) -> Errors:
    if not 1 <= preferred.get("weight", 0) <= 100:
        yield invalid(f"{path}.weight", preferred.get("weight", 0), "is a weight from 1 to 100")


def _validate_pod_affinity(affinity: Tree, path: str) -> Errors:
    for index, term in enumerate(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())):
        yield from _validate_pod_term(term, f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]")
    for index, preferred in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())):
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _validate_weight(preferred, at)
        yield from _validate_pod_term(preferred.get("podAffinityTerm", {}), f"{at}.podAffinityTerm")


def _validate_pod_term(term: Tree, path: str) -> Errors:
    yield from selectors.check(term.get("labelSelector"), f"{path}.labelSelector")
    if not term.get("topologyKey"):
        yield required(f"{path}.topologyKey", "must name the topology domain to spread over")
    yield from named(meta.check_qualified_name, term.get("topologyKey", ""), f"{path}.topologyKey")
