"""Watches: every matching change from a revision onward, in order, exactly once; with bookmarks in between.

A watch holds no buffer. It keeps the revision up to which its client has seen events, and reads on in the history that
`objects` keeps anyway; a commit only wakes it. So a slow reader costs no memory and never blocks a writer. One
that takes nothing for ten seconds is cut off; one that falls behind the history gets 410 and lists again.

A watch inside the process sends its events itself. One over the network does so until it has reached the present, and
then receives them in the rounds of `fan_out`; its own task sends bookmarks, and waits where the client is slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubemachinery import status
from kubemachinery.http_messages import PromptWrite, SharedChunk, StreamDropped, Write
from kubemachinery.turns import TURN_SECONDS
from kubeserver.storage.entries import ObjectEntry, StoreChange
from kubeserver.storage.fan_out import EncodedEvents, FanOut
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import WriteOperation

BOOKMARK_SECONDS: Final = 60.0
STALL_SECONDS: Final = 10.0
CHUNK_BYTES: Final = 256 * 1024
# The last bookmark comes this long before the end, so that the client resumes from nearly the present.
LAST_BOOKMARK_SECONDS: Final = 2.0
# What is encoded for a round at once: so many bytes, which fit into the caches of a processor while they are encrypted
# for one watch after another; and so many changes, also where few of them are selected.
ROUND_BYTES: Final = 64 * 1024
ROUND_CHANGES: Final = 500

Match = Callable[[ObjectEntry], bool]


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What a client asked to watch.

    `after` is the revision after which events begin; None: first the current objects, then events. `end_initial` asks
    for the bookmark that ends the initial events. `present` encodes an entry in the form that the client asked for, and
    `bookmark(revision, ends_initial)` the object of a bookmark.
    """

    resource: str
    namespace: str
    match: Match | None
    after: int | None
    present: Callable[[ObjectEntry], bytes]
    bookmark: Callable[[int, bool], bytes]
    bookmarks: bool = False
    end_initial: bool = False
    timeout_seconds: float = 1800.0
    # Watches of a resource with equal selections have the same `namespace`, `match` and `present`; None: its own.
    selection: Hashable = None


class WatchStopped(Exception):
    """The watched kind was deleted or has changed, or the server stops."""


class WatchStream:
    """One open watch. With a `FanOut`, and a writer that can write without waiting, it is a `LiveWatch`."""

    def __init__(self, objects: Objects, watch: Watch, fan_out: FanOut | None = None) -> None:
        self._objects = objects
        self._collection = objects.collection(watch.resource)
        self._listeners = self._collection.listeners
        self._watch = watch
        self._fan_out = fan_out
        self._writer: PromptWrite | None = None
        self._is_in_rounds = False
        self._wake = asyncio.Event()
        self._stopped = False
        self.is_held = False
        self.delivered = 0

    def stop(self) -> None:
        """End the stream, as at its timeout."""
        self._stopped = True
        self._wake.set()

    def _notice(self, change: StoreChange) -> None:
        self._wake.set()

    async def run(self, write: Write) -> None:
        self._listeners[self._notice] = None
        if self._fan_out is not None and isinstance(write, PromptWrite):
            self._writer = write
        try:
            await self._run(_with_stall_timeout(write))
        except status.StatusError as error:
            await write(_line(b"ERROR", error.encode()))
        except WatchStopped:
            return
        finally:
            self._leave_rounds()
            self._listeners.pop(self._notice, None)

    async def _run(self, write: Write) -> None:
        watch, loop = self._watch, asyncio.get_running_loop()
        deadline = loop.time() + watch.timeout_seconds
        if watch.after is None:
            await self._send_present(write)
        else:
            self.delivered = watch.after
            if self.delivered < self._objects.compacted:
                raise too_old(self.delivered, self._objects.compacted)
        last_bookmark, final_sent = loop.time(), False
        while True:
            await self._advance(write)
            now = loop.time()
            if self._stopped:
                return
            if watch.bookmarks:
                # Also where its time went by in one go, on a machine that stood still.
                final_due = now >= deadline - LAST_BOOKMARK_SECONDS and not final_sent
                if final_due or now - last_bookmark >= BOOKMARK_SECONDS:
                    last_bookmark, final_sent = now, final_sent or final_due
                    await self._write_bookmark(write, ends_initial=False)
                    continue
            if now >= deadline:
                return
            self._wake.clear()
            pause = deadline - now
            if watch.bookmarks:
                due = [deadline] if final_sent else [deadline - LAST_BOOKMARK_SECONDS, last_bookmark + BOOKMARK_SECONDS]
                pause = min(pause, *(at - now for at in due))
            await _wait(self._wake, max(pause, 0.001))

    async def _advance(self, write: Write) -> None:
        """Bring the client to the present, and into the rounds; where it is slow, wait until it takes more."""
        if not self._is_in_rounds:
            await self._send_changes(write)
            # Nothing came in between: the rounds continue exactly where this ended.
            if self._writer is not None and self._fan_out is not None:
                self._is_in_rounds = True
                self._listeners.pop(self._notice, None)
                self._fan_out.join(self)
        elif self._fan_out is not None:
            self._fan_out.deliver(self)
        while self.is_held and not self._stopped:
            await self._wait_until_drained()

    async def _send_present(self, write: Write) -> None:
        watch = self._watch
        # The keys are read at once; changes while they are written follow as events.
        self.delivered = self._objects.revision
        entries = list(self._objects.collection(watch.resource).between(watch.namespace))
        await self._write_all(
            write,
            ((b"ADDED", watch.present(e)) if watch.match is None or watch.match(e) else None for e in entries),
        )
        if watch.end_initial:
            await self._write_bookmark(write, ends_initial=True)

    async def _send_changes(self, write: Write) -> None:
        while self.delivered < self._objects.revision:
            self._refuse_if_forgotten()
            changes = self._objects.changes_since(self._watch.resource, self.delivered)
            until = self._objects.revision
            await self._write_all(write, self._events(changes))
            self.delivered = until

    def _refuse_if_forgotten(self) -> None:
        """Raise 410 if a change of the resource after `delivered` was compacted away. Revisions of other resources do
        not count: an open watch without bookmarks never learns them."""
        if self.delivered < self._collection.forgotten:
            raise too_old(self.delivered, self._objects.compacted)

    async def _write_bookmark(self, write: Write, *, ends_initial: bool) -> None:
        """Write a bookmark: everything up to `delivered` has been written to this stream, and nothing after it."""
        revision = self.delivered if self.delivered else self._objects.revision
        self.is_held = self._is_in_rounds
        await write(_line(b"BOOKMARK", self._watch.bookmark(revision, ends_initial)))
        self._continue_rounds()

    def _events(self, changes: list[StoreChange]) -> Iterator[tuple[bytes, bytes] | None]:
        watch = self._watch
        for change in changes:
            if not watch.namespace or change.entry.key.namespace == watch.namespace:
                yield self._event(change)

    def _event(self, change: StoreChange) -> tuple[bytes, bytes] | None:
        """Return the event of a change for this client: an object may enter or leave its selection."""
        watch, entry = self._watch, change.entry
        if watch.match is None:
            return _TYPES[change.op], watch.present(entry)
        is_match = watch.match(entry)
        match change.op:
            case WriteOperation.ADDED:
                return (b"ADDED", watch.present(entry)) if is_match else None
            case WriteOperation.DELETED:
                return (b"DELETED", watch.present(entry)) if is_match else None
        if change.previous is None:
            raise status.expired(f"the state before revision {change.revision} is no longer known")
        was_match = watch.match(change.previous)
        if is_match:
            return b"MODIFIED" if was_match else b"ADDED", watch.present(entry)
        if was_match:
            return b"DELETED", watch.present(_at_revision(change.previous, entry.revision))
        return None

    # --- In rounds ----------------------------------------------------------------------------------------------------

    @property
    def resource(self) -> str:
        return self._watch.resource

    @property
    def selection(self) -> Hashable:
        return self if self._watch.selection is None else self._watch.selection

    def encode(self, until: int) -> EncodedEvents:
        self._refuse_if_forgotten()
        lines: list[bytes] = []
        reached, size = self.delivered, 0
        for number, change in enumerate(self._objects.changes_since(self.resource, self.delivered)):
            if change.revision > until:
                break
            if size >= ROUND_BYTES or number >= ROUND_CHANGES:
                until = reached
                break
            for event in self._events([change]):
                if event is not None:
                    lines += (b'{"type":"', event[0], b'","object":', event[1], b"}\n")
                    size += len(event[1])
            reached = change.revision
        return EncodedEvents(until, SharedChunk(b"".join(lines)) if lines else None)

    def send(self, chunk: SharedChunk) -> bool:
        assert self._writer is not None, "only a watch with such a writer is in rounds"
        self.is_held = not self._writer.prompt(chunk)
        if self.is_held:
            self._wake.set()
        return not self.is_held

    def interrupt(self) -> None:
        self._leave_rounds()
        self._wake.set()

    def _leave_rounds(self) -> None:
        if self._is_in_rounds and self._fan_out is not None:
            self._is_in_rounds = False
            self._fan_out.leave(self)
            self._listeners[self._notice] = None

    async def _wait_until_drained(self) -> None:
        assert self._writer is not None, "only a watch in rounds is held"
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await self._writer.drained()
        except TimeoutError:
            raise StreamDropped from None
        self._continue_rounds()

    def _continue_rounds(self) -> None:
        self.is_held = False
        if self._is_in_rounds and self._fan_out is not None and self.delivered < self._objects.revision:
            self._fan_out.request(self.resource)

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def _write_all(self, write: Write, events: Iterator[tuple[bytes, bytes] | None]) -> None:
        """Write events in chunks. None stands for a change outside of the selection, which took time to evaluate."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        chunk: list[bytes] = []
        size = 0
        for event in events:
            if event is not None:
                chunk += (b'{"type":"', event[0], b'","object":', event[1], b"}\n")
                size += len(event[1])
            if size >= CHUNK_BYTES or loop.time() - since > TURN_SECONDS:
                if chunk:
                    await write(b"".join(chunk))
                chunk, size = [], 0
                # A reader that keeps up never makes us wait, and others want their turn.
                await asyncio.sleep(0)
                since = loop.time()
                if self._stopped:
                    raise WatchStopped
        if chunk:
            await write(b"".join(chunk))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for a change, and no longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


_TYPES: Final = {
    WriteOperation.ADDED: b"ADDED",
    WriteOperation.MODIFIED: b"MODIFIED",
    WriteOperation.DELETED: b"DELETED",
}


def too_old(revision: int, compacted: int) -> status.StatusError:
    return status.expired(f"too old resource version: {revision} ({compacted})")


def _line(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + body + b"}\n"


def _with_stall_timeout(write: Write) -> Write:
    """Return a `write` that drops the stream of a client that reads nothing: a cut stream must not look complete."""

    async def patient(data: bytes) -> None:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await write(data)
        except TimeoutError:
            raise StreamDropped from None

    return patient


def _at_revision(entry: ObjectEntry, revision: int) -> ObjectEntry:
    """Return the object with another revision: the last state of an object that left the selection."""
    tree: dict[str, Any] = msgspec.json.decode(entry.body)
    tree["metadata"]["resourceVersion"] = str(revision)
    return ObjectEntry(entry.key, entry.uid, revision, entry.created_revision, msgspec.json.encode(tree))
