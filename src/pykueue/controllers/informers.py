"""Local copies of every watched kind, and facts that are derived from several of them."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar
from weakref import ref

import msgspec
from msgspec.structs import replace

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.client.object_decoder import ObjectDecoder
from pykueue.api import kube, kueue, registry
from pykueue.lifecycle import queues, states
from pykueue.lifecycle.facts import ClusterQueueFacts, LocalQueueFacts

T = TypeVar("T", bound=msgspec.Struct)

_SORTS_MAX: Final = 2_000


class Informers:
    """The informers. They are empty until they run."""

    def __init__(self, client: ApiClient, rng: random.Random, *, topology: bool, reads_nodes: bool = False) -> None:
        self._topology = topology  # whether scheduling depends on nodes and what runs on them
        self._reads_nodes = topology or reads_nodes

        def copy(type_: type[T], then: Callable[[T], T] | None = None) -> Informer[T]:
            kind = registry.ALL.of(type_)
            # Nodes, and pods of some versions of Kubernetes, do not count changes of their specification.
            decode = ObjectDecoder(type_, counts_generations=kind.group == kueue.GROUP, then=then)
            return Informer(client, kind, decode, rng)

        self.cluster_queues = copy(kueue.ClusterQueue)
        self.local_queues = copy(kueue.LocalQueue)
        self.cohorts = copy(kueue.Cohort)
        self.flavors = copy(kueue.ResourceFlavor)
        self.checks = copy(kueue.AdmissionCheck)
        self.topologies = copy(kueue.Topology)
        self.workload_priority_classes = copy(kueue.WorkloadPriorityClass)
        self.priority_classes = copy(kube.PriorityClass)
        self.namespaces = copy(kube.Namespace)
        self.limit_ranges = copy(kube.LimitRange)
        self.runtime_classes = copy(kube.RuntimeClass)
        self.nodes = copy(kube.Node)
        self.pods = copy(kube.Pod)
        self.workloads = copy(kueue.Workload, _EqualPodSets().shared)

        self.local_queues.add_index("clusterQueue", lambda queue: (queue.spec.cluster_queue or "",))
        self.workloads.add_index("queue", lambda workload: (queue_of(workload),), of="spec")
        self.workloads.add_index(
            "clusterQueue", lambda workload: (states.cluster_queue(workload),), of="status.admission"
        )
        self.workloads.add_index(
            "check",
            lambda workload: (check.name for check in workload.status.admission_checks),
            of="status.admission_checks",
        )

        self._is_active: dict[str, bool] = {}
        self._facts: dict[str, ClusterQueueFacts] = {}
        self._references: queues.References | None = None
        # The ClusterQueues in a cohort cycle; only the scheduler's state has whole trees.
        self.in_cohort_cycle: Callable[[], frozenset[str]] = frozenset
        for informer in (self.cluster_queues, self.cohorts, self.flavors, self.checks, self.topologies):
            informer.add_handler(self._forget)

    @property
    def shaping(self) -> tuple[Informer[Any], ...]:
        """The kinds that Workloads are read with; they are read before Workloads."""
        # Nodes and pods, of which there are most, start last.
        classes = (self.workload_priority_classes, self.priority_classes)
        return (*self._queueing, *classes, *((self.nodes, self.pods) if self._reads_nodes else ()))

    @property
    def scheduling(self) -> tuple[Informer[Any], ...]:
        """The kinds, besides Workloads, that scheduling depends on."""
        return (*self._queueing, *((self.nodes, self.pods) if self._topology else ()))

    @property
    def _queueing(self) -> tuple[Informer[Any], ...]:
        return (
            self.namespaces,
            self.limit_ranges,
            self.runtime_classes,
            self.topologies,
            self.flavors,
            self.checks,
            self.cohorts,
            self.cluster_queues,
            self.local_queues,
        )

    # --- Facts --------------------------------------------------------------------------------------------------------

    def references(self) -> queues.References:
        """Return what ClusterQueues may refer to."""
        if self._references is None:
            self._references = queues.References.of(
                self.flavors.values(),
                self.topologies.values(),
                self.checks.values(),
                has_topologies=self._topology,
                in_cohort_cycle=self.in_cohort_cycle(),
            )
        return self._references

    def is_active(self, name: str) -> bool:
        """Whether a ClusterQueue can admit now; its status may lag behind."""
        found = self._is_active.get(name)
        if found is None:
            cluster_queue = self.cluster_queues.get(name)
            found = cluster_queue is not None and not queues.blockers(cluster_queue, self.references())
            self._is_active[name] = found
        return found

    def cluster_queue_facts(self, name: str) -> ClusterQueueFacts | None:
        found = self._facts.get(name)
        cluster_queue = self.cluster_queues.get(name)
        if found is None and cluster_queue is not None:
            checks = {check.metadata.name: check for check in self.checks.values()}
            found = self._facts[name] = ClusterQueueFacts.of(cluster_queue, self.is_active(name), checks)
        return found

    def local_queue_facts(self, workload: kueue.Workload) -> LocalQueueFacts | None:
        found = self.local_queues.get(workload.spec.queue_name or "", workload.metadata.namespace)
        return LocalQueueFacts.of(found) if found is not None else None

    def cluster_queue_of(self, workload: kueue.Workload) -> str:
        """Return the ClusterQueue of the Workload's reservation, else the one that its LocalQueue points to."""
        if given := states.cluster_queue(workload):
            return given
        local_queue = self.local_queues.get(workload.spec.queue_name or "", workload.metadata.namespace)
        return (local_queue.spec.cluster_queue or "") if local_queue is not None else ""

    def workloads_of(self, cluster_queue: str) -> Iterator[tuple[ObjectKey, kueue.Workload]]:
        """Return the Workloads of a ClusterQueue: those pending in it, and those with its quota."""
        for key, _ in self.local_queues.by_index("clusterQueue", cluster_queue):
            yield from self.workloads.by_index("queue", str(key))
        yield from self.workloads.by_index("clusterQueue", cluster_queue)

    def workloads_of_check(self, check: str) -> Iterator[ObjectKey]:
        """Return the Workloads that need an AdmissionCheck."""
        return (key for key, _ in self.workloads.by_index("check", check))

    def _forget(self, change: InformerEvent[Any]) -> None:
        if _is_status_only(change):
            return
        self._references = None
        self._is_active.clear()
        self._facts.clear()


def _is_status_only(change: InformerEvent[Any]) -> bool:
    """Whether only the status of a ClusterQueue or Cohort changed, which this manager writes and no fact is made of."""
    old, new = change.old, change.new
    return (
        isinstance(old, kueue.ClusterQueue | kueue.Cohort)
        and new is not None
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and old.metadata.uid == new.metadata.uid
        and bool(old.spec == new.spec)
    )


def queue_of(workload: kueue.Workload) -> str:
    """Return the LocalQueue that a Workload names, as `namespace/name`."""
    return f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"


class _EqualPodSets:
    """Equal pod sets, two thirds of a Workload, are kept once: many jobs have the same.

    They are kept no longer than a Workload that has them. Of most jobs a label names the job, so that no later one has
    the same: what is kept of thousands of deleted Workloads would be spread over all of the memory.
    """

    def __init__(self) -> None:
        # By a digest of their JSON; those that were decoded last are at the end.
        self._recent: OrderedDict[bytes, ref[kueue.PodSet]] = OrderedDict()

    def shared(self, workload: kueue.Workload) -> kueue.Workload:
        pod_sets = tuple(map(self._shared, workload.spec.pod_sets))
        return replace(workload, spec=replace(workload.spec, pod_sets=pod_sets))

    def _shared(self, pod_set: kueue.PodSet) -> kueue.PodSet:
        looks = blake2b(codec.encode(pod_set), digest_size=16).digest()
        known = self._recent.get(looks)
        kept = known() if known is not None else None
        if kept is None:
            # Its entry goes with it. The default of `pop` is the reference that has died.
            kept, self._recent[looks] = pod_set, ref(pod_set, partial(self._recent.pop, looks))
        self._recent.move_to_end(looks)
        if len(self._recent) > _SORTS_MAX:
            self._recent.popitem(last=False)
        return kept
