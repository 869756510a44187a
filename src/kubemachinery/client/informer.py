"""Informers: a local cache of the objects of one kind, kept current by a watch, with handlers for every change.

The cache is filled by a streaming list (`sendInitialEvents`), or by a paged list where the server does not support
that. After a broken watch the informer resumes from the last revision it saw; after 410 Expired it relists, and objects
that disappeared meanwhile are reported as deleted. An object older than the cached one is ignored: a stale read from a
server that fell behind does not replace newer state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from kubemachinery import turns
from kubemachinery.client import errors
from kubemachinery.client.client import METADATA_OF_ALL, ApiClient
from kubemachinery.client.errors import Expired, KubeError
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.client.priority import LOW, NORMAL, QueuePriority
from kubemachinery.client.transport import Lines
from kubemachinery.errors import ProgramError
from kubemachinery.kinds import Kind
from kubemachinery.meta import ObjectMeta

log = logging.getLogger(__name__)

T = TypeVar("T")

_INITIAL_END: Final = "k8s.io/initial-events-end"
_INITIAL_BACKOFF_SECONDS: Final = 0.2
# How often an informer that may be absent asks for its kind.
_INITIAL_POLL_SECONDS: Final = 1.0
_MAX_POLL_SECONDS: Final = 120.0
_SHORT_WATCH_SECONDS: Final = 1.0  # a watch that ends within this time counts as a failure
_MAX_BACKOFF_SECONDS: Final = 30.0


class ObjectKey(NamedTuple):
    """Namespace and name of an object; the namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class InformerEvent(msgspec.Struct, Generic[T], frozen=True):
    """A change of one object: `old` is None when it was added, `new` is None when it was deleted."""

    key: ObjectKey
    old: T | None
    new: T | None
    # Whether it is part of the initial list.
    initial: bool = False

    @property
    def priority(self) -> QueuePriority:
        """The priority of its key in a work queue: LOW for an initial list."""
        return LOW if self.initial else NORMAL


Handler: TypeAlias = Callable[[InformerEvent[T]], None]
Decode: TypeAlias = Callable[[bytes], T]


class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    """The part of the metadata that an informer reads itself, without what takes long to decode."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Meta(msgspec.Struct, frozen=True):
    metadata: _Identity = _Identity()


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


_read_line: Final = msgspec.json.Decoder(_Line).decode
_read_meta: Final = msgspec.json.Decoder(_Meta).decode


def _drop_managed_fields(value: Any) -> None:
    """Remove managedFields from a tree that was decoded just now and has no other reader yet. No type has them."""
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)


def _event(line: bytes) -> _Line:
    """One event of a watch; the error if it is one."""
    event = _read_line(line)
    if event.type == "ERROR":
        raise errors.from_status(msgspec.json.decode(event.object))
    return event


class _Held(NamedTuple, Generic[T]):
    revision: int
    uid: str
    value: T


class Informer(Generic[T]):
    """The cache of one kind. `decode` turns the JSON of an object into the cached value.

    Cached values have no managedFields: these are half of an object, and a write without them leaves them as they are.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: Kind,
        decode: Decode[T],
        rng: random.Random,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        keeps: Callable[[bytes], bool] | None = None,
        may_be_absent: bool = False,
    ) -> None:
        """With `keeps`, an object for whose JSON it returns False counts as absent, for what no selector can express.

        With `may_be_absent`, a kind that the server does not serve counts as listed and empty: nothing waits for it.
        The informer asks for it again after 1 s, then after twice as long each time, at most 2 min, or when `ask_again`
        is called, and lists it once it is served."""
        self.kind = kind
        self._client = client
        self._decode = decode
        self._decode_event = decode.event if isinstance(decode, ObjectDecoder) and keeps is None else None
        self._rng = rng
        self._namespace = namespace
        self._labels, self._fields = labels, fields
        self._store: dict[ObjectKey, _Held[T]] = {}
        # The same dict: a plain tuple equals a key, and is made in a tenth of the time.
        self._by_names = cast("dict[tuple[str, str], _Held[T]]", self._store)
        self._handlers: list[Handler[T]] = []
        self._indexes: dict[str, _Index[T]] = {}
        # By the path of the part that they depend on: the function that returns it, and the indexes.
        self._indexes_of: dict[str, tuple[Callable[[T], object] | None, list[_Index[T]]]] = {}
        self._synced = asyncio.Event()
        self._revision = 0
        self._advanced = asyncio.Event()
        self._streams_lists = True
        self._undecodable: set[ObjectKey] = set()
        self._keeps = keeps
        self._may_be_absent = may_be_absent
        self._poll_seconds = 0.0  # 0 while the kind is served
        self._asked_again = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # while the kind is absent
        self._served_handlers: list[Callable[[bool], None]] = []
        # Whether the server serves this kind, by its last response.
        self.is_served = True
        # How many of its responses were that it does not.
        self.absences = 0

    # --- Reading ------------------------------------------------------------------------------------------------------

    def get(self, name: str, namespace: str = "") -> T | None:
        held = self._by_names.get((namespace, name))
        return held.value if held is not None else None

    def find(self, key: ObjectKey) -> T | None:
        held = self._store.get(key)
        return held.value if held is not None else None

    def __getitem__(self, key: ObjectKey) -> T:
        return self._store[key].value

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._store

    def __len__(self) -> int:
        return len(self._store)

    def items(self) -> Iterator[tuple[ObjectKey, T]]:
        """Every object, ordered by namespace and name."""
        for key in sorted(self._store):
            yield key, self._store[key].value

    def values(self) -> Iterator[T]:
        return (value for _, value in self.items())

    def unordered(self) -> list[T]:
        """Every object, in no order that means anything: many keys take long to sort."""
        return [held.value for held in self._store.values()]

    def revision_of(self, key: ObjectKey) -> int:
        """The revision of the cached object; 0 when it is not cached."""
        held = self._store.get(key)
        return held.revision if held is not None else 0

    @property
    def revision(self) -> int:
        """The revision up to which all changes have been handled."""
        return self._revision

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        """Return once the initial list is complete."""
        await self._synced.wait()

    async def wait_until_current(self) -> None:
        """Return once the cache contains every object stored at the time of the call: a watch may lag behind."""
        listing = await self._client.list(
            self.kind, self._namespace, labels=self._labels, fields=self._fields, accept=METADATA_OF_ALL
        )
        newest = max((int(_read_meta(item).metadata.resource_version) for item in listing.items), default=0)
        while self._revision < newest:
            self._advanced.clear()
            await self._advanced.wait()

    # --- Handlers and indexes -----------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` for every change, in order, on the event loop. Those added before `run` get every object."""
        self._handlers.append(handler)

    def add_served_handler(self, handler: Callable[[bool], None]) -> None:
        """Call `handler` when an informer with `may_be_absent` finds that its kind is not served, or served again."""
        self._served_handlers.append(handler)

    def add_index(self, name: str, keys: Callable[[T], Iterable[str]], *, of: str = "") -> None:
        """Keep an index of the objects by the values that `keys` returns for them. `of` is the path of the only part of
        an object, beside its name and namespace, that they depend on, as in `status.admission`: most changes leave it
        as it was, and it is compared once for all indexes of that part."""
        index = self._indexes[name] = _Index(keys)
        self._indexes_of.setdefault(of, (attrgetter(of) if of else None, []))[1].append(index)

    def by_index(self, index: str, value: str) -> Iterator[tuple[ObjectKey, T]]:
        """The objects with this value in the index, ordered by namespace and name."""
        found = self._indexes[index].by_value.get(value)
        if found is None:  # most questions: without the frame of a generator
            return iter(())
        return ((key, self._store[key].value) for key in sorted(found))

    # --- Watching -----------------------------------------------------------------------------------------------------

    async def run(self, on_error: Callable[[KubeError], Awaitable[None]] | None = None) -> None:
        """List and watch until cancelled. Errors are logged, or passed to `on_error`, which may raise to end it."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began, failed = loop.time(), False
            try:
                if self._revision and self.has_synced:
                    await self._watch_changes()
                else:
                    await self._list_and_watch()
            except Expired:
                log.info("%s: the watched revision has expired, listing again", self.kind.name)
                self._revision = 0
            except KubeError as error:
                failed = True
                self.is_served = not isinstance(error, errors.NotFound)
                self.absences += not self.is_served
                if self._may_be_absent and not self.is_served:
                    await self._absent()
                    continue
                if on_error is not None:
                    await on_error(error)
                else:
                    cause = (
                        error if self.is_served else "the API server does not serve this kind; is its CRD installed?"
                    )
                    log.log(logging.INFO if failures < 3 else logging.WARNING, "%s: %s", self.kind.name, cause)
            # A watch that ends is reopened at once, unless the one before it also ended quickly: then with backoff.
            failures = failures + 1 if failed or loop.time() - began < _SHORT_WATCH_SECONDS else 0
            if failed or failures > 1:
                backoff = min(_INITIAL_BACKOFF_SECONDS * 2 ** min(failures - 1, 10), _MAX_BACKOFF_SECONDS)
                await asyncio.sleep(backoff * self._rng.uniform(1.0, 1.5))

    async def _absent(self) -> None:
        """Wait until the kind is asked for again."""
        self._revision = 0  # objects of a CRD that is installed again have other revisions
        self._synced.set()
        if not self._poll_seconds:
            self._notify_served(served=False)
        self._poll_seconds = min(2 * self._poll_seconds, _MAX_POLL_SECONDS) or _INITIAL_POLL_SECONDS
        self._asked_again.clear()
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_seconds):
                await self._asked_again.wait()
                self._poll_seconds = _INITIAL_POLL_SECONDS / 2  # the next wait is the first again

    def ask_again(self) -> None:
        """Ask at once for a kind that is absent, because it is probably served now. May be called in any thread: the
        embedded server decides about large objects in one of its own."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._asked_again.set)

    def _present(self) -> None:
        if self._poll_seconds:
            self._poll_seconds, self.is_served = 0.0, True
            self._notify_served(served=True)

    def _notify_served(self, *, served: bool) -> None:
        for handler in self._served_handlers:
            handler(served)

    async def _list_and_watch(self) -> None:
        """List everything, then watch; on one stream where the server supports streaming lists."""
        if self._streams_lists:
            try:
                async with self._watch(initial=True) as lines:
                    await self._read_watch_list(lines)
                return
            except errors.ApiError as error:
                if error.code not in (400, 422):
                    raise
                self._streams_lists = False
        listing = await self._client.list(self.kind, self._namespace, labels=self._labels, fields=self._fields)
        await self._replace(listing.items, int(listing.revision or 0))
        if self._revision:
            await self._watch_changes()

    async def _read_watch_list(self, lines: Lines) -> None:
        fresh: list[msgspec.Raw] | None = []
        turn = turns.current()
        async for line in lines:
            await turn.end_if_used_up()  # many lines may have arrived, so that reading them does not wait
            if fresh is None:
                self._handle(line)
                continue
            event = _event(line)
            if event.type == "ADDED":
                fresh.append(event.object)
            elif event.type == "BOOKMARK":
                metadata = _read_meta(event.object).metadata
                if metadata.annotations.get(_INITIAL_END) == "true":
                    await self._replace(fresh, int(metadata.resource_version or 0))
                    fresh = None

    async def _watch_changes(self) -> None:
        turn = turns.current()
        async with self._watch(revision=str(self._revision)) as lines:
            async for line in lines:
                await turn.end_if_used_up()
                self._handle(line)

    def _watch(self, *, revision: str = "", initial: bool = False) -> AbstractAsyncContextManager[Lines]:
        return self._client.watch(
            self.kind,
            self._namespace,
            revision=revision,
            initial=initial,
            labels=self._labels,
            fields=self._fields,
            # Watches end after a while, at different times, so that a server can be drained.
            seconds=self._rng.randint(300, 600),
        )

    # --- Updating -----------------------------------------------------------------------------------------------------

    async def _replace(self, items: Iterable[msgspec.Raw], revision: int) -> None:
        """Take the objects of a list. The loop continues in between: a list may have 100,000 objects. Those of a kind
        that was absent are taken at once: others may depend on them as soon as the kind is served."""
        turn = None if self._poll_seconds else turns.current()
        self._present()
        seen: set[ObjectKey] = set()
        for item in items:
            if turn is not None:
                await turn.end_if_used_up()
            metadata = _read_meta(item).metadata
            key = ObjectKey(metadata.namespace, metadata.name)
            seen.add(key)
            self._upsert(key, metadata, item, initial=not self.has_synced)
        for key in sorted(self._store.keys() - seen):
            # An object cached at a later revision than this list may have been created after it.
            if self._store[key].revision <= revision:
                self._remove(key)
        self._advance(revision)
        self._synced.set()

    def _handle(self, line: bytes) -> None:
        decoded = self._decode_event(line, self._cached) if self._decode_event is not None else None
        if decoded is not None:
            metadata = decoded.metadata
            key, revision = ObjectKey(metadata.namespace, metadata.name), int(metadata.resource_version or 0)
            if not self._is_stale(key, metadata.uid, revision):
                self._put(key, metadata.uid, revision, decoded.value)
            self._advance(revision)
        else:
            self._handle_any(_event(line))

    def _cached(self, metadata: ObjectMeta) -> T | None:
        return self.get(metadata.name, metadata.namespace)

    def _handle_any(self, event: _Line) -> None:
        """Handle an event in steps: one that does not decode at once, and of a kind that is not decoded to a type."""
        metadata = _read_meta(event.object).metadata
        key = ObjectKey(metadata.namespace, metadata.name)
        if event.type == "DELETED":
            self._remove(key)
        elif event.type != "BOOKMARK":
            self._upsert(key, metadata, event.object)
        if metadata.resource_version:
            self._advance(int(metadata.resource_version))

    def _advance(self, revision: int) -> None:
        if revision > self._revision:
            self._revision = revision
        if not self._advanced.is_set():
            self._advanced.set()

    def _upsert(self, key: ObjectKey, metadata: _Identity, item: msgspec.Raw, *, initial: bool = False) -> None:
        revision = int(metadata.resource_version or 0)
        if self._is_stale(key, metadata.uid, revision):
            return
        if self._keeps is not None and not self._keeps(bytes(item)):
            self._remove(key)
            return
        try:
            value = self._decode(bytes(item))
        except (ValueError, TypeError) as error:
            # An object that cannot be decoded must not stop the others. It counts as absent until it can be decoded.
            if key not in self._undecodable:
                log.warning("%s %s cannot be decoded and is ignored: %s", self.kind.kind, key, error)
            self._undecodable.add(key)
            self._remove(key)
            return
        _drop_managed_fields(value)
        self._put(key, metadata.uid, revision, value, initial=initial)

    def _is_stale(self, key: ObjectKey, uid: str, revision: int) -> bool:
        held = self._store.get(key)
        return held is not None and held.uid == uid and revision <= held.revision

    def _put(self, key: ObjectKey, uid: str, revision: int, value: T, *, initial: bool = False) -> None:
        held = self._store.get(key)
        self._undecodable.discard(key)
        if held is not None and held.uid != uid:
            # Deleted and created again with the same name: two objects, so two changes.
            self._remove(key)
            held = None
        self._store[key] = _Held(revision, uid, value)
        old = held.value if held is not None else None
        self._move(key, old, value)
        self._notify(InformerEvent(key, old, value, initial))

    def _remove(self, key: ObjectKey) -> None:
        held = self._store.pop(key, None)
        if held is None:
            return
        self._move(key, held.value, None)
        self._notify(InformerEvent(key, held.value, None))

    def _move(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        """Update the indexes that depend on a part of the object that has changed."""
        for part_of, indexes in self._indexes_of.values():
            if part_of is not None and old is not None and new is not None:
                part, kept = part_of(new), part_of(old)
                if part is kept or part == kept:
                    continue
            for index in indexes:
                index.move(key, old, new)

    def _notify(self, change: InformerEvent[T]) -> None:
        for handler in self._handlers:
            handler(change)


class _Index(Generic[T]):
    def __init__(self, keys: Callable[[T], Iterable[str]]) -> None:
        self._keys = keys
        self.by_value: dict[str, set[ObjectKey]] = {}

    def move(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        after = tuple(self._keys(new)) if new is not None else ()
        if not after and not self.by_value:  # most indexes: no object has what they look for
            return
        before = tuple(self._keys(old)) if old is not None else ()
        if before == after:  # most changes
            return
        for value in set(before).difference(after):
            self.by_value[value].discard(key)
            if not self.by_value[value]:
                del self.by_value[value]
        for value in set(after).difference(before):
            self.by_value.setdefault(value, set()).add(key)


# A shorter timeout would leave no time to read, and be a log line for each round.
_MIN_ROUND_SECONDS: Final = 5.0


class NotSynced(ProgramError):
    """Informers did not sync in time. The message names their kinds."""


@asynccontextmanager
async def run_informers(
    informers: Sequence[Informer[Any]], timeout_seconds: float | None = None
) -> AsyncIterator[None]:
    """Run the informers in a context that is entered when all have synced. One that ends early cancels the rest.

    Raises `NotSynced` after the timeout. A kind that the server does not serve is waited for without a limit: its CRD
    may be installed later.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run(), name=informer.kind.name) for informer in informers]
        try:
            await _all_synced(informers, timeout_seconds)
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _all_synced(informers: Sequence[Informer[Any]], timeout_seconds: float | None) -> None:
    """Wait in rounds of the timeout. Only a kind that was served for a whole round is late: a server needs some time
    between the installation of a CRD and its first list."""
    round_seconds = timeout_seconds
    while True:
        absences = [informer.absences for informer in informers]
        try:
            async with asyncio.timeout(round_seconds):
                await asyncio.gather(*(informer.wait_for_sync() for informer in informers))
            return
        except TimeoutError:
            missing = [each for each in zip(informers, absences, strict=True) if not each[0].has_synced]
            late = [each.kind.name for each, before in missing if each.is_served and each.absences == before]
            if late:
                raise NotSynced(
                    f"the API server did not list {', '.join(late)} within {timeout_seconds:g} seconds"
                    " (controller.cacheSyncTimeout)"
                ) from None
            if unserved := [each.kind.name for each, _ in missing if not each.is_served]:
                log.warning("waiting for kinds that the API server does not serve: %s", ", ".join(unserved))
            round_seconds = max(timeout_seconds or 0.0, _MIN_ROUND_SECONDS)
