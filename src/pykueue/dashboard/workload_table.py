"""Every Workload as one small row, so that fifty thousand can be counted, searched and sorted in one refresh.

Rows are updated incrementally (`put`, `drop`). The result of a query is cached until a row changes, so that further
pages, and the same query of other users, only take a slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pykueue.api import kueue, workload_owners
from pykueue.lifecycle import states
from pykueue.lifecycle.states import State

Key = tuple[str, str]  # namespace and name
_ANSWERS_MAX: Final = 64


class DisplayState(StrEnum):
    """The state of a Workload that the dashboard shows."""

    PENDING = "Pending"
    RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    INACTIVE = "Inactive"
    FINISHED = "Finished"


_DISPLAY_STATES: Final = {
    State.PENDING: DisplayState.PENDING,
    State.RESERVED: DisplayState.RESERVED,
    State.ADMITTED: DisplayState.ADMITTED,
    State.EVICTED: DisplayState.EVICTED,
    State.FINISHED: DisplayState.FINISHED,
}


class WorkloadRow(NamedTuple):
    """The fields of a Workload that lists filter, sort and count by."""

    namespace: str
    name: str
    queue: str  # the LocalQueue, without its namespace
    cluster_queue: str
    job: str  # Kind/name of its owner; empty without an owner
    state: DisplayState
    priority: int
    created: str
    searched: str  # the searched text in lower case

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def display_state(workload: kueue.Workload) -> DisplayState:
    found = _DISPLAY_STATES[states.state(workload)]
    return DisplayState.INACTIVE if found is DisplayState.PENDING and not workload.spec.active else found


def row(workload: kueue.Workload, cluster_queue: str) -> WorkloadRow:
    metadata = workload.metadata
    owner = workload_owners.job_of(workload)
    queue, job, now = (
        workload.spec.queue_name,
        f"{owner.kind}/{owner.name}" if owner is not None else "",
        display_state(workload),
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


# --- Queries ----------------------------------------------------------------------------------------------------------


_STATE_ORDER: Final = {each: place for place, each in enumerate(DisplayState)}

# The sort keys; ties are broken by namespace and name, so that pages never overlap.
SORTS: Final[dict[str, Callable[[WorkloadRow], Any]]] = {
    "created": attrgetter("created"),
    "name": attrgetter("namespace", "name"),
    "queue": attrgetter("namespace", "queue"),
    "priority": attrgetter("priority"),
    "state": lambda found: _STATE_ORDER[found.state],
}


class WorkloadQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters and order of a list of Workloads. An empty field does not filter."""

    words: tuple[str, ...] = ()  # each must occur in the row
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
        """Return the rows that match, in the given order. Only the fields that are set are compared."""
        found = list(rows)
        for place, value in (
            (_NAMESPACE, self.namespace),
            (_QUEUE, self.queue),
            (_CLUSTER_QUEUE, self.cluster_queue),
            (_STATE, self.state),
        ):
            if value:
                found = [row for row in found if row[place] == value]
        for text in self.words:
            found = [row for row in found if text in row.searched]
        return found


_NAMESPACE, _QUEUE, _CLUSTER_QUEUE, _STATE = map(
    WorkloadRow._fields.index, ("namespace", "queue", "cluster_queue", "state")
)


class WorkloadTable:
    """The rows, and their counts by ClusterQueue and state."""

    def __init__(self) -> None:
        self._rows: dict[Key, WorkloadRow] = {}
        self._counts: Counter[tuple[str, DisplayState]] = Counter()
        self._answers: dict[WorkloadQuery, list[WorkloadRow]] = {}
        # The sorted keys, and the keys added or removed since: sorting a nearly sorted list is cheap.
        self._sorted: list[Key] = []
        self._unsorted: set[Key] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, new: WorkloadRow) -> bool:
        """Add or replace a row; returns whether anything changed."""
        old = self._rows.get(new.key)
        if old == new:
            return False
        if old is not None:
            self._counts[old.cluster_queue, old.state] -= 1
        else:
            self._unsorted.add(new.key)
        self._counts[new.cluster_queue, new.state] += 1
        self._rows[new.key] = new
        self._answers.clear()
        return True

    def drop(self, key: Key) -> bool:
        old = self._rows.pop(key, None)
        if old is None:
            return False
        self._counts[old.cluster_queue, old.state] -= 1
        self._unsorted.add(key)
        self._answers.clear()
        return True

    def get(self, key: Key) -> WorkloadRow | None:
        return self._rows.get(key)

    def under(self, cluster_queues: Container[str]) -> Iterator[WorkloadRow]:
        """Yield the rows of these ClusterQueues, by namespace and name."""
        return (row for row in self._in_order() if row.cluster_queue in cluster_queues)

    def count(self, cluster_queue: str, state: DisplayState) -> int:
        return self._counts[cluster_queue, state]

    def totals(self) -> dict[str, int]:
        """Return the number of Workloads in each state, in lifecycle order."""
        found = Counter[DisplayState]()
        for (_, state), count in self._counts.items():
            found[state] += count
        return {state.value: found[state] for state in DisplayState}

    def query(self, query: WorkloadQuery) -> list[WorkloadRow]:
        """Return the matching rows in order. The list is cached and must not be modified."""
        found = self._answers.get(query)
        if found is None:
            found = query.matching(self._in_order())
            # Ties stay in the order of namespace and name, also in descending order.
            found.sort(key=SORTS[query.sort], reverse=query.descending)
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            self._answers[query] = found
        return found

    def _in_order(self) -> Iterator[WorkloadRow]:
        """Yield every row by namespace and name."""
        if self._unsorted:
            kept = [key for key in self._sorted if key not in self._unsorted]
            kept += [key for key in self._unsorted if key in self._rows]
            kept.sort()
            self._sorted, self._unsorted = kept, set()
        return map(self._rows.__getitem__, self._sorted)
