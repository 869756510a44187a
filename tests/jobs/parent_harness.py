"""A parent of pods in a test of the reconciler: the object, its pods and its Workloads, with the pod groups beside it.

The controller of the kind is the test: `add` creates a pod as that controller and the pod webhook would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS, POD, JobHarness
from kubemachinery import meta, patches, unstructured
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import deployment, leader_worker_set, parent_reconcile, selection, stateful_set
from pykueue.jobs.actions import (
    Action,
    Actions,
    ChangeWorkload,
    CreateWorkload,
    DeleteObject,
    PatchWorkload,
    ReplaceObject,
    ResizeWorkload,
)
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_group import PodGroup
from pykueue.jobs.pod_parent import ParentFacts
from pykueue.jobs.reconcile import orphaned, reconcile

DEPLOYMENT, STATEFUL_SET, LWS = (
    row for row in KINDS if row.framework in (deployment.FRAMEWORK, stateful_set.FRAMEWORK, leader_worker_set.FRAMEWORK)
)

WRITES = (CreateWorkload, PatchWorkload, ResizeWorkload, ChangeWorkload, ReplaceObject, DeleteObject)

REQUESTS = {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]}


def _parent(api_version: str, kind: str, name: str, spec: Tree, fields: dict[str, Any]) -> Tree:
    given: Tree = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "main",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {labels.QUEUE_NAME: "lq"},
        },
        "spec": spec,
    }
    merged: Tree = patches.merge(given, fields)
    return merged


def set_of(replicas: int = 2, name: str = "web", **fields: Any) -> Tree:
    """A StatefulSet with the queue name `lq`, as a user writes it."""
    spec = {"replicas": replicas, "template": {"metadata": {"labels": {"app": "web"}}, "spec": REQUESTS}}
    return _parent("apps/v1", "StatefulSet", name, spec, fields)


def groups_of(replicas: int = 2, size: int = 3, leader: bool = True, name: str = "serve", **fields: Any) -> Tree:
    """A LeaderWorkerSet with the queue name `lq`, as a user writes it."""
    template: Tree = {"size": size, "workerTemplate": {"metadata": {"labels": {"app": "w"}}, "spec": REQUESTS}}
    if leader:
        template["leaderTemplate"] = {"metadata": {"labels": {"app": "l"}}, "spec": REQUESTS}
    spec = {"replicas": replicas, "leaderWorkerTemplate": template}
    return _parent("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec, fields)


def deployment_of(**fields: Any) -> Tree:
    spec = {"replicas": 2, "template": {"metadata": {"labels": {"app": "web"}}, "spec": REQUESTS}}
    return _parent("apps/v1", "Deployment", "web", spec, fields)


def _pod(name: str, template: object, metadata: Tree) -> Tree:
    """A pod of a template, as the server stores it after the pod webhook."""
    marks = unstructured.mapping(unstructured.get(template, "metadata"))
    given: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "main",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-15T11:00:00Z",
        },
        "spec": unstructured.get(template, "spec"),
        "status": {"phase": "Pending"},
    }
    return POD.job(patches.merge(patches.merge(given, {"metadata": dict(marks)}), {"metadata": metadata})).defaulted(
        OPTIONS
    )


class ParentHarness(JobHarness):
    """A parent, with all that the reconcilers of parents and of pods do about it."""

    def __init__(self, tree: Tree, options: IntegrationOptions = OPTIONS, *, kill_after: int = 0, **facts: Any) -> None:
        """With `kill_after`, the manager is killed after that many writes, once."""
        row = KINDS.of(ObjectView(tree))
        assert row is not None
        enabled = replace(options, frameworks=(*options.frameworks, row.framework))
        super().__init__(row.parent(tree).defaulted(enabled), options=enabled, row=row, kill_after=kill_after)
        self.name = ObjectView(tree).name
        self.parent_facts = ParentFacts(**facts)
        self._pods_made = 0

    # --- Reading ------------------------------------------------------------------------------------------------------

    @property
    def parent(self) -> Tree | None:
        return self.objects.get(self.name)

    @property
    def pods(self) -> dict[str, Tree]:
        return {name: tree for name, tree in sorted(self.objects.items()) if tree["kind"] == "Pod"}

    @property
    def gated(self) -> list[str]:
        return [name for name, tree in self.pods.items() if PodView(tree).has_gate()]

    # --- Acting -------------------------------------------------------------------------------------------------------

    def decide(self) -> Actions:
        actions = tuple(action for branch in self._branches() for action in branch)
        if any(isinstance(action, WRITES) for action in actions):
            return actions
        return (*actions, *self._groups(), *self._single_pods(), *self._after_pods())

    def _branches(self) -> tuple[Actions, ...]:
        tree, parent_type = self.parent, self.row.parent_type
        assert parent_type is not None
        held = tuple(self.workloads.values())
        owned = tuple(
            each
            for each in held
            if any(
                (owner.kind, owner.name) == (self.row.kind.kind, self.name) for owner in each.metadata.owner_references
            )
        )
        facts = replace(
            self.parent_facts,
            tree=tree,
            workloads=owned,
            pods=tuple(tree for tree in self.pods.values() if parent_type.parent_of(ObjectView(tree)) == self.name),
        )
        if tree is not None:
            view = self.row.parent(tree)
            names = view.workload_names(self.options, owned)
            named = {name: self.workloads[name] for name in names if name in self.workloads}
            groups = {PodView(tree).group_name(self.options) for tree in facts.pods}
            joined = tuple(each for name, each in self.workloads.items() if name in groups and name not in named)
            is_managed = selection.is_managed(self.row, view, facts.namespace or {}, self.options)
            facts = replace(facts, named=named, joined=joined, is_managed=is_managed)
        return parent_reconcile.reconcile(self.row, facts, self.options, self.now)

    def _groups(self) -> Actions:
        groups: dict[str, list[PodView]] = {}
        for pod in map(PodView, self.pods.values()):
            groups.setdefault(pod.group_name(self.options), []).append(pod)
        groups.pop("", None)
        actions: list[Action] = []
        for name, members in groups.items():
            facts = replace(self.facts, named=self.workloads.get(name))
            actions += reconcile(PodGroup(POD, members, self.options, self.now), facts, self.options, self.now)
        return tuple(actions)

    def _single_pods(self) -> Actions:
        """Each pod of a Deployment is a job by itself."""
        actions: list[Action] = []
        for tree in self.pods.values():
            pod = PodView(tree)
            if not pod.group_name(self.options) and labels.MANAGED in pod.labels:
                facts = replace(self.facts, workloads=self._owned_by(pod.uid))
                actions += reconcile(POD.job(tree), facts, self.options, self.now)
        return tuple(actions)

    def _after_pods(self) -> Actions:
        """The Workloads of single pods that were deleted."""
        living = {PodView(tree).uid for tree in self.pods.values()}
        gone = [each for each in self.workloads.values() if _single_owner(each) not in ("", *living)]
        return orphaned(tuple(gone), self.options, self.now)

    def _owned_by(self, uid: str) -> tuple[kueue.Workload, ...]:
        return tuple(each for each in self.workloads.values() if _single_owner(each) == uid)

    # --- The controllers of the cluster -------------------------------------------------------------------------------

    def deployment_pod(self) -> ParentHarness:
        """The controllers below a Deployment create a pod, each with a new name."""
        assert self.parent is not None
        self._pods_made += 1
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{self.name}-1", "uid": "uid-replica-set"}
        metadata = {"ownerReferences": [{**owner, "controller": True}]}
        self.add(_pod(f"{self.name}-{self._pods_made}", self.parent["spec"]["template"], metadata))
        return self

    def _delete(self, name: str) -> None:
        """A pod on a node ends after a while: `end_deleted` is the kubelet."""
        tree = self.objects[name]
        if unstructured.get(tree, "status", "phase") != "Running":
            super()._delete(name)
            return
        going = {"deletionTimestamp": meta.format_time(self.now), "deletionGracePeriodSeconds": 30}
        self.edit({"metadata": going}, name)

    def end_deleted(self) -> ParentHarness:
        """The kubelet ends the pods that are being deleted."""
        for name, tree in self.pods.items():
            if unstructured.get(tree, "metadata", "deletionTimestamp"):
                del self.objects[name]
        self.settle()
        return self

    def collect_garbage(self) -> ParentHarness:
        """The garbage collector deletes Workloads none of whose owners exists."""
        living = {ObjectView(tree).uid for tree in self.objects.values()}
        for name, each in list(self.workloads.items()):
            if not living & {owner.uid for owner in each.metadata.owner_references}:
                assert not each.metadata.finalizers, f"the Workload {name} cannot be deleted"
                del self.workloads[name]
        return self

    def set_pod(self, index: int, **fields: Any) -> ParentHarness:
        """The StatefulSet controller creates the pod with this index."""
        assert self.parent is not None
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
        metadata = {
            "labels": {labels.STATEFUL_SET_POD_INDEX: str(index)},
            "ownerReferences": [{**owner, "name": self.name, "uid": f"uid-{self.name}"}],
        }
        tree = _pod(f"{self.name}-{index}", self.parent["spec"]["template"], metadata)
        self.add(patches.merge(tree, fields))
        return self

    def group_pod(self, group: int, index: int, **fields: Any) -> ParentHarness:
        """The controllers below a LeaderWorkerSet create a pod of a group; 0 is the leader."""
        assert self.parent is not None
        template = self.parent["spec"]["leaderWorkerTemplate"]
        source = (
            template.get("leaderTemplate", template["workerTemplate"]) if index == 0 else template["workerTemplate"]
        )
        leader = f"{self.name}-{group}"
        metadata: Tree = {
            "labels": {
                leader_worker_set.NAME: self.name,
                leader_worker_set.GROUP_INDEX: str(group),
                labels.LWS_WORKER_INDEX: str(index),
            }
        }
        if index:
            metadata["annotations"] = {leader_worker_set.LEADER_NAME: leader}
        tree = _pod(f"{leader}-{index}" if index else leader, source, metadata)
        self.add(patches.merge(tree, fields))
        return self

    def run(self, *names: str) -> ParentHarness:
        """The kubelet starts pods."""
        for name in names:
            self.status(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])
        self.settle()
        return self

    def admit_named(self, name: str) -> ParentHarness:
        """The scheduler admits one of several Workloads."""
        return self._on(name, self.admit)

    def evict_named(self, name: str) -> ParentHarness:
        """The scheduler evicts one of several Workloads."""
        return self._on(name, self.evict)

    def _on(self, name: str, act: Callable[[], object]) -> ParentHarness:
        others = {key: value for key, value in self.workloads.items() if key != name}
        self.workloads = {name: self.workloads[name]}
        act()
        self.workloads |= others
        return self


def _single_owner(workload: kueue.Workload) -> str:
    """The UID of the pod that a Workload is made for; empty for the Workload of a group."""
    owners = workload.metadata.owner_references
    return owners[0].uid if len(owners) == 1 and owners[0].kind == "Pod" and owners[0].controller else ""
