"""MPIJob of the MPI Operator: a launcher and its workers. The launcher is a Job that the MPIJob owns.

Where the launcher is a worker, too (`spec.runLauncherAsWorker`), the ranks of the workers begin at 1: the webhook
writes this into the template of the workers, where topology assignment reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import podsets
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.training_operator import KubeflowJob, ReplicaSpecs

_REPLICAS: Final = ReplicaSpecs("mpiReplicaSpecs", ("Launcher", "Worker"))
_LAUNCHER, _WORKER = (("spec", _REPLICAS.field, name) for name in _REPLICAS.types)


class MPIJob(KubeflowJob):
    """An MPIJob."""

    @property
    def replicas(self) -> ReplicaSpecs:
        return _REPLICAS

    # --- The webhook --------------------------------------------------------------------------------------------------

    def prepared(self, options: IntegrationOptions) -> Tree:
        """The ranks of the workers begin at 1 where the launcher is rank 0, unless both are one pod set group, whose
        ranks are counted together [MP3]."""
        if not options.topology or self.spec.get("runLauncherAsWorker") is not True:
            return self.tree
        launcher, worker = (unstructured.find(self.tree, path) for path in (_LAUNCHER, _WORKER))
        if not isinstance(launcher, dict) or not isinstance(worker, dict):
            return self.tree
        if unstructured.get(launcher, "template", "metadata", "annotations", labels.PODSET_GROUP_NAME) is not None:
            return self.tree
        tree: Tree = podsets.put_at(
            self.tree, (*_WORKER, "template", "metadata", "annotations", labels.POD_INDEX_OFFSET), "1"
        )
        return tree

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """As for the Training Operator kinds, and the rules for a group of pod sets [MP5]."""
        return self.validate_topology(options, groups=True)
