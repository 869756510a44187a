"""Jobs: the labels by which they find their pods, and what may change in which state."""

from __future__ import annotations

import copy
from typing import Final

import msgspec

from kubemachinery import meta, selectors
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.builtin import checks, pods
from kubeserver.builtin.checks import Errors, Tree, invalid, named, not_supported, required

_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS: Final = ("job-name", "batch.kubernetes.io/job-name")
_MATCHED: Final = "batch.kubernetes.io/controller-uid"

_INDEXED_PARALLELISM_MAX: Final = 100_000
_FAILED_INDEXES_MAX: Final = 100_000
# Above this many indexes a limit for each of them has bounds of its own.
_MANY_COMPLETIONS: Final = 100_000
_MANY_PARALLELISM_MAX: Final = 10_000
_MANY_FAILED_INDEXES_MAX: Final = 10_000
_MANAGER_LENGTH: Final = 63


def on_create(job: Tree) -> None:
    job["status"] = {}
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    template = spec["template"]["metadata"]
    labels = dict(template.get("labels", {}))
    inherited = metadata.get("labels", {}) == labels
    for label in _NAME_LABELS:
        labels.setdefault(label, metadata.get("name", ""))
    for label in _UID_LABELS:
        labels.setdefault(label, metadata.get("uid", ""))
    template["labels"] = labels
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {_MATCHED: metadata.get("uid", ""), **selector.get("matchLabels", {})}
    if inherited:
        # A job without labels of its own wears those of its pods.
        metadata["labels"] = dict(labels)


def on_update(new: Tree, old: Tree) -> None:
    new["status"] = old["status"]


# --- validation -------------------------------------------------------------------------------------------------------


def validate(new: Tree, old: Tree | None, subresource: str) -> Errors:
    if subresource == "status" and old is not None:
        yield from _validate_status(new.get("status", {}), old.get("status", {}))
        return
    yield from checks.enums("batch.v1.Job", new)
    yield from _validate_labels(new)
    yield from _validate_hostnames(new)
    yield from validate_spec(new["spec"])
    yield from _validate_selector(new["spec"])
    if old is not None:
        yield from _validate_update(new, old)


def _validate_labels(job: Tree) -> Errors:
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].get("labels", {})
    path = "spec.template.metadata.labels"
    for wanted, names in ((metadata.get("uid", ""), _UID_LABELS), (metadata.get("name", ""), _NAME_LABELS)):
        for name in names:
            if name not in labels:
                yield required(f"{path}[{name}]", f"must be '{wanted}'")
            elif labels[name] != wanted:
                yield invalid(f"{path}[{name}]", labels[name], f"must be '{wanted}'")
    selected = spec.get("selector")
    if selected is not None and selected != {"matchLabels": {_MATCHED: metadata.get("uid", "")}}:
        yield invalid("spec.selector", selected, "is made by the server unless manualSelector is set")


def _validate_hostnames(job: Tree) -> Errors:
    spec = job["spec"]
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        name = job["metadata"].get("name", "")
        if meta.check_label_name(f"{name}-{completions - 1}"):
            yield invalid(
                "metadata.name", name, f"its pods would be called {name}-{completions - 1}, which is no label"
            )


def validate_spec(spec: Tree) -> Errors:
    """Yield the errors of the spec of a Job, or of a CronJob's template; paths begin with `spec`."""
    yield from checks.not_negative(
        spec,
        "spec",
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    indexed = spec.get("completionMode") == "Indexed"
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield required("spec.backoffLimitPerIndex", "belongs to maxFailedIndexes")
    if "managedBy" in spec:
        yield from _validate_manager(spec["managedBy"])
    if indexed:
        yield from _validate_indexed(spec)
    elif spec.get("completionMode", "NonIndexed") == "NonIndexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if field in spec:
                yield invalid(f"spec.{field}", spec[field], "is for Indexed jobs")
    yield from _validate_failure_policy(spec)
    if "podFailurePolicy" in spec and spec.get("podReplacementPolicy") not in (None, "Failed"):
        yield not_supported("spec.podReplacementPolicy", spec["podReplacementPolicy"], ("Failed",))
    yield from pods.validate_template(spec["template"], "spec.template")
    yield from _validate_restarts(spec)


def _validate_manager(manager: str) -> Errors:
    domain, slash, rest = manager.partition("/")
    if not slash or not rest or meta.check_subdomain_name(domain):
        yield invalid("spec.managedBy", manager, "must be a domain, a slash and a path, as in example.com/name")
    if len(manager) > _MANAGER_LENGTH:
        yield FieldError("spec.managedBy", ErrorType.TOO_LONG, f"at most {_MANAGER_LENGTH} bytes")


def _validate_indexed(spec: Tree) -> Errors:
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    failed = spec.get("maxFailedIndexes")
    if completions is None:
        yield required("spec.completions", "an Indexed Job must have completions")
    if parallelism > _INDEXED_PARALLELISM_MAX:
        yield invalid("spec.parallelism", parallelism, f"at most {_INDEXED_PARALLELISM_MAX}")
    if failed is not None:
        if completions is not None and failed > completions:
            yield invalid("spec.maxFailedIndexes", failed, "is more than there are indexes")
        if failed > _FAILED_INDEXES_MAX:
            yield invalid("spec.maxFailedIndexes", failed, f"at most {_FAILED_INDEXES_MAX}")
    if (completions or 0) > _MANY_COMPLETIONS and "backoffLimitPerIndex" in spec:
        if failed is None:
            yield required("spec.maxFailedIndexes", f"with more than {_MANY_COMPLETIONS} indexes")
        elif failed > _MANY_FAILED_INDEXES_MAX:
            yield invalid("spec.maxFailedIndexes", failed, f"at most {_MANY_FAILED_INDEXES_MAX} of so many indexes")
        if parallelism > _MANY_PARALLELISM_MAX:
            yield invalid("spec.parallelism", parallelism, f"at most {_MANY_PARALLELISM_MAX} of so many indexes")


_CONDITION_STATUSES: Final = ("False", "True", "Unknown")


def _validate_failure_policy(spec: Tree) -> Errors:
    containers = {
        container.get("name")
        for field in ("containers", "initContainers")
        for container in spec["template"]["spec"].get(field) or ()
    }
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    for index, rule in enumerate(rules):
        path = f"spec.podFailurePolicy.rules[{index}]"
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield invalid(f"{path}.action", "FailIndex", "goes with backoffLimitPerIndex")
        if not rule.get("action"):
            yield required(f"{path}.action")
        if codes is None and not conditions:
            yield invalid(path, rule, "names neither exit codes nor conditions")
        if codes is not None and conditions:
            yield invalid(path, rule, "names both exit codes and conditions")
        for at, condition in enumerate(conditions):
            kind = condition.get("type", "")
            yield from named(meta.check_qualified_name, kind, f"{path}.onPodConditions[{at}].type")
            if condition.get("status") not in _CONDITION_STATUSES:
                place = f"{path}.onPodConditions[{at}].status"
                yield checks.not_supported(place, condition.get("status"), _CONDITION_STATUSES)
        if codes is not None:
            values = codes.get("values") or []
            if codes.get("containerName") and codes["containerName"] not in containers:
                yield invalid(f"{path}.onExitCodes.containerName", codes["containerName"], "no such container")
            if not codes.get("operator"):
                yield required(f"{path}.onExitCodes.operator")
            if not values:
                yield invalid(f"{path}.onExitCodes.values", values, "is empty")
            if codes.get("operator") == "In" and 0 in values:
                yield invalid(f"{path}.onExitCodes.values[{values.index(0)}]", 0, "0 is no failure")


def _validate_restarts(spec: Tree) -> Errors:
    path = "spec.template.spec.restartPolicy"
    policy = spec["template"]["spec"].get("restartPolicy", "")
    if policy in ("", "Always"):
        yield required(path, 'a job\'s pods restart "OnFailure" or "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(path, policy, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and policy != "Never":
        yield invalid(path, policy, 'a podFailurePolicy sees pods that restart "Never"')


def _validate_selector(spec: Tree) -> Errors:
    labels = spec["template"]["metadata"].get("labels", {})
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        yield invalid("spec.template.metadata.labels", labels, "without a selector no labels match")
        return
    wrong = list(selectors.check(selector, "spec.selector"))
    yield from wrong
    if not wrong and not selectors.compile(msgspec.convert(selector, meta.LabelSelector)).matches(labels):
        yield invalid("spec.template.metadata.labels", labels, "the selector does not match them")


# --- updates ----------------------------------------------------------------------------------------------------------


def _validate_update(new: Tree, old: Tree) -> Errors:
    after, before = new["spec"], old["spec"]
    if after.get("completionMode") != "Indexed":
        yield from checks.immutable(after, before, "spec", "completions")
    elif after.get("completions") not in (None, before.get("completions"), after.get("parallelism")):
        yield invalid("spec.completions", after["completions"], "changes together with spec.parallelism or not at all")
    yield from checks.immutable(after, before, "spec", "selector")
    yield from _validate_template_update(after["template"], before["template"], old)
    yield from checks.immutable(
        after,
        before,
        "spec",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    )


def _validate_template_update(new: Tree, old: Tree, job: Tree) -> Errors:
    """The template may change where the job is suspended and none of its pods is left; then only in where pods go,
    what they are called, and what their containers ask for."""
    if not is_template_open(job):
        if new != old:
            yield invalid("spec.template", new, checks.IMMUTABLE)
        return
    allowed = copy.deepcopy(old)
    for field in ("labels", "annotations"):
        _take(allowed["metadata"], new["metadata"], field)
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        _take(allowed["spec"], new["spec"], field)
    affinity = dict(allowed["spec"].get("affinity", {}))
    _take(affinity, new["spec"].get("affinity", {}), "nodeAffinity")
    if affinity or "affinity" in new["spec"]:
        allowed["spec"]["affinity"] = affinity
    else:
        allowed["spec"].pop("affinity", None)
    for field in ("containers", "initContainers"):
        theirs = new["spec"].get(field) or ()
        ours = allowed["spec"].get(field) or ()
        if len(theirs) == len(ours):
            for container, wanted in zip(ours, theirs, strict=True):
                if container.get("name") == wanted.get("name"):
                    _take(container, wanted, "resources")
    if new["spec"] != allowed["spec"]:
        yield invalid("spec.template.spec", new["spec"], checks.IMMUTABLE)


def is_template_open(job: Tree) -> bool:
    """Whether the pod template of this (stored) Job may change."""
    status = job.get("status", {})
    suspended = any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions", ())
    )
    never_ran = "startTime" not in status
    return bool(job["spec"].get("suspend")) and (never_ran or suspended) and not status.get("active")


def _take(into: Tree, source: Tree, field: str) -> None:
    if field in source:
        into[field] = source[field]
    else:
        into.pop(field, None)


# --- status -----------------------------------------------------------------------------------------------------------


def _validate_status(new: Tree, old: Tree) -> Errors:
    yield from checks.not_negative(new, "status", "active", "succeeded", "failed", "ready", "terminating")
    true = {c.get("type") for c in new.get("conditions", ()) if c.get("status") == "True"}
    if {"Complete", "Failed"} <= true:
        yield invalid("status.conditions", new["conditions"], "a job cannot be both Complete and Failed")
    ended = {c.get("type") for c in old.get("conditions", ()) if c.get("status") == "True"}
    for final in ("Complete", "Failed"):
        if final in ended and final not in true:
            yield invalid("status.conditions", new.get("conditions"), f"{final}=True is final")
