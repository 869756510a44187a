"""Configurations that can never work, or that will surprise. Every rule is a function in one table.

Validation says what a server refuses; this says what it takes and what will not do what its author thinks. Rules that
need to know the nodes, the namespaces or the Configuration stay silent where none were given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from pykueue import planning
from pykueue.api import kube, kueue, meta, nodes, quantity, selectors
from pykueue.core import amounts
from pykueue.core.amounts import Amount
from pykueue.core.decision import Cause, Decision
from pykueue.planning import Case
from pykueue.state import reading

T = TypeVar("T", bound=msgspec.Struct)


class Severity(StrEnum):
    NEVER = "never works"
    SURPRISE = "will surprise"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What is wrong, where, and which rule says so."""

    place: str  # Kind name
    rule: str
    sentence: str
    severity: Severity = Severity.SURPRISE

    def tree(self) -> dict[str, str]:
        return {"place": self.place, "rule": self.rule, "severity": self.severity.value, "finding": self.sentence}


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects, sorted by what they are."""

    case: Case
    queues: dict[str, kueue.ClusterQueue]
    cohorts: dict[str, kueue.Cohort]
    flavors: dict[str, kueue.ResourceFlavor]
    checks: dict[str, kueue.AdmissionCheck]
    topologies: dict[str, kueue.Topology]
    local_queues: dict[str, kueue.LocalQueue]
    namespaces: dict[str, kube.Namespace]
    nodes: dict[str, kube.Node]
    workloads: dict[str, kueue.Workload]

    @property
    def owners(self) -> list[kueue.ClusterQueue | kueue.Cohort]:
        """Those who have quota."""
        return [*self.queues.values(), *self.cohorts.values()]

    def members(self, cohort: str) -> list[str]:
        return [name for name, queue in self.queues.items() if queue.spec.cohort_name == cohort]

    def root(self, cohort: str) -> str:
        """The topmost cohort above; empty in a circle."""
        seen: set[str] = set()
        while cohort not in seen:
            seen.add(cohort)
            thing = self.cohorts.get(cohort)
            parent = thing.spec.parent_name if thing is not None else None
            if not parent:
                return cohort
            cohort = parent
        return ""

    def nodes_of(self, flavor: kueue.ResourceFlavor) -> list[kube.Node]:
        wanted = flavor.spec.node_labels.items()
        return [node for node in self.nodes.values() if wanted <= node.metadata.labels.items()]


def lint(case: Case) -> list[Finding]:
    """Everything worth telling, by place."""
    scene = _scene(case)
    return sorted(
        Finding(place, name, sentence, rule.severity)
        for name, rule in RULES.items()
        for place, sentence in rule.look(scene)
    )


def _scene(case: Case) -> Scene:
    return Scene(
        case,
        queues=_named(case, kueue.ClusterQueue),
        cohorts=_named(case, kueue.Cohort),
        flavors=_named(case, kueue.ResourceFlavor),
        checks=_named(case, kueue.AdmissionCheck),
        topologies=_named(case, kueue.Topology),
        local_queues=_named(case, kueue.LocalQueue),
        namespaces=_named(case, kube.Namespace),
        nodes=_named(case, kube.Node),
        workloads=_named(case, kueue.Workload),
    )


def _named(case: Case, kind: type[T]) -> dict[str, T]:
    found = {}
    for thing in case.objects:
        if isinstance(thing, kind):
            metadata: meta.ObjectMeta = thing.metadata  # type: ignore[attr-defined]
            found["/".join(filter(None, (metadata.namespace, metadata.name)))] = thing
    return found


Told = Iterator[tuple[str, str]]


# --- References -------------------------------------------------------------------------------------------------------


def _missing_flavor(scene: Scene) -> Told:
    for name, queue in scene.queues.items():
        for flavor in _flavors(queue.spec.resource_groups):
            if flavor not in scene.flavors:
                yield f"ClusterQueue {name}", f"ResourceFlavor {flavor} does not exist: the queue is inactive"


def _missing_check(scene: Scene) -> Told:
    for name, queue in scene.queues.items():
        strategy = queue.spec.admission_checks_strategy
        for rule in strategy.admission_checks if strategy is not None else ():
            if rule.name not in scene.checks:
                yield f"ClusterQueue {name}", f"AdmissionCheck {rule.name} does not exist: the queue is inactive"
            unknown = sorted(set(rule.on_flavors) - set(_flavors(queue.spec.resource_groups)))
            if unknown:
                yield (
                    f"ClusterQueue {name}",
                    f"AdmissionCheck {rule.name} is asked for on {', '.join(unknown)}, which the queue does not have",
                )


def _leads_nowhere(scene: Scene) -> Told:
    for name, local_queue in scene.local_queues.items():
        if local_queue.spec.cluster_queue not in scene.queues:
            target = local_queue.spec.cluster_queue
            yield f"LocalQueue {name}", f"leads to ClusterQueue {target}, which does not exist"


def _unselected(scene: Scene) -> Told:
    for name, local_queue in scene.local_queues.items():
        queue = scene.queues.get(local_queue.spec.cluster_queue or "")
        namespace = scene.namespaces.get(local_queue.metadata.namespace)
        if queue is None or namespace is None:
            continue
        if not selectors.compile(queue.spec.namespace_selector).matches(namespace.metadata.labels):
            told = (
                f"ClusterQueue {queue.metadata.name} does not select namespace {namespace.metadata.name}: "
                "nothing in this queue is ever admitted"
            )
            yield f"LocalQueue {name}", told


def _selects_nobody(scene: Scene) -> Told:
    for name, queue in scene.queues.items():
        if queue.spec.namespace_selector is None:
            yield f"ClusterQueue {name}", "has no namespaceSelector, which selects no namespace; {} selects all"


def _unused_flavor(scene: Scene) -> Told:
    used = {flavor for thing in scene.owners for flavor in _flavors(thing.spec.resource_groups)}
    if scene.queues:
        for name in scene.flavors.keys() - used:
            yield f"ResourceFlavor {name}", "no ClusterQueue uses it"


def _missing_topology(scene: Scene) -> Told:
    for name, flavor in scene.flavors.items():
        topology = flavor.spec.topology_name
        if topology and topology not in scene.topologies:
            yield f"ResourceFlavor {name}", f"Topology {topology} does not exist: queues that use it are inactive"


def _circle(scene: Scene) -> Told:
    for name in scene.cohorts:
        if not scene.root(name):
            yield f"Cohort {name}", "is its own ancestor: no queue below it admits anything"


# --- Quota ------------------------------------------------------------------------------------------------------------


def _beyond_nodes(scene: Scene) -> Told:
    """Quota is a promise; nodes have to keep it. Flavors that select the same nodes share what those have."""
    if not scene.nodes:
        return
    promised: dict[tuple[str, str], Amount] = defaultdict(int)
    for owner in scene.owners:
        for name, quota in _quotas(owner.spec.resource_groups):
            pair = name, quota.name
            promised[pair] = amounts.add(promised[pair], _amount(quota.name, quota.nominal_quota))
    for (name, resource), total in sorted(promised.items()):
        flavor = scene.flavors.get(name)
        if flavor is None or total == 0:
            continue
        found, there = scene.nodes_of(flavor), 0
        for node in found:
            there = amounts.add(there, _amount(resource, node.status.allocatable.get(resource, 0)))
        if not found:
            if resource == amounts.CPU or (name, amounts.CPU) not in promised:
                yield f"ResourceFlavor {name}", "no node has its labels: what gets its quota never runs"
        elif total > there:
            told = (
                f"quotas of {resource} come to {amounts.text(resource, total)}, and its {len(found)} nodes have "
                f"{amounts.text(resource, there)}: pods will wait for nodes with their quota in hand"
            )
            yield f"ResourceFlavor {name}", told


def _tainted_nodes(scene: Scene) -> Told:
    for name, flavor in scene.flavors.items():
        found = scene.nodes_of(flavor)
        held = flavor.spec.tolerations
        closed = [
            node
            for node in found
            if nodes.untolerated(node.spec.taints, (*held, *_as_tolerations(flavor.spec.node_taints))) is not None
        ]
        if found and len(closed) == len(found):
            told = (
                "all of its nodes have taints that it neither names in nodeTaints nor tolerates: admitted pods are "
                "not scheduled unless they tolerate them themselves"
            )
            yield f"ResourceFlavor {name}", told


def _units(scene: Scene) -> Told:
    for thing in scene.owners:
        for flavor, quota in _quotas(thing.spec.resource_groups):
            told = _odd(quota.name, quota.nominal_quota)
            if told:
                yield _place(thing), f"{quota.name} of flavor {flavor}: {told}"


_MEBIBYTE: Final = 2**20
_CORES_MANY: Final = 200_000


def _odd(resource: str, written: quantity.QuantityText) -> str:
    """What looks like a slip of the unit."""
    found = quantity.parse(written)
    if resource == amounts.CPU and found > quantity.Quantity(_CORES_MANY):
        return f"{written} cores; thousandths of a core are written with m"
    if resource == "memory" or resource.startswith("hugepages-"):
        if str(written).endswith("m"):
            return f"{written} is thousandths of a byte; megabytes are written with M, mebibytes with Mi"
        if quantity.Quantity(0) < found < quantity.Quantity(_MEBIBYTE):
            return f"{written} is less than a mebibyte; a number without a suffix is bytes"
    elif resource != amounts.CPU and str(written).endswith("m"):
        return f"{written} is thousandths; whole units are counted, so it is rounded up"
    return ""


def _too_big(scene: Scene) -> Told:
    """Workloads that ask for more than queue and cohort have together, were everything idle: one of each shape."""
    for decision in _decisions_when_idle(scene):
        attempts = [attempt for explained in decision.explanation for attempt in explained.attempts]
        beyond = [[f for f in attempt.findings if f.cause is Cause.BEYOND_CAPACITY] for attempt in attempts]
        if beyond and all(beyond):
            worst = beyond[0][0]
            told = (
                f"asks for {amounts.text(worst.resource, worst.requested)} {worst.resource} of flavor "
                f"{worst.flavor}; its queue and cohort have {amounts.text(worst.resource, worst.room)} at most"
            )
            yield f"Workload {decision.workload}", told


def _decisions_when_idle(scene: Scene) -> Iterator[Decision]:
    waiting = scene.case.with_objects(
        thing for thing in scene.case.objects if not (isinstance(thing, kueue.Workload) and reading.holds_quota(thing))
    )
    return planning.settle(waiting, 0).decisions


def _alone(scene: Scene) -> Told:
    for name, queue in scene.queues.items():
        cohort = queue.spec.cohort_name
        if cohort and cohort not in scene.cohorts and scene.members(cohort) == [name]:
            yield f"ClusterQueue {name}", f"is alone in cohort {cohort}: there is nobody to borrow from or to lend to"


def _lends_nothing(scene: Scene) -> Told:
    """Everybody may borrow and nobody lends."""
    trees: dict[str, list[str]] = defaultdict(list)
    for name, queue in scene.queues.items():
        if queue.spec.cohort_name:
            trees[scene.root(queue.spec.cohort_name)].append(name)
    for root, names in trees.items():
        if not root or len(names) < 2 or scene.cohorts.keys() & {root}:
            continue
        quotas = [quota for name in names for _, quota in _quotas(scene.queues[name].spec.resource_groups)]
        lent = [
            quota for quota in quotas if quota.lending_limit is None or _amount(quota.name, quota.lending_limit) > 0
        ]
        if quotas and not any(_amount(quota.name, quota.nominal_quota) for quota in lent):
            yield f"Cohort {root}", f"none of its {len(names)} ClusterQueues lends anything: nobody can borrow"


# --- Flavors and preemption -------------------------------------------------------------------------------------------


def _shadowed(scene: Scene) -> Told:
    """Flavors are tried in order. One behind another that always fits, or that is the same, is never reached."""
    for name, queue in scene.queues.items():
        for group in queue.spec.resource_groups:
            for n, flavor in enumerate(group.flavors):
                for earlier in group.flavors[:n]:
                    first, second = scene.flavors.get(earlier.name), scene.flavors.get(flavor.name)
                    if first is None or second is None:
                        continue
                    if not first.spec.node_taints and all(
                        _amount(quota.name, quota.nominal_quota) == amounts.UNLIMITED for quota in earlier.resources
                    ):
                        told = f"flavor {flavor.name} is never tried: {earlier.name} before it has no limit"
                    elif first.spec == second.spec and first.spec.node_labels:
                        told = f"flavors {earlier.name} and {flavor.name} select the same nodes: their quotas add up"
                    else:
                        continue
                    yield f"ClusterQueue {name}", told


def _idle_preemption(scene: Scene) -> Told:
    for name, queue in scene.queues.items():
        preemption = queue.spec.preemption
        if preemption is None:
            continue
        place = f"ClusterQueue {name}"
        never, borrow = kueue.PreemptionPolicy.NEVER, preemption.borrow_within_cohort
        reclaim = preemption.reclaim_within_cohort or never.value
        if reclaim != never and not queue.spec.cohort_name:
            yield place, f"reclaimWithinCohort is {reclaim}, and the queue is in no cohort: it never fires"
        if borrow is not None and (borrow.policy or never) != never:
            if reclaim == never:
                yield place, "borrowWithinCohort is set and reclaimWithinCohort is Never: it never fires"
            if scene.case.configured.policy.fair_sharing:
                yield place, "borrowWithinCohort is set and fair sharing is on: it is not looked at"
        borrows = [quota for _, quota in _quotas(queue.spec.resource_groups) if quota.borrowing_limit is not None]
        if borrow is not None and borrows and all(not _amount(q.name, q.borrowing_limit or 0) for q in borrows):
            yield place, "borrowWithinCohort is set and the queue may borrow nothing: it never fires"


def _idle_weights(scene: Scene) -> Told:
    if scene.case.configured.policy.fair_sharing:
        return
    for thing in scene.owners:
        weight = thing.spec.fair_sharing.weight if thing.spec.fair_sharing is not None else None
        if weight is not None and str(weight) not in ("1", "1000m"):
            yield _place(thing), f"has weight {weight}, and fair sharing is off: it is not looked at"


def _strict_head(scene: Scene) -> Told:
    """One that can never get in, at the head of a strict queue, stops everybody behind it."""
    stuck = {place.removeprefix("Workload ") for place, _ in _too_big(scene)}
    for key in sorted(stuck):
        workload = scene.workloads[key]
        local_queue = scene.local_queues.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        queue = scene.queues.get(local_queue.spec.cluster_queue or "") if local_queue is not None else None
        if queue is not None and queue.spec.queueing_strategy == kueue.QueueingStrategy.STRICT_FIFO:
            yield f"ClusterQueue {queue.metadata.name}", f"is strict, and {key} can never get in: it stops the queue"


def _excluded_and_declared(scene: Scene) -> Told:
    for name, queue in scene.queues.items():
        for prefix in queue.spec.exclude_resource_prefixes:
            hit = sorted(
                {quota.name for _, quota in _quotas(queue.spec.resource_groups) if quota.name.startswith(prefix)}
            )
            if hit:
                yield f"ClusterQueue {name}", f"excludes {prefix!r}, so its quota for {', '.join(hit)} is never counted"


# --- Reading ----------------------------------------------------------------------------------------------------------


def _place(thing: kueue.ClusterQueue | kueue.Cohort) -> str:
    return f"{type(thing).__name__} {thing.metadata.name}"


def _flavors(groups: Iterable[kueue.ResourceGroup]) -> list[str]:
    return [flavor.name for group in groups for flavor in group.flavors]


def _quotas(groups: Iterable[kueue.ResourceGroup]) -> Iterator[tuple[str, kueue.ResourceQuota]]:
    for group in groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                yield flavor.name, quota


def _amount(resource: str, written: quantity.QuantityText | None) -> Amount:
    return amounts.of_quota(resource, quantity.parse(written or 0))


def _as_tolerations(taints: Iterable[kube.Taint]) -> list[kube.Toleration]:
    """Pods that get the flavor tolerate its taints, or they would not have got it."""
    return [kube.Toleration(key=t.key, operator="Equal", value=t.value, effect=t.effect) for t in taints]


@dataclass(frozen=True, slots=True)
class Rule:
    look: Callable[[Scene], Told]
    severity: Severity = Severity.SURPRISE


RULES: Final[Mapping[str, Rule]] = {
    "missing-flavor": Rule(_missing_flavor, Severity.NEVER),
    "missing-check": Rule(_missing_check, Severity.NEVER),
    "missing-topology": Rule(_missing_topology, Severity.NEVER),
    "leads-nowhere": Rule(_leads_nowhere, Severity.NEVER),
    "unselected-namespace": Rule(_unselected, Severity.NEVER),
    "selects-nobody": Rule(_selects_nobody, Severity.NEVER),
    "circle": Rule(_circle, Severity.NEVER),
    "too-big": Rule(_too_big, Severity.NEVER),
    "strict-head": Rule(_strict_head, Severity.NEVER),
    "beyond-nodes": Rule(_beyond_nodes),
    "tainted-nodes": Rule(_tainted_nodes),
    "units": Rule(_units),
    "unused-flavor": Rule(_unused_flavor),
    "shadowed-flavor": Rule(_shadowed),
    "idle-preemption": Rule(_idle_preemption),
    "idle-weight": Rule(_idle_weights),
    "alone-in-cohort": Rule(_alone),
    "nobody-lends": Rule(_lends_nothing),
    "excluded-quota": Rule(_excluded_and_declared),
}
