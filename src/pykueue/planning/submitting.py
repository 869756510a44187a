"""Jobs among the objects of a case: submitted, as far as a plan goes, each with the Workload that it would get."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from pykueue.api import kube, kueue, labels, meta, trees
from pykueue.api.meta import Nanoseconds
from pykueue.documents import Document
from pykueue.jobs import written
from pykueue.jobs.written import Surroundings
from pykueue.planning.case import Case, place_of, typed_of


def queued(case: Case, jobs: Iterable[Document], now: Nanoseconds) -> Case:
    """The case with the Workloads that these jobs would get if they were submitted now."""
    there = {
        (owner.kind, thing.metadata.namespace, owner.name)
        for thing in case.objects
        if isinstance(thing, kueue.Workload)
        for owner in thing.metadata.owner_references
    }
    around = _surroundings(case)
    made: list[msgspec.Struct] = []
    passed_over = list(case.passed_over)
    for source, tree in jobs:
        row = written.row_of(tree)
        assert row is not None, source
        job = row.job(tree)
        if (row.kind.kind, job.namespace, job.name) in there:
            passed_over.append((place_of(tree), "has a Workload already"))
            continue
        workload = written.workload(row, tree, around, case.configured.jobs)
        if isinstance(workload, str):
            passed_over.append((place_of(tree), workload))
            continue
        created = trees.text(trees.get(tree, "metadata", "creationTimestamp")) or meta.format_time(now)
        typed = typed_of(source, trees.put(workload, ("metadata", "creationTimestamp"), created))
        assert typed is not None, source
        made.append(typed)
    return replace(case.with_objects([*case.objects, *made]), passed_over=tuple(passed_over))


def _surroundings(case: Case) -> Surroundings:
    return Surroundings(
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
    )
