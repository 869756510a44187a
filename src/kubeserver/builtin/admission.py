"""Built-in admission of pods: priority, LimitRange, runtime class, default tolerations.

    hooks(find)   where `find(group_resource, namespace)` returns the objects of a resource ("" for all namespaces)

These are the admission plugins that a cluster has switched on by default and that concern what a pod asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from kubemachinery import quantity, status
from kubemachinery.quantity import Quantity
from kubeserver.admission.chain import CREATE, UPDATE, AdmissionAttributes, AdmissionHook
from kubeserver.builtin import pods
from kubeserver.registry.strategy import Tree

Find: TypeAlias = Callable[[str, str], Iterable[Tree]]

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"
LIMIT_RANGES: Final = "limitranges"

_LIMIT_NOTE: Final = "kubernetes.io/limit-ranger"


def hooks(find: Find) -> tuple[AdmissionHook, ...]:
    """Return the admission plugins, in their order."""

    def pod(name: str, change: Callable[[Tree, AdmissionAttributes], None]) -> AdmissionHook:
        def mutate(review: AdmissionAttributes) -> Tree | None:
            if review.object is not None:
                change(review.object, review)
            return review.object

        return AdmissionHook(
            name=name, group="", plural="pods", version="v1", operations=frozenset({CREATE}), mutate=mutate
        )

    return (
        pod("Priority", lambda one, review: _resolve_priority(one, review, find(PRIORITY_CLASSES, ""))),
        # Before webhooks see it: what they make of a pod may depend on what it tolerates.
        pod("DefaultTolerationSeconds", lambda one, _: pods.tolerate_troubles(one["spec"])),
        pod("RuntimeClass", lambda one, review: _resolve_runtime_class(one, review, find(RUNTIME_CLASSES, ""))),
        pod("LimitRanger", lambda one, review: _apply_limits(one, review, find(LIMIT_RANGES, review.namespace))),
        AdmissionHook(
            name="Priority",
            group="scheduling.k8s.io",
            plural="priorityclasses",
            version="v1",
            operations=frozenset({CREATE, UPDATE}),
            mutate=lambda review: _refuse_second_default(review, find(PRIORITY_CLASSES, "")),
        ),
    )


def _forbidden(review: AdmissionAttributes, why: str) -> status.StatusError:
    named: str = review.name or ((review.object or {}).get("metadata") or {}).get("name", "")
    return status.forbidden(review.resource.group, review.resource.plural, named, why)


# --- priority ---------------------------------------------------------------------------------------------------------


def _resolve_priority(pod: Tree, review: AdmissionAttributes, classes: Iterable[Tree]) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    if name:
        chosen = next((one for one in classes if one["metadata"]["name"] == name), None)
        if chosen is None:
            raise _forbidden(review, f"there is no PriorityClass {name}")
    else:
        standard = [one for one in classes if one.get("globalDefault")]
        chosen = min(standard, key=lambda one: int(one.get("value", 0)), default={})
        if chosen:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value = chosen.get("value", 0)
    if spec.get("priority", value) != value:
        raise _forbidden(
            review,
            f"its priority is {value} by its class, and not {spec['priority']}; leave it out",
        )
    policy = chosen.get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("preemptionPolicy", policy) != policy:
        raise _forbidden(
            review,
            f"its preemptionPolicy is {policy} by its class, and not {spec['preemptionPolicy']}; leave it out",
        )
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def _refuse_second_default(review: AdmissionAttributes, classes: Iterable[Tree]) -> None:
    one = review.object
    if one is None or not one.get("globalDefault"):
        return
    name = one["metadata"].get("name")
    for other in classes:
        if other.get("globalDefault") and other["metadata"]["name"] != name:
            raise _forbidden(
                review,
                f"PriorityClass {other['metadata']['name']} is the default already, and there is only one",
            )


# --- runtime class ----------------------------------------------------------------------------------------------------


def _resolve_runtime_class(pod: Tree, review: AdmissionAttributes, classes: Iterable[Tree]) -> None:
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        if spec.get("overhead"):
            raise _forbidden(review, "an overhead comes from a RuntimeClass, and it names none")
        return
    chosen = next((one for one in classes if one["metadata"]["name"] == name), None)
    if chosen is None:
        raise _forbidden(review, f"there is no RuntimeClass {name}")
    overhead = chosen.get("overhead", {}).get("podFixed")
    if overhead:
        if spec.get("overhead", overhead) != overhead:
            raise _forbidden(review, "its overhead is another one than that of its RuntimeClass")
        spec["overhead"] = dict(overhead)
    scheduling = chosen.get("scheduling", {})
    wanted = scheduling.get("nodeSelector", {})
    if wanted:
        given = spec.get("nodeSelector", {})
        for key, value in wanted.items():
            if given.get(key, value) != value:
                raise _forbidden(review, f"its RuntimeClass selects nodes with {key}={value}, and it selects others")
        spec["nodeSelector"] = {**given, **wanted}
    for toleration in scheduling.get("tolerations", ()):
        if toleration not in spec.get("tolerations", ()):
            spec.setdefault("tolerations", []).append(dict(toleration))


# --- limits -----------------------------------------------------------------------------------------------------------


def _apply_limits(pod: Tree, review: AdmissionAttributes, ranges: Iterable[Tree]) -> None:
    """Apply the defaults of LimitRanges to containers without requests; refuse what is out of bounds."""
    items = [item for one in ranges for item in one["spec"].get("limits") or ()]
    notes: list[str] = []
    for item in items:
        if item.get("type") == "Container":
            for field, singular in (("containers", "container"), ("initContainers", "init container")):
                for container in pod["spec"].get(field) or ():
                    notes.extend(_fill(container, item, singular))
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_LIMIT_NOTE] = "LimitRanger plugin set: " + "; ".join(notes)
    wrong = [problem for item in items for problem in _out_of_bounds(pod, item)]
    if wrong:
        raise _forbidden(review, wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def _fill(container: Tree, item: Tree, singular: str) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for field, source, word in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
        given = resources.get(field, {})
        missing = [name for name in item.get(source, {}) if name not in given]
        if missing:
            resources[field] = {**given, **{name: item[source][name] for name in missing}}
            names = ", ".join(sorted(missing))
            yield f"{names} {word} for {singular} {container.get('name', '')}"


def _out_of_bounds(pod: Tree, item: Tree) -> Iterator[str]:
    match item.get("type"):
        case "Container":
            for field in ("containers", "initContainers"):
                for container in pod["spec"].get(field) or ():
                    resources = container.get("resources", {})
                    asked, capped = _amounts(resources.get("requests")), _amounts(resources.get("limits"))
                    yield from _exceeded("Container", item, asked, capped)
        case "Pod":
            yield from _exceeded("Pod", item, _total(pod["spec"], "requests"), _total(pod["spec"], "limits"))


def _amounts(tree: dict[str, str] | None) -> dict[str, Quantity]:
    return {name: quantity.parse(text) for name, text in (tree or {}).items()}


def _total(spec: Tree, field: str) -> dict[str, Quantity]:
    """Return the larger of the sum over containers and the maximum over init containers."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        for name, amount in _amounts(container.get("resources", {}).get(field)).items():
            total[name] = total[name] + amount if name in total else amount
    for container in spec.get("initContainers", ()):
        for name, amount in _amounts(container.get("resources", {}).get(field)).items():
            total[name] = max(total.get(name, amount), amount)
    return total


def _exceeded(kind: str, item: Tree, asked: dict[str, Quantity], capped: dict[str, Quantity]) -> Iterator[str]:
    for name, least in sorted(_amounts(item.get("min")).items()):
        if name not in asked:
            yield f"a {kind} here asks for at least {least} of {name}, and this one for none"
        elif asked[name] < least:
            yield f"a {kind} here asks for at least {least} of {name}, and this one for {asked[name]}"
    for name, most in sorted(_amounts(item.get("max")).items()):
        if name not in capped:
            yield f"a {kind} here has a limit of at most {most} of {name}, and this one none"
        elif capped[name] > most:
            yield f"a {kind} here has a limit of at most {most} of {name}, and this one {capped[name]}"
        elif name in asked and asked[name] > most:
            yield f"a {kind} here asks for at most {most} of {name}, and this one for {asked[name]}"
    for name, ratio in sorted(_amounts(item.get("maxLimitRequestRatio")).items()):
        limit, request = capped.get(name), asked.get(name)
        if limit is None or not request:
            yield f"the limit of {name} is at most {ratio} times the request here, and one of them is missing"
        elif limit.rounded(-9) > request.rounded(-9) * ratio.rounded(-9) // 10**9:
            yield f"the limit of {name} is at most {ratio} times the request here, and this one is more"
