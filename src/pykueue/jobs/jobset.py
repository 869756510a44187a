"""JobSet of jobset.x-k8s.io: replicated Jobs that are admitted, started and stopped together.

Each replicated job is a pod set. The JobSet controller creates the Jobs, which are children of the JobSet and have no
Workloads themselves. Before it resumes Jobs that exist already, it copies labels, annotations, node selectors,
tolerations and scheduling gates from the templates into them, so that one write of the JobSet starts everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubemachinery import conditions, unstructured
from kubemachinery.field_errors import FieldError
from pykueue.api import labels
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, first_time
from pykueue.jobs.options import IntegrationOptions

# The label with the index of a Job among the replicas of its replicated job.
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
OWN_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"

_ENDS: Final = ("Completed", "Failed")


class JobSet(GenericJob):
    """A JobSet."""

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def templates(self) -> tuple[PodSetTemplate, ...]:
        """One template for each replicated job, in their order [JS1]."""
        return tuple(
            PodSetTemplate(
                unstructured.text(replicated.get("name")),
                ("spec", "replicatedJobs", number, "template", "spec", "template"),
                _replicas(replicated) * pods_per_replica(replicated),
                pod_index_label=labels.JOB_COMPLETION_INDEX,
                sub_group_index_label=JOB_INDEX,
                sub_group_count=_replicas(replicated),
            )
            for number, replicated in self._replicated_jobs()
        )

    def _replicated_jobs(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return unstructured.entries(self.spec, "replicatedJobs")

    # --- State --------------------------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        """Whether a Job of it has pods [JS7]."""
        return any(_count(row, "active") for row in self._statuses())

    def outcome(self) -> JobOutcome | None:
        """The condition Completed, else Failed [JS8]."""
        for end in _ENDS:
            for _, condition in unstructured.entries(self.status, "conditions"):
                if condition.get("type") == end and condition.get("status") == conditions.ConditionStatus.TRUE:
                    message, ended = condition.get("message"), first_time(condition.get("lastTransitionTime"))
                    return JobOutcome(unstructured.text(message), end == "Completed", ended)
        return None

    def are_pods_ready(self) -> bool:
        """Whether as many Jobs are ready or have succeeded as there are replicas [JS9]."""
        ready = sum(_count(row, "ready") + _count(row, "succeeded") for row in self._statuses())
        return ready == sum(_replicas(replicated) for _, replicated in self._replicated_jobs())

    def reclaimable(self) -> Mapping[str, int]:
        """The pods of Jobs that have succeeded, by the name of their replicated job [JS10]."""
        succeeded = {unstructured.text(row.get("name")): _count(row, "succeeded") for row in self._statuses()}
        return {
            name.lower(): succeeded[name] * pods_per_replica(replicated)
            for _, replicated in self._replicated_jobs()
            if 0 < succeeded.get(name := unstructured.text(replicated.get("name")), 0) <= _replicas(replicated)
        }

    def _statuses(self) -> Iterator[Mapping[str, Any]]:
        return (row for _, row in unstructured.entries(self.status, "replicatedJobsStatus"))

    # --- The webhook --------------------------------------------------------------------------------------------------

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """The topology annotations of every template, pod set groups included [JS11]."""
        return self.validate_topology(options, groups=True)


def pods_per_replica(replicated: Mapping[str, Any]) -> int:
    """How many pods one Job of a replicated job runs at the same time [JS2]."""
    spec = unstructured.get(replicated, "template", "spec")
    parallelism = unstructured.integer(unstructured.get(spec, "parallelism"))
    pods = 1 if parallelism is None else parallelism
    completions = unstructured.integer(unstructured.get(spec, "completions"))
    return pods if completions is None else min(pods, completions)


def _replicas(replicated: Mapping[str, Any]) -> int:
    found = unstructured.integer(replicated.get("replicas"))
    return 1 if found is None else found


def _count(row: Mapping[str, Any], name: str) -> int:
    """A number of Jobs in the status; a negative one, which no operator means, reads as 0."""
    return max(unstructured.integer(row.get(name)) or 0, 0)
