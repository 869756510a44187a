"""Pods and pod templates: fields that the server sets, and validation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

from kubemachinery import meta, quantity, status
from kubeserver.builtin import checks, containers, placement
from kubeserver.builtin.checks import Errors, Tree, forbidden, invalid, named, required

_INT32_MAX: Final = 2**31 - 1
# Pods stay bound to a node in trouble for this long, unless they have tolerations of their own.
_TROUBLES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TROUBLE_SECONDS: Final = 300
_UPDATABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (more of them)",
    "`spec.terminationGracePeriodSeconds` (from below zero to 1)",
)


# --- what the server sets ---------------------------------------------------------------------------------------------


def on_create(pod: Tree) -> None:
    spec = pod["spec"]
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"].get("creationTimestamp"),
                "reason": "SchedulingGated",
                "message": "the pod waits for its scheduling gates to be removed",
            }
        ]
    if "priority" not in spec:
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec["priority"] = 0
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    tolerate_troubles(spec)


def tolerate_troubles(spec: Tree) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for trouble in _TROUBLES:
        if not any(_tolerates(toleration, trouble) for toleration in tolerations):
            tolerations.append(
                {
                    "key": trouble,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TROUBLE_SECONDS,
                }
            )


def _tolerates(toleration: Tree, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def on_update(new: Tree, old: Tree) -> None:
    new["status"] = old["status"]
    tolerate_troubles(new["spec"])
    # What was resolved when the pod came is not resolved again.
    for field in ("priority", "preemptionPolicy"):
        if field not in new["spec"] and field in old["spec"]:
            new["spec"][field] = old["spec"][field]


def on_status(new: Tree, old: Tree) -> None:
    # Once reckoned, the class stays; clients that do not know it leave it out.
    status = new.setdefault("status", {})
    if "qosClass" not in status and "qosClass" in old.get("status", {}):
        status["qosClass"] = old["status"]["qosClass"]


def bind(pod: Tree, binding: Tree, now: str) -> None:
    """Bind the pod to a node; a binding never changes. The pod gets its labels and annotations, and is scheduled."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    target = binding.get("target")
    node = target.get("name") if isinstance(target, dict) else None
    if not node or not isinstance(node, str):
        raise status.invalid("", "Binding", name, [required("target.name", "a pod is bound to a Node")])
    if pod["metadata"].get("deletionTimestamp"):
        raise status.conflict("", "pods/binding", name, "the pod is being deleted")
    if spec.get("schedulingGates"):
        raise status.conflict("", "pods/binding", name, "the pod has scheduling gates")
    if spec.get("nodeName"):
        raise status.conflict("", "pods/binding", name, f"the pod is on node {spec['nodeName']} already")
    spec["nodeName"] = node
    for field in ("labels", "annotations"):
        if added := binding["metadata"].get(field):
            pod["metadata"][field] = {**pod["metadata"].get(field, {}), **added}
    conditions = pod["status"].setdefault("conditions", [])
    conditions[:] = [each for each in conditions if each.get("type") != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})


def quality_of_service(spec: Tree) -> str:
    """Return the QoS class: Guaranteed where every container has limits for both resources, equal to its requests."""
    asks = False
    guaranteed = True
    for container in _containers(spec):
        resources = container.get("resources", {})
        limits, requests = _counted(resources.get("limits")), _counted(resources.get("requests"))
        asks = asks or bool(limits or requests)
        wanted = {**limits, **requests}
        guaranteed = guaranteed and limits.keys() == {"cpu", "memory"} and wanted == limits
    if not asks:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _counted(resources: dict[str, str] | None) -> dict[str, quantity.Quantity]:
    found = {name: quantity.parse(text) for name, text in (resources or {}).items() if name in ("cpu", "memory")}
    return {name: amount for name, amount in found.items() if amount.sign > 0}


def _containers(spec: Tree) -> Iterator[Tree]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


# --- validation of a specification ------------------------------------------------------------------------------------


def validate_pod_template(new: Tree, _old: Tree | None, _subresource: str) -> Errors:
    yield from checks.enums("core.v1.PodTemplate", new)
    yield from validate_template(new["template"], "template")


def validate_template(template: Tree, path: str) -> Errors:
    metadata = template["metadata"]
    yield from checks.labels(metadata.get("labels"), f"{path}.labels")
    for key in metadata.get("annotations", {}):
        yield from named(meta.check_qualified_name, key.lower(), f"{path}.annotations")
    yield from validate_spec(template["spec"], f"{path}.spec")
    for index, container in enumerate(template["spec"].get("ephemeralContainers", ())):
        why = f"{container.get('name', '')!r} cannot be part of a template"
        yield forbidden(f"{path}.spec.ephemeralContainers[{index}]", why)


def validate_spec(spec: Tree, path: str) -> Errors:
    yield from containers.validate_volumes(spec.get("volumes", ()), f"{path}.volumes")
    yield from containers.validate(spec, path)
    yield from placement.validate(spec, path)
    if "activeDeadlineSeconds" in spec:
        yield from checks.between(spec["activeDeadlineSeconds"], 1, _INT32_MAX, f"{path}.activeDeadlineSeconds")
    for field, check in (
        ("serviceAccountName", meta.check_subdomain_name),
        ("nodeName", meta.check_subdomain_name),
        ("priorityClassName", meta.check_subdomain_name),
        ("runtimeClassName", meta.check_subdomain_name),
        ("hostname", meta.check_label_name),
        ("subdomain", meta.check_label_name),
    ):
        if spec.get(field):
            yield from named(check, spec[field], f"{path}.{field}")
    for index, claim in enumerate(spec.get("resourceClaims", ())):
        place = f"{path}.resourceClaims[{index}]"
        if not claim.get("name"):
            yield required(f"{place}.name")
        else:
            yield from named(meta.check_label_name, claim["name"], f"{place}.name")
        sources = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if field in claim]
        if len(sources) != 1:
            why = "names a claim or a template for one, and not both"
            yield invalid(place, claim, why)
    yield from checks.unique(
        (f"{path}.resourceClaims[{index}].name", claim.get("name"))
        for index, claim in enumerate(spec.get("resourceClaims", ()))
    )


# --- validation of a pod ----------------------------------------------------------------------------------------------


def validate(new: Tree, old: Tree | None, subresource: str) -> Errors:
    if subresource == "status" and old is not None:
        yield from _validate_status(new, old)
        return
    if subresource == "binding":
        return
    yield from checks.enums("core.v1.Pod", new)
    yield from validate_spec(new["spec"], "spec")
    if old is not None:
        yield from _validate_update(new["spec"], old["spec"])


def _validate_status(new: Tree, old: Tree) -> Errors:
    before, after = old.get("status", {}), new.get("status", {})
    yield from checks.immutable(after, before, "status", "qosClass")
    nominated = after.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        yield from named(meta.check_subdomain_name, nominated, "status.nominatedNodeName")
    # A container that has ended stays so, where nothing restarts it.
    if old["spec"].get("restartPolicy") in ("Never", "OnFailure"):
        ended = {
            status.get("name"): status["state"]["terminated"]
            for status in before.get("containerStatuses", ())
            if "terminated" in status.get("state", {})
        }
        for index, status in enumerate(after.get("containerStatuses", ())):
            last = ended.get(status.get("name"))
            if last is None or "terminated" in status.get("state", {}):
                continue
            if old["spec"]["restartPolicy"] == "Never" or last.get("exitCode") == 0:
                yield forbidden(f"status.containerStatuses[{index}].state", "has ended and may not go on")


def _validate_update(new: Tree, old: Tree) -> Errors:
    """Refuse changes of a pod but of a few fields: these are reset to their old values, and the rest compared."""
    for field in ("containers", "initContainers"):
        if len(new.get(field) or ()) != len(old.get(field) or ()):
            yield forbidden(f"spec.{field}", "the containers of a pod stay the same in number")
            return
    yield from _validate_deadline(new, old)
    before = old.get("tolerations", [])
    after = new.get("tolerations", [])
    for toleration in before:
        if not any(_extends(one, toleration) for one in after):
            yield forbidden("spec.tolerations", "a toleration that is there stays, and only its seconds may change")
            break
    old_gates = {gate.get("name") for gate in old.get("schedulingGates", ())}
    for index, gate in enumerate(new.get("schedulingGates", ())):
        if gate.get("name") not in old_gates:
            yield forbidden(
                f"spec.schedulingGates[{index}].name",
                f"scheduling gates can only be taken away, and {gate.get('name')!r} is new",
            )
    if new == old:
        return
    rest = copy.deepcopy(new)
    for field in ("containers", "initContainers"):
        for container, was in zip(rest.get(field) or (), old.get(field) or (), strict=True):
            container["image"] = was.get("image")
    _put_back(rest, old, "activeDeadlineSeconds", "schedulingGates", "tolerations")
    if old.get("terminationGracePeriodSeconds", 0) < 0 and rest.get("terminationGracePeriodSeconds") == 1:
        _put_back(rest, old, "terminationGracePeriodSeconds")
    if old_gates:
        yield from _validate_gated(rest, old)
    if rest != old:
        differing = sorted(key for key in {*rest, *old} if rest.get(key) != old.get(key))
        yield forbidden(
            "spec",
            f"of a pod only these may change: {', '.join(_UPDATABLE)}; here {', '.join(differing)} did",
        )


def _put_back(new: Tree, old: Tree, *fields: str) -> None:
    for field in fields:
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


def _extends(new: Tree, old: Tree) -> bool:
    return {**new, "tolerationSeconds": 0} == {**old, "tolerationSeconds": 0}


def _validate_deadline(new: Tree, old: Tree) -> Errors:
    after, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if after is None:
        if before is not None:
            yield invalid("spec.activeDeadlineSeconds", None, "a deadline that is set stays set")
    elif before is not None and after > before:
        yield invalid("spec.activeDeadlineSeconds", after, "a deadline only comes nearer")


def _validate_gated(rest: Tree, old: Tree) -> Errors:
    """Allow changes of node selectors of a gated pod, as long as they only narrow the set of nodes."""
    before, after = old.get("nodeSelector", {}), rest.get("nodeSelector", {})
    if before != after:
        if any(after.get(key) != value for key, value in before.items()):
            yield invalid("spec.nodeSelector", after, "labels can only be added while the pod is gated")
        _put_back(rest, old, "nodeSelector")
    was, now = old.get("affinity", {}).get("nodeAffinity"), rest.get("affinity", {}).get("nodeAffinity")
    if was == now:
        return
    yield from _validate_narrowed(now or {}, was or {})
    affinity = dict(rest.get("affinity", {}))
    if was is None:
        affinity.pop("nodeAffinity", None)
    else:
        affinity["nodeAffinity"] = was
    rest["affinity"] = affinity
    if not affinity and "affinity" not in old:
        del rest["affinity"]


_NODE_AFFINITY: Final = "spec.affinity.nodeAffinity"
_DEMANDED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _validate_narrowed(new: Tree, old: Tree) -> Errors:
    before = old.get(_DEMANDED, {}).get("nodeSelectorTerms")
    if before is None:
        return
    path = f"{_NODE_AFFINITY}.{_DEMANDED}.nodeSelectorTerms"
    after = new.get(_DEMANDED, {}).get("nodeSelectorTerms") or ()
    if len(after) != len(before):
        yield invalid(path, after, "the terms stay the same in number, as more of them would widen the choice")
        return
    for index, (term, was) in enumerate(zip(after, before, strict=True)):
        if not was:
            narrowed = not term
        else:
            narrowed = all(
                expression in term.get(field, ())
                for field in ("matchExpressions", "matchFields")
                for expression in was.get(field, ())
            )
        if not narrowed:
            yield invalid(f"{path}[{index}]", term, "what a term demands can only become more")
