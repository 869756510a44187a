"""The data of the dashboard, from the informers: computed at most once per second and shared by all users.

A change only records the key of the object; the next refresh reads it again. Without users, a changed Workload costs
one entry in a set.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec

from kubemachinery import quantity
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from pykueue import calendars
from pykueue.api import kueue
from pykueue.api.budget import Budget
from pykueue.core import amounts
from pykueue.dashboard import expected_starts, over_time, workload_history, workload_table
from pykueue.dashboard.expected_starts import ForecastSource
from pykueue.dashboard.over_time import AskHistory
from pykueue.dashboard.overview import Overview
from pykueue.dashboard.workload_table import WorkloadQuery, WorkloadTable
from pykueue.history import budget_lines
from pykueue.lifecycle import states
from pykueue.state.troubles import Trouble
from pykueue.state.world import World

Tree: TypeAlias = dict[str, Any]

# (objects, namespace/name, now, with suggestions) -> the explanation of `pykueue explain`.
ExplainFunction: TypeAlias = Callable[[Iterable[msgspec.Struct], str, Nanoseconds, bool], Tree]

FRESH_SECONDS: Final = 1.0
# The number of rows that are read before the event loop runs other tasks.
_AT_ONCE: Final = 200
_EXPLANATIONS_MAX: Final = 64


async def _no_troubles() -> Iterable[Trouble]:
    return ()


class DashboardSources(msgspec.Struct, frozen=True, kw_only=True):
    """What the summaries are computed from. The Workload informer has the index `queue` (namespace/name of the
    LocalQueue)."""

    world: World
    workloads: Informer[kueue.Workload]
    local_queues: Informer[kueue.LocalQueue]
    cluster_queues: Informer[kueue.ClusterQueue]
    flavors: Informer[kueue.ResourceFlavor]
    shaping: tuple[Informer[Any], ...]  # everything else that decisions depend on
    explain: ExplainFunction | None = None
    # The objects of the API server that an explanation of a Workload of this namespace needs besides those above.
    unwatched: Callable[[str], Awaitable[Iterable[msgspec.Struct]]] | None = None
    troubles: Callable[[], Awaitable[Iterable[Trouble]]] = _no_troubles
    history: AskHistory | None = None
    budgets: Informer[Budget] | None = None
    forecasts: ForecastSource | None = None


class DashboardSummaries:
    """The summaries, updated on request by `refresh`."""

    def __init__(self, sources: DashboardSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self.table = WorkloadTable()
        self.overview = Overview(sources.world, (), self.table)
        self.revision = 0
        self._forecasts_shown = 0
        self._changed = {key for key, _ in sources.workloads.items()}
        self._is_outdated = True
        self._refreshed = float("-inf")
        self._refreshing = asyncio.Lock()
        self._explaining = asyncio.Lock()
        self._troubles: dict[str, list[Tree]] = {}
        self._troubles_read = float("-inf")
        self._explanations: dict[tuple[str, bool], tuple[int, Tree]] = {}
        sources.workloads.add_handler(self._workload_changed)
        sources.local_queues.add_handler(self._local_queue_changed)
        for informer in sources.shaping:
            informer.add_handler(self._shape_changed)

    @property
    def unread(self) -> int:
        """The number of Workloads that the next refresh reads."""
        return len(self._changed)

    def note(self, key: ObjectKey) -> None:
        """Mark a Workload to be read again."""
        self._changed.add(key)

    def _workload_changed(self, change: InformerEvent[kueue.Workload]) -> None:
        if change.new is None and self.table.get(change.key) is None:
            # Created and deleted between two refreshes: its key would stay in the set forever.
            self._changed.discard(change.key)
        else:
            self.note(change.key)

    def _local_queue_changed(self, change: InformerEvent[kueue.LocalQueue]) -> None:
        self._changed.update(key for key, _ in self._sources.workloads.by_index("queue", str(change.key)))

    def _shape_changed(self, change: InformerEvent[Any]) -> None:
        self._is_outdated = True

    # --- Refresh ------------------------------------------------------------------------------------------------------

    async def refresh(self, *, at_once: bool = False) -> None:
        """Update the summaries, unless they are less than a second old; `at_once` also then."""
        async with self._refreshing:
            if not at_once and self._clock.monotonic() - self._refreshed < FRESH_SECONDS:
                return
            # One key at a time: a request that is cancelled here loses no change.
            for number in count(1):
                if not self._changed:
                    break
                self._read(self._changed.pop())
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            forecasts = self._sources.forecasts
            if forecasts is not None and forecasts.revision != self._forecasts_shown:
                self._forecasts_shown = forecasts.revision
                self._is_outdated = True
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
        """Return the ClusterQueue that reserved its quota, else the one of its LocalQueue."""
        if given := states.cluster_queue(workload):
            return given
        found = self._sources.local_queues.get(workload.spec.queue_name, workload.metadata.namespace)
        return found.spec.cluster_queue or "" if found is not None else ""

    # --- Documents ----------------------------------------------------------------------------------------------------

    def workloads(self, query: WorkloadQuery, offset: int, limit: int) -> Tree:
        found = self.table.query(query)
        lines = []
        asked: set[str] = set()
        for row in found[offset : offset + limit]:
            workload = self._sources.workloads.get(row.name, row.namespace)
            if workload is None:
                continue  # deleted since the rows were read
            troubles = [each["type"] for each in self._troubles_of(row.namespace, row.name)]
            line = {**workload_history.line(workload, row), "troubles": troubles}
            line["expectedStart"] = self._expected_start(workload, row.cluster_queue)
            if workload_table.display_state(workload) in expected_starts.WAITING:
                asked.add(row.cluster_queue)
            if query.state in ("", line["state"]):  # else its state has changed since the row was read
                lines.append(line)
        self._ask_for_forecasts(sorted(asked)[: expected_starts.ASKED_MAX])
        return {"items": lines, "total": len(found), "offset": offset}

    def workload(self, namespace: str, name: str) -> tuple[kueue.Workload, Tree] | None:
        """Return the object and its document."""
        workload = self._sources.workloads.get(name, namespace)
        if workload is None:
            return None
        cluster_queue = self._cluster_queue(workload)
        found = workload_history.detail(workload, workload_table.row(workload, cluster_queue))
        if workload_table.display_state(workload) in expected_starts.WAITING:
            self._ask_for_forecasts((cluster_queue,))
        return workload, {
            **found,
            "troubles": self._troubles_of(namespace, name),
            "expectedStart": self._expected_start(workload, cluster_queue),
        }

    def _expected_start(self, workload: kueue.Workload, cluster_queue: str) -> Tree | None:
        """Return when a Workload that waits is expected to start, if that is known."""
        if workload_table.display_state(workload) not in expected_starts.WAITING:
            return None
        key, forecasts = states.key(workload), self._sources.forecasts
        found = forecasts.of_workload(key, cluster_queue) if forecasts is not None else None
        problem = forecasts.problem(cluster_queue) if forecasts is not None else ""
        plan = self._sources.world.planned_start(key)
        return expected_starts.document(found, plan.date if plan is not None else None, problem)

    def _ask_for_forecasts(self, cluster_queues: Iterable[str]) -> None:
        """Have the forecasts of what is shown made in the background: a later answer of this page has them."""
        if self._sources.forecasts is not None:
            for name in cluster_queues:
                self._sources.forecasts.ask_later(name)

    async def read_troubles(self) -> None:
        """Read the troubles of all Workloads, unless they are less than a second old."""
        if self._clock.monotonic() - self._troubles_read >= FRESH_SECONDS:
            self._troubles_read = self._clock.monotonic()
            found: dict[str, list[Tree]] = {}
            for each in await self._sources.troubles():
                shown = {"type": str(each.type), "since": format_time(each.since), "message": each.message}
                found.setdefault(each.workload, []).append(shown)
            self._troubles = found

    def _troubles_of(self, namespace: str, name: str) -> list[Tree]:
        return self._troubles.get(f"{namespace}/{name}", [])

    def cluster_queue(self, name: str) -> Tree | None:
        found, queue = self.overview.queue(name), self._sources.cluster_queues.get(name)
        if found is None or queue is None:
            return None
        spec = queue.spec
        return {**found, "strategy": spec.queueing_strategy, "stopped": spec.stop_policy or "None"}

    def budgets(self) -> Tree | None:
        """Return what the groups of all Budgets have used; None if this manager does not answer for Budgets."""
        if self._sources.budgets is None:
            return None
        found = [budget for _, budget in sorted(self._sources.budgets.items())]
        now = self._clock.now()
        items = [line for each in found for line in budget_lines.of(each, calendars.zone_of(each), now)]
        return {
            "items": [msgspec.to_builtins(line) for line in items],
            "problems": list(budget_lines.unknown(found)),
        }

    async def over_time(self, name: str, days: int) -> Tree | None:
        """Return the usage and the waiting of a ClusterQueue over time, of the first one without a name; None without a
        history. Raise UsageError if it does not exist."""
        if self._sources.history is None:
            return None
        names = sorted(queue.metadata.name for queue in self._sources.cluster_queues.values())
        chosen = name or (names[0] if names else "")
        queue = self._sources.cluster_queues.get(chosen)
        if queue is None:
            if name:
                raise UsageError(f"ClusterQueue {name[:300]} does not exist")
            return {"queues": [], "clusterQueue": "", "days": days, "charts": [], "users": []}
        quotas: dict[str, int] = {}
        for flavor in (each for group in queue.spec.resource_groups for each in group.flavors):
            for quota in flavor.resources:
                nominal = amounts.of_quota(quota.name, quantity.parse(str(quota.nominal_quota)))
                quotas[quota.name] = amounts.add(quotas.get(quota.name, 0), nominal)
        shown = {resource: amount for resource, amount in quotas.items() if amount != amounts.UNLIMITED}
        found = await over_time.document(self._sources.history, chosen, shown, days, self._clock.now() // SECOND)
        return {"queues": names, **found}

    def flavor(self, name: str) -> Tree | None:
        found = self._sources.flavors.get(name)
        if found is None:
            return None
        labels, topology = dict(found.spec.node_labels), found.spec.topology_name or ""
        return {**self.overview.flavor(name), "nodeLabels": labels, "topology": topology}

    async def explanation(self, namespace: str, name: str, *, suggestions: bool, fresh: bool = False) -> Tree | None:
        """Return why a Workload is in its state; None if explanations are disabled. Raise UsageError if it does not
        exist. An earlier explanation is returned while nothing that is watched has changed, unless `fresh` is set: one
        may also change as time passes.

        One at a time and in a thread: suggestions may take seconds, and the scheduler runs on the same event loop.
        """
        explain = self._sources.explain
        if explain is None:
            return None
        key = (f"{namespace}/{name}", suggestions)
        async with self._explaining:
            revision, known = self._explanations.get(key, (-1, {}))
            if revision == self.revision and not fresh:
                return known
            unwatched = await self._sources.unwatched(namespace) if self._sources.unwatched is not None else ()
            revision = self.revision
            objects = [*self._concerning(ObjectKey(namespace, name)), *unwatched]
            found = await _aside(partial(explain, objects, key[0], self._clock.now(), suggestions))
            if len(self._explanations) >= _EXPLANATIONS_MAX:
                self._explanations.clear()
            self._explanations[key] = (revision, found)
            return found

    def _concerning(self, key: ObjectKey) -> Iterator[msgspec.Struct]:
        """Yield the objects that an explanation depends on: those that define queues, and the Workloads of the cohort
        tree.

        Cohort trees are independent, except where their flavors share nodes: then all Workloads are needed.
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
    """Run `work` in a daemon thread, so that a pending explanation does not keep the process alive."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Tree] = loop.create_future()

    def resolve(how: Callable[[], None]) -> None:
        if not answer.done():
            how()

    def run() -> None:
        try:
            how = partial(answer.set_result, work())
        except Exception as error:
            how = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the request
            loop.call_soon_threadsafe(resolve, how)

    threading.Thread(target=run, name="explanation", daemon=True).start()
    return await answer
