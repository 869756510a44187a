"""The subresource `pods/log`: reads the log files that supervisors write, and follows them.

A file has an entry for each line or part of a line: time, stream, F (full) or P (partial), text (see `supervisor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec.structs import replace

from kubemachinery import meta, unstructured
from kubemachinery.http_messages import Request, Response, Write
from kubemachinery.unstructured import Tree
from pykueue.runner import container_attempts
from pykueue.runner.process_executor import ProcessExecutor

_LOOK_SECONDS: Final = 0.1
# An idle log is polled less often.
_LOOK_SECONDS_MAX: Final = 0.5
# How often a log is looked for that is being rotated.
_ROTATION_LOOKS: Final = 20
_PART_BYTES: Final = 256 * 1024


class LogSelection(msgspec.Struct, frozen=True):
    """Which part of a log to return (`PodLogOptions` of Kubernetes)."""

    tail: int | None = None
    # In the format of the file, which sorts chronologically.
    since: str = ""
    timestamps: bool = False
    bytes_max: int | None = None


class LogRequestError(Exception):
    """The log cannot be returned; the message is the answer to the client."""


# --- Lines ------------------------------------------------------------------------------------------------------------


def log_text(entries: Iterator[bytes], wanted: LogSelection) -> Iterator[bytes]:
    """Yield the text of entries: a full entry ends a line, a partial one is continued by the next."""
    lines: deque[bytes] | None = deque(maxlen=wanted.tail) if wanted.tail is not None else None
    line_begins = is_wanted = True
    text = b""
    for entry in entries:
        time, _, rest = entry.partition(b" ")
        _, _, rest = rest.partition(b" ")
        whole, _, content = rest.partition(b" ")
        if line_begins:  # the time of the first entry applies to the whole line
            is_wanted = not wanted.since or time.decode() >= wanted.since
            text += time + b" " if is_wanted and wanted.timestamps else b""
        line_begins = whole == b"F"
        if not is_wanted:
            continue
        text += content + b"\n" if line_begins else content
        if lines is None:
            yield text
            text = b""
        elif line_begins:
            lines.append(text)
            text = b""
    if lines is not None:
        if text and wanted.tail:
            lines.append(text)
        yield from lines


class LogReader:
    """Reads a log part by part: with `follows` what is added too, otherwise what there is at the first read."""

    def __init__(self, path: Path, wanted: LogSelection, *, follows: bool = True) -> None:
        self._path = path
        self._wanted = wanted
        self._follows = follows
        self._is_over = False
        self._older: BinaryIO | None = None
        self._file: BinaryIO | None = None
        self._parts: Iterator[bytes] = iter(())

    def next(self) -> bytes:
        """Return the next part; empty at the current end of the log. Blocks on the disk."""
        if part := next(self._parts, b""):
            return part
        if self._is_over or (self._file is None and not self._open()):
            return b""
        self._is_over = not self._follows
        # A process may write faster than a client reads: without a bound, the search for the last lines, or a read that
        # does not follow, would not end.
        is_bounded = self._is_over or self._wanted.tail is not None
        self._parts = _bundled(log_text(self._entries(is_bounded=is_bounded), self._wanted))
        # The tail option applies to the first read only.
        self._wanted = replace(self._wanted, tail=None)
        return next(self._parts, b"")

    def _entries(self, *, is_bounded: bool) -> Iterator[bytes]:
        assert self._file is not None, "opened before the first read"
        if self._older is not None:
            with self._older as file:
                yield from _whole_lines(file)
            self._older = None
        if is_bounded:
            yield from _whole_lines(self._file, os.fstat(self._file.fileno()).st_size)
            return
        yield from _whole_lines(self._file)
        # The log of a deleted pod is deleted with it; the open file has been read.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino:
                # The file was rotated; the rest is in a new one.
                self._file.close()
                self._file = open(self._path, "rb")  # noqa: SIM115
                yield from _whole_lines(self._file)

    def _open(self) -> bool:
        """Open the rotated file and the present one; return whether there is a log.

        They are opened together, so that no file comes between them while the first is read, and so that the log of a
        pod that is deleted meanwhile is read to its end.
        """
        older_path = self._path.with_name(f"{self._path.name}.old")
        for _ in range(_ROTATION_LOOKS):
            older, file = _opened(older_path), _opened(self._path)
            if file is not None and _is_at(older, older_path):
                self._older, self._file = older, file
                return True
            for one in (older, file):
                if one is not None:
                    one.close()
            if older is None and file is None:
                return False
            # It was rotated in between, or is: the file is replaced first, and then created.
            time.sleep(_LOOK_SECONDS)
        return False

    def close(self) -> None:
        for file in (self._older, self._file):
            if file is not None:
                file.close()


def _opened(path: Path) -> BinaryIO | None:
    with contextlib.suppress(FileNotFoundError):
        return open(path, "rb")
    return None


def _is_at(file: BinaryIO | None, path: Path) -> bool:
    """Whether the path still has the file that was opened there; None where there was none."""
    try:
        found = path.stat().st_ino
    except FileNotFoundError:
        return file is None
    return file is not None and os.fstat(file.fileno()).st_ino == found


def _whole_lines(file: BinaryIO, size: float = math.inf) -> Iterator[bytes]:
    """Yield the complete entries in so many bytes; a file that is being written may end within an entry."""
    while size > 0 and (line := file.readline()):
        if not line.endswith(b"\n"):
            file.seek(-len(line), 1)
            return
        size -= len(line)
        yield line[:-1]


def _bundled(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Join texts into fewer, larger parts."""
    parts: list[bytes] = []
    size = 0
    for text in texts:
        parts.append(text)
        size += len(text)
        if size >= _PART_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


# --- Requests ---------------------------------------------------------------------------------------------------------


class PodLogs:
    """The handler of `pods/log`."""

    def __init__(self, processes: ProcessExecutor, now: Callable[[], int]) -> None:
        self._processes = processes
        self._now = now

    async def __call__(self, tree: Tree, request: Request) -> Response:
        try:
            uid, container = unstructured.text(unstructured.get(tree, "metadata", "uid")), _container(tree, request)
            wanted = self._wanted(request)
            path = self._path(uid, container, previous=_flag(request, "previous"))
        except LogRequestError as why:
            return _refusal(str(why))
        follows = _flag(request, "follow") and not _flag(request, "previous")
        reader = LogReader(path, wanted, follows=follows)
        is_running = (lambda: self._processes.is_running(uid, container)) if follows else (lambda: False)

        async def run(write: Write) -> None:
            await _copy(reader, wanted.bytes_max, write, is_running)

        return Response(stream=run, content_type="text/plain")

    def _path(self, uid: str, container: str, *, previous: bool) -> Path:
        found = self._processes.logs(uid, container)
        if previous:
            if len(found) < 2:
                raise LogRequestError(f"previous terminated container {container} not found")
            return found[-2]
        if not found:
            raise LogRequestError(f"container {container} has not started yet")
        return found[-1]

    def _wanted(self, request: Request) -> LogSelection:
        since = request.first("sinceTime")
        try:
            start = meta.parse_time(since) if since else 0
        except meta.TimeError as error:
            raise LogRequestError(f"sinceTime: {error}") from None
        if seconds := _number(request, "sinceSeconds"):
            start = self._now() - seconds * meta.SECOND
        return LogSelection(
            tail=_number(request, "tailLines"),
            since=f"{meta.format_micro_time(start)[:-1]}{start % 1000:03}Z" if start else "",
            timestamps=_flag(request, "timestamps"),
            bytes_max=_number(request, "limitBytes"),
        )


async def _copy(reader: LogReader, left: int | None, write: Write, is_running: Callable[[], bool]) -> None:
    """Write a log, or so many bytes of it, until it is read and its process has ended."""
    pause = _LOOK_SECONDS
    with contextlib.closing(reader):
        while True:
            # Checked before reading, so that everything written before the end is read.
            more = is_running()
            pause = min(pause * 1.5, _LOOK_SECONDS_MAX)
            while part := await _next(reader):
                pause = _LOOK_SECONDS
                await write(part if left is None else part[:left])
                if left is not None and (left := left - len(part)) <= 0:
                    return
            if not more:
                return
            await asyncio.sleep(pause)


async def _next(reader: LogReader) -> bytes:
    """Return the next part, read in a thread. On cancellation the thread ends before the file is closed."""
    reading = asyncio.create_task(asyncio.to_thread(reader.next))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait([reading])
        raise


def _container(tree: Tree, request: Request) -> str:
    names = container_attempts.names(tree)
    named = request.first("container")
    if named:
        if named not in names:
            raise LogRequestError(
                f"container {named} is not valid for pod {unstructured.get(tree, 'metadata', 'name')}"
            )
        return named
    mains = [
        unstructured.text(container.get("name")) for _, container in unstructured.entries(tree, "spec", "containers")
    ]
    if len(mains) > 1:
        raise LogRequestError(f"a container name must be specified, one of: {', '.join(names)}")
    return mains[0]


def _flag(request: Request, name: str) -> bool:
    return request.first(name) in ("true", "1")


def _number(request: Request, name: str) -> int | None:
    text = request.first(name)
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise LogRequestError(f"{name}: {text[:100]!r} is not a number")
    return int(text)


def _refusal(why: str) -> Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": why,
        "reason": "BadRequest",
        "code": 400,
    }
    return Response(status=400, body=msgspec.json.encode(status))
