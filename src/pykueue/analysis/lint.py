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

from kubemachinery import codec, meta, quantity, selectors
from pykueue.analysis import planner
from pykueue.analysis.planner import Case
from pykueue.api import conversion, effects, kube, kueue, labels, nodes, registry, validation
from pykueue.core import amounts
from pykueue.core.amounts import Amount
from pykueue.core.decision import Cause, Decision
from pykueue.lifecycle import states
from pykueue.state import workload_info

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
class LintInput:
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
    # What is decided for those who wait, were everything idle.
    idle: tuple[Decision, ...]

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


def _scene(case: Case) -> LintInput:
    return LintInput(
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
        idle=tuple(_decisions_when_idle(case)),
    )


def _named(case: Case, kind: type[T]) -> dict[str, T]:
    found = {}
    for thing in case.objects:
        if isinstance(thing, kind):
            metadata: meta.ObjectMeta = thing.metadata  # type: ignore[attr-defined]
            found["/".join(filter(None, (metadata.namespace, metadata.name)))] = thing
    return found


RuleFindings = Iterator[tuple[str, str]]


# --- References -------------------------------------------------------------------------------------------------------


def _missing_flavor(scene: LintInput) -> RuleFindings:
    for name, queue in scene.queues.items():
        for flavor in _flavors(queue.spec.resource_groups):
            if flavor not in scene.flavors:
                yield f"ClusterQueue {name}", f"ResourceFlavor {flavor} does not exist: the queue is inactive"


def _missing_check(scene: LintInput) -> RuleFindings:
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


def _leads_nowhere(scene: LintInput) -> RuleFindings:
    for name, local_queue in scene.local_queues.items():
        if local_queue.spec.cluster_queue not in scene.queues:
            target = local_queue.spec.cluster_queue
            yield f"LocalQueue {name}", f"leads to ClusterQueue {target}, which does not exist"


def _unselected(scene: LintInput) -> RuleFindings:
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


def _selects_nobody(scene: LintInput) -> RuleFindings:
    for name, queue in scene.queues.items():
        if queue.spec.namespace_selector is None:
            yield f"ClusterQueue {name}", "has no namespaceSelector, which selects no namespace; {} selects all"


def _selects_none_here(scene: LintInput) -> RuleFindings:
    everybody = [namespace.metadata.labels for namespace in scene.namespaces.values()]
    for name, queue in scene.queues.items():
        selector = selectors.compile(queue.spec.namespace_selector)
        if everybody and queue.spec.namespace_selector is not None and not any(map(selector.matches, everybody)):
            yield f"ClusterQueue {name}", "its namespaceSelector selects none of the namespaces that there are"


def _no_way_in(scene: LintInput) -> RuleFindings:
    led_to = {local_queue.spec.cluster_queue for local_queue in scene.local_queues.values()}
    for name, queue in scene.queues.items():
        makes_one = queue.spec.default_local_queue is not None and "DefaultLocalQueue" in scene.case.configured.on
        if led_to and name not in led_to and not makes_one:
            yield f"ClusterQueue {name}", "no LocalQueue leads to it: nobody can use it"


def _unknown_queue(scene: LintInput) -> RuleFindings:
    for workload in scene.workloads.values():
        name = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
        if scene.local_queues and name not in scene.local_queues and not states.is_finished(workload):
            yield _asker(workload), f"LocalQueue {name} does not exist: it waits until there is one"


def _unused_flavor(scene: LintInput) -> RuleFindings:
    used = {flavor for thing in scene.owners for flavor in _flavors(thing.spec.resource_groups)}
    if scene.queues:
        for name in scene.flavors.keys() - used:
            yield f"ResourceFlavor {name}", "no ClusterQueue uses it"


def _missing_topology(scene: LintInput) -> RuleFindings:
    for name, flavor in scene.flavors.items():
        topology = flavor.spec.topology_name
        if topology and topology not in scene.topologies:
            yield f"ResourceFlavor {name}", f"Topology {topology} does not exist: queues that use it are inactive"


def _refused(scene: LintInput) -> RuleFindings:
    """What a server with our webhooks would not take."""
    for thing in (*scene.owners, *scene.flavors.values()):
        row = registry.KUEUE.of(type(thing))
        tree = {**codec.to_tree(thing), "apiVersion": row.api_version, "kind": row.kind}
        for error in validation.validate_create(tree):
            yield _place(thing), str(error)


def _unknown_field(scene: LintInput) -> RuleFindings:
    return iter(scene.case.unknown_fields)


def _circle(scene: LintInput) -> RuleFindings:
    for name in scene.cohorts:
        if not scene.root(name):
            yield f"Cohort {name}", "is its own ancestor: no queue below it admits anything"


# --- Quota ------------------------------------------------------------------------------------------------------------


def _beyond_nodes(scene: LintInput) -> RuleFindings:
    """Quota is a promise; nodes have to keep it. Flavors that select the same nodes share what those have."""
    if not scene.nodes:
        return
    sharing: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, flavor in sorted(scene.flavors.items()):
        sharing[tuple(node.metadata.name for node in scene.nodes_of(flavor))].append(name)
    for found, names in sharing.items():
        promised: dict[str, Amount] = defaultdict(int)
        for owner in scene.owners:
            for name, quota in _quotas(owner.spec.resource_groups):
                if name in names:
                    promised[quota.name] = amounts.add(promised[quota.name], _amount(quota.name, quota.nominal_quota))
        places = [f"ResourceFlavor {name}" for name in names]
        if not found and any(promised.values()):
            yield from ((place, "no node has its labels: what gets its quota never runs") for place in places)
        for resource, total in sorted(promised.items()) if found else ():
            there = 0
            for name in found:
                there = amounts.add(there, _amount(resource, scene.nodes[name].status.allocatable.get(resource, 0)))
            if total > there:
                told = (
                    f"quotas of {resource} come to {amounts.text(resource, total)}, and the nodes have "
                    f"{amounts.text(resource, there)}: admitted pods will stay Pending"
                )
                yield " and ".join(places), told


def _tainted_nodes(scene: LintInput) -> RuleFindings:
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


def _units(scene: LintInput) -> RuleFindings:
    for thing in scene.owners:
        for flavor, quota in _quotas(thing.spec.resource_groups):
            told = _odd(quota.name, quota.nominal_quota)
            if told:
                yield _place(thing), f"{quota.name} of flavor {flavor}: {told}"
    for workload in scene.workloads.values():
        if states.is_finished(workload):
            continue
        for pod_set in workload.spec.pod_sets:
            for container in pod_set.template.spec.containers:
                for resource, written in sorted(container.resources.requests.items()):
                    if told := _odd(resource, written):
                        yield _asker(workload), f"{resource} of container {container.name}: {told}"


def _out_of_proportion(scene: LintInput) -> RuleFindings:
    """Cores with next to no memory: thousandths of them were meant."""
    for thing in scene.owners:
        for group in thing.spec.resource_groups:
            for flavor in group.flavors:
                of = {quota.name: _amount(quota.name, quota.nominal_quota) for quota in flavor.resources}
                thousandths, memory = of.get(amounts.CPU, 0), of.get("memory", 0)
                is_finite = thousandths != amounts.UNLIMITED
                if is_finite and _MEBIBYTE * 1000 <= memory * 1000 < thousandths * _MEMORY_OF_CORE:
                    told = (
                        f"flavor {flavor.name} has {amounts.text(amounts.CPU, thousandths)} cores with "
                        f"{amounts.text('memory', memory)} of memory; thousandths of a core are written with m"
                    )
                    yield _place(thing), told


_MEBIBYTE: Final = 2**20
_CORES_MANY: Final = 200_000
_MEMORY_OF_CORE: Final = 16 * _MEBIBYTE


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


def _too_big(scene: LintInput) -> RuleFindings:
    """Workloads that ask for more than queue and cohort have together, were everything idle: one of each shape."""
    for decision in scene.idle:
        attempts = [attempt for explained in decision.explanation for attempt in explained.attempts]
        beyond = [[f for f in attempt.findings if f.cause is Cause.BEYOND_CAPACITY] for attempt in attempts]
        if beyond and all(beyond):
            worst = beyond[0][0]
            told = (
                f"asks for {amounts.text(worst.resource, worst.requested)} {worst.resource} of flavor "
                f"{worst.flavor}; its queue and cohort have {amounts.text(worst.resource, worst.available)} at most"
            )
            yield _asker(scene.workloads[decision.workload]), told


def _decisions_when_idle(case: Case) -> Iterator[Decision]:
    waiting = [t for t in case.objects if not (isinstance(t, kueue.Workload) and workload_info.holds_quota(t))]
    if not _named(case, kube.Namespace):  # nobody said which there are; those that are named will be there
        named = sorted({thing.metadata.namespace for thing in _named(case, kueue.Workload).values()})
        waiting += [kube.Namespace(metadata=meta.ObjectMeta(name=name)) for name in named]
    return planner.settle(case.with_objects(waiting), 0).decisions


def _undeclared(scene: LintInput) -> RuleFindings:
    for decision in scene.idle:
        missing = {
            finding.resource
            for explained in decision.explanation
            for finding in explained.findings
            if finding.cause is Cause.UNDECLARED
        }
        if missing:
            told = (
                f"asks for {', '.join(sorted(missing))}, and ClusterQueue {decision.cluster_queue} has no quota for it"
            )
            yield _asker(scene.workloads[decision.workload]), told


def _no_quota(scene: LintInput) -> RuleFindings:
    for name, queue in scene.queues.items():
        quotas = [quota for _, quota in _quotas(queue.spec.resource_groups)]
        if not queue.spec.cohort_name and not any(_amount(quota.name, quota.nominal_quota) for quota in quotas):
            yield f"ClusterQueue {name}", "has no quota, and no cohort to borrow from: it admits nothing"


def _alone(scene: LintInput) -> RuleFindings:
    for name, queue in scene.queues.items():
        cohort = queue.spec.cohort_name
        if cohort and cohort not in scene.cohorts and scene.members(cohort) == [name]:
            yield f"ClusterQueue {name}", f"is alone in cohort {cohort}: there is nobody to borrow from or to lend to"


def _lends_nothing(scene: LintInput) -> RuleFindings:
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


def _shadowed(scene: LintInput) -> RuleFindings:
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


def _idle_preemption(scene: LintInput) -> RuleFindings:
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


def _idle_weights(scene: LintInput) -> RuleFindings:
    if scene.case.configured.policy.fair_sharing:
        return
    for thing in scene.owners:
        weight = thing.spec.fair_sharing.weight if thing.spec.fair_sharing is not None else None
        if weight is not None and str(weight) not in ("1", "1000m"):
            yield _place(thing), f"has weight {weight}, and fair sharing is off: it is not looked at"


def _strict_head(scene: LintInput) -> RuleFindings:
    """One that can never get in, at the head of a strict queue, stops everybody behind it."""
    stuck = {place for place, _ in (*_too_big(scene), *_undeclared(scene))}
    for key, workload in scene.workloads.items():
        if _asker(workload) not in stuck:
            continue
        local_queue = scene.local_queues.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        queue = scene.queues.get(local_queue.spec.cluster_queue or "") if local_queue is not None else None
        if queue is not None and queue.spec.queueing_strategy == kueue.QueueingStrategy.STRICT_FIFO:
            yield f"ClusterQueue {queue.metadata.name}", f"is strict, and {key} can never get in: it stops the queue"


def _excluded_and_declared(scene: LintInput) -> RuleFindings:
    if "ClusterQueueExcludeResourcePrefixes" not in scene.case.configured.on:
        return  # `no-effect` names the field
    for name, queue in scene.queues.items():
        for prefix in queue.spec.exclude_resource_prefixes:
            hit = sorted(
                {quota.name for _, quota in _quotas(queue.spec.resource_groups) if quota.name.startswith(prefix)}
            )
            if hit:
                yield f"ClusterQueue {name}", f"excludes {prefix!r}, so its quota for {', '.join(hit)} is never counted"


# --- Fields and checks without effect ---------------------------------------------------------------------------------


def _no_effect(scene: LintInput) -> RuleFindings:
    """Fields that are accepted and do nothing: their gate is off, or this version does not implement them."""
    on = scene.case.configured.on
    for thing in (*scene.owners, *scene.flavors.values(), *scene.checks.values(), *scene.workloads.values()):
        tree = {**codec.to_tree(thing), "kind": type(thing).__name__}
        for sentence in effects.warnings(tree, on):
            yield (_asker(thing) if isinstance(thing, kueue.Workload) else _place(thing)), sentence
    for place, tree in scene.case.others:
        for sentence in effects.warnings(conversion.convert(tree, conversion.HUB), on):
            yield place, sentence


def _unread_configuration(scene: LintInput) -> RuleFindings:
    return (("Configuration", notice) for notice in scene.case.notices)


def _no_controller(scene: LintInput) -> RuleFindings:
    """Checks of MultiKueue never answer: whatever queues behind them is never admitted."""
    remote = {
        name for name, check in scene.checks.items() if check.spec.controller_name == labels.MULTIKUEUE_CONTROLLER
    }
    for name, queue in scene.queues.items():
        strategy = queue.spec.admission_checks_strategy
        used = [
            rule.name for rule in (strategy.admission_checks if strategy is not None else ()) if rule.name in remote
        ]
        if used:
            why = f"never becomes active ({effects.NO_MULTIKUEUE}): the queue is inactive"
            yield f"ClusterQueue {name}", f"AdmissionCheck {', '.join(used)} {why}"


# --- Reading ----------------------------------------------------------------------------------------------------------


def _asker(workload: kueue.Workload) -> str:
    """The job, where there is one: people know it by that name."""
    owner = workload.metadata.controller
    kind, name = (owner.kind, owner.name) if owner is not None else ("Workload", workload.metadata.name)
    return f"{kind} {workload.metadata.namespace}/{name}"


def _place(thing: kueue.ClusterQueue | kueue.Cohort | kueue.ResourceFlavor | kueue.AdmissionCheck) -> str:
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
class LintRule:
    look: Callable[[LintInput], RuleFindings]
    severity: Severity = Severity.SURPRISE


RULES: Final[Mapping[str, LintRule]] = {
    "missing-flavor": LintRule(_missing_flavor, Severity.NEVER),
    "missing-check": LintRule(_missing_check, Severity.NEVER),
    "missing-topology": LintRule(_missing_topology, Severity.NEVER),
    "leads-nowhere": LintRule(_leads_nowhere, Severity.NEVER),
    "unselected-namespace": LintRule(_unselected, Severity.NEVER),
    "selects-nobody": LintRule(_selects_nobody, Severity.NEVER),
    "circle": LintRule(_circle, Severity.NEVER),
    "refused": LintRule(_refused, Severity.NEVER),
    "unknown-field": LintRule(_unknown_field, Severity.NEVER),
    "unknown-queue": LintRule(_unknown_queue, Severity.NEVER),
    "no-quota": LintRule(_no_quota, Severity.NEVER),
    "too-big": LintRule(_too_big, Severity.NEVER),
    "undeclared": LintRule(_undeclared, Severity.NEVER),
    "strict-head": LintRule(_strict_head, Severity.NEVER),
    "no-controller": LintRule(_no_controller, Severity.NEVER),
    "beyond-nodes": LintRule(_beyond_nodes),
    "tainted-nodes": LintRule(_tainted_nodes),
    "units": LintRule(_units),
    "out-of-proportion": LintRule(_out_of_proportion),
    "selects-none-here": LintRule(_selects_none_here),
    "no-way-in": LintRule(_no_way_in),
    "unused-flavor": LintRule(_unused_flavor),
    "shadowed-flavor": LintRule(_shadowed),
    "idle-preemption": LintRule(_idle_preemption),
    "idle-weight": LintRule(_idle_weights),
    "alone-in-cohort": LintRule(_alone),
    "nobody-lends": LintRule(_lends_nothing),
    "excluded-quota": LintRule(_excluded_and_declared),
    "no-effect": LintRule(_no_effect),
    "unread-configuration": LintRule(_unread_configuration),
}
