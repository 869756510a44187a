"""The containers of a pod and how often each was tried: what decisions about a pod rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kubemachinery import meta, unstructured
from kubemachinery.unstructured import Tree

_LOST_CODE: Final = 137


@dataclass(frozen=True, slots=True)
class Termination:
    """How an attempt ended."""

    code: int
    at: int
    signal: int = 0
    reason: str = ""
    message: str = ""


def lost_termination(now: int) -> Termination:
    """The end of something that is not there any more, and left no word of how it ended."""
    return Termination(_LOST_CODE, now, reason="Lost", message="it ended while nobody was there to see how")


@dataclass(frozen=True, slots=True)
class ContainerAttempt:
    """One run of one container; the number counts from 0."""

    number: int
    started: int
    ended: Termination | None = None


# The attempts of each container that are still known, the latest last.
Attempts: TypeAlias = Mapping[str, Sequence[ContainerAttempt]]


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container of a pod, with what was tried."""

    tree: Mapping[str, Any]
    made: Sequence[ContainerAttempt]
    is_init: bool

    @property
    def name(self) -> str:
        return unstructured.text(self.tree.get("name"))

    @property
    def is_sidecar(self) -> bool:
        """Whether it starts first, but then runs beside the others."""
        return self.is_init and self.tree.get("restartPolicy") == "Always"

    @property
    def is_running(self) -> bool:
        return bool(self.made) and self.made[-1].ended is None

    @property
    def end(self) -> Termination | None:
        """How the last attempt ended; None where there was none, or it still runs."""
        return self.made[-1].ended if self.made else None

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.code == 0

    @property
    def lets_others_start(self) -> bool:
        """Of an init container: whether the next one may start."""
        return bool(self.made) if self.is_sidecar else self.succeeded


def containers(pod: Tree, attempts: Attempts) -> tuple[list[PodContainer], list[PodContainer]]:
    """The init containers of a pod, and the others."""

    def read(field: str, is_init: bool) -> list[PodContainer]:
        found = [tree for _, tree in unstructured.entries(pod, "spec", field)]
        return [PodContainer(tree, attempts.get(unstructured.text(tree.get("name")), ()), is_init) for tree in found]

    return read("initContainers", True), read("containers", False)


def names(pod: Tree) -> list[str]:
    """The containers of a pod, those that run first before the others."""
    return [container.name for both in containers(pod, {}) for container in both]


def find(pod: Tree, name: str) -> Tree | None:
    """The container of that name."""
    return next((dict(one.tree) for both in containers(pod, {}) for one in both if one.name == name), None)


# --- What only the pod's own status knows -----------------------------------------------------------------------------


def with_lost(pod: Tree, attempts: Attempts, now: int) -> Attempts:
    """The attempts, and those that nobody knows of but the pod's status: they ended, and nobody saw how."""
    return {**dict(_told(pod, now)), **attempts}


def _told(pod: Tree, now: int) -> Iterator[tuple[str, Sequence[ContainerAttempt]]]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for _, status in unstructured.entries(pod, "status", field):
            running = unstructured.get(status, "state", "running")
            over = unstructured.mapping(unstructured.get(status, "state", "terminated"))
            if running is None and not over:
                continue
            started = _moment(unstructured.get(running or over, "startedAt"))
            number = unstructured.integer(status.get("restartCount")) or 0
            yield (
                unstructured.text(status.get("name")),
                (ContainerAttempt(number, started, _end(over) if over else lost_termination(now)),),
            )


def _end(over: Mapping[str, Any]) -> Termination:
    return Termination(
        unstructured.integer(over.get("exitCode")) or 0,
        _moment(over.get("finishedAt")),
        unstructured.integer(over.get("signal")) or 0,
        unstructured.text(over.get("reason")),
        unstructured.text(over.get("message")),
    )


def _moment(written: object) -> int:
    return meta.parse_time(written) if isinstance(written, str) else 0
