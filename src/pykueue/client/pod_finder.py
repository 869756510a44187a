"""The pods of jobs of every kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels
from pykueue.client.queued_job import JOBS, PODS, QueuedJob, known
from pykueue.jobs import selection
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView

# The options under which owners are followed: the kinds of all integrations are known, whichever the manager enables.
_OPTIONS: Final = IntegrationOptions()


class PodFinder:
    """Finds the pods of jobs: by the label of the Job controller, by the Workload that started them, or by their
    owners."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._owners: dict[tuple[str, str], Tree | None] = {}

    async def of(self, job: QueuedJob, own: Collection[kueue.Workload]) -> list[kube.Pod]:
        """The pods of a job with these Workloads, oldest first."""
        if job.row.kind == PODS and not job.group:
            return [codec.from_tree(job.tree, kube.Pod)]
        selector = f"batch.kubernetes.io/controller-uid={job.uid}" if job.row.kind == JOBS else ""
        listed = (await self._client.list(PODS, self.namespace, labels=selector)).items
        found = [item for item in listed if selector or await self._is_of(job, own, msgspec.json.decode(item))]
        pods = [codec.decode(item, kube.Pod) for item in found]
        return sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))

    async def _is_of(self, job: QueuedJob, own: Collection[kueue.Workload], tree: Tree) -> bool:
        """Whether a pod belongs to a job that is not a Job. Its owners are read only if nothing else decides."""
        pod = PodView(tree)
        if job.group:
            return pod.group_name(_OPTIONS) == job.group
        if job.uid in {owner.uid for owner in pod.owner_references}:
            return True
        started_by = pod.annotations.get(labels.WORKLOAD)
        if started_by and own:
            slices = {pod.annotations.get(labels.WORKLOAD_SLICE_NAME), started_by}
            return bool(slices & {name for workload in own for name in _names(workload)})
        if pod.controller is None:
            return False
        above = await selection.ancestry(pod, known(), _OPTIONS, self._owner)
        return any(owner.uid == job.uid for owner in above.owners)

    async def _owner(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        key = (kind.name, name)
        if key not in self._owners:
            self._owners[key] = await self._client.find(kind, name, namespace)
        return self._owners[key]


def _names(workload: kueue.Workload) -> Iterable[str]:
    yield workload.metadata.name
    if labels.WORKLOAD_SLICE_NAME in workload.metadata.annotations:
        yield workload.metadata.annotations[labels.WORKLOAD_SLICE_NAME]
