"""The log of a pod, line by line: once, or followed, with each line exactly once across reconnections."""

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
# Attempts to read the rest of a known log: a server that has just restarted may not have it yet.
_LAST_LOOKS: Final = 30
# The timestamp before each line, with `timestamps=true`.
_STAMP: Final = re.compile(rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d) ")
# The number of seconds whose line counts are kept, for clocks that are set back.
_SECONDS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log, and its pod."""

    pod: str
    text: bytes


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """The part of a log to read."""

    follow: bool = False
    previous: bool = False
    tail: int | None = None
    container: str = ""


# Reads a pod; None if it is deleted.
Look = Callable[[], Awaitable[kube.Pod | None]]


class PodLogReader:
    """Reads the log of one pod. It keeps its position: the next read continues after the last line."""

    def __init__(
        self, client: ApiClient, pod: kube.Pod, options: PodLogOptions, on_line: Callable[[LogLine], None]
    ) -> None:
        self._client = client
        self._pod = pod
        self._options = options
        self._on_line = on_line
        self._was_read = False
        # The number of lines read of each second, and the second and zone of the last line.
        self._lines: dict[bytes, int] = {}
        self._last = (b"", b"")

    async def follow(self, look: Look, is_over: Callable[[], bool]) -> None:
        """Read until the container or its pod has finished, and the log is read to its end."""
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
                has_ended = not self._was_read  # the server has no logs
            if is_last and has_ended:
                return
            pod = await look()
            if pod is None:
                return
            # Checked before the last read: all lines written before the end are then in the log.
            is_last = is_over() or has_finished(pod, self._options.container)
            if not (is_last and has_ended):
                await asyncio.sleep(_LOOK_SECONDS)

    async def _read_tail(self, count: int) -> None:
        """Write the last lines of the current log. All of it is read, to know where to continue."""
        kept: deque[LogLine] = deque(maxlen=count)
        on_line, self._on_line = self._on_line, kept.append
        self._options = replace(self._options, tail=None)
        with suppress(errors.NotFound):  # follow() reports it
            await self.read(is_last=False, follow=False)
        self._on_line = on_line
        for line in kept:
            on_line(line)

    async def read(self, *, is_last: bool = True, follow: bool | None = None) -> bool:
        """Write the lines after the last one. Returns whether that was all of them for now."""
        second, _ = self._last
        # sinceTime has whole seconds, so the lines of this second are sent again.
        again = sum(count for each, count in self._lines.items() if each >= second)
        try:
            async with self._client.stream(self._call(self._options.follow if follow is None else follow)) as lines:
                self._was_read = True
                async for line in lines:
                    if not (is_last or line.endswith(b"\n")):
                        return False  # the connection broke within the line
                    if again:
                        again -= 1
                    else:
                        self._on_line(LogLine(self._pod.metadata.name, self._noted(line)))
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
        """A line without its timestamp, if it has one."""
        found = _STAMP.match(line) if self._options.follow else None
        if found is not None:
            self._last, line = (found["second"], found["zone"]), line[found.end() :]
        second, _ = self._last
        self._lines[second] = self._lines.get(second, 0) + 1
        if len(self._lines) > _SECONDS_MAX:
            del self._lines[next(iter(self._lines))]
        return line


def has_begun(pod: kube.Pod, container: str) -> bool:
    """Whether the container, or the first one, may have a log. The server refuses an unknown container."""
    wanted = container or pod.spec.containers[0].name
    if all(one.name != wanted for one in (*pod.spec.init_containers, *pod.spec.containers)):
        return True
    status = _status(pod, wanted)
    return status is not None and (status.restart_count > 0 or (status.state is not None and not status.state.waiting))


def has_finished(pod: kube.Pod, container: str) -> bool:
    """Whether the container, or the first one, will write no more."""
    if pod.status.has_ended:
        return True
    status = _status(pod, container or pod.spec.containers[0].name)
    ended = status.state.terminated if status is not None and status.state is not None else None
    return ended is not None and (ended.exit_code == 0 or pod.spec.restart_policy == "Never")


def _status(pod: kube.Pod, container: str) -> kube.ContainerStatus | None:
    all_of_them = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((status for status in all_of_them if status.name == container), None)
