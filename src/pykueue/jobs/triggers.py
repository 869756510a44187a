"""Which jobs are reconciled when something changes, and the index keys under which informers store objects for this.

A change of                reconciles
a job                      the job; a pod of a group its group, with a short delay while the pod is gated, since
                           the pods of a group are created one after the other
an object of a second kind  the job of a kind with `triggered_by` that controls it
a pod of a parent          its parent, with the same delay
a Workload                 the jobs that own it, the pod group of its name, jobs that name it, and their children
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import pod, workloads
from pykueue.jobs.executor import JobKey
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView

# The index of Workloads by their owners.
OWNER: Final = "owner"
# How long the reconciliation of a group is delayed after a change of a gated pod.
GROUP_DELAY_SECONDS: Final = 0.2

_MANAGED: Final = labels.MANAGED.encode()
_MARK: Final = labels.POD_SUSPENDING_PARENT.encode()


def key_of(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> JobKey:
    """The key under which an object is reconciled."""
    view = PodView(tree)
    group = view.group_name(options) if row.framework == pod.FRAMEWORK else ""
    return JobKey(row.framework, view.namespace, group or view.name, is_group=bool(group))


def delay_seconds(key: JobKey, tree: Tree | None = None) -> float:
    """How long to wait before a change of this object is reconciled."""
    return GROUP_DELAY_SECONDS if key.is_group and tree is not None and PodView(tree).has_gate() else 0.0


def owners_of(workload: kueue.Workload, kinds: JobKinds) -> Iterator[JobKey]:
    """The jobs that a Workload belongs to."""
    namespace = workload.metadata.namespace
    if workload.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) == "true":
        yield JobKey(pod.FRAMEWORK, namespace, workload.metadata.name, is_group=True)
        for owner in workload.metadata.owner_references:
            row = kinds.of(owner)
            if row is not None and row.parent_type is not None:
                yield JobKey(row.framework, namespace, owner.name)
        return
    for owner in workload.metadata.owner_references:
        row = kinds.of(owner)
        # Pods that own a Workload together are one group, which names it; none of them is a job by itself.
        if row is not None and (owner.controller or row.framework != pod.FRAMEWORK):
            yield JobKey(row.framework, namespace, owner.name)


def controlled_by(row: JobIntegration, tree: Tree) -> JobKey | None:
    """The job of a kind that controls this object of another kind."""
    view = ObjectView(tree)
    owner = view.controller
    if owner is None or owner.kind != row.kind.kind or owner.api_version.rpartition("/")[0] != row.kind.group:
        return None
    return JobKey(row.framework, view.namespace, owner.name)


def parent_of(tree: Tree, rows: Iterable[JobIntegration]) -> JobKey | None:
    """The parent, of one of these kinds, that a pod belongs to: its mark names the framework."""
    view = ObjectView(tree)
    framework = view.annotations.get(labels.POD_SUSPENDING_PARENT, "")
    for row in rows:
        if row.parent_type is not None and row.framework == framework and row.parent_type.is_reconciled:
            name = row.parent_type.parent_of(view)
            return JobKey(framework, view.namespace, name) if name else None
    return None


def is_seen(data: bytes) -> bool:
    """Whether a pod, as JSON, may be managed or belong to a parent. Most pods of a cluster are not decoded for it."""
    return _MANAGED in data or _MARK in data


# --- Index keys -------------------------------------------------------------------------------------------------------


def owner_key(kind: Kind, namespace: str, name: str) -> str:
    """The index key of the Workloads of an owner. It has no UID: after the deletion of a job only its name is known."""
    return f"{kind.group}/{kind.kind}/{namespace}/{name}"


def owner_keys(workload: kueue.Workload) -> tuple[str, ...]:
    if not workload.metadata.owner_references:
        return ()
    return tuple(
        f"{owner.api_version.rpartition('/')[0]}/{owner.kind}/{workload.metadata.namespace}/{owner.name}"
        for owner in workload.metadata.owner_references
    )


def parent_keys(tree: Tree) -> tuple[str, ...]:
    """The index keys of a job that is controlled by another one, so that it is reconciled with the Workload of that."""
    view = ObjectView(tree)
    owner = view.controller
    if owner is None:
        return ()
    group, _, _ = owner.api_version.rpartition("/")
    return (f"{group}/{owner.kind}/{view.namespace}/{owner.name}",)


def named_keys(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> tuple[str, ...]:
    """The index keys, `namespace/name` of a Workload, of a job that names a prebuilt Workload."""
    if row.parent_type is not None:
        return ()
    job = row.job(tree)
    name = workloads.prebuilt_name(job, options)
    return (f"{job.namespace}/{name}",) if name else ()


def group_keys(tree: Tree, options: IntegrationOptions) -> tuple[str, ...]:
    """The index keys, `namespace/name` of its group, of a pod."""
    view = PodView(tree)
    group = view.group_name(options)
    return (f"{view.namespace}/{group}",) if group else ()
