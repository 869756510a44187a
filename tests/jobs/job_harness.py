"""One job in a test of the reconciler: the stored objects, and the actions of other components.

`settle` calls the reconciler and applies its actions, as a server would, until there are none. The scheduler, the Job
controller and the kubelet are lines in a test: `admit`, `evict`, `status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from kubemachinery import codec, meta, patches, unstructured
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, QuotaReservedReason
from pykueue.jobs import kinds, related
from pykueue.jobs.actions import (
    Actions,
    ChangeWorkload,
    CreateWorkload,
    DeleteObject,
    EmitJobEvent,
    PatchWorkload,
    ReplaceObject,
    RequeueAfter,
    ResizeWorkload,
    RetryWithBackoff,
)
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.offline import OfflineContext
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_group import PodGroup
from pykueue.jobs.reconcile import orphaned, reconcile
from pykueue.lifecycle import eviction, reservation, states, workload_changes

WRITES = (CreateWorkload, PatchWorkload, ResizeWorkload, ChangeWorkload, ReplaceObject, DeleteObject)

NOW = meta.parse_time("2026-11-15T12:00:00Z")
KINDS = kinds.JobKinds(kinds.BUILT_IN)
JOB, POD = KINDS.enabled(("batch/job", "pod"))

OPTIONS = IntegrationOptions(frameworks=("batch/job", "pod"))
# With every implemented framework.
ALL_KINDS = IntegrationOptions(frameworks=tuple(row.framework for row in KINDS if row.implementation is not None))


class Killed(Exception):
    """The manager was killed after a write; the actions that follow it are lost."""


def batch_job(name: str = "alpha", **fields: Any) -> Tree:
    """A Job with the queue name `lq`, as the server stores it after the webhook."""
    given: Tree = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "main",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "labels": {labels.QUEUE_NAME: "lq"},
        },
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {
                "metadata": {},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }
    merged: Tree = patches.merge(given, fields)
    return merged


def pod(name: str = "solo", group: str = "", total: int = 0, **fields: Any) -> Tree:
    """A pod with the queue name `lq`, as the server stores it after the webhook."""
    metadata: Tree = {"name": name, "namespace": "main", "uid": f"uid-{name}", "resourceVersion": "1"}
    metadata["labels"] = {labels.QUEUE_NAME: "lq"} | ({labels.POD_GROUP_NAME: group} if group else {})
    metadata["creationTimestamp"] = "2026-11-15T11:00:00Z"
    if group:
        metadata["annotations"] = {labels.POD_GROUP_TOTAL_COUNT: str(total)}
    given: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    }
    merged = patches.merge(given, fields)
    return POD.job(merged).defaulted(OPTIONS)


def flavor(name: str = "default", **spec: Any) -> kueue.ResourceFlavor:
    return codec.from_tree({"metadata": {"name": name}, "spec": spec}, kueue.ResourceFlavor)


class JobHarness:
    """The objects of one job or one group, its Workloads, and the reasons of emitted Events."""

    def __init__(
        self,
        *objects: Tree,
        options: IntegrationOptions = OPTIONS,
        row: JobIntegration | None = None,
        related_objects: tuple[Tree, ...] = (),
        kill_after: int = 0,
        **facts: Any,
    ) -> None:
        """With `kill_after`, the manager is killed after that many writes, once."""
        found = row or KINDS.of(ObjectView(objects[0]))
        assert found is not None
        self.row = found
        self.objects = {unstructured.get(tree, "metadata", "name"): tree for tree in objects}
        self.options = options
        self.group = _group_of(objects[0])
        self.facts = JobFacts(flavors={"default": flavor()}, **facts)
        self.workloads: dict[str, kueue.Workload] = {}
        self.events: list[str] = []
        # The notes of the Events of jobs.
        self.notes: list[str] = []
        self.writes = 0
        self.around = OfflineContext(related=related_objects)
        self._kill_after = kill_after
        self.requeue_after: int | None = None
        self.retries: list[str] = []
        self.now = NOW

    # --- Reading ------------------------------------------------------------------------------------------------------

    @property
    def job(self) -> Tree:
        (tree,) = self.objects.values()
        return tree

    @property
    def workload(self) -> kueue.Workload:
        (workload,) = self.workloads.values()
        return workload

    def condition(self, type_: str) -> str:
        """`status/reason` of a condition of the Workload; empty when it is absent."""
        found = [each for each in self.workload.status.conditions if each.type == type_]
        return f"{found[0].status}/{found[0].reason}" if found else ""

    def message(self, type_: str) -> str:
        """The message of a condition of the Workload; empty when it is absent."""
        return next((each.message for each in self.workload.status.conditions if each.type == type_), "")

    # --- Acting -------------------------------------------------------------------------------------------------------

    def decide(self) -> Actions:
        held = tuple(self.workloads.values())
        if self.group:
            facts = replace(self.facts, named=self.workloads.get(self.group))
            if not self.objects:
                return orphaned(held, self.options, self.now)
            members = [PodView(self.objects[name]) for name in sorted(self.objects)]
            return reconcile(PodGroup(self.row, members, self.options, self.now), facts, self.options, self.now)
        if not self.objects:
            return orphaned(held, self.options, self.now)
        job = self.row.job(self.job, related.among(self.row, self.job, self.around.find))
        owned = tuple(each for each in held if any(owner.name == job.name for owner in each.metadata.owner_references))
        facts = replace(self.facts, workloads=owned, named=self.facts.named or self._named(job.tree))
        return reconcile(job, facts, self.options, self.now)

    def _named(self, tree: Tree) -> kueue.Workload | None:
        name = unstructured.get(tree, "metadata", "labels", labels.PREBUILT_WORKLOAD_NAME)
        return self.workloads.get(name or "")

    def settle(self, passes: int = 12) -> JobHarness:
        for _ in range(passes):
            writes = self.writes
            try:
                self.apply(self.decide())
            except Killed:
                continue  # the next manager decides from what is stored
            if self.writes == writes:
                return self
        raise AssertionError(f"still busy after {passes} passes: {self.decide()}")

    def apply(self, actions: Actions) -> None:
        for action in actions:
            if self._kill_after and self.writes == self._kill_after:
                self._kill_after = 0
                raise Killed
            self.writes += isinstance(action, WRITES)
            match action:
                case CreateWorkload(tree, _):
                    self._store({**tree, "metadata": {**tree["metadata"], "uid": f"uid-{tree['metadata']['name']}"}})
                case PatchWorkload(workload, patch):
                    stored = codec.to_tree(self.workloads[workload.metadata.name])
                    self._store(patches.merge(stored, patch))
                case ResizeWorkload(workload, counts):
                    pod_sets = tuple(
                        structs.replace(pod_set, count=count)
                        for pod_set, count in zip(workload.spec.pod_sets, counts, strict=True)
                    )
                    spec = structs.replace(workload.spec, pod_sets=pod_sets)
                    self.workloads[workload.metadata.name] = structs.replace(workload, spec=spec)
                case ChangeWorkload(workload, changes):
                    self._changed(workload.metadata.name, changes)
                case ReplaceObject(_, _, after, _):
                    self._put(after)
                case DeleteObject(_, tree):
                    self._delete(unstructured.get(tree, "metadata", "name"))
                case EmitJobEvent(_, reason, note, warning):
                    self.events.append(f"Warning {reason}" if warning else reason)
                    self.notes.append(note)
                case RequeueAfter(after_nanoseconds):
                    self.requeue_after = after_nanoseconds
                case RetryWithBackoff(why):
                    self.retries.append(why)
                    return  # what follows is not reached

    def _store(self, tree: Tree) -> None:
        workload = codec.from_tree(tree, kueue.Workload)
        self.workloads[workload.metadata.name] = workload

    def _changed(self, name: str, changes: workload_changes.Changes) -> None:
        before = self.workloads[name]
        after = workload_changes.apply_to(before, changes, self.now)
        states.check_move(before, after)
        self.workloads[name] = after
        self.events += [each.reason for each in changes if isinstance(each, workload_changes.EmitEvent)]
        gone = any(isinstance(each, workload_changes.DeleteWorkload) for each in changes)
        if gone or (after.metadata.deletion_timestamp and not after.metadata.finalizers):
            del self.workloads[name]

    def _put(self, tree: Tree) -> None:
        name = unstructured.get(tree, "metadata", "name")
        if unstructured.get(tree, "metadata", "deletionTimestamp") and not unstructured.get(
            tree, "metadata", "finalizers"
        ):
            del self.objects[name]
        else:
            self.objects[name] = tree

    def _delete(self, name: str) -> None:
        tree = self.objects[name]
        if unstructured.get(tree, "metadata", "finalizers"):
            self.objects[name] = unstructured.put(tree, ("metadata", "deletionTimestamp"), meta.format_time(self.now))
        else:
            del self.objects[name]

    # --- Actions of other components ----------------------------------------------------------------------------------

    def edit(self, patch: Tree, name: str = "") -> JobHarness:
        """A user changes the job, or one pod of a group."""
        name = name or unstructured.get(self.job, "metadata", "name")
        self.objects[name] = patches.merge(self.objects[name], patch)
        return self

    def status(self, name: str = "", **status: Any) -> JobHarness:
        """A controller or the kubelet reports."""
        return self.edit({"status": status}, name)

    def add(self, tree: Tree) -> JobHarness:
        self.objects[unstructured.get(tree, "metadata", "name")] = tree
        return self

    def delete(self, name: str = "") -> JobHarness:
        """A user deletes the job, or one pod of a group."""
        self._delete(name or unstructured.get(self.job, "metadata", "name"))
        return self

    def delete_workload(self, name: str = "") -> JobHarness:
        workload = self.workloads[name] if name else self.workload
        metadata = structs.replace(workload.metadata, deletion_timestamp=meta.format_time(self.now))
        self.workloads[metadata.name] = structs.replace(workload, metadata=metadata)
        return self

    def admit(
        self, counts: Mapping[str, int] | None = None, checks: tuple[str, ...] = (), **flavors: str
    ) -> JobHarness:
        """The scheduler reserves quota, of the flavor `default` unless given."""
        workload = self.workload
        assignments = tuple(
            kueue.PodSetAssignment(
                name=pod_set.name,
                flavors=flavors or {"cpu": "default"},
                count=(counts or {}).get(pod_set.name, pod_set.count),
            )
            for pod_set in workload.spec.pod_sets
        )
        admission = kueue.Admission(cluster_queue="cq", pod_set_assignments=assignments)
        self._changed(
            workload.metadata.name,
            reservation.reserve(workload, admission, checks, self.options.lifecycle, self.now),
        )
        self.events = [word for word in self.events if word not in ("QuotaReserved", "Admitted")]
        return self

    def lose_admission(self) -> JobHarness:
        """An administrator clears the admission of the Workload, without an eviction."""
        changes = reservation.clear(
            self.workload, QuotaReservedReason.PENDING, "cleared", self.options.lifecycle, self.now
        )
        self._changed(self.workload.metadata.name, changes)
        return self

    def evict(self, reason: EvictedReason = EvictedReason.PREEMPTED, message: str = "preempted") -> JobHarness:
        changes = eviction.evict(self.workload, reason, message, self.now)
        self._changed(self.workload.metadata.name, changes)
        self.events = [word for word in self.events if not word.startswith("EvictedDueTo")]
        return self


def _group_of(tree: Tree) -> str:
    if tree.get("kind") != "Pod":
        return ""
    found = unstructured.get(tree, "metadata", "annotations", labels.POD_GROUP_NAME)
    return str(found or unstructured.get(tree, "metadata", "labels", labels.POD_GROUP_NAME) or "")
