"""The log of a pod, line by line: as it is, or as it grows, with every line once however often the server goes away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pykueue.api import kube, registry
from pykueue.kube import errors
from pykueue.kube.client import Client
from pykueue.kube.transport import Call

PODS: Final = registry.ALL.of(kube.Pod)

_LOOK_SECONDS: Final = 0.3
# How often the rest of a log is asked for that was there before: a server that has just come back may not have it yet.
_LAST_LOOKS: Final = 30
# What a server puts before each line where it is asked when that was said.
_STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) ")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log, and the pod that said it."""

    pod: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a log is wanted."""

    follow: bool = False
    previous: bool = False
    tail: int | None = None
    container: str = ""


# Looks at a pod; None where it is gone.
Look = Callable[[], Awaitable[kube.Pod | None]]


class Reader:
    """Reads the log of one pod, and knows how far it has come: whoever reads again goes on after the last line."""

    def __init__(self, client: Client, pod: kube.Pod, wish: Wish, say: Callable[[Line], None]) -> None:
        self._client = client
        self._pod = pod
        self._wish = wish
        self._say = say
        self._was_read = False
        self._stamp = b""  # when the last line was said,
        self._count = 0  # and how many of that very moment were read

    async def follow(self, look: Look, is_over: Callable[[], bool]) -> None:
        """Read until the container, or whatever it is part of, is over, and the log is read to its end."""
        is_last, looks = False, 0
        while True:
            try:
                has_ended = await self.read(is_last=is_last)
            except errors.ApiError as error:
                looks += is_last
                if looks == _LAST_LOOKS or not (self._was_read or isinstance(error, errors.NotFound)):
                    raise
                has_ended = not self._was_read  # nobody keeps logs here
            if is_last and has_ended:
                return
            pod = await look()
            if pod is None:
                return
            # Asked before the last look at the log: whatever was said before the end is there by then.
            is_last = is_over() or has_finished(pod, self._wish.container)
            if not (is_last and has_ended):
                await asyncio.sleep(_LOOK_SECONDS)

    async def read(self, *, is_last: bool = True) -> bool:
        """Say what comes after the last line; whether that was all of it, for now."""
        seen = self._count
        try:
            async with self._client.lines(self._call()) as lines:
                self._was_read = True
                async for line in lines:
                    if not (is_last or line.endswith(b"\n")):
                        return False  # broken off within the line
                    stamp, text = self._parted(line)
                    if stamp < self._stamp:
                        continue
                    if stamp == self._stamp and seen:
                        seen -= 1
                        continue
                    self._count = self._count + 1 if stamp == self._stamp else 1
                    self._stamp = stamp
                    self._say(Line(self._pod.metadata.name, text))
        except errors.Unanswered:
            if not self._wish.follow:
                raise
            return False
        return True

    def _call(self) -> Call:
        wish, pod = self._wish, self._pod
        query = [("container", wish.container or pod.spec.containers[0].name)]
        query += [("follow", "true"), ("timestamps", "true")] if wish.follow else []
        query += [("previous", "true")] if wish.previous else []
        if self._stamp:
            query += [("sinceTime", self._stamp.decode())]
        elif wish.tail is not None:
            query += [("tailLines", str(wish.tail))]
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
        return Call("GET", path, tuple(query), accept="*/*")

    def _parted(self, line: bytes) -> tuple[bytes, bytes]:
        """When a line was said, as far as that was asked and answered, and the line."""
        found = _STAMP.match(line) if self._wish.follow else None
        return (found[0].rstrip(), line[found.end() :]) if found is not None else (b"", line)


def has_begun(pod: kube.Pod, container: str) -> bool:
    """Whether the container, or the first one, has something to tell; of one that is not there, the server says so."""
    wanted = container or pod.spec.containers[0].name
    if all(one.name != wanted for one in (*pod.spec.init_containers, *pod.spec.containers)):
        return True
    status = _status(pod, wanted)
    return status is not None and (status.restart_count > 0 or (status.state is not None and not status.state.waiting))


def has_finished(pod: kube.Pod, container: str) -> bool:
    """Whether the container, or the first one, has said all that it will ever say."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    status = _status(pod, container or pod.spec.containers[0].name)
    ended = status.state.terminated if status is not None and status.state is not None else None
    return ended is not None and (ended.exit_code == 0 or pod.spec.restart_policy == "Never")


def _status(pod: kube.Pod, container: str) -> kube.ContainerStatus | None:
    all_of_them = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((status for status in all_of_them if status.name == container), None)
