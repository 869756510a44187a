"""The troubles of Workloads: Events about starving and thrashing, and what views, gauges and the dashboard read.

Preemption loops are reported by the scheduler when it finds them; this looks once a minute for what comes with time.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kubemachinery import codec
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from kubemachinery.serving.views import CollectionView, VirtualResource
from kubemachinery.unstructured import Tree
from pykueue.api import backfill, kueue, schema
from pykueue.controllers.history_views import Parameters
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.controllers.world_feed import key_of
from pykueue.history import documents
from pykueue.history.records import limit_seconds
from pykueue.lifecycle.workload_changes import EmitEvent, EventType
from pykueue.observe.events import SCHEDULER
from pykueue.state import troubles
from pykueue.state.troubles import StarvationRules, Trouble, TroubleType
from pykueue.state.world import World

_EVERY_SECONDS: Final = 60.0
# How long the next Event of the same kind on the same Workload has to wait.
_EVENT_EVERY: Final = {TroubleType.STARVING: 24 * 3600 * SECOND, TroubleType.THRASHING: 3600 * SECOND}


class TroubleReporter:
    """Finds the troubles of Workloads, and emits Events about those that no decision reports."""

    def __init__(
        self, world: World, informers: Informers, writer: WorkloadWriter, clock: Clock, starving_after: Nanoseconds
    ) -> None:
        self._world = world
        self._informers = informers
        self._writer = writer
        self._clock = clock
        self.rules = StarvationRules(
            after=starving_after, has_limit=self._has_limit, has_planned_start=self._has_planned_start
        )
        self._reported: dict[tuple[TroubleType, str], Nanoseconds] = {}  # when, by type and UID

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self.look()

    def look(self) -> None:
        """Emit an Event about each Workload that starves or thrashes: once a day, or once an hour."""
        now = self._clock.now()
        self._reported = {key: at for key, at in self._reported.items() if now - at < _EVENT_EVERY[key[0]]}
        for found in (*troubles.thrashing(self._world, now), *troubles.starving(self._world, now, self.rules)):
            workload = self._writer.current(key_of(found.workload))
            if workload is None or (found.type, workload.metadata.uid) in self._reported:
                continue
            self._reported[found.type, workload.metadata.uid] = now
            note = f"{found.message[:1].upper()}{found.message[1:]}"
            self._writer.emit(workload, EmitEvent(EventType.WARNING, found.type, note), SCHEDULER)

    def found(self) -> list[Trouble]:
        """Return the troubles that exist now."""
        return troubles.find(self._world, self._clock.now(), self.rules)

    def _has_limit(self, key: str) -> bool:
        workload = self._workload(key)
        return workload is not None and limit_seconds(workload) is not None

    def _has_planned_start(self, key: str) -> bool:
        workload = self._workload(key)
        return workload is not None and backfill.PLANNED_START in workload.metadata.annotations

    def _workload(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.partition("/")
        return self._informers.workloads.get(name, namespace)

    # --- The view -----------------------------------------------------------------------------------------------------

    def rows(self) -> tuple[VirtualResource, ...]:
        """Return the list `troubles` of `views.pykueue.io`, of one namespace or of all."""
        view = CollectionView(
            kind="WorkloadTroubleList", read=self._read, schema=lambda: schema.of_type(documents.WorkloadTroubleList)
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
        """Return the troubles. A list of one namespace does not contain the names of Workloads of others."""
        items = [
            self._document(found, namespace)
            for found in self.found()
            if not namespace or found.workload.startswith(f"{namespace}/")
        ]
        return {"metadata": {}, "items": [codec.to_tree(item) for item in items]}

    def _document(self, found: Trouble, namespace: str) -> documents.WorkloadTrouble:
        place, _, name = found.workload.partition("/")
        workload = self._workload(found.workload)
        owners = workload.metadata.owner_references if workload is not None else ()
        return documents.WorkloadTrouble(
            metadata=documents.RecordIdentity(name=name, namespace=place),
            job=owners[0].name if owners else name,
            queue=(workload.spec.queue_name or "") if workload is not None else "",
            cluster_queue=found.cluster_queue,
            trouble=found.type,
            since=format_time(found.since),
            message=troubles.within(found.message, namespace) if namespace else found.message,
        )
