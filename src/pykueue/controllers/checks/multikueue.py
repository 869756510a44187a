"""AdmissionChecks with the controllerName `kueue.x-k8s.io/multikueue`, which this version does not implement.

The manager owns such checks, as Kueue's does: it sets Active to False with the reason, also on a check that a Kueue
left at True, so that the ClusterQueues behind it are inactive with that reason. It releases Workloads that hold quota
while they wait for such a check. Kueue sets the condition again when it manages the cluster again.
"""

from __future__ import annotations

import random

from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from pykueue.api import kueue, labels
from pykueue.api.conditions import AdmissionCheckActiveReason
from pykueue.api.effects import NO_MULTIKUEUE
from pykueue.controllers.checks.owned_checks import OwnedChecks
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.lifecycle import multikueue
from pykueue.observe.events import MULTIKUEUE


class MultiKueueChecks:
    """One loop over the checks, one over the Workloads that need them."""

    def __init__(
        self, client: ApiClient, informers: Informers, writer: WorkloadWriter, clock: Clock, rng: random.Random
    ) -> None:
        self._checks = OwnedChecks(client, informers, labels.MULTIKUEUE_CONTROLLER)
        self._writer = writer
        self._clock = clock
        self.checks_loop: Controller[str] = Controller("multikueue-checks", self._reconcile_check, rng)
        self.loop: Controller[ObjectKey] = Controller("multikueue", self._reconcile, rng)
        informers.checks.add_handler(self._check_seen)
        informers.workloads.add_handler(self._workload_seen)

    def _check_seen(self, event: InformerEvent[kueue.AdmissionCheck]) -> None:
        if self._checks.owns(event.new):
            self.checks_loop.add(event.key.name)
            for key in self._checks.workloads(event.key.name):
                self.loop.add(key)

    def _workload_seen(self, event: InformerEvent[kueue.Workload]) -> None:
        if event.new is not None and self._checks.of(event.new):
            self.loop.add(event.key)

    async def _reconcile_check(self, name: str) -> None:
        reason = AdmissionCheckActiveReason.NOT_IMPLEMENTED
        await self._checks.write_active(name, ConditionStatus.FALSE, reason, NO_MULTIKUEUE, self._clock.now())

    async def _reconcile(self, key: ObjectKey) -> None:
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None:
                return
            now = self._clock.now()
            changes = multikueue.release(workload, set(self._checks.of(workload)), now)
            if changes:
                await self._writer.workload(workload, changes, MULTIKUEUE, now)
