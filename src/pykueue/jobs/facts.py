"""The world as it concerns one job. Everything is a value that was read before the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue
from pykueue.jobs.selection import Ancestry


@dataclass(frozen=True)
class JobFacts:
    # The Workloads that a job of this kind and name owns, whatever their UID says; the oldest first.
    workloads: tuple[kueue.Workload, ...] = ()
    # The Workload that the job names: one made beforehand, or the one that is called like the pod group.
    named: kueue.Workload | None = None
    # The labels of the namespace; None when there is no such namespace.
    namespace: Mapping[str, str] | None = field(default_factory=dict)
    ancestry: Ancestry = field(default_factory=Ancestry)
    # The topmost owner that is ours (`selection.ancestor`), and its Workloads.
    ancestor: Tree | None = None
    ancestor_workloads: tuple[kueue.Workload, ...] = ()
    flavors: Mapping[str, kueue.ResourceFlavor] = field(default_factory=dict)
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = field(default_factory=dict)
    priority_classes: Mapping[str, kube.PriorityClass] = field(default_factory=dict)
