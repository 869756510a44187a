"""Jobs in manifests, of any kind that can be queued, as `pykueue submit -f` creates them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubemachinery import meta, unstructured
from kubemachinery.errors import UsageError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from kubemachinery.yaml_documents import Document
from pykueue.api import labels
from pykueue.client import job_request, queued_job
from pykueue.jobs.kinds import JobIntegration


@dataclass(frozen=True, slots=True)
class JobManifest:
    """A job of a file, before it has a queue."""

    source: str
    row: JobIntegration
    tree: Tree

    @property
    def queue(self) -> str:
        return ObjectView(self.tree).labels.get(labels.QUEUE_NAME, "")

    def submitted(self, queue: str, priority_class: str, now: meta.Nanoseconds) -> Tree:
        """The job in this queue, with this priority class if one is given."""
        marks = {labels.QUEUE_NAME: queue} | ({labels.PRIORITY_CLASS: priority_class} if priority_class else {})
        tree = ObjectView(self.tree).with_labels(marks)
        return ObjectView(tree).with_annotations({job_request.SUBMITTED_AT: meta.format_micro_time(now)})


def jobs(documents: Iterable[Document], namespace: str) -> list[JobManifest]:
    """The jobs of documents, in the namespace. Raises UsageError for a document that is not a job, or not of this
    namespace: all are read before the first is submitted."""
    found = [_job(each.source, each.tree, namespace) for each in documents]
    if not found:
        raise UsageError("the files have no objects")
    return found


def _job(source: str, tree: Any, namespace: str) -> JobManifest:
    kind = unstructured.text(unstructured.get(tree, "kind"))
    if not isinstance(tree, dict) or not kind:
        raise UsageError(f"{source}: must be an object with apiVersion and kind")
    view = ObjectView(tree)
    row = queued_job.known().of(view)
    name = view.name or unstructured.text(view.metadata.get("generateName"))
    if row is None or row.implementation is None:
        raise UsageError(f"{source}: {kind} {name} is not a job that can be queued; `kubectl apply -f` creates it")
    if view.api_version != row.kind.api_version:
        raise UsageError(f"{source}: {kind} {name} is of {view.api_version}; queued is {row.kind.api_version}")
    if view.namespace and view.namespace != namespace:
        raise UsageError(
            f"{source}: {kind} {name} is for namespace {view.namespace}; submit it with -n {view.namespace}"
        )
    return JobManifest(source, row, unstructured.put(tree, ("metadata", "namespace"), namespace))
