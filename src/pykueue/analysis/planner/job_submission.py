"""The jobs of a case, each with the Workload it would get."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kubemachinery import meta, unstructured
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.yaml_documents import Document
from pykueue.analysis.planner.case import Case, place_of, typed_of
from pykueue.api import kube, kueue, labels
from pykueue.jobs import offline
from pykueue.jobs.offline import OfflineContext
from pykueue.jobs.options import IntegrationOptions


def queued(case: Case, jobs: Iterable[Document], now: Nanoseconds) -> Case:
    """The case with the Workloads of these jobs, submitted now."""
    there = {
        (owner.kind, thing.metadata.namespace, owner.name)
        for thing in case.objects
        if isinstance(thing, kueue.Workload)
        for owner in thing.metadata.owner_references
    }
    around = _surroundings(case)
    made: list[msgspec.Struct] = []
    passed_over = list(case.passed_over)
    for members in _units(jobs, case.configured.jobs):
        source, tree = members[0]
        row = offline.row_of(tree)
        assert row is not None, source
        names = {(row.kind.kind, job.namespace, job.name) for job in (ObjectView(each.tree) for each in members)}
        if names & there:
            passed_over += [(place_of(each.tree), "has a Workload already") for each in members]
            continue
        found = offline.workloads_of(row, [each.tree for each in members], around, case.configured.jobs, now)
        if isinstance(found, str):
            passed_over += [(place_of(each.tree), found) for each in members]
            continue
        created = unstructured.text(unstructured.get(tree, "metadata", "creationTimestamp")) or meta.format_time(now)
        for workload in found:
            typed = typed_of(
                f"{source}: {place_of(tree)}", unstructured.put(workload, ("metadata", "creationTimestamp"), created)
            )
            assert typed is not None, source
            made.append(typed)
    return replace(case.with_objects([*case.objects, *made]), passed_over=tuple(passed_over))


def _units(jobs: Iterable[Document], options: IntegrationOptions) -> Iterable[list[Document]]:
    """The jobs or pod groups that get one Workload each, in the given order."""
    found: dict[tuple[str, str, str], list[Document]] = {}
    for document in jobs:
        row = offline.row_of(document.tree)
        assert row is not None, document.source
        found.setdefault(offline.unit(row, document.tree, options), []).append(document)
    return found.values()


def _surroundings(case: Case) -> OfflineContext:
    return OfflineContext(
        namespaces={t.metadata.name: t.metadata.labels for t in case.objects if isinstance(t, kube.Namespace)},
        default_queues={
            t.metadata.namespace
            for t in case.objects
            if isinstance(t, kueue.LocalQueue) and t.metadata.name == labels.DEFAULT_LOCAL_QUEUE
        },
        workload_priority_classes={
            t.metadata.name: t for t in case.classes if isinstance(t, kueue.WorkloadPriorityClass)
        },
        priority_classes={t.metadata.name: t for t in case.classes if isinstance(t, kube.PriorityClass)},
        related=[document.tree for document in case.related],
    )
