"""The kinds of the Kubeflow Training Operator: PyTorchJob, TFJob, XGBoostJob, PaddleJob and JAXJob.

They differ only in the map that holds their replica specs and in the replica types that it may have; `REPLICAS` is the
table of both. Everything else, from `spec.runPolicy` to the conditions of their status, is shared (`KubeflowJob`), also
with the MPIJob of the MPI Operator (`mpi_job`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, first_time
from pykueue.jobs.options import IntegrationOptions

# The label in which both operators number the pods of a replica type.
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"

_RUN_POLICY: Final = ("spec", "runPolicy")


class ReplicaSpecs(msgspec.Struct, frozen=True):
    """Where a kind keeps its replica specs, and the replica types of which pod sets are made, in their order."""

    field: str
    types: tuple[str, ...]


REPLICAS: Final[Mapping[str, ReplicaSpecs]] = {
    "PyTorchJob": ReplicaSpecs("pytorchReplicaSpecs", ("Master", "Worker")),
    "TFJob": ReplicaSpecs("tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    "XGBoostJob": ReplicaSpecs("xgbReplicaSpecs", ("Master", "Worker")),
    "PaddleJob": ReplicaSpecs("paddleReplicaSpecs", ("Master", "Worker")),
    "JAXJob": ReplicaSpecs("jaxReplicaSpecs", ("Worker",)),
}


class KubeflowJob(GenericJob):
    """A job with a map of replica specs and a run policy."""

    suspend_path: ClassVar[unstructured.Path] = (*_RUN_POLICY, "suspend")

    @property
    @abstractmethod
    def replicas(self) -> ReplicaSpecs:
        """The replica specs of the kind."""

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def templates(self) -> tuple[PodSetTemplate, ...]:
        """One template for each replica type that is present; a null entry is not, and other keys of the map are
        ignored [KF1], [KF2]."""
        return tuple(
            PodSetTemplate(
                name.lower(),
                ("spec", self.replicas.field, name, "template"),
                _count(found),
                pod_index_label=REPLICA_INDEX,
                path=f"spec.{self.replicas.field}[{name}].template",
            )
            for name in self.replicas.types
            if isinstance(found := unstructured.get(self.spec, self.replicas.field, name), dict)
        )

    def priority_class(self) -> str:
        """The class of the scheduling policy, else that of the first template with one. An empty one ends the search
        for a class: the pods get the default of the cluster [KF9]."""
        policy = unstructured.get(self.tree, *_RUN_POLICY, "schedulingPolicy", "priorityClass")
        templates = (template.at(self.tree) for template in self.templates())
        named = (unstructured.text(unstructured.get(template, "spec", "priorityClassName")) for template in templates)
        return unstructured.text(policy) or next(filter(None, named), "")

    # --- State --------------------------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        """Whether the operator reports running pods of any replica type. It deletes the pods of a suspended job and
        then reports none [KF6]."""
        reported = unstructured.mapping(self.status.get("replicaStatuses"))
        return any(unstructured.integer(unstructured.get(entry, "active")) for entry in reported.values())

    def outcome(self) -> JobOutcome | None:
        """The first condition `Succeeded` or `Failed` that is true decides [KF7]."""
        for condition in self._true_conditions():
            if condition.get("type") in ("Succeeded", "Failed"):
                success = condition["type"] == "Succeeded"
                ended = "finished successfully" if success else "failed"
                return JobOutcome(
                    unstructured.text(condition.get("message")) or f"{self.row.kind.kind} {ended}",
                    success,
                    first_time(self.status.get("completionTime"), condition.get("lastTransitionTime")),
                )
        return None

    def are_pods_ready(self) -> bool:
        """The operator sets `Running` when all replicas run [KF8]."""
        return any(condition.get("type") == "Running" for condition in self._true_conditions())

    def _true_conditions(self) -> Iterator[Mapping[str, Any]]:
        found = unstructured.entries(self.status, "conditions")
        return (condition for _, condition in found if condition.get("status") == "True")

    # --- The webhook --------------------------------------------------------------------------------------------------

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """The topology annotations of each template [KF10]."""
        return self.validate_topology(options)


class TrainingOperatorJob(KubeflowJob):
    """A job of the Training Operator."""

    @property
    def replicas(self) -> ReplicaSpecs:
        return REPLICAS[self.row.kind.kind]


def _count(replica_spec: Mapping[str, Any]) -> int:
    found = unstructured.integer(replica_spec.get("replicas"))
    return 1 if found is None else found
