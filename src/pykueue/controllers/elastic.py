"""Pods of elastic jobs: released from their gate as far as the admitted slice of their Workload goes."""

from __future__ import annotations

import random
from typing import Final

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.jobs import pod as pods
from pykueue.jobs import ungating
from pykueue.jobs.executor import BEHIND_SECONDS, JobReconciler
from pykueue.jobs.kinds import JobIntegration

# The index of the informer of Workloads by the name of their line of slices.
SLICES: Final = "slices"


class ElasticController:
    """A key is the name of a line of slices, under which both their Workloads and their pods stand."""

    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        writer: WorkloadWriter,
        executor: JobReconciler,
        row: JobIntegration,
        rng: random.Random,
    ) -> None:
        self._informers = informers
        self._writer = writer
        self._executor = executor
        self._row = row
        self.informer: Informer[Tree] = Informer(client, pods.KIND, codec.shared_tree, rng, labels=labels.PODSET)
        self.informer.add_index(SLICES, ungating.slice_keys)
        self.informer.add_handler(self._pod_seen)
        informers.workloads.add_index(SLICES, ungating.workload_slice_keys, of="metadata.annotations")
        informers.workloads.add_handler(self._workload_seen)
        self.loop: Controller[str] = Controller("elastic-gate", self._reconcile, rng)

    def _pod_seen(self, change: InformerEvent[Tree]) -> None:
        if change.new is None and change.old is not None:
            self._executor.forget(change.old)
        for pod in (change.old, change.new):
            for word in ungating.slice_keys(pod) if pod is not None else ():
                self.loop.add(word)

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        for word in ungating.workload_slice_keys(change.new) if change.new is not None else ():
            self.loop.add(word)

    async def _reconcile(self, word: str) -> float | None:
        slices = [self._writer.current(key) for key, _ in self._informers.workloads.by_index(SLICES, word)]
        pods = [pod for _, pod in self.informer.by_index(SLICES, word)]
        if any(self._executor.is_behind(ObjectView(pod)) for pod in pods):
            return BEHIND_SECONDS  # a pod that was just released still seems to be gated: its place would be free
        actions = ungating.released((each for each in slices if each is not None), pods)
        return await self._executor.apply(self._row, actions)
