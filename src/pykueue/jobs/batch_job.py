"""batch/v1 Job: the kind that supports partial admission, and that needs three writes to stop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubemachinery import job_indexes, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error, topology_annotations
from pykueue.jobs import podsets
from pykueue.jobs.actions import Action, Actions, ReplaceObject, RetryWithBackoff
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, Stop, first_time
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

_TEMPLATE: Final = ("spec", "template")
_MIN: Final = f"metadata.annotations[{labels.JOB_MIN_PARALLELISM}]"
_SYNC: Final = f"metadata.annotations[{labels.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"

# Labels that the Job controller adds to the template. They are not part of the pod set and are kept on a restore; only
# the label with the job's name stays in the pod set, where topology assignment reads it.
_JOB_CONTROLLER_LABELS: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid")
_JOB_NAME: Final = "batch.kubernetes.io/job-name"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class BatchJob(GenericJob):
    """A Job of Kubernetes."""

    # --- Pod counts ---------------------------------------------------------------------------------------------------

    @property
    def parallelism(self) -> int:
        found = unstructured.integer(self.spec.get("parallelism"))
        return 1 if found is None else found

    @property
    def completions(self) -> int | None:
        return unstructured.integer(self.spec.get("completions"))

    @property
    def pods(self) -> int:
        """How many pods run at the same time at most."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def min_parallelism(self) -> int | None:
        written = self.annotations.get(labels.JOB_MIN_PARALLELISM, "")
        return int(written) if _NUMBER.fullmatch(written) else None

    @property
    def keeps_completions_equal(self) -> bool:
        return _BOOLEANS.get(self.annotations.get(labels.JOB_COMPLETIONS_EQUAL_PARALLELISM, ""), False)

    def templates(self) -> tuple[PodSetTemplate, ...]:
        return (
            PodSetTemplate(
                labels.DEFAULT_POD_SET,
                _TEMPLATE,
                self.pods,
                min_count=self.min_parallelism,
                pod_index_label=labels.JOB_COMPLETION_INDEX,
            ),
        )

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        return tuple(_without_controller_labels(pod_set) for pod_set in super().pod_sets(options))

    # --- State --------------------------------------------------------------------------------------------------------

    def is_suspended(self) -> bool:
        """False while a stop has writes left, so that an interrupted stop is repeated."""
        return super().is_suspended() and not self.is_stopping()

    def is_stopping(self) -> bool:
        return self.annotations.get(labels.STOPPING) == "true"

    def is_active(self) -> bool:
        return bool(self._count("active"))

    def outcome(self) -> JobOutcome | None:
        for _, condition in unstructured.entries(self.status, "conditions"):
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
                success = condition["type"] == "Complete"
                message = unstructured.text(condition.get("message"))
                ended = first_time(self.status.get("completionTime"), condition.get("lastTransitionTime"))
                return JobOutcome(message or ("Job finished successfully" if success else "Job failed"), success, ended)
        return None

    def are_pods_ready(self) -> bool:
        uncounted = unstructured.sequence(unstructured.get(self.status, "uncountedTerminatedPods", "succeeded"))
        return self._count("succeeded") + self._count("ready") + len(uncounted) >= self.pods

    def reclaimable(self) -> Mapping[str, int]:
        """Finished pods that no later pod replaces: fewer completions are left than pods may run at once.

        Unlike Kueue, parallelism beyond the completions does not count: quota is reserved for the completions only, and
        that of pods that still run would be released [BJ7].
        """
        done = self._done()
        if self.pods <= 1 or not done:
            return {}
        left = (self.parallelism if self.completions is None else self.completions) - done
        return {labels.DEFAULT_POD_SET: self.pods - max(left, 0)} if left < self.pods else {}

    def _done(self) -> int:
        if self.spec.get("completionMode") != "Indexed" or self.completions is None:
            return self._count("succeeded")
        ended = [unstructured.text(self.status.get(key)) for key in ("completedIndexes", "failedIndexes")]
        return job_indexes.count(ended, self.completions)

    def _count(self, name: str) -> int:
        return unstructured.integer(self.status.get(name)) or 0

    # --- Starting and stopping ----------------------------------------------------------------------------------------

    def started(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        tree = super().started(infos)
        if isinstance(tree, PodSetConflict) or self.min_parallelism is None:
            return tree
        return self._sized(tree, infos[0].count)

    def restored(self, infos: Sequence[PodSetInfo]) -> Tree:
        if len(infos) != 1:
            return self.tree
        template = podsets.restored(podsets.at(self.tree, _TEMPLATE), infos[0], (*_JOB_CONTROLLER_LABELS, _JOB_NAME))
        tree: Tree = podsets.put_at(self.tree, _TEMPLATE, template)
        return tree if self.min_parallelism is None else self._sized(tree, infos[0].count)

    def _sized(self, tree: Tree, pods: int) -> Tree:
        tree = unstructured.put(tree, ("spec", "parallelism"), pods)
        return unstructured.put(tree, ("spec", "completions"), pods) if self.keeps_completions_equal else tree

    def stop(self, order: Stop) -> Actions:
        """Suspend it, clear status.startTime, restore its pod template.

        The API server refuses changes of the template before the first two are stored, and from Kubernetes 1.35 on
        while pods are active: then the rest waits for the Job controller to count none. The annotation records that
        writes are left, also in case the manager ends in between.
        """
        actions: list[Action] = []
        tree = self.tree
        if not self.is_suspended():
            before, tree = tree, ObjectView(self.suspended()).with_annotations({labels.STOPPING: "true"})
            if tree != before:
                actions.append(ReplaceObject(self.row.kind, before, tree))
        if unstructured.get(tree, "status", "startTime") is not None:
            before, tree = tree, unstructured.without(tree, ("status", "startTime"))
            actions.append(ReplaceObject(self.row.kind, before, tree, "status"))
        before = tree
        if order.restore is not None:
            tree = self.with_tree(tree).restored(order.restore)
        if self.is_active() and podsets.at(tree, _TEMPLATE) != podsets.at(before, _TEMPLATE):
            active = self._count("active")
            why = f"The pod template of Job {self.name} is restored when its {active} active pods have ended"
            return (*actions, RetryWithBackoff(why))
        tree = ObjectView(tree).without_annotation(labels.STOPPING)
        if tree != before:
            actions.append(ReplaceObject(self.row.kind, before, tree))
        return (*actions, *self.stopped(order))

    # --- The webhook --------------------------------------------------------------------------------------------------

    def defaulted(self, options: IntegrationOptions) -> Tree:
        tree = self.suspended()
        if self._is_elastic(options):
            template = podsets.at(tree, _TEMPLATE)
            gate = {"name": labels.ELASTIC_JOB_GATE}
            gates = unstructured.sequence(unstructured.get(template, "spec", "schedulingGates"))
            if gate not in gates:
                tree = podsets.put_at(tree, (*_TEMPLATE, "spec", "schedulingGates"), [*gates, gate])
        return tree

    def validate_new(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if options.partial_admission:
            yield from self._partial_errors(options)

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        yield from self._completions_errors()
        if options.topology:
            metadata = unstructured.get(self.spec, "template", "metadata")
            path = "spec.template.metadata"
            yield from topology_annotations.validate(metadata, path, options.validation)
            yield from topology_annotations.validate_size(metadata, path, self.pods)
            if self._is_elastic(options):
                for key in (labels.PODSET_REQUIRED_TOPOLOGY, labels.PODSET_PREFERRED_TOPOLOGY):
                    if unstructured.get(metadata, "annotations", key) is not None:
                        yield field_error.forbidden(f"{path}.annotations[{key}]", "is not supported for elastic jobs")

    def _is_elastic(self, options: IntegrationOptions) -> bool:
        return options.elastic and self.annotations.get(labels.ELASTIC_JOB) == "true"

    def _partial_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        written = self.annotations.get(labels.JOB_MIN_PARALLELISM)
        if written is None:
            return
        if self._is_elastic(options):
            yield field_error.forbidden(_MIN, "is not supported for elastic jobs")
        if self.min_parallelism is None:
            yield field_error.invalid(_MIN, written, "must be a whole number")
        elif not 0 < self.min_parallelism < self.pods:
            yield field_error.invalid(
                _MIN, self.min_parallelism, f"must be at least 1 and less than {self.pods}, the number of pods"
            )

    def _completions_errors(self) -> Iterator[FieldError]:
        written = self.annotations.get(labels.JOB_COMPLETIONS_EQUAL_PARALLELISM)
        if written is None:
            return
        if written not in _BOOLEANS:
            yield field_error.invalid(_SYNC, written, "must be true or false")
        elif _BOOLEANS[written]:
            if self.spec.get("completionMode") != "Indexed":
                yield field_error.invalid(_SYNC, written, "requires completionMode Indexed")
            if self.completions != self.parallelism:
                yield field_error.invalid("spec.completions", self.completions, "must be equal to spec.parallelism")

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        assert isinstance(old, BatchJob)
        # Not checked again when only the pod counts change: a job may run with its minimum.
        if self.annotations.get(labels.JOB_MIN_PARALLELISM) != old.annotations.get(labels.JOB_MIN_PARALLELISM):
            yield from self.validate_new(options)
        # An interrupted stop has `spec.suspend` set already, and restores the parallelism with its last write.
        was_running = not GenericJob.is_suspended(old)
        if labels.JOB_MIN_PARALLELISM in old.annotations and was_running and self.parallelism != old.parallelism:
            why = "cannot change while a partially admitted job is running"
            yield field_error.forbidden("spec.parallelism", why)
        runs_on = not self.is_suspended() and not old.is_suspended()
        if runs_on and self.keeps_completions_equal != old.keeps_completions_equal:
            yield field_error.forbidden(_SYNC, "cannot change while the job is running")


def _without_controller_labels(pod_set: Tree) -> Tree:
    found = unstructured.texts(unstructured.get(pod_set, "template", "metadata", "labels"))
    kept = {key: value for key, value in found.items() if key not in _JOB_CONTROLLER_LABELS}
    path = ("template", "metadata", "labels")
    return unstructured.put(pod_set, path, kept) if kept else unstructured.without(pod_set, path)
