"""The process of a container: command, environment, working directory, limits. A pod and its configuration in, a value
out.

The image is not used, and neither are its entrypoint, files and environment: a container without a command cannot run,
and the process has the file system and the permissions of the user who runs the server.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from kubemachinery import quantity, unstructured
from kubemachinery.unstructured import Tree

# The variables that a process inherits from the runner: enough to find programs and the home directory, no secrets.
INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)

LOOPBACK: Final = "127.0.0.1"
# The image of pods that `pykueue submit` creates for the process runner.
NO_IMAGE: Final = "none"

_VARIABLE: Final = re.compile(r"\$(\$|\(([^()]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_NAME: Final = re.compile(r"[^=\0]+")

# (kind, name) of the ConfigMaps and Secrets of the pod's namespace, with their entries.
Texts: TypeAlias = Mapping[tuple[str, str], Mapping[str, str]]


class ProcessSpec(msgspec.Struct, frozen=True):
    """The process to run, as `supervisor` reads it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    limits: Mapping[str, int] = msgspec.field(default_factory=dict)
    # The limit for all processes of the container together; None for no limit.
    memory_bytes: int | None = None


class StartProblem(msgspec.Struct, frozen=True):
    """Why a container cannot be started. A `lasting` problem is not retried."""

    reason: str
    message: str
    lasting: bool = False


class ProcessContext(msgspec.Struct, frozen=True):
    """What the machine adds: inherited environment, default working directory, environment for the assigned devices."""

    environment: Mapping[str, str]
    directory: str
    devices: Mapping[str, str] = msgspec.field(default_factory=dict)


def prepare(pod: Tree, container: Tree, texts: Texts, context: ProcessContext) -> ProcessSpec | StartProblem:
    """Return the process of one container, or why it cannot be started."""
    name = unstructured.text(container.get("name"))
    if not container.get("command"):
        why = f"container {name} has no command, and the process runner does not use the entrypoint of its image"
        return StartProblem("StartError", why, lasting=True)
    try:
        own = dict(_environment(pod, container, texts, context.devices))
    except LookupError as missing:
        return StartProblem("CreateContainerConfigError", str(missing.args[0]))
    words = (*unstructured.sequence(container.get("command")), *unstructured.sequence(container.get("args")))
    command = tuple(expand(unstructured.text(word), own) for word in words)
    environment = {
        **context.environment,
        "HOSTNAME": unstructured.text(unstructured.get(pod, "metadata", "name")),
        **own,
    }
    if any("\0" in text for text in (*command, *environment.values())):
        return StartProblem(
            "StartError", f"container {name} has a zero byte in its command or environment", lasting=True
        )
    directory = unstructured.text(container.get("workingDir")) or context.directory
    memory_bytes = _memory_bytes(container)
    return ProcessSpec(command, environment, directory, _limits(memory_bytes), memory_bytes)


def expand(text: str, values: Mapping[str, str]) -> str:
    """Expand `$(NAME)` to the variable and `$$` to a dollar sign; an unknown name is left unchanged."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return values.get(found[2], found[0])

    return _VARIABLE.sub(replaced, text)


def _memory_bytes(container: Tree) -> int | None:
    written = unstructured.texts(unstructured.get(container, "resources", "limits")).get("memory")
    return quantity.parse(written).value() if written is not None else None


def _limits(memory_bytes: int | None) -> dict[str, int]:
    """Return the resource limits of each process. RLIMIT_DATA bounds the private memory of one process; `supervisor`
    enforces the limit for all processes together. There is no rlimit for a share of a processor, and the limit on the
    number of processes counts per user, not per pod."""
    limits = {"RLIMIT_CORE": 0}
    if memory_bytes is not None:
        limits["RLIMIT_DATA"] = memory_bytes
    return limits


# --- The environment --------------------------------------------------------------------------------------------------


def sources(container: Tree) -> Iterator[tuple[str, str]]:
    """Yield the ConfigMaps and Secrets that the environment of a container refers to, as (kind, name)."""
    for _, entry in unstructured.entries(container, "envFrom"):
        yield from _named(entry, "configMapRef", "secretRef")
    for _, entry in unstructured.entries(container, "env"):
        yield from _named(unstructured.mapping(entry.get("valueFrom")), "configMapKeyRef", "secretKeyRef")


def _named(entry: Mapping[str, object], config_map: str, secret: str) -> Iterator[tuple[str, str]]:
    for kind, key in (("ConfigMap", config_map), ("Secret", secret)):
        if entry.get(key) is not None:
            yield kind, unstructured.text(unstructured.get(entry[key], "name"))


def texts_of(kind: str, tree: Tree) -> dict[str, str]:
    """Return the entries of a ConfigMap or a Secret as text."""
    if kind == "ConfigMap":
        return unstructured.texts(tree.get("data"))
    found = {}
    for key, encoded in unstructured.texts(tree.get("data")).items():
        try:
            found[key] = base64.b64decode(encoded).decode(errors="surrogateescape")
        except binascii.Error:
            continue  # the API server validates base64
    return found


def _environment(pod: Tree, container: Tree, texts: Texts, devices: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a container; later ones can refer to earlier ones. Raise `LookupError` if a source is
    missing."""
    values: dict[str, str] = {}
    for _, entry in unstructured.entries(container, "envFrom"):
        prefix = unstructured.text(entry.get("prefix"))
        for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            reference = entry.get(key)
            if reference is None:
                continue
            for name, value in _entries(kind, reference, texts).items():
                values[prefix + name] = value
    values |= devices
    for _, entry in unstructured.entries(container, "env"):
        name = unstructured.text(entry.get("name"))
        given = entry.get("valueFrom")
        if given is None:
            values[name] = expand(unstructured.text(entry.get("value")), values)
        elif (found := _from(pod, container, unstructured.mapping(given), texts)) is not None:
            values[name] = found
    return ((name, value) for name, value in values.items() if _NAME.fullmatch(name))


def _entries(kind: str, reference: object, texts: Texts) -> Mapping[str, str]:
    name = unstructured.text(unstructured.get(reference, "name"))
    found = texts.get((kind, name))
    if found is None and not unstructured.get(reference, "optional"):
        raise LookupError(f"{kind} {name} not found")
    return found or {}


def _from(pod: Tree, container: Tree, source: Mapping[str, object], texts: Texts) -> str | None:
    for kind, key in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        reference = source.get(key)
        if reference is not None:
            entry = unstructured.text(unstructured.get(reference, "key"))
            found = _entries(kind, reference, texts).get(entry)
            if found is None and not unstructured.get(reference, "optional"):
                raise LookupError(f"{kind} {unstructured.get(reference, 'name')} has no entry {entry}")
            return found
    if (path := unstructured.get(source, "fieldRef", "fieldPath")) is not None:
        return _field(pod, unstructured.text(path))
    if (wanted := source.get("resourceFieldRef")) is not None:
        return _resource(container, unstructured.mapping(wanted))
    raise LookupError(f"source {', '.join(sorted(source)) or '(none)'} of a variable is not supported")


def _field(pod: Tree, path: str) -> str:
    if keyed := _KEYED.fullmatch(path):
        return unstructured.texts(unstructured.get(pod, "metadata", keyed[1])).get(keyed[2], "")
    known = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName")
    if path in known:
        return unstructured.text(unstructured.get(pod, *path.split(".")))
    if path in ("status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs"):
        return LOOPBACK
    raise LookupError(f"fieldPath {path} is not supported")


def _resource(container: Tree, wanted: Mapping[str, object]) -> str:
    """Return a request or a limit as a multiple of the divisor, rounded up."""
    sort, _, name = unstructured.text(wanted.get("resource")).partition(".")
    written = unstructured.texts(unstructured.get(container, "resources", sort)).get(name)
    if written is None:
        raise LookupError(f"the container has no {sort}.{name}")
    divisor = quantity.parse(unstructured.text(wanted.get("divisor")) or "1")
    return str(-(-quantity.parse(written).milli_value() // (divisor.milli_value() or 1000)))


# --- Ignored fields ---------------------------------------------------------------------------------------------------


def ignored(pod: Tree) -> Iterator[str]:
    """Yield the note of an Event for each field of a pod that the process runner ignores."""
    spec = unstructured.mapping(pod.get("spec"))
    images = sorted(
        {unstructured.text(container.get("image")) for _, container in unstructured.entries(spec, "containers")}
    )
    if images != [NO_IMAGE]:
        yield f"the image is not used ({', '.join(images)}): commands run directly on this machine"
    volumes = [unstructured.text(volume.get("name")) for _, volume in unstructured.entries(spec, "volumes")]
    if volumes:
        yield f"volumes are not mounted: {', '.join(volumes)}"
    for field_name, note in _IGNORED_FIELDS.items():
        if any(container.get(field_name) for _, container in unstructured.entries(spec, "containers")):
            yield note
    as_user = unstructured.get(spec, "securityContext", "runAsUser")
    if as_user is not None:
        yield f"runAsUser {as_user} is ignored: processes run as the user who started the server"


_IGNORED_FIELDS: Final = {
    "livenessProbe": "liveness probes are not run",
    "readinessProbe": "readiness probes are not run: a container is ready while it runs",
    "startupProbe": "startup probes are not run",
    "lifecycle": "lifecycle hooks are not called",
}
