"""Which jobs have to be looked at when something changes, and under which words copies are indexed for it.

A change of                wakes
a job                      itself; a pod of a group its group, and while it is gated a moment later, since pods of a
                           group come in flocks
a Workload                 the jobs that own it, the group it is called like, those that name it, and their children
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubemachinery import unstructured
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import pod, selection, workloads
from pykueue.jobs.executor import JobKey
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions

# The index of Workloads under the words of their owners.
OWNER: Final = "owner"
# How long a gated pod of a group waits for the others.
GROUP_DELAY_SECONDS: Final = 0.2


def key_of(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> JobKey:
    """The key under which an object is reconciled."""
    namespace = unstructured.text(unstructured.get(tree, "metadata", "namespace"))
    group = pod.group_name(tree, options) if row.framework == pod.FRAMEWORK else ""
    if group:
        return JobKey(row.framework, namespace, group, is_group=True)
    return JobKey(row.framework, namespace, unstructured.text(unstructured.get(tree, "metadata", "name")))


def delay_seconds(key: JobKey, tree: Tree | None = None) -> float:
    """How long to wait before a change of this object is looked at."""
    return GROUP_DELAY_SECONDS if key.is_group and tree is not None and pod.has_gate(tree) else 0.0


def owners_of(workload: kueue.Workload, kinds: JobKinds) -> Iterator[JobKey]:
    """The jobs that a Workload belongs to."""
    namespace = workload.metadata.namespace
    if workload.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) == "true":
        yield JobKey(pod.FRAMEWORK, namespace, workload.metadata.name, is_group=True)
        return
    for owner in workload.metadata.owner_references:
        row = kinds.of({"apiVersion": owner.api_version, "kind": owner.kind})
        # Pods that own a Workload together are one group, which names it; none of them is a job by itself.
        if row is not None and (owner.controller or row.framework != pod.FRAMEWORK):
            yield JobKey(row.framework, namespace, owner.name)


# --- Words of indexes -------------------------------------------------------------------------------------------------


def owner_word(kind: Kind, namespace: str, name: str) -> str:
    """Under this word stand the Workloads of an owner. The UID is not part of it: a name is all that is left of a job
    that is gone."""
    return f"{kind.group}/{kind.kind}/{namespace}/{name}"


def owner_words(workload: kueue.Workload) -> tuple[str, ...]:
    return tuple(
        f"{owner.api_version.rpartition('/')[0]}/{owner.kind}/{workload.metadata.namespace}/{owner.name}"
        for owner in workload.metadata.owner_references
    )


def parent_words(tree: Tree) -> tuple[str, ...]:
    """Under these words stand jobs that are controlled by another, so that they wake with its Workload."""
    reference = selection.controller(tree)
    if reference is None:
        return ()
    group, _, _ = unstructured.text(reference.get("apiVersion")).rpartition("/")
    namespace, name = (
        unstructured.text(unstructured.get(tree, "metadata", "namespace")),
        unstructured.text(reference.get("name")),
    )
    return (f"{group}/{unstructured.text(reference.get('kind'))}/{namespace}/{name}",)


def named_words(row: JobIntegration, tree: Tree, options: IntegrationOptions) -> tuple[str, ...]:
    """Under these words, `namespace/name` of a Workload, stand jobs that name it."""
    name = workloads.prebuilt_name(row.job(tree), options)
    return (f"{unstructured.text(unstructured.get(tree, 'metadata', 'namespace'))}/{name}",) if name else ()
