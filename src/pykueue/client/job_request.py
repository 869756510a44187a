"""A request to run a command, and the Job for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from kubemachinery import meta, quantity
from kubemachinery.errors import UsageError
from pykueue.api import labels

CONTAINER: Final = "main"
# The default request.
CPU: Final = "1"
GPU: Final = "nvidia.com/gpu"
# The image of jobs that run as processes, which use none.
NO_IMAGE: Final = "none"

# When a job was submitted, finer than the second in which it was created.
SUBMITTED_AT: Final = "pykueue.io/submitted-at"

# Less is a mistake: a number without a suffix is bytes, and one with m thousandths of bytes.
_MEMORY_LEAST: Final = quantity.Quantity(2**20)

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A command with its options."""

    command: Sequence[str]
    queue: str
    namespace: str
    name: str = ""
    cpu: str = CPU
    memory: str = ""
    gpus: int = 0
    parallelism: int = 1
    retries: int = 0
    time_limit_seconds: int | None = None
    expected_seconds: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    image: str = NO_IMAGE
    directory: str = ""


def with_local_environment(order: JobRequest, environment: Mapping[str, str], directory: str) -> JobRequest:
    """The request with the working directory and the PATH of the submitting process."""
    path = {"PATH": environment["PATH"]} if "PATH" in environment else {}
    return replace(order, environment={**path, **order.environment}, directory=directory)


def _check_text(place: str, given: object) -> None:
    """Refuse what a process cannot get as a word of its command or as a value of its environment."""
    if not isinstance(given, str):
        raise UsageError(f"{place}: {given!r} is not text")
    if "\0" in given or any("\ud800" <= character <= "\udfff" for character in given):
        raise UsageError(f"{place}: {given!r} has a character that cannot be sent")


def job(order: JobRequest, now: int) -> dict[str, Any]:
    """The Job of a request; without a name, its name is generated from the command."""
    if not order.command or not order.command[0]:
        raise UsageError("the command is empty: its first word is the program to run")
    for place, given in (
        *(("command", word) for word in order.command),
        *((f"environment {name}", value) for name, value in order.environment.items()),
    ):
        _check_text(place, given)
    requests = {"cpu": order.cpu, "memory": order.memory, GPU: str(order.gpus) if order.gpus else ""}
    requests = {name: text for name, text in requests.items() if text}
    # Memory and devices are also limits; cpu has none, so that idle cpu can be used.
    limits = {name: text for name, text in requests.items() if name != "cpu"}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": order.image,
        "command": [literal(word) for word in order.command],
        "resources": {"requests": requests, **({"limits": limits} if limits else {})},
    }
    if order.environment:
        container["env"] = [{"name": name, "value": literal(value)} for name, value in order.environment.items()]
    if order.directory:
        container["workingDir"] = order.directory
    spec: dict[str, Any] = {
        "backoffLimit": order.retries,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    if order.parallelism > 1:
        spec |= {
            "parallelism": order.parallelism,
            "completions": order.parallelism,
            "completionMode": "Indexed",
        }
    if order.time_limit_seconds is not None:
        spec["activeDeadlineSeconds"] = order.time_limit_seconds
    marks = {labels.QUEUE_NAME: order.queue}
    if order.priority_class:
        marks[labels.PRIORITY_CLASS] = order.priority_class
    naming = {"name": order.name} if order.name else {"generateName": f"{_base(order.command)}-"}
    annotations = {SUBMITTED_AT: meta.format_micro_time(now)}
    if order.expected_seconds is not None:
        annotations[labels.EXPECTED_TIME] = meta.format_duration(order.expected_seconds * meta.SECOND)
    metadata = {**naming, "namespace": order.namespace, "labels": marks, "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def literal(text: str) -> str:
    """The text as a container receives it unchanged: Kubernetes replaces `$(NAME)` and `$$` in commands and in the
    values of variables, so that every dollar sign is doubled."""
    return text.replace("$", "$$")


def _base(command: Sequence[str]) -> str:
    """The name of the program, as a valid name of an object."""
    name = PurePosixPath(command[0]).name.lower()
    return re.sub("[^a-z0-9]+", "-", name).strip("-")[:40] or "job"


# --- Options ----------------------------------------------------------------------------------------------------------


def amount(text: str, option: str) -> str:
    """A valid quantity, such as `16G`, `2`, `16Gi` or `500m`."""
    try:
        found = quantity.parse(text)
    except quantity.QuantityError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    if found.sign <= 0:
        raise UsageError(f"{option} {text}: must be greater than 0")
    if option.endswith("memory") and found < _MEMORY_LEAST:
        raise UsageError(f"{option} {text}: is less than one mebibyte; 5Gi is five gibibytes")
    return text


def seconds(text: str, option: str) -> int:
    """A duration such as `90s` or `1h30m`, in whole seconds."""
    try:
        found = meta.parse_duration(text) // meta.SECOND
    except meta.TimeError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    if found < 1:
        raise UsageError(f"{option} {text}: must be at least a second")
    return found


def variables(given: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Environment variables from `NAME=VALUE`, or `NAME` for its value in `own`."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env {text}: must be NAME=VALUE or NAME")
        if not equals and name not in own:
            raise UsageError(f"--env {name}: is not set in the environment; use {name}=VALUE")
        found[name] = value if equals else own[name]
    return found
