"""Warnings about valid fields that are probably mistakes, for the Warning header of a successful write.

Each sentence begins with the path that it is about. A pod is checked at creation; a template whenever it changes.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubemachinery import meta, quantity
from kubeserver.builtin.checks import Tree

Words = Iterator[str]

_OLD_LABELS: Final[Mapping[str, str]] = {
    "beta.kubernetes.io/arch": 'is called "kubernetes.io/arch" since v1.14',
    "beta.kubernetes.io/os": 'is called "kubernetes.io/os" since v1.14',
    "failure-domain.beta.kubernetes.io/region": 'is called "topology.kubernetes.io/region" since v1.17',
    "failure-domain.beta.kubernetes.io/zone": 'is called "topology.kubernetes.io/zone" since v1.17',
    "beta.kubernetes.io/instance-type": 'is called "node.kubernetes.io/instance-type" since v1.17',
    "app.kubernetes.io/created-by": "means nothing since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "means nothing since v1.22; taints do the same",
    "node-role.kubernetes.io/master": 'is called "node-role.kubernetes.io/control-plane"',
}
_OLD_ANNOTATIONS: Final[Mapping[str, str]] = {
    "scheduler.alpha.kubernetes.io/critical-pod": "priorityClassName",
    "security.alpha.kubernetes.io/sysctls": "sysctls",
    "security.alpha.kubernetes.io/unsafe-sysctls": "sysctls",
}
_OLD_VOLUMES: Final = (
    *("photonPersistentDisk", "gitRepo", "scaleIO", "flocker", "storageOS"),
    *("quobyte", "glusterfs", "cephfs", "rbd"),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SELECTS_NO_POD: Final = "without one, no pod is matched"
_IN_BYTES: Final = ("memory", "ephemeral-storage")
_COMPLETIONS_MANY: Final = 100_000
_PARALLELISM_MANY: Final = 10_000


def of_pod(new: Tree, old: Tree | None) -> Words:
    # Pods are updated often and by controllers, which read no warnings.
    return _of_template(new, "") if old is None else iter(())


def of_pod_template(new: Tree, old: Tree | None) -> Words:
    return _of_template(new.get("template") or {}, "template.") if _counted(new, old) else iter(())


def of_job(new: Tree, old: Tree | None) -> Words:
    yield from _of_name(new, old)
    if _counted(new, old):
        yield from _of_job_spec(new["spec"], "spec")


def _of_name(new: Tree, old: Tree | None) -> Words:
    if old is None and any(meta.check_label_name(new["metadata"].get("name", ""))):
        yield "metadata.name: pods and their host names are made from it, and need a DNS label for that"


def of_cron_job(new: Tree, old: Tree | None) -> Words:
    yield from _of_name(new, old)
    if _counted(new, old):
        yield from _of_job_spec(new["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def of_workload(new: Tree, old: Tree | None) -> Words:
    """Yield the warnings of an `apps/v1` object about its pod template, whenever its generation changes."""
    if _counted(new, old):
        yield from _of_template(new["spec"]["template"], "spec.template.")
    if new["kind"] == "StatefulSet" and (new["spec"].get("revisionHistoryLimit") or 0) < 0:
        yield "spec.revisionHistoryLimit: a negative value retains all historical revisions; 0 or more is recommended"


def of_named_workload(new: Tree, old: Tree | None) -> Words:
    yield from _of_name(new, old)
    yield from of_workload(new, old)


def _of_job_spec(spec: Tree, path: str) -> Words:
    many = spec.get("completions", 0) > _COMPLETIONS_MANY and spec.get("parallelism", 0) > _PARALLELISM_MANY
    if many and spec.get("completionMode") == "Indexed":
        yield f"{path}: of so many indexes, those that have completed may not all be remembered when many fail"
    yield from _of_template(spec["template"], f"{path}.template.")


def of_runtime_class(new: Tree, _old: Tree | None) -> Words:
    for key in (new.get("scheduling") or {}).get("nodeSelector") or {}:
        if key in _OLD_LABELS:
            yield f"scheduling.nodeSelector: {key} {_OLD_LABELS[key]}"


def of_secret(new: Tree, _old: Tree | None) -> Words:
    if new.get("type") == "kubernetes.io/tls":
        certificate, key = (base64.b64decode(new["data"][name]) for name in ("tls.crt", "tls.key"))
        from kubemachinery import certificates  # takes long to import

        if not certificates.is_pair(certificate, key):
            yield "tls: the certificate or the key cannot be read, or they do not belong together"


def _counted(new: Tree, old: Tree | None) -> bool:
    """Whether the generation has changed."""
    return old is None or new["metadata"].get("generation") != old["metadata"].get("generation")


# --- Templates of pods ------------------------------------------------------------------------------------------------


def _of_template(template: Tree, path: str) -> Words:
    spec, notes = template.get("spec") or {}, (template.get("metadata") or {}).get("annotations") or {}
    yield from _nodes(spec, f"{path}spec")
    yield from _neighbours(spec, f"{path}spec")
    for key, field in _OLD_ANNOTATIONS.items():
        if key in notes:
            yield f'{path}metadata.annotations[{key}]: does nothing any more; use the field "{field}"'
    for at, volume in enumerate(spec.get("volumes") or ()):
        for field in _OLD_VOLUMES:
            if field in volume:
                yield f"{path}spec.volumes[{at}].{field}: volumes of this type are not supported any more"
        if any(not source for source in (volume.get("projected") or {}).get("sources") or ()):
            yield f'volume "{volume["name"]}": one of the sources that it projects is empty'
    yield from _twice(spec, f"{path}spec.hostAliases", "hostAliases", "ip")
    yield from _twice(spec, f"{path}spec.imagePullSecrets", "imagePullSecrets", "name")
    for at, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f"{path}spec.imagePullSecrets[{at}].name: names nothing"
    yield from _parts_of_bytes(spec.get("overhead"), f"{path}spec.overhead")
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield f"{path}spec.terminationGracePeriodSeconds: is taken for 1, because it is negative"
    yield from _containers(spec, f"{path}spec")


def _nodes(spec: Tree, path: str) -> Words:
    """Yield warnings for deprecated node labels."""
    for key in spec.get("nodeSelector") or {}:
        if key in _OLD_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_OLD_LABELS[key]}"
    wanted = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = [
        (term, f"{_REQUIRED}.nodeSelectorTerms[{at}]")
        for at, term in enumerate((wanted.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())
    ]
    terms += [
        (term.get("preference") or {}, f"{_PREFERRED}[{at}].preference")
        for at, term in enumerate(wanted.get(_PREFERRED) or ())
    ]
    for term, place in terms:
        for at, one in enumerate(term.get("matchExpressions") or ()):
            if one.get("key") in _OLD_LABELS:
                where = f"{path}.affinity.nodeAffinity.{place}.matchExpressions[{at}].key"
                yield f"{where}: {one['key']} {_OLD_LABELS[one['key']]}"


def _neighbours(spec: Tree, path: str) -> Words:
    """Yield warnings for absent label selectors, which select no pods instead of all."""
    for at, one in enumerate(spec.get("topologySpreadConstraints") or ()):
        place = f"{path}.topologySpreadConstraints[{at}]"
        if one.get("topologyKey") in _OLD_LABELS:
            yield f"{place}.topologyKey: {one['topologyKey']} {_OLD_LABELS[one['topologyKey']]}"
        if one.get("labelSelector") is None:
            yield f"{place}.labelSelector: {_SELECTS_NO_POD}"
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        for field, terms in (affinity.get(side) or {}).items():
            for at, term in enumerate(terms or ()):
                place, weighs = f"{path}.affinity.{side}.{field}[{at}]", field == _PREFERRED
                inner = (term.get("podAffinityTerm") or {}) if weighs else term
                if inner.get("labelSelector") is None:
                    yield f"{place}{'.podAffinityTerm' if weighs else ''}.labelSelector: {_SELECTS_NO_POD}"


def _twice(spec: Tree, path: str, field: str, key: str) -> Words:
    seen: set[str] = set()
    for at, one in enumerate(spec.get(field) or ()):
        value = one.get(key, "")
        if value in seen:
            yield f'{path}[{at}].{key}: "{value}" is there already'
        seen.add(value)


def _parts_of_bytes(amounts: Mapping[str, Any] | None, path: str) -> Words:
    for name in _IN_BYTES:
        if amounts and name in amounts and quantity.parse(amounts[name]).milli_value() % 1000:
            yield f'{path}[{name}]: "{amounts[name]}" is not a whole number of bytes'


def _containers(spec: Tree, path: str) -> Words:
    ports: list[tuple[str, Tree]] = []
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for number, container in enumerate(spec.get(field) or ()):
            place = f"{path}.{field}[{number}]"
            amounts = container.get("resources") or {}
            for side in ("limits", "requests"):
                yield from _parts_of_bytes(amounts.get(side), f"{place}.resources.{side}")
            yield from _variables(container.get("env") or (), f"{place}.env")
            ports += [(f"{place}.ports[{at}]", port) for at, port in enumerate(container.get("ports") or ())]
    yield from _ports(ports)


def _variables(env: Any, path: str) -> Words:
    seen: set[str] = set()
    for at, one in enumerate(env):
        name, value = one.get("name", ""), one.get("value", "")
        # A second value that builds upon the first is meant so.
        builds = f"$({name})" in value and value != f"$({name})" and not one.get("valueFrom")
        if name in seen and not builds:
            yield f'{path}[{at}]: hides what "{name}" was before, and apply may keep either'
        seen.add(name)


def _ports(ports: list[tuple[str, Tree]]) -> Words:
    for place, port in ports:
        if port.get("hostIP") and not port.get("hostPort"):
            yield f"{place}: has a hostIP and no hostPort"
    for (first, one), (second, other) in itertools.combinations(ports, 2):
        if why := _collision(one, other):
            yield f"{second}: {why} {first}"
    names: dict[str, str] = {}
    for place, port in ports:
        if name := port.get("name"):
            if name in names:
                yield f'{place}: is called "{name}" like {names[name]}, which clients find by that name'
            names.setdefault(name, place)


def _collision(one: Tree, other: Tree) -> str:
    """Return how two entries for the same port of a pod collide; "" where they do not."""
    if any(one.get(key) != other.get(key) for key in ("containerPort", "protocol")):
        return ""
    (address, port), (their_address, their_port) = ((each.get("hostIP"), each.get("hostPort")) for each in (one, other))
    if (address, port) == (their_address, their_port):
        return "is the same as"
    if not port or not their_port:
        return "overlaps with"
    if port == their_port and bool(address) != bool(their_address):
        return "is not distinguishable from"
    return ""
