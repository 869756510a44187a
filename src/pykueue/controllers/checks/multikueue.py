"""AdmissionChecks with the controllerName `kueue.x-k8s.io/multikueue`, which this version does not implement.

The manager owns such checks, as Kueue's does: it sets Active to False with the reason, also on a check that a Kueue
left at True, so that the ClusterQueues behind it are inactive and say why; and it releases Workloads that hold quota
while they wait for such a check. Kueue sets the condition again when it takes the cluster back.
"""

from __future__ import annotations

import random
from typing import Final

from kubemachinery import codec, conditions
from kubemachinery.client.client import METADATA, ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from pykueue.api import kueue, labels, registry
from pykueue.api.conditions import ActiveCondition, AdmissionCheckActiveReason
from pykueue.api.effects import NO_MULTIKUEUE
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.lifecycle import multikueue
from pykueue.observe.events import MULTIKUEUE

_CHECK: Final = registry.KUEUE.of(kueue.AdmissionCheck)


class MultiKueueChecks:
    """One loop over the checks, one over the Workloads that wait for them."""

    def __init__(
        self, client: ApiClient, informers: Informers, writer: WorkloadWriter, clock: Clock, rng: random.Random
    ) -> None:
        self._client = client
        self._informers = informers
        self._writer = writer
        self._clock = clock
        self.checks_loop: Controller[str] = Controller("multikueue-checks", self._reconcile_check, rng)
        self.loop: Controller[ObjectKey] = Controller("multikueue", self._reconcile, rng)
        informers.checks.add_handler(self._check_seen)
        informers.workloads.add_handler(self._workload_seen)

    def _is_ours(self, check: kueue.AdmissionCheck | None) -> bool:
        return check is not None and check.spec.controller_name == labels.MULTIKUEUE_CONTROLLER

    def _check_seen(self, change: InformerEvent[kueue.AdmissionCheck]) -> None:
        if not self._is_ours(change.new):
            return
        self.checks_loop.add(change.key.name)
        for key, workload in self._informers.workloads.items():
            if any(check.name == change.key.name for check in workload.status.admission_checks):
                self.loop.add(key)

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        found = change.new.status.admission_checks if change.new is not None else ()
        if any(self._is_ours(self._informers.checks.get(check.name)) for check in found):
            self.loop.add(change.key)

    async def _reconcile_check(self, name: str) -> None:
        check = self._informers.checks.get(name)
        if check is None or not self._is_ours(check):
            return
        wanted = conditions.set_condition(
            check.status.conditions,
            ActiveCondition.ACTIVE,
            ConditionStatus.FALSE,
            AdmissionCheckActiveReason.NOT_IMPLEMENTED,
            NO_MULTIKUEUE,
            now=self._clock.now(),
            generation=check.metadata.generation,
        )
        if wanted != check.status.conditions:
            patch = {
                "metadata": {"resourceVersion": check.metadata.resource_version},
                "status": {"conditions": [codec.to_tree(condition) for condition in wanted]},
            }
            await self._client.patch(_CHECK, name, patch, subresource="status", accept=METADATA)

    async def _reconcile(self, key: ObjectKey) -> None:
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None:
                return
            found = self._informers.checks
            ours = {check.name for check in workload.status.admission_checks if self._is_ours(found.get(check.name))}
            now = self._clock.now()
            changes = multikueue.release(workload, ours, now)
            if changes:
                await self._writer.workload(workload, changes, MULTIKUEUE, now)
