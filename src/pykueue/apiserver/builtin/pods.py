"""Pods and pod templates: what the server sets on its own, and what it does not let through."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final

from pykueue.api import meta, quantity, selectors
from pykueue.api.errors import ErrorSort, FieldError
from pykueue.apiserver.builtin import checks
from pykueue.apiserver.builtin.checks import Errors, Tree, forbidden, invalid, named, not_supported, required

_INT32_MAX: Final = 2**31 - 1
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9](-?[a-z0-9])*")
# In the order in which they are looked at: the first that is there counts, any other is one too many.
_VOLUME_SOURCES: Final = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
# Pods stay bound to a node in trouble for this long, unless they say otherwise.
_TROUBLES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TROUBLE_SECONDS: Final = 300
_UPDATABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
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
    _tolerate_troubles(spec)


def _tolerate_troubles(spec: Tree) -> None:
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
    _tolerate_troubles(new["spec"])
    # What was resolved when the pod came is not resolved again.
    for field in ("priority", "preemptionPolicy"):
        if field not in new["spec"] and field in old["spec"]:
            new["spec"][field] = old["spec"][field]


def on_status(new: Tree, old: Tree) -> None:
    # Once reckoned, the class stays; clients that do not know it leave it out.
    status = new.setdefault("status", {})
    if "qosClass" not in status and "qosClass" in old.get("status", {}):
        status["qosClass"] = old["status"]["qosClass"]


def quality_of_service(spec: Tree) -> str:
    """Guaranteed where every container has limits for both resources and asks for all of them."""
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
    yield from _validate_volumes(spec.get("volumes", ()), f"{path}.volumes")
    yield from _validate_containers(spec, path)
    yield from _validate_placement(spec, path)
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
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(place, claim, why)
    yield from checks.unique(
        (f"{path}.resourceClaims[{index}].name", claim.get("name"))
        for index, claim in enumerate(spec.get("resourceClaims", ()))
    )


def _validate_volumes(volumes: Any, path: str) -> Errors:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        sources = [source for source in _VOLUME_SOURCES if source in volume]
        if not sources:
            yield required(place, "must specify a volume type")
        for extra in sources[1:]:
            yield forbidden(f"{place}.{extra}", "may not specify more than 1 volume type")
        name = volume.get("name", "")
        if not name:
            yield required(f"{place}.name")
        else:
            yield from named(meta.check_label_name, name, f"{place}.name")
        if name in seen:
            yield checks.duplicate(f"{place}.name", name)
        seen.add(name)
        for source, field in (("secret", "secretName"), ("configMap", "name"), ("hostPath", "path")):
            if source in volume and not volume[source].get(field):
                yield required(f"{place}.{source}.{field}")
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            mode = volume.get(source, {}).get("defaultMode")
            if mode is not None:
                yield from checks.between(mode, 0, 0o777, f"{place}.{source}.defaultMode")
        for number, projection in enumerate(volume.get("projected", {}).get("sources") or ()):
            for source in ("secret", "configMap"):
                if source in projection and not projection[source].get("name"):
                    yield required(f"{place}.projected.sources[{number}].{source}.name")
        yield from _validate_downward(volume.get("downwardAPI", {}), f"{place}.downwardAPI")
        if "emptyDir" in volume and "sizeLimit" in volume["emptyDir"]:
            limit = volume["emptyDir"]["sizeLimit"]
            if quantity.parse(limit).sign < 0:
                yield forbidden(f"{place}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _validate_downward(source: Tree, path: str) -> Errors:
    for item in source.get("items", ()):
        if not item.get("path"):
            yield required(f"{path}.path")
        if "fieldRef" in item:
            if not item["fieldRef"].get("fieldPath"):
                yield required(f"{path}.fieldRef.fieldPath")
        elif "resourceFieldRef" not in item:
            yield required(path, "one of fieldRef and resourceFieldRef is required")


def _validate_containers(spec: Tree, path: str) -> Errors:
    volumes = {volume.get("name", "") for volume in spec.get("volumes", ())}
    claims = {claim.get("name", "") for claim in spec.get("resourceClaims", ())}
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    yield from checks.unique(_host_ports(spec, path))
    if spec.get("hostNetwork"):
        yield from _validate_shared_ports(spec, path)
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            place = f"{path}.{field}[{index}]"
            yield from _validate_container(container, place, volumes, claims)
            name = container.get("name", "")
            if name in names:
                yield checks.duplicate(f"{place}.name", name)
            names.add(name)
            policy = container.get("restartPolicy")
            if field == "initContainers" and policy == "Always":
                continue
            for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
                if field == "initContainers" and probe in container:
                    yield forbidden(
                        f"{place}.{probe}", "may not be set for init containers without restartPolicy=Always"
                    )


def _validate_shared_ports(spec: Tree, path: str) -> Errors:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            for number, port in enumerate(container.get("ports", ())):
                if port.get("hostPort", 0) != port.get("containerPort", 0):
                    place = f"{path}.{field}[{index}].ports[{number}].hostPort"
                    yield invalid(place, port.get("hostPort", 0), "must match `containerPort` on the host's network")


def _host_ports(spec: Tree, path: str) -> Iterator[tuple[str, object]]:
    """Every port of the host that the containers take, with its place."""
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                taken = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                yield f"{path}.containers[{index}].ports[{number}].hostPort", taken


def _validate_container(container: Tree, path: str, volumes: set[str], claims: set[str]) -> Errors:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    else:
        yield from named(meta.check_label_name, name, f"{path}.name")
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image.strip() != image:
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _validate_ports(container.get("ports", ()), f"{path}.ports")
    for index, variable in enumerate(container.get("env", ())):
        yield from _validate_variable(variable, f"{path}.env[{index}]")
    mounts: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        place = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            yield required(f"{place}.name")
        if mount.get("name", "") not in volumes:
            yield FieldError(f"{place}.name", ErrorSort.NOT_FOUND, "", mount.get("name", ""))
        target = mount.get("mountPath", "")
        if not target:
            yield required(f"{place}.mountPath")
        elif target in mounts:
            yield invalid(f"{place}.mountPath", target, "must be unique")
        mounts.add(target)
        if mount.get("subPath", "").startswith("/"):
            yield invalid(f"{place}.subPath", mount["subPath"], "must be a relative path")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if field in container:
            yield from _validate_probe(container[field], f"{path}.{field}", field)
    for moment, handler in container.get("lifecycle", {}).items():
        if isinstance(handler, dict):
            yield from _validate_handler(handler, f"{path}.lifecycle.{moment}")
    resources = container.get("resources", {})
    yield from checks.requirements(resources, f"{path}.resources")
    for index, claim in enumerate(resources.get("claims", ())):
        if claim.get("name") not in claims:
            place = f"{path}.resources.claims[{index}]"
            yield FieldError(place, ErrorSort.NOT_FOUND, "", claim.get("name", ""))


def _validate_ports(ports: Any, path: str) -> Errors:
    names: set[str] = set()
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            if len(name) > 15 or not _PORT_NAME.fullmatch(name):
                yield invalid(f"{place}.name", name, "must be at most 15 lower case letters, digits and single '-'")
            elif name in names:
                yield checks.duplicate(f"{place}.name", name)
            names.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            yield required(f"{place}.containerPort")
        else:
            yield from checks.between(number, 1, 65535, f"{place}.containerPort")
        if port.get("hostPort", 0):
            yield from checks.between(port["hostPort"], 1, 65535, f"{place}.hostPort")


def _validate_variable(variable: Tree, path: str) -> Errors:
    name = variable.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif "=" in name or not name.isprintable() or not name.isascii():
        yield invalid(f"{path}.name", name, "must be printable ASCII characters other than '='")
    source = variable.get("valueFrom")
    if source is None:
        return
    if not source:
        yield invalid(f"{path}.valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef` and others")
    elif variable.get("value"):
        yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif len(source) > 1:
        yield invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")
    for field in ("configMapKeyRef", "secretKeyRef"):
        if field in source:
            yield from named(meta.check_subdomain_name, source[field].get("name", ""), f"{path}.valueFrom.{field}.name")
            if not source[field].get("key"):
                yield required(f"{path}.valueFrom.{field}.key")
    if "resourceFieldRef" in source:
        resource = source["resourceFieldRef"].get("resource", "")
        place = f"{path}.valueFrom.resourceFieldRef.resource"
        if not resource:
            yield required(place)
        elif not _RESOURCE_FIELD.fullmatch(resource):
            yield not_supported(place, resource, _RESOURCE_FIELDS)
        elif source["resourceFieldRef"].get("divisor", "0") not in _divisors(resource):
            yield invalid(f"{path}.valueFrom.resourceFieldRef.divisor", resource, "must be one of a unit")
    if "fieldRef" in source:
        yield from _validate_field_path(source["fieldRef"].get("fieldPath", ""), f"{path}.valueFrom.fieldRef.fieldPath")


def _divisors(resource: str) -> frozenset[str]:
    return frozenset({"0", "1", "1m"}) if resource.endswith(".cpu") else _UNITS


def _validate_field_path(field: str, path: str) -> Errors:
    if not field:
        yield required(path)
    elif field in _FIELDS_KNOWN:
        yield not_supported(path, field, _FIELDS_FOR_VARIABLES)
    elif field not in _FIELDS_FOR_VARIABLES and not _FIELD_OF_MAP.fullmatch(field):
        yield invalid(path, field, "no such field can be asked for")


# The fields of a pod that its own containers can be told, and those that only a selector knows.
_FIELDS_FOR_VARIABLES: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.host",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_FIELDS_KNOWN: Final = frozenset(
    {
        "metadata.annotations",
        "metadata.labels",
        "spec.hostNetwork",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.nominatedNodeName",
        "status.phase",
    }
)
_FIELD_OF_MAP: Final = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")

_RESOURCE_FIELDS: Final = tuple(
    f"{field}.{name}" for field in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_UNITS: Final = frozenset({"0", "1", *(f"1{unit}{two}" for unit in "kKMGTPE" for two in ("", "i"))} - {"1ki", "1K"})
_RESOURCE_FIELD: Final = re.compile(r"(limits|requests)\.(cpu|ephemeral-storage|memory|hugepages-.+)")

_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def _validate_handler(tree: Tree, path: str) -> Errors:
    handlers = [handler for handler in _HANDLERS if handler in tree]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    for handler in handlers[:1]:
        port = tree[handler].get("port")
        if isinstance(port, int):
            yield from checks.between(port, 1, 65535, f"{path}.{handler}.port")
        elif isinstance(port, str) and (len(port) > 15 or not _PORT_NAME.fullmatch(port)):
            yield invalid(f"{path}.{handler}.port", port, "must be the name of a port")
    if handlers[:1] == ["exec"] and not tree["exec"].get("command"):
        yield required(f"{path}.exec.command")


def _validate_probe(probe: Tree, path: str, sort: str) -> Errors:
    yield from _validate_handler(probe, path)
    numbers = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    yield from checks.not_negative(probe, path, *numbers)
    if sort != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


# --- where it may run -------------------------------------------------------------------------------------------------

_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def _validate_placement(spec: Tree, path: str) -> Errors:
    yield from checks.labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    gates = spec.get("schedulingGates", ())
    for index, gate in enumerate(gates):
        place = f"{path}.schedulingGates[{index}]"
        yield from named(meta.check_qualified_name, gate.get("name", ""), place)
    yield from checks.unique((f"{path}.schedulingGates[{i}]", gate.get("name")) for i, gate in enumerate(gates))
    if gates and spec.get("nodeName"):
        yield forbidden(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")
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
            yield invalid(f"{at}.maxSkew", spread.get("maxSkew", 0), "must be greater than zero")
        if not spread.get("topologyKey"):
            yield required(f"{at}.topologyKey", "can not be empty")
        if not spread.get("whenUnsatisfiable"):
            yield not_supported(f"{at}.whenUnsatisfiable", "", ("DoNotSchedule", "ScheduleAnyway"))
        yield from selectors.check(spread.get("labelSelector"), f"{at}.labelSelector")


def _validate_toleration(toleration: Tree, path: str) -> Errors:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        yield from named(meta.check_qualified_name, key, f"{path}.key")
    elif operator != "Exists":
        yield invalid(f"{path}.operator", operator, "operator must be Exists when `key` is empty")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield invalid(f"{path}.effect", toleration.get("effect", ""), "must be 'NoExecute' for `tolerationSeconds`")
    if operator in ("", "Equal"):
        for complaint in meta.check_label_value(toleration.get("value", "")):
            yield invalid(f"{path}.operator", toleration.get("value", ""), complaint)
    elif operator == "Exists" and toleration.get("value"):
        yield invalid(f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")


def _validate_node_selector(selector: Tree, path: str) -> Errors:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _validate_term(term, f"{path}.nodeSelectorTerms[{index}]")


def _validate_term(term: Tree, path: str) -> Errors:
    for index, expression in enumerate(term.get("matchExpressions", ())):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or ()
        if operator in ("In", "NotIn") and not values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        elif operator in ("Gt", "Lt") and len(values) != 1:
            yield required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
            yield invalid(f"{at}.operator", operator, "not a valid selector operator")
        yield from named(meta.check_qualified_name, expression.get("key", ""), f"{at}.key")


def _validate_weight(preferred: Tree, path: str) -> Errors:
    if not 1 <= preferred.get("weight", 0) <= 100:
        yield invalid(f"{path}.weight", preferred.get("weight", 0), "must be in the range 1-100")


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
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from named(meta.check_qualified_name, term.get("topologyKey", ""), f"{path}.topologyKey")


# --- validation of a pod ----------------------------------------------------------------------------------------------


def validate(new: Tree, old: Tree | None, subresource: str) -> Errors:
    if subresource == "status" and old is not None:
        yield from _validate_status(new, old)
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
    """Hardly anything of a pod may change; what may is put back as it was, and the rest compared."""
    for field in ("containers", "initContainers"):
        if len(new.get(field) or ()) != len(old.get(field) or ()):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    yield from _validate_deadline(new, old)
    before = old.get("tolerations", [])
    after = new.get("tolerations", [])
    for toleration in before:
        if not any(_extends(one, toleration) for one in after):
            yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
            break
    old_gates = {gate.get("name") for gate in old.get("schedulingGates", ())}
    for index, gate in enumerate(new.get("schedulingGates", ())):
        if gate.get("name") not in old_gates:
            yield forbidden(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
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
            f"pod updates may not change fields other than {','.join(_UPDATABLE)}; changed: {', '.join(differing)}",
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
            yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif before is not None and after > before:
        yield invalid("spec.activeDeadlineSeconds", after, "must be less than or equal to previous value")


def _validate_gated(rest: Tree, old: Tree) -> Errors:
    """A pod that may not be scheduled yet may still be told where to run, as long as that only narrows its choice."""
    before, after = old.get("nodeSelector", {}), rest.get("nodeSelector", {})
    if before != after:
        if any(after.get(key) != value for key, value in before.items()):
            yield invalid("spec.nodeSelector", after, "only additions to spec.nodeSelector are allowed")
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
        yield invalid(path, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
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
            yield invalid(f"{path}[{index}]", term, "only additions are allowed (no mutations or deletions)")
