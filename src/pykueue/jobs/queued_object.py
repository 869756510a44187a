"""An object that users queue: a job, or a parent of pods."""

from __future__ import annotations

from typing import ClassVar

from kubemachinery.object_view import ObjectView
from pykueue.api import labels


class QueuedObject(ObjectView):
    """The metadata with which an object takes part in queueing."""

    # Whether it is no job itself, and its pods are queued.
    is_pod_parent: ClassVar[bool] = False

    @property
    def gated_by(self) -> str | None:
        """The controllers that gate the admission of its Workloads, as the annotation names them."""
        return self.annotations.get(labels.ADMISSION_GATED_BY)

    @property
    def queue_name(self) -> str:
        return self.labels.get(labels.QUEUE_NAME, "")

    @property
    def objects(self) -> tuple[ObjectView, ...]:
        """The objects that it consists of: itself, or the pods of a group."""
        return (self,)
