"""Objects at revisions: one object, one change, and all objects of a resource in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from kubeserver.storage.sqlite import StoreKey, WriteOperation

# Namespace and name: where an object is among those of its resource.
Place: TypeAlias = tuple[str, str]


class ObjectEntry:
    """One object at one revision. `forms` caches other encodings of it, by version and schema."""

    __slots__ = ("body", "created_revision", "forms", "key", "revision", "uid")

    def __init__(self, key: StoreKey, uid: str, revision: int, created_revision: int, body: bytes) -> None:
        self.key = key
        self.uid = uid
        self.revision = revision
        self.created_revision = created_revision
        self.body = body
        self.forms: dict[Any, Any] | None = None

    def identity(self, key: StoreKey, uid: str) -> tuple[StoreKey, str]:
        """Return an equal key and UID for a later revision: the same values where they are equal, as the history has
        many revisions of each object."""
        return self.key if key == self.key else key, self.uid if uid == self.uid else uid

    def form(self, which: Any, make: Callable[[ObjectEntry], Any]) -> Any:
        """Return another encoding, made once."""
        if self.forms is None:
            self.forms = {}
        found = self.forms.get(which)
        if found is None:
            found = self.forms[which] = make(self)
        return found


class StoreChange:
    """One change in the history: the operation, the object after it, and the object before it.

    `previous` is None for a creation, and `forgotten` where there was one that compaction has deleted.
    """

    __slots__ = ("at", "entry", "forgotten", "op", "previous")

    def __init__(
        self, op: WriteOperation, entry: ObjectEntry, previous: ObjectEntry | None, at: int, forgotten: bool = False
    ) -> None:
        self.op = op
        self.entry = entry
        self.previous = previous
        self.at = at
        self.forgotten = forgotten

    @property
    def revision(self) -> int:
        return self.entry.revision


class ObjectCollection:
    """All objects of one resource: by key, in order, with their history."""

    __slots__ = ("entries", "forgotten", "history", "keys", "listeners")

    def __init__(self) -> None:
        self.entries: dict[Place, ObjectEntry] = {}
        # Namespace, then name. Python orders strings by code point, which is the byte order of their UTF-8.
        self.keys: list[Place] = []
        self.history: deque[StoreChange] = deque()
        # In the order of registration, so that a run can be repeated.
        # The revision of the last change that was compacted away.
        self.forgotten = 0
        self.listeners: dict[Callable[[StoreChange], None], None] = {}

    def place(self, entry: ObjectEntry) -> None:
        key = (entry.key.namespace, entry.key.name)
        if key not in self.entries:
            insort(self.keys, key)
        self.entries[key] = entry

    def remove(self, namespace: str, name: str) -> None:
        if self.entries.pop((namespace, name), None) is not None:
            del self.keys[bisect_left(self.keys, (namespace, name))]

    def __iter__(self) -> Iterator[ObjectEntry]:
        return (self.entries[key] for key in self.keys)

    def between(self, namespace: str, after: Place | None = None) -> Iterator[ObjectEntry]:
        """Entries in order, of one namespace ("" for all), beginning after a key."""
        first = after if after is not None else (namespace, "") if namespace else ("", "")
        position = bisect_left(self.keys, first)
        for key in self.keys[position:]:
            if namespace and key[0] != namespace:
                if key[0] > namespace:
                    return
                continue
            if after is None or key > after:
                yield self.entries[key]
