"""The containers and volumes of a pod: validation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kubemachinery import meta, quantity
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, forbidden, invalid, named, not_supported, required

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


# --- volumes --------------------------------------------------------------------------------------------------------


def validate_volumes(volumes: Any, path: str) -> Errors:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        sources = [source for source in _VOLUME_SOURCES if source in volume]
        if not sources:
            yield required(place, "must name the source of its content")
        for extra in sources[1:]:
            yield forbidden(f"{place}.{extra}", "a volume has one source, and another stands before this one")
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
        for source in ("configMap", "secret"):
            yield from _validate_files(volume.get(source, {}), f"{place}.{source}")
        yield from _validate_projected(volume.get("projected", {}), f"{place}.projected")
        yield from _validate_downward(volume.get("downwardAPI", {}), f"{place}.downwardAPI")
        if "emptyDir" in volume and "sizeLimit" in volume["emptyDir"]:
            limit = volume["emptyDir"]["sizeLimit"]
            if quantity.parse(limit).sign < 0:
                yield forbidden(f"{place}.emptyDir.sizeLimit", "a size is not negative")


def _validate_projected(projected: Tree, path: str) -> Errors:
    for number, projection in enumerate(projected.get("sources") or ()):
        place = f"{path}.sources[{number}]"
        for source in ("secret", "configMap"):
            if source in projection and not projection[source].get("name"):
                yield required(f"{place}.{source}.name")
            yield from _validate_files(projection.get(source, {}), f"{place}.{source}")
        yield from _validate_downward(projection.get("downwardAPI", {}), f"{place}.downwardAPI")
        if "serviceAccountToken" in projection:
            token = projection["serviceAccountToken"]
            lasts = f"{place}.serviceAccountToken.expirationSeconds"
            yield from checks.between(token.get("expirationSeconds", 3600), 600, 2**32, lasts)
            yield from _validate_inside(token.get("path", ""), f"{path}.path")


def _validate_files(source: Tree, path: str) -> Errors:
    """Keys that become files, each under a path of its own."""
    for number, item in enumerate(source.get("items") or ()):
        place = f"{path}.items[{number}]"
        if not item.get("key"):
            yield required(f"{place}.key")
        yield from _validate_inside(item.get("path", ""), f"{place}.path")
        yield from _validate_mode(item, place)


def _validate_inside(file: str, path: str) -> Errors:
    """The path of a file that has to be inside of its volume."""
    if not file:
        yield required(path)
    elif file.startswith(("/", "..")) or ".." in file.split("/"):
        yield invalid(path, file, "must be a path below the volume, and not begin with two dots")


def _validate_mode(item: Tree, path: str) -> Errors:
    if item.get("mode") is not None:
        yield from checks.between(item["mode"], 0, 0o777, f"{path}.mode")


def _validate_downward(source: Tree, path: str) -> Errors:
    for item in source.get("items", ()):
        yield from _validate_inside(item.get("path", ""), f"{path}.path")
        yield from _validate_mode(item, path)
        if "fieldRef" in item:
            field = item["fieldRef"].get("fieldPath", "")
            yield from _validate_field_path(field, f"{path}.fieldRef.fieldPath", _FIELDS_FOR_FILES)
        elif "resourceFieldRef" not in item:
            yield required(path, "needs fieldRef or resourceFieldRef")


def validate(spec: Tree, path: str) -> Errors:
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
                    yield forbidden(f"{place}.{probe}", "is not for an init container that ends")


def _validate_shared_ports(spec: Tree, path: str) -> Errors:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            for number, port in enumerate(container.get("ports", ())):
                if port.get("hostPort", 0) != port.get("containerPort", 0):
                    place = f"{path}.{field}[{index}].ports[{number}].hostPort"
                    yield invalid(place, port.get("hostPort", 0), "on the host's network it is the containerPort")


def _host_ports(spec: Tree, path: str) -> Iterator[tuple[str, object]]:
    """Yield every host port of the containers, with its path."""
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
        yield invalid(f"{path}.image", image, "has white space around it")
    yield from _validate_ports(container.get("ports", ()), f"{path}.ports")
    for index, variable in enumerate(container.get("env", ())):
        yield from _validate_variable(variable, f"{path}.env[{index}]")
    yield from _validate_mounts(container.get("volumeMounts", ()), f"{path}.volumeMounts", volumes)
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
            yield FieldError(place, ErrorType.NOT_FOUND, "", claim.get("name", ""))


def _validate_mounts(mounts: Any, path: str, volumes: set[str]) -> Errors:
    targets: set[str] = set()
    for index, mount in enumerate(mounts):
        place = f"{path}[{index}]"
        if not mount.get("name"):
            yield required(f"{place}.name")
        if mount.get("name", "") not in volumes:
            yield FieldError(f"{place}.name", ErrorType.NOT_FOUND, "", mount.get("name", ""))
        target = mount.get("mountPath", "")
        if not target:
            yield required(f"{place}.mountPath")
        elif target in targets:
            yield invalid(f"{place}.mountPath", target, "another mount is there already")
        targets.add(target)
        if mount.get("subPath", "").startswith("/"):
            why = "goes from the volume's root and begins without a slash"
            yield invalid(f"{place}.subPath", mount["subPath"], why)


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
        yield invalid(f"{path}.valueFrom", "", "names no source")
    elif variable.get("value"):
        yield invalid(f"{path}.valueFrom", "", "there is a value already")
    elif len(source) > 1:
        yield invalid(f"{path}.valueFrom", "", "names more than one source")
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
        field = source["fieldRef"].get("fieldPath", "")
        yield from _validate_field_path(field, f"{path}.valueFrom.fieldRef.fieldPath", _FIELDS_FOR_VARIABLES)


def _divisors(resource: str) -> frozenset[str]:
    return frozenset({"0", "1", "1m"}) if resource.endswith(".cpu") else _UNITS


def _validate_field_path(field: str, path: str, supported: tuple[str, ...]) -> Errors:
    if not field:
        yield required(path)
    elif field in supported or _FIELD_OF_MAP.fullmatch(field):
        return
    elif field in _FIELDS_KNOWN or field in _FIELDS_FOR_VARIABLES:
        yield not_supported(path, field, supported)
    else:
        yield invalid(path, field, "no such field can be asked for")


# The pod fields that the downward API offers in files or variables, and those of field selectors only.
_FIELDS_FOR_FILES: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
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
        yield required(path, "must specify an action")
    for extra in handlers[1:]:
        yield forbidden(f"{path}.{extra}", "there is another handler before this one")
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
