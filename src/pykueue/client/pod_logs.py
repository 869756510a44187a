"""The log of a pod, line by line: as it is, or as it grows, with every line once however often the server goes away."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from pykueue.api import kube, registry

PODS: Final = registry.ALL.of(kube.Pod)

_LOOK_SECONDS: Final = 0.3
# How often the rest of a log is asked for that was there before: a server that has just come back may not have it yet.
_LAST_LOOKS: Final = 30
# What a server puts before each line where it is asked when that was said.
_STAMP: Final = re.compile(rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d) ")
# Of so many seconds it is known how much was said in them, for clocks that are set back.
_SECONDS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log, and the pod that said it."""

    pod: str
    text: bytes


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """What of a log is wanted."""

    follow: bool = False
    previous: bool = False
    tail: int | None = None
    container: str = ""


# Looks at a pod; None where it is gone.
Look = Callable[[], Awaitable[kube.Pod | None]]


class PodLogReader:
    """Reads the log of one pod, and knows how far it has come: whoever reads again goes on after the last line."""

    def __init__(
        self, client: ApiClient, pod: kube.Pod, options: PodLogOptions, say: Callable[[LogLine], None]
    ) -> None:
        self._client = client
        self._pod = pod
        self._options = options
        self._say = say
        self._was_read = False
        # How many lines were read of each second in which lines were said, and the second and zone of the last one.
        self._lines: dict[bytes, int] = {}
        self._last = (b"", b"")

    async def follow(self, look: Look, is_over: Callable[[], bool]) -> None:
        """Read until the container, or whatever it is part of, is over, and the log is read to its end."""
        if self._options.tail is not None:
            await self._read_tail(self._options.tail)
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
            is_last = is_over() or has_finished(pod, self._options.container)
            if not (is_last and has_ended):
                await asyncio.sleep(_LOOK_SECONDS)

    async def _read_tail(self, count: int) -> None:
        """Say the last lines of what is there. All of it is read: who goes on has to know how much was there before."""
        kept: deque[LogLine] = deque(maxlen=count)
        said, self._say = self._say, kept.append
        self._options = replace(self._options, tail=None)
        with suppress(errors.NotFound):  # told by those who follow
            await self.read(is_last=False, follow=False)
        self._say = said
        for line in kept:
            said(line)

    async def read(self, *, is_last: bool = True, follow: bool | None = None) -> bool:
        """Say what comes after the last line; whether that was all of it, for now."""
        second, _ = self._last
        # A server goes by whole seconds, and tells once more what was said in this one.
        again = sum(count for each, count in self._lines.items() if each >= second)
        try:
            async with self._client.stream(self._call(self._options.follow if follow is None else follow)) as lines:
                self._was_read = True
                async for line in lines:
                    if not (is_last or line.endswith(b"\n")):
                        return False  # broken off within the line
                    if again:
                        again -= 1
                    else:
                        self._say(LogLine(self._pod.metadata.name, self._noted(line)))
        except errors.Unanswered:
            if not self._options.follow:
                raise
            return False
        return True

    def _call(self, follow: bool) -> ApiRequest:
        options, pod = self._options, self._pod
        query = [("container", options.container or pod.spec.containers[0].name)]
        query += [("follow", "true")] if follow else []
        query += [("timestamps", "true")] if options.follow else []
        query += [("previous", "true")] if options.previous else []
        query += [("tailLines", str(options.tail))] if options.tail is not None else []
        query += [("sinceTime", b"".join(self._last).decode())] if any(self._last) else []
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
        return ApiRequest("GET", path, tuple(query), accept="*/*")

    def _noted(self, line: bytes) -> bytes:
        """A line without the moment at which it was said, as far as that was asked and answered."""
        found = _STAMP.match(line) if self._options.follow else None
        if found is not None:
            self._last, line = (found["second"], found["zone"]), line[found.end() :]
        second, _ = self._last
        self._lines[second] = self._lines.get(second, 0) + 1
        if len(self._lines) > _SECONDS_MAX:
            del self._lines[next(iter(self._lines))]
        return line


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
