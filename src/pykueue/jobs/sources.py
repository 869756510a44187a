"""Where the facts about jobs are read: an interface that the caches of informers implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue
from pykueue.jobs.integration import JobIntegration


class JobSources(Protocol):
    """Where facts are read: the caches of informers. Returned objects are never changed in place."""

    def job(self, row: JobIntegration, namespace: str, name: str) -> Tree | None: ...

    def group(self, namespace: str, name: str) -> tuple[Tree, ...]:
        """The pods of a group, by name."""
        ...

    def pods_of(self, row: JobIntegration, namespace: str, name: str) -> tuple[Tree, ...]:
        """The pods of a parent that carry its mark, by name."""
        ...

    def owned(self, kind: Kind, namespace: str, name: str) -> tuple[kueue.Workload, ...]:
        """The Workloads with an owner of this kind and name, oldest first."""
        ...

    def workload(self, namespace: str, name: str) -> kueue.Workload | None: ...

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """None if the namespace does not exist."""
        ...

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        """An owner, of any kind that the table knows; see `selection.OwnerLookup` for how this may fail."""
        ...

    @property
    def flavors(self) -> Mapping[str, kueue.ResourceFlavor]: ...

    @property
    def workload_priority_classes(self) -> Mapping[str, kueue.WorkloadPriorityClass]: ...

    @property
    def priority_classes(self) -> Mapping[str, kube.PriorityClass]: ...
