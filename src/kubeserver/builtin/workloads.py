"""The kinds of `apps/v1`, and the volume claims of StatefulSets: stored and validated; no controller runs them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kubemachinery import meta, quantity, selectors
from kubeserver.builtin import checks, decoding, pods
from kubeserver.builtin.checks import Errors, Tree, forbidden, invalid, named, not_supported, required

_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_MAX: Final = 100
_RETENTIONS: Final = ("Retain", "Delete")

# Beside the objects of v1, the count of template changes that earlier versions had as a field.
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"

# Of these values the kind itself names another place, or another sort of error, than the table of fields would.
_OWN_ENUMS: Final = frozenset({"spec.strategy.type", "spec.updateStrategy.type", "spec.podManagementPolicy"})

# Of each kind: counts in the status that must not be negative, and pairs where the first is at most the second.
_COUNTS: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": (
        *("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
        *("unavailableReplicas", "terminatingReplicas", "collisionCount"),
    ),
    "StatefulSet": (
        *("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
        *("observedGeneration", "collisionCount"),
    ),
    "ReplicaSet": (
        *("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"),
        "terminatingReplicas",
    ),
    "DaemonSet": (
        *("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
        *("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount"),
    ),
}
_AT_MOST: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "Deployment": (
        ("updatedReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ),
    "StatefulSet": (
        ("readyReplicas", "replicas"),
        ("currentReplicas", "replicas"),
        ("updatedReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ),
    "ReplicaSet": (
        ("fullyLabeledReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ),
    "DaemonSet": (),
}


def on_create(tree: Tree) -> None:
    tree["status"] = decoding.zero(f"apps.v1.{tree['kind']}Status")
    _drop_alpha(tree)
    if tree["kind"] == "DaemonSet":
        _number_template(tree, max(1, _template_generation(tree)))


def on_update(new: Tree, old: Tree) -> None:
    new["status"] = old["status"]
    _drop_alpha(new)
    if new["kind"] == "DaemonSet":
        changed = new["spec"].get("template") != old["spec"].get("template")
        _number_template(new, _template_generation(old) + (1 if changed else 0))


def _drop_alpha(tree: Tree) -> None:
    """A field behind a feature gate that is off by default is not stored."""
    if tree["kind"] == "StatefulSet":
        tree["spec"]["updateStrategy"].get("rollingUpdate", {}).pop("maxUnavailable", None)


def on_deployment_status(new: Tree, old: Tree) -> None:
    """The labels of a Deployment are not written through its status."""
    _keep(new["metadata"], old["metadata"], "labels")


def _template_generation(tree: Tree) -> int:
    text = tree["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _number_template(tree: Tree, number: int) -> None:
    metadata = tree["metadata"]
    metadata["annotations"] = {**metadata.get("annotations", {}), _TEMPLATE_GENERATION: str(number)}


def _keep(new: Tree, old: Tree, *fields: str) -> None:
    for field in fields:
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


# --- validation -------------------------------------------------------------------------------------------------------


def validate(new: Tree, old: Tree | None, subresource: str) -> Errors:
    kind = new["kind"]
    if subresource == "status" and old is not None:
        yield from _validate_status(kind, new.get("status", {}), old.get("status", {}))
        return
    for error in checks.enums(f"apps.v1.{kind}", new):
        if error.path not in _OWN_ENUMS:
            yield error
    spec = new["spec"]
    yield from checks.not_negative(spec, "spec", "replicas", "minReadySeconds")
    if kind != "StatefulSet":
        yield from checks.not_negative(spec, "spec", "revisionHistoryLimit")
    wrong = list(selectors.check(spec.get("selector"), "spec.selector"))
    yield from wrong
    if wrong and kind != "DaemonSet":
        yield invalid("spec.selector", spec["selector"], "invalid label selector")
    else:
        if not wrong:
            yield from _validate_selector(spec, kind)
        template = _with_claims(spec) if kind == "StatefulSet" else spec["template"]
        yield from pods.validate_template(template, "spec.template")
        yield from _validate_pods(spec["template"]["spec"])
    yield from _OF_SPEC[kind](spec, old)
    if old is not None:
        yield from _validate_update(kind, spec, old["spec"])


def _validate_selector(spec: Tree, kind: str) -> Errors:
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels", {})
    place = "spec.template.metadata.labels"
    if selector is None:
        if kind != "DaemonSet":
            yield required("spec.selector")
        yield invalid(place, labels, "without a selector no labels match")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {kind.lower()}")
    elif not selectors.compile(msgspec.convert(selector, meta.LabelSelector)).matches(labels):
        yield invalid(place, labels, "the selector does not match them")


def _validate_pods(spec: Tree) -> Errors:
    """Pods that are replaced for ever neither end by themselves nor at a deadline."""
    if spec.get("restartPolicy") != "Always":
        yield not_supported("spec.template.spec.restartPolicy", spec.get("restartPolicy"), ("Always",))
    if "activeDeadlineSeconds" in spec:
        yield forbidden("spec.template.spec.activeDeadlineSeconds", "is for the pods of Jobs")


# --- how pods are replaced --------------------------------------------------------------------------------------------


def _validate_deployment(spec: Tree, _old: Tree | None) -> Errors:
    strategy = spec["strategy"]
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "Recreate":
            if rolling is not None:
                yield forbidden("spec.strategy.rollingUpdate", "goes with type RollingUpdate")
        case "RollingUpdate":
            path = "spec.strategy.rollingUpdate"
            yield from _validate_share(rolling, path, "maxUnavailable")
            yield from _validate_share(rolling, path, "maxSurge", bounded=False)
            if _amount(rolling.get("maxUnavailable")) == 0 and _amount(rolling.get("maxSurge")) == 0:
                yield invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when maxSurge is 0")
        case _:
            yield not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        path = "spec.progressDeadlineSeconds"
        yield from checks.not_negative(spec, "spec", "progressDeadlineSeconds")
        if deadline <= spec.get("minReadySeconds", 0):
            yield invalid(path, deadline, "must be greater than minReadySeconds")


def _validate_daemon_set(spec: Tree, _old: Tree | None) -> Errors:
    strategy = spec["updateStrategy"]
    match strategy.get("type"):
        case "OnDelete":
            return
        case "RollingUpdate":
            path, rolling = "spec.updateStrategy.rollingUpdate", strategy["rollingUpdate"]
            for field in ("maxUnavailable", "maxSurge"):
                yield from _validate_share(rolling, path, field)
            unavailable, surge = (_amount(rolling.get(field)) for field in ("maxUnavailable", "maxSurge"))
            if unavailable and surge:
                yield invalid(f"{path}.maxSurge", rolling["maxSurge"], "may not be set when maxUnavailable is not 0")
            elif not unavailable and not surge:
                yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
        case _:
            yield not_supported("spec.updateStrategy", strategy, ("RollingUpdate", "OnDelete"))


def _validate_stateful_set(spec: Tree, old: Tree | None) -> Errors:
    policy, strategy = spec.get("podManagementPolicy"), spec["updateStrategy"]
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be OrderedReady or Parallel")
    path, rolling = "spec.updateStrategy.rollingUpdate", strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "OnDelete":
            if rolling is not None:
                yield invalid(path, rolling, "only allowed for updateStrategy RollingUpdate")
        case "RollingUpdate":
            if rolling is not None:
                yield from checks.not_negative(rolling, path, "partition")
                if "maxUnavailable" in rolling:
                    yield from _validate_share(rolling, path, "maxUnavailable")
                    if _amount(rolling["maxUnavailable"]) == 0:
                        yield invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], "cannot be 0")
        case _:
            yield invalid("spec.updateStrategy", strategy, "must be RollingUpdate or OnDelete")
    for field, value in spec.get("persistentVolumeClaimRetentionPolicy", {}).items():
        if value not in _RETENTIONS:
            yield not_supported(f"spec.persistentVolumeClaimRetentionPolicy.{field}", value, _RETENTIONS)
    yield from checks.not_negative(spec.get("ordinals", {}), "spec.ordinals", "start")
    if old is not None:
        return
    if spec.get("serviceName"):
        yield from named(meta.check_label_name, spec["serviceName"], "spec.serviceName")
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        yield from _validate_claim(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec")


def _validate_claim(spec: Tree, path: str) -> Errors:
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    for index, mode in enumerate(spec.get("accessModes", ())):
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", spec["accessModes"][index], _ACCESS_MODES)
    requests = spec.get("resources", {}).get("requests", {})
    if "storage" not in requests:
        yield required(f"{path}.resources[storage]")
    elif quantity.parse(requests["storage"]).sign <= 0:
        yield invalid(f"{path}.resources[storage]", requests["storage"], "must be greater than zero")
    if spec.get("selector") is not None:
        yield from selectors.check(spec["selector"], f"{path}.selector")
    if spec.get("storageClassName"):
        yield from named(meta.check_subdomain_name, spec["storageClassName"], f"{path}.storageClassName")


_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _with_claims(spec: Tree) -> Tree:
    """The pod template as its pods will be: with a volume for each claim template, and a host name of their own."""
    template: Tree = copy.deepcopy(spec["template"])
    claims = [claim["metadata"].get("name", "") for claim in spec.get("volumeClaimTemplates", ())]
    inner = template["spec"]
    for field in ("hostname", "subdomain"):
        inner.pop(field, None)
    if claims:
        own = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claims)]
        inner["volumes"] = own + [one for one in inner.get("volumes", ()) if one.get("name") not in claims]
    return template


def _validate_replica_set(_spec: Tree, _old: Tree | None) -> Errors:
    return iter(())


_OF_SPEC: Final = {
    "Deployment": _validate_deployment,
    "StatefulSet": _validate_stateful_set,
    "ReplicaSet": _validate_replica_set,
    "DaemonSet": _validate_daemon_set,
}


def _validate_share(tree: Tree, path: str, field: str, *, bounded: bool = True) -> Errors:
    """A number or a percentage; `bounded` refuses more than 100 %."""
    value = tree.get(field)
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield invalid(f"{path}.{field}", value, "a valid percent string must be a number followed by %")
        elif bounded and _amount(value) > _PERCENT_MAX:
            yield invalid(f"{path}.{field}", value, "must not be greater than 100%")
    elif value is not None and value < 0:
        yield invalid(f"{path}.{field}", value, "must not be negative")


def _amount(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) and len(value) < 20 else 0
    return value or 0


# --- updates and status -----------------------------------------------------------------------------------------------

_MUTABLE_OF_STATEFUL_SET: Final = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "minReadySeconds"),
    "persistentVolumeClaimRetentionPolicy",
)


def _validate_update(kind: str, new: Tree, old: Tree) -> Errors:
    if kind != "StatefulSet":
        yield from checks.immutable(new, old, "spec", "selector")
        return
    rest = {key: value for key, value in new.items() if key not in _MUTABLE_OF_STATEFUL_SET}
    if rest != {key: value for key, value in old.items() if key not in _MUTABLE_OF_STATEFUL_SET}:
        yield forbidden("spec", f"of a StatefulSet only {', '.join(_MUTABLE_OF_STATEFUL_SET)} may change")


def _validate_status(kind: str, new: Tree, old: Tree) -> Errors:
    yield from checks.not_negative(new, "status", *_COUNTS[kind])
    for less, more in _AT_MOST[kind]:
        if new.get(less, 0) > new.get(more, 0):
            yield invalid(f"status.{less}", new.get(less, 0), f"cannot be greater than status.{more}")
    if "collisionCount" in old and new.get("collisionCount", 0) < old["collisionCount"]:
        yield invalid("status.collisionCount", new.get("collisionCount", 0), "cannot be decremented")


def validate_revision(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    """A revision of a controller's own making: any JSON object as `data`, which never changes."""
    if new["revision"] < 0:
        yield invalid("revision", new["revision"], "must not be negative")
    if old is not None:
        yield from checks.immutable(new, old, "", "data")
    elif not isinstance(new.get("data"), dict):
        yield required("data", "must be an object")


# --- PersistentVolumeClaim --------------------------------------------------------------------------------------------


_VOLUME_MODES: Final = ("Block", "Filesystem")


def _storage(amounts: Tree) -> quantity.Quantity:
    return quantity.parse(amounts.get("storage", "0"))


def warn_of_claim(new: Tree, _old: Tree | None) -> Iterator[str]:
    requested = _storage(new["spec"].get("resources", {}).get("requests", {}))
    if requested != quantity.parse(str(requested.rounded())):
        yield f'spec.resources.requests[storage]: fractional byte value "{requested}" is invalid, must be an integer'


def on_create_claim(tree: Tree) -> None:
    tree["status"] = {"phase": "Pending"}


def on_update_claim(new: Tree, old: Tree) -> None:
    new["status"] = old["status"]


def validate_claim(new: Tree, old: Tree | None, subresource: str) -> Errors:
    """A claim. No volume exists here, so it stays Pending unless a controller beside the server binds it."""
    if subresource:
        return
    yield from _validate_claim(new["spec"], "spec")
    if old is None:
        return
    if new["spec"].get("volumeMode") not in _VOLUME_MODES:
        yield not_supported("spec.volumeMode", new["spec"].get("volumeMode"), _VOLUME_MODES)
    yield from checks.immutable(new["spec"], old["spec"], "", "volumeMode")
    amounts = [_storage(tree["spec"].get("resources", {}).get("requests", {})) for tree in (new, old)]
    if amounts[0] < amounts[1] and amounts[0] <= _storage(old["status"].get("capacity", {})):
        yield forbidden("spec.resources.requests.storage", "must not be less than status.capacity")
    allowed = {"volumeName"} if not old["spec"].get("volumeName") else set()
    if old["status"].get("phase") == "Bound":
        allowed |= {"resources", "volumeAttributesClassName"}
    fixed = [{key: value for key, value in tree["spec"].items() if key not in allowed} for tree in (new, old)]
    if fixed[0] != fixed[1]:
        why = "must not change, except resources.requests and volumeAttributesClassName of a bound claim"
        yield forbidden("spec", why)
