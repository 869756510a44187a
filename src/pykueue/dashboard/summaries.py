"""The dashboard over the live copies: what anybody may ask, computed at most once a second and shared by all viewers.

A change only notes who changed; the next look reads those again. While nobody looks, a Workload that changes costs a
word in a set.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec

from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue
from pykueue.dashboard import workload_history, workload_table
from pykueue.dashboard.overview import Overview
from pykueue.dashboard.workload_table import WorkloadQuery, WorkloadTable
from pykueue.lifecycle import states
from pykueue.state.world import World

Tree: TypeAlias = dict[str, Any]

# (objects, namespace/name, now, whether suggestions are wanted) -> what `pykueue explain` says.
ExplainFunction: TypeAlias = Callable[[Iterable[msgspec.Struct], str, Nanoseconds, bool], Tree]

FRESH_SECONDS: Final = 1.0
# So many rows are read before others get their turn.
_AT_ONCE: Final = 200
_EXPLANATIONS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSources:
    """What is looked at. The Workloads are indexed by `queue` (namespace/name of their LocalQueue)."""

    world: World
    workloads: Informer[kueue.Workload]
    local_queues: Informer[kueue.LocalQueue]
    cluster_queues: Informer[kueue.ClusterQueue]
    flavors: Informer[kueue.ResourceFlavor]
    shaping: tuple[Informer[Any], ...]  # everything else that decisions rest on
    explain: ExplainFunction | None = None


class DashboardSummaries:
    """What is shown, kept up to date for whoever looks."""

    def __init__(self, sources: DashboardSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self.table = WorkloadTable()
        self.overview = Overview(sources.world, (), self.table)
        self.revision = 0
        self._changed = {key for key, _ in sources.workloads.items()}
        self._is_outdated = True
        self._refreshed = float("-inf")
        self._refreshing = asyncio.Lock()
        self._explaining = asyncio.Lock()
        self._explanations: dict[tuple[str, bool], tuple[int, Tree]] = {}
        sources.workloads.add_handler(self._workload_changed)
        sources.local_queues.add_handler(self._local_queue_changed)
        for informer in sources.shaping:
            informer.add_handler(self._shape_changed)

    @property
    def unread(self) -> int:
        """How many Workloads the next look reads."""
        return len(self._changed)

    def note(self, key: ObjectKey) -> None:
        """A Workload is to be read again."""
        self._changed.add(key)

    def _workload_changed(self, change: InformerEvent[kueue.Workload]) -> None:
        if change.new is None and self.table.get(change.key) is None:
            # It came and went while nobody looked: remembering it would cost memory for ever.
            self._changed.discard(change.key)
        else:
            self.note(change.key)

    def _local_queue_changed(self, change: InformerEvent[kueue.LocalQueue]) -> None:
        self._changed.update(key for key, _ in self._sources.workloads.by_index("queue", str(change.key)))

    def _shape_changed(self, change: InformerEvent[Any]) -> None:
        self._is_outdated = True

    # --- Looking ------------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Bring everything up to date, unless that was done a moment ago."""
        async with self._refreshing:
            if self._clock.monotonic() - self._refreshed < FRESH_SECONDS:
                return
            # One by one: a viewer who leaves in the middle loses nothing for the others.
            for number in count(1):
                if not self._changed:
                    break
                self._read(self._changed.pop())
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            if self._is_outdated:
                self.overview = Overview(self._sources.world, self._sources.cluster_queues.values(), self.table)
                self.revision += 1
                self._is_outdated = False
            self._refreshed = self._clock.monotonic()

    def _read(self, key: ObjectKey) -> None:
        self._is_outdated = True
        workload = self._sources.workloads.get(key.name, key.namespace)
        if workload is None:
            self.table.drop(key)
        else:
            self.table.put(workload_table.row(workload, self._cluster_queue(workload)))

    def _cluster_queue(self, workload: kueue.Workload) -> str:
        """The one that gave it quota, else the one that its LocalQueue leads to."""
        if given := states.cluster_queue(workload):
            return given
        found = self._sources.local_queues.get(workload.spec.queue_name, workload.metadata.namespace)
        return found.spec.cluster_queue or "" if found is not None else ""

    # --- Answers ------------------------------------------------------------------------------------------------------

    def workloads(self, query: WorkloadQuery, offset: int, limit: int) -> Tree:
        found = self.table.query(query)
        lines = []
        for row in found[offset : offset + limit]:
            workload = self._sources.workloads.get(row.name, row.namespace)
            if workload is None:
                continue  # deleted since the rows were read
            line = workload_history.line(workload, row)
            if query.state in ("", line["state"]):  # else it left the state that was asked for
                lines.append(line)
        return {"items": lines, "total": len(found), "offset": offset}

    def workload(self, namespace: str, name: str) -> tuple[kueue.Workload, Tree] | None:
        """The object, and what is known of it."""
        workload = self._sources.workloads.get(name, namespace)
        if workload is None:
            return None
        return workload, workload_history.detail(workload, workload_table.row(workload, self._cluster_queue(workload)))

    def cluster_queue(self, name: str) -> Tree | None:
        found, queue = self.overview.queue(name), self._sources.cluster_queues.get(name)
        if found is None or queue is None:
            return None
        spec = queue.spec
        return {**found, "strategy": spec.queueing_strategy, "stopped": spec.stop_policy or "None"}

    def flavor(self, name: str) -> Tree | None:
        found = self._sources.flavors.get(name)
        if found is None:
            return None
        labels, topology = dict(found.spec.node_labels), found.spec.topology_name or ""
        return {**self.overview.flavor(name), "nodeLabels": labels, "topology": topology}

    async def explanation(self, namespace: str, name: str, *, suggestions: bool) -> Tree | None:
        """Why it is where it is; None where nobody here can tell. Raises UsageError where it does not exist.

        One at a time and not on the loop: looking for what would help may take seconds, and the scheduler is next door.
        """
        explain = self._sources.explain
        if explain is None:
            return None
        key = (f"{namespace}/{name}", suggestions)
        async with self._explaining:
            revision, known = self._explanations.get(key, (-1, {}))
            if revision == self.revision:
                return known
            revision = self.revision
            objects = list(self._concerning(ObjectKey(namespace, name)))
            found = await _aside(partial(explain, objects, key[0], self._clock.now(), suggestions))
            if len(self._explanations) >= _EXPLANATIONS_MAX:
                self._explanations.clear()
            self._explanations[key] = (revision, found)
            return found

    def _concerning(self, key: ObjectKey) -> Iterator[msgspec.Struct]:
        """What an explanation rests on: what shapes queues, and the Workloads of the tree that this one is in.

        Trees do not touch each other, except where their flavors share nodes: then all Workloads are of concern.
        """
        for informer in self._sources.shaping:
            yield from informer.values()
        row, world = self.table.get(key), self._sources.world
        if row is None or world.topologies:
            yield from self._sources.workloads.values()
            return
        near = {row.cluster_queue, *world.tree_queues(row.cluster_queue)}
        for other in self.table.under(near):
            workload = self._sources.workloads.get(other.name, other.namespace)
            if workload is not None:
                yield workload


async def _aside(work: Callable[[], Tree]) -> Tree:
    """Run something in a thread that nobody waits for at the end: a question must not keep a process alive."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Tree] = loop.create_future()

    def tell(how: Callable[[], None]) -> None:
        if not answer.done():
            how()

    def run() -> None:
        try:
            how = partial(answer.set_result, work())
        except Exception as error:
            how = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whoever asked
            loop.call_soon_threadsafe(tell, how)

    threading.Thread(target=run, name="explanation", daemon=True).start()
    return await answer
