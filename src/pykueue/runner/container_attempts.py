"""The containers of a pod and the attempts to run each of them: the input of decisions about a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import kube

_LOST_CODE: Final = 137


class Termination(msgspec.Struct, frozen=True):
    """How an attempt ended (`state.terminated` of a container status)."""

    code: int
    at: int
    signal: int = 0
    reason: str = ""
    message: str = ""


def lost_termination(at: int) -> Termination:
    """Return the termination of an attempt whose process is gone and left no record of its exit.

    Its end is not known. `at` is the last time at which the process is known to have run.
    """
    return Termination(
        _LOST_CODE,
        at,
        reason=kube.LOST,
        message="the container ended while it was not supervised; its exit code is unknown",
    )


class ContainerAttempt(msgspec.Struct, frozen=True):
    """One run of one container; numbers start at 0."""

    number: int
    started: int
    ended: Termination | None = None


# The recorded attempts by container, latest last.
Attempts: TypeAlias = Mapping[str, Sequence[ContainerAttempt]]


class PodContainer(msgspec.Struct, frozen=True):
    """A container of a pod with its attempts."""

    tree: Mapping[str, Any]
    made: Sequence[ContainerAttempt]
    is_init: bool

    @property
    def name(self) -> str:
        return unstructured.text(self.tree.get("name"))

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container with restartPolicy Always, which runs beside the main containers."""
        return self.is_init and self.tree.get("restartPolicy") == "Always"

    @property
    def is_running(self) -> bool:
        return bool(self.made) and self.made[-1].ended is None

    @property
    def end(self) -> Termination | None:
        """The termination of the last attempt; None if there was no attempt or it still runs."""
        return self.made[-1].ended if self.made else None

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.code == 0

    @property
    def lets_others_start(self) -> bool:
        """For an init container: whether the next container may start."""
        return bool(self.made) if self.is_sidecar else self.succeeded


def containers(pod: Tree, attempts: Attempts) -> tuple[list[PodContainer], list[PodContainer]]:
    """Return the init containers of a pod, and its main containers."""

    def read(field: str, is_init: bool) -> list[PodContainer]:
        found = [tree for _, tree in unstructured.entries(pod, "spec", field)]
        return [PodContainer(tree, attempts.get(unstructured.text(tree.get("name")), ()), is_init) for tree in found]

    return read("initContainers", True), read("containers", False)


def names(pod: Tree) -> list[str]:
    """Return the names of the containers of a pod, init containers first."""
    return [container.name for both in containers(pod, {}) for container in both]


def find(pod: Tree, name: str) -> Tree | None:
    """Return the container of that name, or None."""
    return next((dict(one.tree) for both in containers(pod, {}) for one in both if one.name == name), None)


# --- Attempts recorded only in the status of the pod ------------------------------------------------------------------


def with_lost(pod: Tree, attempts: Attempts) -> Attempts:
    """Return the attempts of the executor, plus those that only the status of the pod records, as lost."""
    return {**dict(_from_status(pod)), **attempts}


def _from_status(pod: Tree) -> Iterator[tuple[str, Sequence[ContainerAttempt]]]:
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
                (ContainerAttempt(number, started, _end(over) if over else lost_termination(started)),),
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
