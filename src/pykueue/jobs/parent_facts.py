"""Reads the facts about one parent, from the caches of informers."""

from __future__ import annotations

from kubemachinery.object_view import ObjectView
from pykueue.api import kueue
from pykueue.jobs import selection
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_parent import ParentFacts
from pykueue.jobs.sources import JobSources


async def read(
    row: JobIntegration, namespace: str, name: str, sources: JobSources, kinds: JobKinds, options: IntegrationOptions
) -> ParentFacts:
    """The facts about the parent of this name, whether it exists or not."""
    tree = sources.job(row, namespace, name)
    found = sources.namespace_labels(namespace)
    ancestry, ancestor = Ancestry(), None
    named: dict[str, kueue.Workload] = {}
    joined: list[kueue.Workload] = []
    is_managed = False
    parent = None
    if tree is not None:
        parent = row.parent(tree)
        ancestry = await selection.ancestry(parent, kinds, options, sources.find)
        ancestor = selection.ancestor(ancestry, found or {}, kinds, options)
        is_managed = selection.is_managed(row, parent, found or {}, options)
    # What changes fast is read after the last request.
    owned, pods = sources.owned(row.kind, namespace, name), sources.pods_of(row, namespace, name)
    if parent is not None:
        looked_up = ((each, sources.workload(namespace, each)) for each in parent.workload_names(options, owned))
        named = {each: workload for each, workload in looked_up if workload is not None}
        groups = sorted({PodView(pod).group_name(options) for pod in pods} - {"", *named})
        joined = [each for group in groups if (each := sources.workload(namespace, group)) is not None]
    return ParentFacts(
        tree=tree,
        workloads=owned,
        named=named,
        joined=tuple(joined),
        pods=pods,
        namespace=found,
        is_managed=is_managed,
        ancestry=ancestry,
        ancestor=ancestor,
        ancestor_workloads=() if ancestor is None else workloads_of(ancestor, namespace, sources, kinds, options),
        workload_priority_classes=sources.workload_priority_classes,
        priority_classes=sources.priority_classes,
    )


def workloads_of(
    owner: ObjectView, namespace: str, sources: JobSources, kinds: JobKinds, options: IntegrationOptions
) -> tuple[kueue.Workload, ...]:
    """The Workloads of an owner of any known kind."""
    kind = selection.owner_kind(owner, kinds, options)
    return () if kind is None else sources.owned(kind, namespace, owner.name)
