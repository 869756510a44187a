"""Changes of a Workload become requests: the one place.

Changes of the status are sent in one conditional merge patch of what differs; changes of the object in one of their
own. The write is conditional on the revision that the decision was made on (optimistic concurrency), so a decision on a
stale read is refused with a conflict instead of undoing another write. Events are emitted after the write succeeded.

A controller takes the Workload's `turn` before it decides: inside, no other controller of this process writes the same
object, and `current` includes the last write, though the watch may not have shown it yet. Otherwise two controllers,
each behind the other, would conflict all the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from kubemachinery import codec, patches
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.client.leader_election import LeaderElector
from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue, labels, registry
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.workload_changes import (
    Changes,
    DeleteWorkload,
    EmitEvent,
    MarkParent,
    RemoveFinalizer,
    SetActive,
    SetInactive,
    UnmarkParent,
)
from pykueue.observe.events import Reporter

log = logging.getLogger(__name__)

WORKLOAD = registry.KUEUE.of(kueue.Workload)

_READ_RETRY_SECONDS: Final = 0.2
# How long the watch may take to show a version that a conflict has proved to exist.
_WATCH_SECONDS: Final = 1.0

_Locks: TypeAlias = dict[ObjectKey, deque[asyncio.Future[None]] | None]


class WrittenStates(Protocol):
    """Receives the states of Workloads that were written."""

    def observe(self, workload: kueue.Workload) -> None: ...

    async def commit(self, workload: kueue.Workload, *, is_deleted: bool) -> None: ...


class WorkloadWriter:
    """Writes changes of Workloads."""

    def __init__(
        self,
        client: ApiClient,
        workloads: Informer[kueue.Workload],
        reporter: Reporter,
        election: LeaderElector | None = None,
    ) -> None:
        self._client = client
        self._election = election
        self._low_priority_client = client.low_priority()
        self._workloads = workloads
        self._reporter = reporter
        self._locks: _Locks = {}  # of the Workloads that a controller decides about
        # What was written, and the UIDs of deleted Workloads: until the watch shows it.
        self._ahead: dict[ObjectKey, kueue.Workload] = {}
        self._gone: dict[ObjectKey, str] = {}
        self._awaited: dict[ObjectKey, asyncio.Event] = {}
        # Called with how many seconds a write took.
        self.on_answered: list[Callable[[float], None]] = []
        # Records what is written, if a history is kept.
        self.history: WrittenStates | None = None
        workloads.add_handler(self._seen)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def current(self, key: ObjectKey) -> kueue.Workload | None:
        """Return the newest version that this process has read or written."""
        ahead, shown = self._ahead.get(key), self._workloads.find(key)
        if shown is not None and shown.metadata.uid == self._gone.get(key):
            return None
        if ahead is None or shown is None or ahead.metadata.uid != shown.metadata.uid:
            return shown
        return ahead if revision(ahead) > revision(shown) else shown

    def turn(self, key: ObjectKey) -> AbstractAsyncContextManager[None]:
        """Hold the lock of a Workload: no other controller decides about it meanwhile."""
        return _Turn(self._locks, key)

    def learn(self, found: kueue.Workload) -> None:
        """Record a version that was read directly, so that no decision is made on an older one."""
        self._remember(found, revision(found))

    async def read(self, key: ObjectKey) -> kueue.Workload | None:
        """Read the object directly from the server."""
        found = await self._client.find(WORKLOAD, key.name, key.namespace)
        return codec.from_tree(found, kueue.Workload) if found is not None else None

    async def read_until_answered(self, key: ObjectKey) -> kueue.Workload | None:
        """Read the object from the server, however long it takes. Decisions from now on are based on that version."""
        while True:
            try:
                found = await self.read(key)
                break
            except KubeError as error:
                log.info("%s: cannot be read and is retried: %s", key, error)
                await asyncio.sleep(_READ_RETRY_SECONDS)
        if found is not None:
            self.learn(found)
        return found

    async def has_newer(self, key: ObjectKey, than: kueue.Workload | None) -> bool:
        """After a conflict: whether there is a newer version than that. The watch brings it; after a second the object
        is read from the server."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_WATCH_SECONDS):
                while (found := self.current(key)) is not None and than is not None and not _is_newer(found, than):
                    await self._awaited.setdefault(key, asyncio.Event()).wait()
                return True
        return await self.read_until_answered(key) is not None

    def _seen(self, news: InformerEvent[kueue.Workload]) -> None:
        ahead = self._ahead.get(news.key)
        if ahead is not None and (news.new is None or revision(news.new) >= revision(ahead)):
            del self._ahead[news.key]
        if news.new is None or news.new.metadata.uid != self._gone.get(news.key):
            self._gone.pop(news.key, None)
        if (awaited := self._awaited.pop(news.key, None)) is not None:
            awaited.set()

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def workload(
        self, before: kueue.Workload, changes: Changes, controller: str, now: Nanoseconds, *, low_priority: bool = False
    ) -> int:
        """Write the changes; returns the revision they made, or that of `before` where nothing had to be written."""
        after = workload_changes.apply_to(before, changes, now)
        states.check_move(before, after)
        made = revision(before)
        if after.status != before.status:
            difference = {"status": _difference(before.status, after.status)}
            made = await self._patch(before, difference, "status", low_priority=low_priority)
        await self._record(before, after, changes, made)
        for each in workload_changes.on_object(changes):
            match each:
                case SetInactive():
                    made = await self._patch(before, {"spec": {"active": False}})
                case SetActive():
                    made = await self._patch(before, {"spec": {"active": True}})
                case MarkParent():
                    marked = {labels.CONCURRENT_ADMISSION_PARENT: "true"}
                    made = await self._patch(before, {"metadata": {"labels": marked}})
                case UnmarkParent():
                    unmarked = {labels.CONCURRENT_ADMISSION_PARENT: None}
                    made = await self._patch(before, {"metadata": {"labels": unmarked}})
                case RemoveFinalizer():
                    made = await self._remove_finalizer(before, made)
                case DeleteWorkload():
                    metadata = before.metadata
                    await self._client.delete(WORKLOAD, metadata.name, metadata.namespace, uid=metadata.uid)
                    if not after.metadata.finalizers and self._workloads.get(metadata.name, metadata.namespace):
                        self._gone[ObjectKey(metadata.namespace, metadata.name)] = metadata.uid
        if made != revision(before):
            self._remember(after, made)
        self._reporter.changes(after, changes, controller)
        return made

    async def _record(self, before: kueue.Workload, after: kueue.Workload, changes: Changes, made: int) -> None:
        """Pass the written state to the history. Before a finalizer goes, or the object itself, its record is stored:
        nothing could be read again later [HI6]."""
        if self.history is None:
            return
        written = replace(after, metadata=replace(after.metadata, resource_version=str(made)))
        is_deleted = before.metadata.deletion_timestamp is not None
        if any(isinstance(each, RemoveFinalizer | DeleteWorkload) for each in changes):
            deletes = any(isinstance(each, DeleteWorkload) for each in changes)
            await self.history.commit(written, is_deleted=is_deleted or deletes)
        elif made != revision(before):
            self.history.observe(written)

    def emit(self, workload: kueue.Workload, event: EmitEvent, controller: str) -> None:
        """Emit an Event that belongs to no write."""
        self._reporter.changes(workload, (event,), controller)

    async def _remove_finalizer(self, before: kueue.Workload, made: int) -> int:
        kept = [name for name in before.metadata.finalizers if name != labels.RESOURCE_IN_USE_FINALIZER]
        if len(kept) == len(before.metadata.finalizers):
            return made
        return await self._patch(before, {"metadata": {"finalizers": kept or None}})

    async def _patch(
        self, before: kueue.Workload, patch: dict[str, Any], subresource: str = "", *, low_priority: bool = False
    ) -> int:
        metadata = before.metadata
        conditional = {
            **patch,
            "metadata": {**patch.get("metadata", {}), "resourceVersion": metadata.resource_version},
        }
        client = self._low_priority_client if low_priority else self._client
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        made = await client.patch_revision(
            WORKLOAD,
            metadata.name,
            conditional,
            metadata.namespace,
            subresource=subresource,
            manager=self._election.field_manager() if self._election is not None and subresource else "",
        )
        if not low_priority:
            for observer in self.on_answered:
                observer(loop.time() - sent_at)
        return int(made)

    def _remember(self, after: kueue.Workload, made: int) -> None:
        key = ObjectKey(after.metadata.namespace, after.metadata.name)
        if 0 < self._workloads.revision_of(key) < made:
            self._ahead[key] = replace(after, metadata=replace(after.metadata, resource_version=str(made)))


class _Turn(AbstractAsyncContextManager[None]):
    """Inside the block, the lock of a Workload is held, by one task after the other in the order of their arrival.

    A lock is an entry of the dict while it is held: those that wait for it, or None. Most are taken when they are free,
    and every decision takes one.
    """

    __slots__ = ("_key", "_locks")

    def __init__(self, locks: _Locks, key: ObjectKey) -> None:
        self._locks = locks
        self._key = key

    async def __aenter__(self) -> None:
        if self._key not in self._locks:
            self._locks[self._key] = None
            return
        waiters = self._locks[self._key]
        if waiters is None:
            waiters = self._locks[self._key] = deque()
        waiter = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release()  # it was handed over in the turn of the loop in which this task was cancelled
            raise

    async def __aexit__(self, *_error: object) -> None:
        self._release()

    def _release(self) -> None:
        """Hand the lock over to the first task that still waits for it."""
        waiters = self._locks[self._key]
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        del self._locks[self._key]


def revision(workload: kueue.Workload) -> int:
    return int(workload.metadata.resource_version or 0)


def _is_newer(found: kueue.Workload, than: kueue.Workload) -> bool:
    return found.metadata.uid != than.metadata.uid or revision(found) > revision(than)


def _difference(before: kueue.WorkloadStatus, after: kueue.WorkloadStatus) -> Any:
    return patches.make_merge(codec.to_tree(before), codec.to_tree(after))
