"""The troubles of Workloads: Events about starving and thrashing, and what views, gauges and the dashboard read.

Preemption loops are reported by the scheduler when it finds them; this looks once a minute for what comes with time.
What begins and what ends is recorded in the history [LG9].
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import structs

from kubemachinery import codec, status
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from kubemachinery.serving.views import CollectionView, VirtualResource
from kubemachinery.turns import in_turns
from kubemachinery.unstructured import Tree
from pykueue.api import backfill, kueue, schema
from pykueue.controllers import history_views
from pykueue.controllers.forecaster import Forecaster
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.controllers.history_views import Parameters
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.controllers.world_feed import key_of
from pykueue.history import documents
from pykueue.history.queries import RecordFilter
from pykueue.history.records import limit_seconds
from pykueue.history.store import HistoryStoreError
from pykueue.history.trouble_records import TroubleKey, TroubleLog, TroubleRecord
from pykueue.lifecycle.workload_changes import EmitEvent, EventType
from pykueue.observe.events import SCHEDULER
from pykueue.state import troubles
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.troubles import StarvationRules, Trouble, TroubleType
from pykueue.state.world import World

_EVERY_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 30.0
# How long the next Event of the same kind on the same Workload has to wait.
_EVENT_EVERY: Final = {TroubleType.STARVING: 24 * 3600 * SECOND, TroubleType.THRASHING: 3600 * SECOND}

_TYPES: Final = tuple(TroubleType)

_PARAMETERS: Final = {
    "since": "With it, the list is from the history: troubles that ended later, or have not ended. In RFC 3339.",
    "until": "Only troubles that were found before this time, from the history. In RFC 3339.",
    "queue": "Only of this LocalQueue, from the history.",
    "clusterQueue": "Only of this ClusterQueue, from the history.",
}


class TroubleReporter:
    """Finds the troubles of Workloads, and emits Events about those that no decision reports."""

    def __init__(
        self,
        world: World,
        informers: Informers,
        writer: WorkloadWriter,
        history: HistoryRecorder | None,
        forecaster: Forecaster | None,
        clock: Clock,
        starving_after: Nanoseconds,
    ) -> None:
        self._world = world
        self._informers = informers
        self._writer = writer
        self._history = history
        self._forecaster = forecaster
        self._clock = clock
        self.rules = StarvationRules(
            after=starving_after,
            has_limit=self._has_limit,
            has_planned_start=self._has_planned_start,
            first_p90=self._first_p90,
        )
        self._reported: dict[tuple[TroubleType, str], Nanoseconds] = {}  # when, by type and UID
        self._log = TroubleLog()

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        self._log = TroubleLog()  # another manager may have led since, and what it stored is read again
        resuming = asyncio.create_task(self._resume(), name="trouble-records")
        try:
            while True:
                await asyncio.sleep(_EVERY_SECONDS)
                await self.look()
        finally:
            resuming.cancel()

    async def look(self) -> None:
        """Emit an Event about each Workload that starves or thrashes: once a day, or once an hour. Record what is
        found, and what is not found any more."""
        found, now = await self.found(), self._clock.now()
        self._record(found)
        self._reported = {key: at for key, at in self._reported.items() if 0 <= now - at < _EVENT_EVERY[key[0]]}
        for each in found:
            workload = self._writer.current(key_of(each.workload)) if each.type in _EVENT_EVERY else None
            if workload is None or (each.type, workload.metadata.uid) in self._reported:
                continue
            self._reported[each.type, workload.metadata.uid] = now
            note = f"{each.message[:1].upper()}{each.message[1:]}"
            self._writer.emit(workload, EmitEvent(EventType.WARNING, each.type, note), SCHEDULER)

    async def found(self) -> list[Trouble]:
        """Return the troubles that exist now, by type and Workload. Other tasks run between ClusterQueues."""
        world, now = self._world, self._clock.now()
        found: list[Trouble] = []
        async for name in in_turns(list(world.queues)):
            found += troubles.starving(world, name, now, self.rules)
        found += [*troubles.in_loops(world), *troubles.thrashing(world, now)]
        return sorted(map(self._continued, found), key=lambda each: (_TYPES.index(each.type), each.workload))

    def _continued(self, found: Trouble) -> Trouble:
        """Return a trouble since when its record is: one that was away for less than a minute goes on [LG9]."""
        record = self._log.open_record(self._key(found))
        return found if record is None else structs.replace(found, since=min(found.since, record.since * SECOND))

    def _key(self, found: Trouble) -> TroubleKey:
        namespace, _, name = self._world.loop_identity(found.workload).partition("/")
        return TroubleKey(found.type, namespace, name)

    # --- Records [LG9] ------------------------------------------------------------------------------------------------

    def loop_found(self, loop: PreemptionLoop) -> None:
        """Record a loop when it is found: it may be over before the next look."""
        begun = self._log.begin(self._records(troubles.in_loop(self._world, loop)))
        if self._history is not None:
            self._history.save_troubles(begun)

    def _record(self, found: Iterable[Trouble]) -> None:
        """Record the troubles that begin, and those that are not found any more."""
        changed = self._log.compare(self._records(found), self._clock.now() // SECOND)
        if self._history is not None:
            self._history.save_troubles(changed)

    async def _resume(self) -> None:
        """Go on with the records that an earlier manager left open, once the history can be read."""
        if self._history is None:
            return
        while True:
            await self._history.opened.wait()
            try:
                stored = await self._history.ask(lambda store: store.open_troubles())
            except HistoryStoreError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._history.save_troubles(self._log.resume(stored))
            return

    def _records(self, found: Iterable[Trouble]) -> Iterator[TroubleRecord]:
        """Yield a record of each trouble that begins now."""
        now = self._clock.now() // SECOND
        for each in found:
            key = self._key(each)
            job, queue = self._names(each.workload)
            yield TroubleRecord(
                type=key.type,
                namespace=key.namespace,
                name=key.name,
                job=job,
                queue=queue,
                cluster_queue=each.cluster_queue,
                since=each.since // SECOND,
                found=now,
                message=each.message,
            )

    def _names(self, key: str) -> tuple[str, str]:
        """The job of a Workload, or the Workload itself without one, and its LocalQueue."""
        workload = self._workload(key)
        if workload is None:
            return key.partition("/")[2], ""
        owners = workload.metadata.owner_references
        return owners[0].name if owners else workload.metadata.name, workload.spec.queue_name or ""

    # --- Facts about Workloads ----------------------------------------------------------------------------------------

    def _has_limit(self, key: str) -> bool:
        workload = self._workload(key)
        return workload is not None and limit_seconds(workload) is not None

    def _has_planned_start(self, key: str) -> bool:
        workload = self._workload(key)
        return workload is not None and backfill.PLANNED_START in workload.metadata.annotations

    def _first_p90(self, key: str) -> Nanoseconds | None:
        """A forecast that is first asked for when a Workload starves already does not end that."""
        workload = self._workload(key) if self._forecaster is not None else None
        if workload is None or self._forecaster is None:
            return None
        return self._forecaster.first_p90(workload, self.rules.after)

    def _workload(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.partition("/")
        return self._informers.workloads.get(name, namespace)

    # --- The view -----------------------------------------------------------------------------------------------------

    def rows(self) -> tuple[VirtualResource, ...]:
        """Return the list `troubles` of `views.pykueue.io`, of one namespace or of all."""
        view = CollectionView(
            kind="WorkloadTroubleList",
            read=self._read,
            schema=lambda: schema.of_type(documents.WorkloadTroubleList),
            parameters=_PARAMETERS,
        )
        return (
            VirtualResource(
                group=documents.GROUP,
                version=documents.VERSION,
                kind="WorkloadTrouble",
                plural=documents.TROUBLES,
                collection=view,
            ),
        )

    async def _read(self, namespace: str, given: Parameters) -> Tree:
        """Return the troubles that exist or, with a time window, those that the history has. A list of one namespace
        does not contain the names of Workloads of others."""
        not_stored = 0
        if given.keys() & _PARAMETERS.keys():
            with history_views.as_bad_request():
                wanted = history_views.record_filter(namespace, given)
            items = [documents.trouble_document(record) for record in await self._past(wanted)]
            not_stored = self._history.troubles_not_stored if self._history is not None else 0
        else:
            found = await self.found()
            if self._history is None or self._history.is_open:
                self._record(found)  # the record of a trouble that ends before the next look has what was shown
            items = [
                self._document(each) for each in found if not namespace or each.workload.startswith(f"{namespace}/")
            ]
        if namespace:
            items = [structs.replace(item, message=troubles.within(item.message, namespace)) for item in items]
        return {"metadata": {}, **codec.to_tree(documents.WorkloadTroubleList(tuple(items), not_stored))}

    async def _past(self, wanted: RecordFilter) -> list[TroubleRecord]:
        if self._history is None:
            raise status.bad_request("this manager keeps no history: --history names a file for it")
        if self._history.is_open:
            self._record(await self.found())  # those of the last minute
        try:
            stored = await self._history.ask(lambda store: store.troubles(wanted))
            return [self._now_known(record) for record in stored]
        except HistoryStoreError as error:
            raise status.StatusError(503, "ServiceUnavailable", f"the history cannot be read: {error}") from None

    def _now_known(self, stored: TroubleRecord) -> TroubleRecord:
        """Return the record of a trouble that goes on with its message of now; the store has that of its beginning."""
        known = self._log.open_record(stored.key)
        return stored if known is None or stored.ended is not None or known.found != stored.found else known

    def _document(self, found: Trouble) -> documents.WorkloadTrouble:
        namespace, _, name = found.workload.partition("/")
        job, queue = self._names(found.workload)
        return documents.WorkloadTrouble(
            metadata=documents.RecordIdentity(name=name, namespace=namespace),
            job=job,
            queue=queue,
            cluster_queue=found.cluster_queue,
            trouble=found.type,
            since=format_time(found.since),
            message=found.message,
        )
