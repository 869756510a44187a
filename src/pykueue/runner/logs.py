"""Reading logs: the lines that a guardian wrote, as much of them as was asked for, and more as it comes.

A file has a line for each line or piece of one: time, stream, F or P, text (see `supervisor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.http_server import Request, Response, Write
from kubemachinery.unstructured import Tree
from pykueue.runner import container_attempts
from pykueue.runner.process_executor import ProcessExecutor

_LOOK_SECONDS: Final = 0.1
# A log to which nothing is written is looked at less often.
_LOOK_SECONDS_MAX: Final = 0.5
_PART_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """What of a log to show."""

    tail: int | None = None
    # In the spelling of the file, which sorts as time does.
    since: str = ""
    timestamps: bool = False
    bytes_max: int | None = None


class LogRequestError(Exception):
    """What was asked for cannot be shown, in a sentence."""


# --- Lines ------------------------------------------------------------------------------------------------------------


def log_text(entries: Iterator[bytes], wanted: PodLogOptions) -> Iterator[bytes]:
    """The text of entries: a whole line ends with a line break, a piece of one is followed by the rest of it."""
    lines: deque[bytes] | None = deque(maxlen=wanted.tail) if wanted.tail is not None else None
    line_begins = is_wanted = True
    text = b""
    for entry in entries:
        time, _, rest = entry.partition(b" ")
        _, _, rest = rest.partition(b" ")
        whole, _, said = rest.partition(b" ")
        if line_begins:  # which counts for all of it
            is_wanted = not wanted.since or time.decode() >= wanted.since
            text += time + b" " if is_wanted and wanted.timestamps else b""
        line_begins = whole == b"F"
        if not is_wanted:
            continue
        text += said + b"\n" if line_begins else said
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
    """A log that may still grow, part by part."""

    def __init__(self, path: Path, wanted: PodLogOptions) -> None:
        self._path = path
        self._wanted = wanted
        self._file: BinaryIO | None = None
        self._parts: Iterator[bytes] = iter(())

    def next(self) -> bytes:
        """The next part; nothing where all that is there has been read. Blocks on the disk."""
        if part := next(self._parts, b""):
            return part
        if self._file is None and not self._path.exists():
            return b""
        self._parts = _bundled(log_text(self._entries(), self._wanted))
        # What comes later is wanted whole.
        self._wanted = replace(self._wanted, tail=None)
        return next(self._parts, b"")

    def _entries(self) -> Iterator[bytes]:
        if self._file is None:
            older = self._path.with_name(f"{self._path.name}.old")
            if older.exists():
                with open(older, "rb") as file:
                    yield from _whole_lines(file)
            self._file = open(self._path, "rb")  # noqa: SIM115 - closed with the reader
        yield from _whole_lines(self._file)
        # The log of a pod that is deleted goes with it; what was open has been read.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino:
                # It was full, and the rest is in a new one.
                self._file.close()
                self._file = open(self._path, "rb")  # noqa: SIM115
                yield from _whole_lines(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The entries that are there; a file that is being written may end in the middle of one."""
    while line := file.readline():
        if not line.endswith(b"\n"):
            file.seek(-len(line), 1)
            return
        yield line[:-1]


def _bundled(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The same in fewer, larger parts."""
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


# --- Answering --------------------------------------------------------------------------------------------------------


class PodLogs:
    """What answers for `pods/log`."""

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
        is_running = (lambda: self._processes.is_running(uid, container)) if follows else (lambda: False)

        async def run(write: Write) -> None:
            await _copy(path, wanted, write, is_running)

        return Response(stream=run, content_type="text/plain")

    def _path(self, uid: str, container: str, *, previous: bool) -> Path:
        found = self._processes.logs(uid, container)
        if previous:
            if len(found) < 2:
                raise LogRequestError(f"container {container} has not run before")
            return found[-2]
        if not found:
            raise LogRequestError(f"container {container} has not started yet")
        return found[-1]

    def _wanted(self, request: Request) -> PodLogOptions:
        since = request.first("sinceTime")
        try:
            start = meta.parse_time(since) if since else 0
        except meta.TimeError as error:
            raise LogRequestError(f"sinceTime: {error}") from None
        if seconds := _number(request, "sinceSeconds"):
            start = self._now() - seconds * meta.SECOND
        return PodLogOptions(
            tail=_number(request, "tailLines"),
            since=f"{meta.format_micro_time(start)[:-1]}{start % 1000:03}Z" if start else "",
            timestamps=_flag(request, "timestamps"),
            bytes_max=_number(request, "limitBytes"),
        )


async def _copy(path: Path, wanted: PodLogOptions, write: Write, is_running: Callable[[], bool]) -> None:
    left = wanted.bytes_max
    pause = _LOOK_SECONDS
    with contextlib.closing(LogReader(path, wanted)) as reader:
        while True:
            # Asked before reading: whatever was written before it ended is read after.
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
    """The next part, read in a thread. A stream whose client is gone waits for the thread before the file is closed."""
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
            raise LogRequestError(f"container {named} is not in pod {unstructured.get(tree, 'metadata', 'name')}")
        return named
    mains = [
        unstructured.text(container.get("name")) for _, container in unstructured.entries(tree, "spec", "containers")
    ]
    if len(mains) > 1:
        raise LogRequestError(f"say which container, one of {', '.join(names)}")
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
