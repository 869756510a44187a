"""Every Workload as one small row, so that fifty thousand can be counted, searched and sorted between two looks.

Rows are kept up by differences (`put`, `drop`). What a question found is remembered until something changes, so paging
through an answer, and everybody else who asks the same, costs a slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pykueue.api import kueue
from pykueue.lifecycle import states
from pykueue.lifecycle.states import State

Key = tuple[str, str]  # namespace and name
_ANSWERS_MAX: Final = 64


class DisplayState(StrEnum):
    """Where a Workload is in its life, as people read it."""

    PENDING = "Pending"
    RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    INACTIVE = "Inactive"
    FINISHED = "Finished"


_WORDS: Final = {
    State.PENDING: DisplayState.PENDING,
    State.RESERVED: DisplayState.RESERVED,
    State.ADMITTED: DisplayState.ADMITTED,
    State.EVICTED: DisplayState.EVICTED,
    State.FINISHED: DisplayState.FINISHED,
}


class WorkloadRow(NamedTuple):
    """What is known of a Workload without looking at it again."""

    namespace: str
    name: str
    queue: str  # the LocalQueue, without its namespace
    cluster_queue: str
    job: str  # Kind/name of its owner; empty for one that stands for itself
    word: DisplayState
    priority: int
    created: str
    searched: str  # all of it in lower case

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def word(workload: kueue.Workload) -> DisplayState:
    found = _WORDS[states.state(workload)]
    return DisplayState.INACTIVE if found is DisplayState.PENDING and not workload.spec.active else found


def row(workload: kueue.Workload, cluster_queue: str) -> WorkloadRow:
    metadata = workload.metadata
    owner = next((one for one in metadata.owner_references if one.controller), None)
    queue, job, now = (
        workload.spec.queue_name,
        f"{owner.kind}/{owner.name}" if owner is not None else "",
        word(workload),
    )
    return WorkloadRow(
        metadata.namespace,
        metadata.name,
        queue,
        cluster_queue,
        job,
        now,
        workload.spec.priority or 0,
        metadata.creation_timestamp or "",
        f"{metadata.namespace}/{metadata.name} {queue} {cluster_queue} {job} {now}".lower(),
    )


# --- Questions --------------------------------------------------------------------------------------------------------


_LIFE: Final = {each: place for place, each in enumerate(DisplayState)}

# How rows are sorted; equals go by namespace and name, so that pages never overlap.
SORTS: Final[dict[str, Callable[[WorkloadRow], Any]]] = {
    "created": attrgetter("created"),
    "name": attrgetter("namespace", "name"),
    "queue": attrgetter("namespace", "queue"),
    "priority": attrgetter("priority"),
    "state": lambda found: _LIFE[found.word],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadQuery:
    """Which Workloads, in which order. An empty field asks for nothing in particular."""

    words: tuple[str, ...] = ()  # each has to be somewhere in the row
    namespace: str = ""
    queue: str = ""
    cluster_queue: str = ""
    state: str = ""
    sort: str = "created"
    descending: bool = True

    @classmethod
    def searching(cls, text: str, **fields: Any) -> WorkloadQuery:
        return replace(cls(**fields), words=tuple(text.lower().split()))

    def matching(self, rows: Iterable[WorkloadRow]) -> list[WorkloadRow]:
        """Those of the rows that are asked for, in the order in which they come. Only what is asked costs anything."""
        found = list(rows)
        for place, value in (
            (_NAMESPACE, self.namespace),
            (_QUEUE, self.queue),
            (_CLUSTER_QUEUE, self.cluster_queue),
            (_WORD, self.state),
        ):
            if value:
                found = [row for row in found if row[place] == value]
        for text in self.words:
            found = [row for row in found if text in row.searched]
        return found


_NAMESPACE, _QUEUE, _CLUSTER_QUEUE, _WORD = map(
    WorkloadRow._fields.index, ("namespace", "queue", "cluster_queue", "word")
)


class WorkloadTable:
    """The rows, and how many there are of each sort."""

    def __init__(self) -> None:
        self._rows: dict[Key, WorkloadRow] = {}
        self._counts: Counter[tuple[str, DisplayState]] = Counter()
        self._answers: dict[WorkloadQuery, list[WorkloadRow]] = {}
        # Every key once in order, and those that came or went since: sorting what is nearly sorted costs little.
        self._sorted: list[Key] = []
        self._unsorted: set[Key] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, new: WorkloadRow) -> bool:
        """Whether anything changed."""
        old = self._rows.get(new.key)
        if old == new:
            return False
        if old is not None:
            self._counts[old.cluster_queue, old.word] -= 1
        else:
            self._unsorted.add(new.key)
        self._counts[new.cluster_queue, new.word] += 1
        self._rows[new.key] = new
        self._answers.clear()
        return True

    def drop(self, key: Key) -> bool:
        old = self._rows.pop(key, None)
        if old is None:
            return False
        self._counts[old.cluster_queue, old.word] -= 1
        self._unsorted.add(key)
        self._answers.clear()
        return True

    def get(self, key: Key) -> WorkloadRow | None:
        return self._rows.get(key)

    def under(self, cluster_queues: Container[str]) -> Iterator[WorkloadRow]:
        """Those that wait for one of these ClusterQueues or have its quota, by namespace and name."""
        return (row for row in self._in_order() if row.cluster_queue in cluster_queues)

    def count(self, cluster_queue: str, word: DisplayState) -> int:
        return self._counts[cluster_queue, word]

    def totals(self) -> dict[str, int]:
        """How many there are in each state, in the order of a life."""
        found = Counter[DisplayState]()
        for (_, word), count in self._counts.items():
            found[word] += count
        return {word.value: found[word] for word in DisplayState}

    def query(self, query: WorkloadQuery) -> list[WorkloadRow]:
        """Everybody who matches, in order. The list is shared: look, and do not touch."""
        found = self._answers.get(query)
        if found is None:
            found = query.matching(self._in_order())
            # Equals stay by namespace and name, whichever way it goes.
            found.sort(key=SORTS[query.sort], reverse=query.descending)
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            self._answers[query] = found
        return found

    def _in_order(self) -> Iterator[WorkloadRow]:
        """Every row, by namespace and name."""
        if self._unsorted:
            kept = [key for key in self._sorted if key not in self._unsorted]
            kept += [key for key in self._unsorted if key in self._rows]
            kept.sort()
            self._sorted, self._unsorted = kept, set()
        return map(self._rows.__getitem__, self._sorted)
