"""Writes the priority of Workloads, in whatever state, when the value of their WorkloadPriorityClass changes."""

from __future__ import annotations

import random
from typing import Final

from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.client.priority import LOW
from pykueue.api import kueue
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WORKLOAD

_INDEX: Final = "workloadPriorityClass"


class PriorityClassController:
    """Keys are Workloads, so that one that cannot be written does not delay others."""

    def __init__(self, client: ApiClient, informers: Informers, rng: random.Random) -> None:
        self._client = client
        self._informers = informers
        self.loop: Controller[ObjectKey] = Controller("priority-class", self._reconcile, rng, workers=4)
        informers.workloads.add_index(_INDEX, lambda workload: (_class_of(workload),), of="spec")
        informers.workload_priority_classes.add_handler(self._seen)

    def _seen(self, change: InformerEvent[kueue.WorkloadPriorityClass]) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or old.value != new.value):
            for key, _ in self._informers.workloads.by_index(_INDEX, change.key.name):
                self.loop.add(key, priority=LOW)

    async def _reconcile(self, key: ObjectKey) -> None:
        workload = self._informers.workloads.get(key.name, key.namespace)
        found = self._informers.workload_priority_classes.get(_class_of(workload)) if workload is not None else None
        if workload is not None and found is not None and workload.spec.priority != found.value:
            patch = {
                "metadata": {"resourceVersion": workload.metadata.resource_version},
                "spec": {"priority": found.value},
            }
            await self._client.patch_revision(WORKLOAD, key.name, patch, key.namespace)


def _class_of(workload: kueue.Workload) -> str:
    """Return the WorkloadPriorityClass that a Workload names; empty if it names none, or a PriorityClass."""
    named = workload.spec.priority_class_ref
    return named.name if named is not None and named.kind == "WorkloadPriorityClass" else ""
