"""The facts about one job. Everything is a value that was read before the decision."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubemachinery.meta import OwnerReference
from kubemachinery.object_view import ObjectView
from pykueue.api import kube, kueue


class UnreadableOwner(msgspec.Struct, frozen=True):
    """An owner that a reference names and that could not be read, with the reason."""

    reference: OwnerReference
    reason: str

    @property
    def title(self) -> str:
        """The owner as users name it: `JobSet train`."""
        return f"{self.reference.kind} {self.reference.name}"


class Ancestry(msgspec.Struct, frozen=True):
    """The owners of an object, nearest first, as far up as their kinds are known; and why the walk ended early."""

    owners: tuple[ObjectView, ...] = ()
    # The predicate of a sentence about the object.
    problem: str = ""
    too_deep: bool = False
    # The owner that could not be read and at which the walk ended; its own owners are not known either.
    unread: UnreadableOwner | None = None


class JobFacts(msgspec.Struct, frozen=True):
    # The Workloads with an owner of this kind and name, of any UID; oldest first.
    workloads: tuple[kueue.Workload, ...] = ()
    # The Workload that the job names: a prebuilt one, or the one with the name of the pod group.
    named: kueue.Workload | None = None
    # The labels of the namespace; None if the namespace does not exist.
    namespace: Mapping[str, str] | None = msgspec.field(default_factory=dict)
    ancestry: Ancestry = msgspec.field(default_factory=Ancestry)
    # The topmost managed owner (`selection.ancestor`), and its Workloads.
    ancestor: ObjectView | None = None
    ancestor_workloads: tuple[kueue.Workload, ...] = ()
    flavors: Mapping[str, kueue.ResourceFlavor] = msgspec.field(default_factory=dict)
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = msgspec.field(default_factory=dict)
    priority_classes: Mapping[str, kube.PriorityClass] = msgspec.field(default_factory=dict)
