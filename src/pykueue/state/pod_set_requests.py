"""What Workloads request, read under the rules of their namespace and queue: LimitRanges, RuntimeClasses, exclusions.

Thousands of Workloads have few shapes, so a shape is one value, however many Workloads have it. What makes a Workload
inadmissible whatever quota is free becomes its shape's `problem`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from pykueue.api import kube, kueue
from pykueue.core import requests, topology
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.requests import PLAIN, Accounting, Exclusion, LimitRangeSummary, PodRequirements, Quantities
from pykueue.core.workload import PodSetResources, WorkloadShape


class RequestRules(msgspec.Struct, frozen=True):
    """What the requests of a Workload depend on besides its pods; compared by identity."""

    accounting: Accounting = PLAIN
    limits: LimitRangeSummary = requests.NO_LIMITS
    runtime_classes: Mapping[str, kube.RuntimeClass] = msgspec.field(default_factory=dict)

    def needs(self, pod_set: kueue.PodSet) -> PodRequirements:
        """Return the requirements of one pod of the set."""
        return requests.read(pod_set.template.spec, runtime_classes=self.runtime_classes, limits=self.limits)


class WorkloadShapes:
    """Reads the shapes of Workloads under the rules of their namespace and queue."""

    def __init__(self, policy: SchedulingPolicy, accounting: Accounting) -> None:
        self.policy = policy
        # OnlyDeclared ignores all lists of exclusions, neither the global one nor a queue's own (KEP-7513).
        self.by_queue = policy.queue_exclusions and not policy.ignore_undeclared
        self._accounting = replace(accounting, prefixes=()) if policy.ignore_undeclared else accounting
        self._limit_ranges: dict[str, dict[str, kube.LimitRange]] = {}
        self._runtime_classes: dict[str, kube.RuntimeClass] = {}
        self._rules: dict[tuple[str, tuple[str, ...]], RequestRules] = {}  # by namespace and the queue's own exclusions
        # By the queue's own exclusions. Queues with equal lists share one; nothing but another list makes another.
        self._compiled: dict[tuple[str, ...], Accounting] = {(): self._accounting}
        self._shapes = _Shapes()

    def put_limit_range(self, limit_range: kube.LimitRange) -> None:
        self._limit_ranges.setdefault(limit_range.metadata.namespace, {})[limit_range.metadata.name] = limit_range
        self._forget()

    def drop_limit_range(self, limit_range: kube.LimitRange) -> None:
        self._limit_ranges.get(limit_range.metadata.namespace, {}).pop(limit_range.metadata.name, None)
        self._forget()

    def put_runtime_class(self, runtime_class: kube.RuntimeClass) -> None:
        self._runtime_classes[runtime_class.metadata.name] = runtime_class
        self._forget()

    def drop_runtime_class(self, runtime_class: kube.RuntimeClass) -> None:
        self._runtime_classes.pop(runtime_class.metadata.name, None)
        self._forget()

    def shape(self, workload: kueue.Workload, excluded: tuple[str, ...] = ()) -> WorkloadShape:
        """Return what a Workload requests, without what its queue excludes."""
        return self._shapes.read(workload, self._rules_of(workload.metadata.namespace, excluded), self.policy)

    def exclusions(self, workload: kueue.Workload, excluded: tuple[str, ...] = ()) -> tuple[Exclusion, ...]:
        """Return what a Workload requests without being charged, and which list excludes it (KEP-5800)."""
        rules = self._rules_of(workload.metadata.namespace, excluded)
        if not rules.accounting.excluded:
            return ()
        needs = (rules.needs(pod_set) for pod_set in workload.spec.pod_sets)
        return rules.accounting.exclusions({resource for pod in needs for resource in pod.figure})

    def accounting(self, excluded: tuple[str, ...]) -> Accounting:
        """Return the global list and a queue's own, compiled once for each list of a queue (KEP-5800)."""
        found = self._compiled.get(excluded)
        if found is None:
            found = self._compiled[excluded] = self._accounting.for_queue(excluded)
        return found

    def _rules_of(self, namespace: str, excluded: tuple[str, ...]) -> RequestRules:
        rules = self._rules.get((namespace, excluded))
        if rules is None:
            rules = self._rules[namespace, excluded] = RequestRules(
                accounting=self.accounting(excluded),
                limits=requests.merge_limit_ranges(self._limit_ranges.get(namespace, {}).values()),
                runtime_classes=self._runtime_classes,
            )
        return rules

    def _forget(self) -> None:
        """Drop everything that was read: the rules changed."""
        self._rules.clear()
        self._shapes.forget()


class _Shapes:
    """Reads pod sets into shapes and keeps one value per shape, however many Workloads have it."""

    def __init__(self, remembered: int = 4096) -> None:
        self._shapes: WeakValueDictionary[bytes, WorkloadShape] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, WorkloadShape] = OrderedDict()
        self._remembered = remembered

    def read(self, workload: kueue.Workload, rules: RequestRules, policy: SchedulingPolicy) -> WorkloadShape:
        """Return the shape of a Workload. Pod sets that were read under the same rules are not read again."""
        reclaimable = workload.status.reclaimable_pods if policy.reclaimable_pods else ()
        # A digest, because thousands are kept: pod sets have some KiB, and most name their job in a label.
        pod_sets = blake2b(msgspec.json.encode((workload.spec.pod_sets, reclaimable)), digest_size=16).digest()
        source = pod_sets + id(rules).to_bytes(8)
        shape = self._recent.get(source)
        if shape is not None:
            self._recent.move_to_end(source)
            return shape
        shape = self._read(workload.spec.pod_sets, reclaimable, rules, policy)
        self._recent[source] = shape
        if len(self._recent) > self._remembered:
            self._recent.popitem(last=False)
        return shape

    def forget(self) -> None:
        self._recent.clear()

    def _read(
        self,
        pod_sets: Sequence[kueue.PodSet],
        reclaimable: Sequence[kueue.ReclaimablePod],
        rules: RequestRules,
        policy: SchedulingPolicy,
    ) -> WorkloadShape:
        needs = [rules.needs(pod_set) for pod_set in pod_sets]
        refusal = requests.check_pods(needs, rules.limits)
        problem = str(refusal) if refusal is not None else ""
        if policy.refuse_claims and any(pod_set.template.spec.resource_claims for pod_set in pod_sets):
            problem = problem or "its pods claim devices, which are not counted here"
        read = []
        marks: list[Any] = []
        for pod_set, need in zip(pod_sets, needs, strict=True):
            figure = need.figure
            count = requests.remaining_count(pod_set.name, pod_set.count, reclaimable)
            request = pod_set.topology_request
            one = PodSetResources(
                name=pod_set.name,
                count=count,
                spec_count=pod_set.count,
                requests=requests.total(figure, count, rules.accounting),
                pod=topology.figure(requests.in_amounts(figure)),
                min_count=pod_set.min_count,
                terms=topology.terms_of(pod_set.template.spec),
                topology_request=topology.topology_request_of(request) if asks_for_topology(request) else None,
                group=request.pod_set_group_name if request is not None else None,
            )
            read.append(one)
            marks.append((one.name, count, one.requests, one.min_count, request, _marks(pod_set.template.spec, need)))
        mark = msgspec.json.encode((marks, problem), order="sorted")
        shape = self._shapes.get(mark)
        if shape is None:
            shape = self._shapes[mark] = WorkloadShape(tuple(read), problem)
        return shape


def asks_for_topology(request: kueue.PodSetTopologyRequest | None) -> bool:
    """Whether a pod set asks for topology aware scheduling [FL33]."""
    return request is not None and (
        request.required is not None
        or request.preferred is not None
        or request.unconstrained is not None
        or request.pod_set_slice_required_topology is not None
        or request.pod_set_slice_size is not None
        or bool(request.podset_slice_required_topology_constraints)
    )


def _marks(spec: kube.PodSpec, needs: PodRequirements) -> Any:
    """Return what of a pod its Workload's equivalence class depends on: requests, and where it may run [QU12]."""

    def written(asked: Quantities) -> dict[str, str]:
        return {resource: amount.canonical for resource, amount in asked.items()}

    return (
        [(written(n.requests), c.ports) for n, c in zip(needs.init_containers, spec.init_containers, strict=True)],
        [(written(n.requests), c.ports) for n, c in zip(needs.containers, spec.containers, strict=True)],
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.runtime_class_name,
        spec.priority,
        spec.topology_spread_constraints,
        written(needs.overhead),
        spec.resource_claims,
        written(needs.pod.requests) if needs.pod is not None else None,
    )
