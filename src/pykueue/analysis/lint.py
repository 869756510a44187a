"""Configurations that can never work, or that have unexpected effects. Each rule is a function in one table.

Validation refuses invalid objects; lint reports valid objects that do not do what they seem to. Rules about nodes,
namespaces or the Configuration report nothing if none are given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

import msgspec

from kubemachinery import codec, meta, quantity, selectors
from pykueue import calendars
from pykueue.analysis import planner
from pykueue.analysis.planner import Case
from pykueue.api import (
    backfill,
    budget,
    conversion,
    effects,
    extensions,
    kube,
    kueue,
    labels,
    nodes,
    registry,
    validation,
    workload_owners,
)
from pykueue.api.quota_schedule import QuotaSchedule, ScheduledResource, ScheduleOnStart
from pykueue.calendars import CalendarError
from pykueue.core import amounts
from pykueue.core.amounts import Amount
from pykueue.core.decision import Cause, Decision
from pykueue.jobs import offline
from pykueue.lifecycle import states
from pykueue.state import workload_info

T = TypeVar("T", bound=msgspec.Struct)


class Severity(StrEnum):
    NEVER = "never works"
    SURPRISE = "unexpected effect"


class Finding(msgspec.Struct, frozen=True, order=True):
    """A finding of a rule: the object, the rule, and a sentence."""

    place: str  # Kind name
    rule: str
    sentence: str
    severity: Severity = Severity.SURPRISE

    def tree(self) -> dict[str, str]:
        return {"place": self.place, "rule": self.rule, "severity": self.severity.value, "finding": self.sentence}


class LintInput(msgspec.Struct, frozen=True):
    """The objects by kind and name, and the decisions on an idle system."""

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
    # The decisions on pending Workloads if all quota were free.
    idle: tuple[Decision, ...]

    @property
    def owners(self) -> list[kueue.ClusterQueue | kueue.Cohort]:
        """ClusterQueues and Cohorts: the objects with quota."""
        return [*self.queues.values(), *self.cohorts.values()]

    def members(self, cohort: str) -> list[str]:
        return [name for name, queue in self.queues.items() if queue.spec.cohort_name == cohort]

    def root(self, cohort: str) -> str:
        """The root of a cohort; empty in a cohort cycle."""
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
    """All findings, sorted by object."""
    given = _input(case)
    return sorted(
        Finding(place, name, sentence, rule.severity)
        for name, rule in RULES.items()
        for place, sentence in rule.look(given)
    )


def _input(case: Case) -> LintInput:
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


def _missing_flavor(given: LintInput) -> RuleFindings:
    for name, queue in given.queues.items():
        for flavor in _flavors(queue.spec.resource_groups):
            if flavor not in given.flavors:
                yield f"ClusterQueue {name}", f"ResourceFlavor {flavor} does not exist: the queue is inactive"


def _missing_check(given: LintInput) -> RuleFindings:
    for name, queue in given.queues.items():
        strategy = queue.spec.admission_checks_strategy
        for rule in strategy.admission_checks if strategy is not None else ():
            if rule.name not in given.checks:
                yield f"ClusterQueue {name}", f"AdmissionCheck {rule.name} does not exist: the queue is inactive"
            unknown = sorted(set(rule.on_flavors) - set(_flavors(queue.spec.resource_groups)))
            if unknown:
                yield (
                    f"ClusterQueue {name}",
                    f"AdmissionCheck {rule.name} is for flavors {', '.join(unknown)}, which the queue does not have",
                )


def _missing_cluster_queue(given: LintInput) -> RuleFindings:
    for name, local_queue in given.local_queues.items():
        if local_queue.spec.cluster_queue not in given.queues:
            target = local_queue.spec.cluster_queue
            yield f"LocalQueue {name}", f"ClusterQueue {target} does not exist"


def _unselected(given: LintInput) -> RuleFindings:
    for name, local_queue in given.local_queues.items():
        queue = given.queues.get(local_queue.spec.cluster_queue or "")
        namespace = given.namespaces.get(local_queue.metadata.namespace)
        if queue is None or namespace is None:
            continue
        if not selectors.compile(queue.spec.namespace_selector).matches(namespace.metadata.labels):
            sentence = (
                f"ClusterQueue {queue.metadata.name} does not select namespace {namespace.metadata.name}: "
                "nothing in this queue is ever admitted"
            )
            yield f"LocalQueue {name}", sentence


def _no_namespace_selector(given: LintInput) -> RuleFindings:
    for name, queue in given.queues.items():
        if queue.spec.namespace_selector is None:
            yield f"ClusterQueue {name}", "has no namespaceSelector, which selects no namespace; {} selects all"


def _selects_no_namespace(given: LintInput) -> RuleFindings:
    label_sets = [namespace.metadata.labels for namespace in given.namespaces.values()]
    for name, queue in given.queues.items():
        selector = selectors.compile(queue.spec.namespace_selector)
        if label_sets and queue.spec.namespace_selector is not None and not any(map(selector.matches, label_sets)):
            yield f"ClusterQueue {name}", "its namespaceSelector matches no existing namespace"


def _no_local_queue(given: LintInput) -> RuleFindings:
    used = {local_queue.spec.cluster_queue for local_queue in given.local_queues.values()}
    for name, queue in given.queues.items():
        makes_one = queue.spec.default_local_queue is not None and "DefaultLocalQueue" in given.case.configured.on
        if used and name not in used and not makes_one:
            yield f"ClusterQueue {name}", "it has no LocalQueue: no job can use it"


def _unknown_queue(given: LintInput) -> RuleFindings:
    for workload in given.workloads.values():
        name = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
        if given.local_queues and name not in given.local_queues and not states.is_finished(workload):
            yield _requester(workload), f"LocalQueue {name} does not exist: it waits until the LocalQueue is created"


def _unused_flavor(given: LintInput) -> RuleFindings:
    used = {flavor for thing in given.owners for flavor in _flavors(thing.spec.resource_groups)}
    if given.queues:
        for name in given.flavors.keys() - used:
            yield f"ResourceFlavor {name}", "no ClusterQueue uses it"


def _missing_topology(given: LintInput) -> RuleFindings:
    for name, flavor in given.flavors.items():
        topology = flavor.spec.topology_name
        if topology and topology not in given.topologies:
            yield f"ResourceFlavor {name}", f"Topology {topology} does not exist: queues that use it are inactive"


def _refused(given: LintInput) -> RuleFindings:
    """Objects that the webhooks would refuse."""
    for thing in (*given.owners, *given.flavors.values()):
        row = registry.KUEUE.of(type(thing))
        tree = {**codec.to_tree(thing), "apiVersion": row.api_version, "kind": row.kind}
        for error in validation.validate_create(tree):
            yield _place(thing), str(error)
    for _, tree in given.case.jobs:
        job = offline.row_of(tree)
        for error in offline.refusals(job, tree, given.case.configured.jobs) if job is not None else ():
            yield planner.place_of(tree), str(error)


def _unknown_field(given: LintInput) -> RuleFindings:
    return iter(given.case.unknown_fields)


def _cohort_cycle(given: LintInput) -> RuleFindings:
    for name in given.cohorts:
        if not given.root(name):
            yield f"Cohort {name}", "is its own ancestor (cohort cycle): no queue below it admits anything"


# --- Quota ------------------------------------------------------------------------------------------------------------


def _beyond_nodes(given: LintInput) -> RuleFindings:
    """Quota beyond the capacity of the nodes. Flavors that select the same nodes share their capacity."""
    if not given.nodes:
        return
    sharing: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, flavor in sorted(given.flavors.items()):
        sharing[tuple(node.metadata.name for node in given.nodes_of(flavor))].append(name)
    for found, names in sharing.items():
        promised: dict[str, Amount] = defaultdict(int)
        for owner in given.owners:
            for name, quota in _quotas(owner.spec.resource_groups):
                if name in names:
                    promised[quota.name] = amounts.add(promised[quota.name], _amount(quota.name, quota.nominal_quota))
        places = [f"ResourceFlavor {name}" for name in names]
        if not found and any(promised.values()):
            yield from ((place, "no node has its labels: admitted pods will stay Pending") for place in places)
        for resource, total in sorted(promised.items()) if found else ():
            there = 0
            for name in found:
                there = amounts.add(there, _amount(resource, given.nodes[name].status.allocatable.get(resource, 0)))
            if total > there:
                sentence = (
                    f"quotas of {resource} sum to {amounts.text(resource, total)}, the nodes have "
                    f"{amounts.text(resource, there)}: admitted pods will stay Pending"
                )
                yield " and ".join(places), sentence


def _tainted_nodes(given: LintInput) -> RuleFindings:
    for name, flavor in given.flavors.items():
        found = given.nodes_of(flavor)
        held = flavor.spec.tolerations
        closed = [
            node
            for node in found
            if nodes.untolerated(node.spec.taints, (*held, *_as_tolerations(flavor.spec.node_taints))) is not None
        ]
        if found and len(closed) == len(found):
            sentence = (
                "all of its nodes have taints that are in neither nodeTaints nor tolerations: admitted pods are "
                "not scheduled unless they have the tolerations themselves"
            )
            yield f"ResourceFlavor {name}", sentence


def _units(given: LintInput) -> RuleFindings:
    for thing in given.owners:
        for flavor, quota in _quotas(thing.spec.resource_groups):
            sentence = _odd(quota.name, quota.nominal_quota)
            if sentence:
                yield _place(thing), f"{quota.name} of flavor {flavor}: {sentence}"
    for workload in given.workloads.values():
        if states.is_finished(workload):
            continue
        for pod_set in workload.spec.pod_sets:
            for container in pod_set.template.spec.containers:
                for resource, written in sorted(container.resources.requests.items()):
                    if sentence := _odd(resource, written):
                        yield _requester(workload), f"{resource} of container {container.name}: {sentence}"


def _out_of_proportion(given: LintInput) -> RuleFindings:
    """Many cores with little memory: probably millicores were meant."""
    for thing in given.owners:
        for group in thing.spec.resource_groups:
            for flavor in group.flavors:
                of = {quota.name: _amount(quota.name, quota.nominal_quota) for quota in flavor.resources}
                thousandths, memory = of.get(amounts.CPU, 0), of.get("memory", 0)
                is_finite = thousandths != amounts.UNLIMITED
                if is_finite and _MEBIBYTE * 1000 <= memory * 1000 < thousandths * _MEMORY_OF_CORE:
                    sentence = (
                        f"flavor {flavor.name} has {amounts.text(amounts.CPU, thousandths)} cores with "
                        f"{amounts.text('memory', memory)} of memory; millicores are written with m"
                    )
                    yield _place(thing), sentence


_MEBIBYTE: Final = 2**20
_CORES_MANY: Final = 200_000
_MEMORY_OF_CORE: Final = 16 * _MEBIBYTE


def _odd(resource: str, written: quantity.QuantityText) -> str:
    """A probable mistake of the unit; empty without one."""
    try:
        found = quantity.parse(written)
    except quantity.QuantityError as error:  # of a job that no API server has validated
        return str(error)
    if resource == amounts.CPU and found > quantity.Quantity(_CORES_MANY):
        return f"{written} cores; millicores are written with m"
    if resource == "memory" or resource.startswith("hugepages-"):
        if str(written).endswith("m"):
            return f"{written} is millibytes; megabytes are written with M, mebibytes with Mi"
        if quantity.Quantity(0) < found < quantity.Quantity(_MEBIBYTE):
            return f"{written} is less than one mebibyte; a number without a suffix is bytes"
    elif resource != amounts.CPU and str(written).endswith("m"):
        return f"{written} is a fraction; only whole units are counted, so it is rounded up"
    return ""


def _exceeds_capacity(given: LintInput) -> RuleFindings:
    """Workloads that request more than queue and cohort have together: one of each equivalence class."""
    for decision in given.idle:
        attempts = [attempt for explained in decision.explanation for attempt in explained.attempts]
        beyond = [[f for f in attempt.findings if f.cause is Cause.BEYOND_CAPACITY] for attempt in attempts]
        if beyond and all(beyond):
            worst = beyond[0][0]
            sentence = (
                f"requested {amounts.text(worst.resource, worst.requested)} {worst.resource} of flavor "
                f"{worst.flavor}, maximum capacity {amounts.text(worst.resource, worst.available)}"
            )
            yield _requester(given.workloads[decision.workload]), sentence


def _decisions_when_idle(case: Case) -> Iterator[Decision]:
    waiting = [t for t in case.objects if not (isinstance(t, kueue.Workload) and workload_info.holds_quota(t))]
    return planner.settle(planner.with_used_namespaces(case.with_objects(waiting)), 0).decisions


def _undeclared_resource(given: LintInput) -> RuleFindings:
    for decision in given.idle:
        missing = {
            finding.resource
            for explained in decision.explanation
            for finding in explained.findings
            if finding.cause is Cause.UNDECLARED
        }
        if missing:
            sentence = (
                f"requests {', '.join(sorted(missing))}, and ClusterQueue {decision.cluster_queue} has no quota for it"
            )
            yield _requester(given.workloads[decision.workload]), sentence


def _no_quota(given: LintInput) -> RuleFindings:
    for name, queue in given.queues.items():
        quotas = [quota for _, quota in _quotas(queue.spec.resource_groups)]
        if not queue.spec.cohort_name and not any(_amount(quota.name, quota.nominal_quota) for quota in quotas):
            yield f"ClusterQueue {name}", "has no quota, and no cohort to borrow from: it admits nothing"


def _alone(given: LintInput) -> RuleFindings:
    for name, queue in given.queues.items():
        cohort = queue.spec.cohort_name
        if cohort and cohort not in given.cohorts and given.members(cohort) == [name]:
            yield f"ClusterQueue {name}", f"is alone in cohort {cohort}: it cannot borrow or lend"


def _no_lending(given: LintInput) -> RuleFindings:
    """Cohorts in which every queue may borrow and none lends."""
    trees: dict[str, list[str]] = defaultdict(list)
    for name, queue in given.queues.items():
        if queue.spec.cohort_name:
            trees[given.root(queue.spec.cohort_name)].append(name)
    for root, names in trees.items():
        if not root or len(names) < 2 or given.cohorts.keys() & {root}:
            continue
        quotas = [quota for name in names for _, quota in _quotas(given.queues[name].spec.resource_groups)]
        lent = [
            quota for quota in quotas if quota.lending_limit is None or _amount(quota.name, quota.lending_limit) > 0
        ]
        if quotas and not any(_amount(quota.name, quota.nominal_quota) for quota in lent):
            yield f"Cohort {root}", f"none of its {len(names)} ClusterQueues lends anything: none can borrow"


# --- Flavors and preemption -------------------------------------------------------------------------------------------


def _shadowed(given: LintInput) -> RuleFindings:
    """Flavors are tried in order: one after a flavor that always fits, or selects the same nodes, is not reached."""
    for name, queue in given.queues.items():
        for group in queue.spec.resource_groups:
            for n, flavor in enumerate(group.flavors):
                for earlier in group.flavors[:n]:
                    first, second = given.flavors.get(earlier.name), given.flavors.get(flavor.name)
                    if first is None or second is None:
                        continue
                    if not first.spec.node_taints and all(
                        _amount(quota.name, quota.nominal_quota) == amounts.UNLIMITED for quota in earlier.resources
                    ):
                        sentence = f"flavor {flavor.name} is never tried: {earlier.name} before it has unlimited quota"
                    elif first.spec == second.spec and first.spec.node_labels:
                        sentence = (
                            f"flavors {earlier.name} and {flavor.name} select the same nodes: their quotas add up"
                        )
                    else:
                        continue
                    yield f"ClusterQueue {name}", sentence


def _ineffective_preemption(given: LintInput) -> RuleFindings:
    for name, queue in given.queues.items():
        preemption = queue.spec.preemption
        if preemption is None:
            continue
        place = f"ClusterQueue {name}"
        never, borrow = kueue.PreemptionPolicy.NEVER, preemption.borrow_within_cohort
        reclaim = preemption.reclaim_within_cohort or never.value
        if reclaim != never and not queue.spec.cohort_name:
            yield place, f"reclaimWithinCohort is {reclaim}, and the queue is in no cohort: it has no effect"
        if borrow is not None and (borrow.policy or never) != never:
            if reclaim == never:
                yield place, "borrowWithinCohort is set and reclaimWithinCohort is Never: it has no effect"
            if given.case.configured.policy.fair_sharing:
                yield place, "borrowWithinCohort is set and fair sharing is on: it has no effect"
        borrows = [quota for _, quota in _quotas(queue.spec.resource_groups) if quota.borrowing_limit is not None]
        if borrow is not None and borrows and all(not _amount(q.name, q.borrowing_limit or 0) for q in borrows):
            yield place, "borrowWithinCohort is set and the queue may borrow nothing: it has no effect"


def _ineffective_weight(given: LintInput) -> RuleFindings:
    if given.case.configured.policy.fair_sharing:
        return
    for thing in given.owners:
        weight = thing.spec.fair_sharing.weight if thing.spec.fair_sharing is not None else None
        if weight is not None and str(weight) not in ("1", "1000m"):
            yield _place(thing), f"has weight {weight}, and fair sharing is off: it has no effect"


def _blocked_strict_fifo(given: LintInput) -> RuleFindings:
    """A Workload that can never be admitted, at the head of a StrictFIFO queue, blocks the others."""
    stuck = {place for place, _ in (*_exceeds_capacity(given), *_undeclared_resource(given))}
    for key, workload in given.workloads.items():
        if _requester(workload) not in stuck:
            continue
        local_queue = given.local_queues.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        queue = given.queues.get(local_queue.spec.cluster_queue or "") if local_queue is not None else None
        if queue is not None and queue.spec.queueing_strategy == kueue.QueueingStrategy.STRICT_FIFO:
            yield (
                f"ClusterQueue {queue.metadata.name}",
                f"is StrictFIFO, and {key} can never be admitted: it blocks the queue",
            )


def _excluded_and_declared(given: LintInput) -> RuleFindings:
    if "ClusterQueueExcludeResourcePrefixes" not in given.case.configured.on:
        return  # `no-effect` names the field
    for name, queue in given.queues.items():
        for prefix in queue.spec.exclude_resource_prefixes:
            hit = sorted(
                {quota.name for _, quota in _quotas(queue.spec.resource_groups) if quota.name.startswith(prefix)}
            )
            if hit:
                yield f"ClusterQueue {name}", f"excludes {prefix!r}, so its quota for {', '.join(hit)} is never counted"


# --- Fields and checks without effect ---------------------------------------------------------------------------------


def _no_effect(given: LintInput) -> RuleFindings:
    """Fields that are accepted and do nothing: their gate is off, or this version does not implement them."""
    on = given.case.configured.on
    for thing in (*given.owners, *given.flavors.values(), *given.checks.values(), *given.workloads.values()):
        tree = {**codec.to_tree(thing), "kind": type(thing).__name__}
        for sentence in effects.warnings(tree, on):
            yield (_requester(thing) if isinstance(thing, kueue.Workload) else _place(thing)), sentence
    for place, tree in given.case.others:
        for sentence in effects.warnings(conversion.convert(tree, conversion.HUB), on):
            yield place, sentence


def _unread_configuration(given: LintInput) -> RuleFindings:
    return (("Configuration", notice) for notice in given.case.notices)


def _no_controller(given: LintInput) -> RuleFindings:
    """AdmissionChecks of MultiKueue, and of Budgets while the gate is off, never become active: their queues admit
    nothing."""
    absent = {labels.MULTIKUEUE_CONTROLLER: effects.NO_MULTIKUEUE}
    if "Budgets" not in given.case.configured.on:
        absent[budget.CONTROLLER] = "the gate Budgets is off"
    for name, queue in given.queues.items():
        strategy = queue.spec.admission_checks_strategy
        for controller, why in absent.items():
            used = [
                rule.name
                for rule in (strategy.admission_checks if strategy is not None else ())
                if rule.name in given.checks and given.checks[rule.name].spec.controller_name == controller
            ]
            if used:
                sentence = f"never becomes active ({why}): the queue is inactive"
                yield f"ClusterQueue {name}", f"AdmissionCheck {', '.join(used)} {sentence}"


def _missing_budget(given: LintInput) -> RuleFindings:
    """AdmissionChecks of Budgets that name no Budget are inactive."""
    known = {each.metadata.name for each in given.case.extensions if isinstance(each, budget.Budget)}
    for name, check in given.checks.items():
        if check.spec.controller_name != budget.CONTROLLER:
            continue
        reference = check.spec.parameters
        if reference is None or (reference.api_group, reference.kind) != (extensions.GROUP, "Budget"):
            yield f"AdmissionCheck {name}", "names no Budget in spec.parameters: the check is inactive"
        elif reference.name not in known:
            yield f"AdmissionCheck {name}", f"Budget {reference.name} does not exist: the check is inactive"


# --- Reading ----------------------------------------------------------------------------------------------------------


def _requester(workload: kueue.Workload) -> str:
    """Kind and name of the job of a Workload; without one, of the Workload."""
    owner = workload_owners.job_of(workload)
    kind, name = (owner.kind, owner.name) if owner is not None else ("Workload", workload.metadata.name)
    return f"{kind} {workload.metadata.namespace}/{name}"


def _place(
    thing: kueue.ClusterQueue | kueue.Cohort | kueue.ResourceFlavor | kueue.AdmissionCheck | QuotaSchedule,
) -> str:
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
    """The taints as tolerations: pods that get the flavor tolerate them."""
    return [kube.Toleration(key=t.key, operator="Equal", value=t.value, effect=t.effect) for t in taints]


class LintRule(msgspec.Struct, frozen=True):
    look: Callable[[LintInput], RuleFindings]
    severity: Severity = Severity.SURPRISE


# --- QuotaSchedules ---------------------------------------------------------------------------------------------------


def _schedules(given: LintInput) -> Iterator[QuotaSchedule]:
    return (each for each in given.case.extensions if isinstance(each, QuotaSchedule))


def _schedule_calendar(given: LintInput) -> RuleFindings:
    """Schedules of a server that cannot be read, such as one with a time zone that this machine does not have. The
    manager does not apply them."""
    for schedule in _schedules(given):
        try:
            calendars.scheduled_windows(schedule, 0)
        except CalendarError as error:
            yield _place(schedule), f"has no effect: {error}"


def _schedule_target(given: LintInput) -> RuleFindings:
    """Targets that do not exist, or do not declare what a schedule names: they have no effect [QS3]."""
    owners = _declared_by(given.owners)
    for schedule in _schedules(given):
        for sentence in _without_effect(schedule, owners):
            yield _place(schedule), sentence


def _schedule_sum(given: LintInput) -> RuleFindings:
    """Schedules that lower a quota here and raise it there by another amount [QS8]."""
    owners = _declared_by(given.owners)
    for schedule in _schedules(given):
        for sentence in _unequal_sums(schedule, owners):
            yield _place(schedule), sentence


def schedule_warnings(schedule: QuotaSchedule, owners: Iterable[kueue.ClusterQueue | kueue.Cohort]) -> list[str]:
    """What is reported of a schedule and the objects that it names: targets without an effect, and unequal sums."""
    declared = _declared_by(owners)
    return [*_without_effect(schedule, declared), *_unequal_sums(schedule, declared)]


_DeclaredQuota: TypeAlias = Mapping[str, Mapping[tuple[str, str], Amount]]


def _declared_by(owners: Iterable[kueue.ClusterQueue | kueue.Cohort]) -> _DeclaredQuota:
    return {_place(thing): dict(_declared(thing)) for thing in owners}


def _without_effect(schedule: QuotaSchedule, owners: _DeclaredQuota) -> Iterator[str]:
    for place, flavor, resource, _ in _scheduled(schedule):
        if place not in owners:
            yield f"{place} does not exist"
        elif (flavor, resource) not in owners[place]:
            yield f"{place} declares no {resource} in flavor {flavor}"


def _unequal_sums(schedule: QuotaSchedule, owners: _DeclaredQuota) -> Iterator[str]:
    moved: dict[tuple[str, str], list[Amount]] = defaultdict(list)
    for place, flavor, resource, entry in _scheduled(schedule):
        if (flavor, resource) not in owners.get(place, {}):
            continue  # without an effect, and reported as such
        before = owners[place][flavor, resource]
        if entry.nominal_quota is not None:
            moved[flavor, resource].append(amounts.subtract(_amount(resource, entry.nominal_quota), before))
        elif entry.change is not None:
            # A quota does not fall below 0, so no more is taken than there is.
            moved[flavor, resource].append(max(_amount(resource, entry.change), -before))
    for (flavor, resource), parts in sorted(moved.items()):
        down, up = -sum(part for part in parts if part < 0), sum(part for part in parts if part > 0)
        if down and up and down != up:
            texts = (amounts.text(resource, part) for part in (down, up))
            yield "takes {} {resource} of {flavor} and gives {}".format(*texts, resource=resource, flavor=flavor)


def _schedule_notice(given: LintInput) -> RuleFindings:
    for schedule in _schedules(given):
        if schedule.spec.notice and schedule.spec.on_start != ScheduleOnStart.EVICT:
            yield _place(schedule), "notice has no effect without onStart: Evict"


def _backfill_topology(given: LintInput) -> RuleFindings:
    """ClusterQueues with planned backfill and a flavor with a topology: nodes are not planned [BF11]."""
    for name, queue in given.queues.items():
        if backfill.MODE not in queue.metadata.annotations:
            continue
        placed = sorted(
            {flavor for flavor, _ in _quotas(queue.spec.resource_groups) if _has_topology(given.flavors.get(flavor))}
        )
        if placed:
            what = f"planned starts consider quota and not the nodes of flavor {', '.join(placed)}"
            yield f"ClusterQueue {name}", f"{what}: they are expected, not certain"


def _has_topology(flavor: kueue.ResourceFlavor | None) -> bool:
    return flavor is not None and bool(flavor.spec.topology_name)


def _scheduled(schedule: QuotaSchedule) -> Iterator[tuple[str, str, str, ScheduledResource]]:
    """The object, flavor and resource of every entry."""
    for target in schedule.spec.targets:
        place = f"Cohort {target.cohort}" if target.cohort is not None else f"ClusterQueue {target.cluster_queue}"
        for flavor in target.flavors:
            for resource in flavor.resources:
                yield place, flavor.name, resource.name, resource


def _declared(thing: kueue.ClusterQueue | kueue.Cohort) -> Iterator[tuple[tuple[str, str], Amount]]:
    for flavor, quota in _quotas(thing.spec.resource_groups):
        yield (flavor, quota.name), _amount(quota.name, quota.nominal_quota)


RULES: Final[Mapping[str, LintRule]] = {
    "missing-flavor": LintRule(_missing_flavor, Severity.NEVER),
    "missing-check": LintRule(_missing_check, Severity.NEVER),
    "missing-budget": LintRule(_missing_budget, Severity.NEVER),
    "missing-topology": LintRule(_missing_topology, Severity.NEVER),
    "missing-cluster-queue": LintRule(_missing_cluster_queue, Severity.NEVER),
    "unselected-namespace": LintRule(_unselected, Severity.NEVER),
    "no-namespace-selector": LintRule(_no_namespace_selector, Severity.NEVER),
    "cohort-cycle": LintRule(_cohort_cycle, Severity.NEVER),
    "refused": LintRule(_refused, Severity.NEVER),
    "unknown-field": LintRule(_unknown_field, Severity.NEVER),
    "unknown-queue": LintRule(_unknown_queue, Severity.NEVER),
    "no-quota": LintRule(_no_quota, Severity.NEVER),
    "exceeds-capacity": LintRule(_exceeds_capacity, Severity.NEVER),
    "undeclared-resource": LintRule(_undeclared_resource, Severity.NEVER),
    "blocked-strict-fifo": LintRule(_blocked_strict_fifo, Severity.NEVER),
    "no-controller": LintRule(_no_controller, Severity.NEVER),
    "schedule-calendar": LintRule(_schedule_calendar, Severity.NEVER),
    "schedule-target": LintRule(_schedule_target, Severity.NEVER),
    "beyond-nodes": LintRule(_beyond_nodes),
    "backfill-topology": LintRule(_backfill_topology),
    "schedule-notice": LintRule(_schedule_notice),
    "schedule-sum": LintRule(_schedule_sum),
    "tainted-nodes": LintRule(_tainted_nodes),
    "units": LintRule(_units),
    "out-of-proportion": LintRule(_out_of_proportion),
    "selects-no-namespace": LintRule(_selects_no_namespace),
    "no-local-queue": LintRule(_no_local_queue),
    "unused-flavor": LintRule(_unused_flavor),
    "shadowed-flavor": LintRule(_shadowed),
    "ineffective-preemption": LintRule(_ineffective_preemption),
    "ineffective-weight": LintRule(_ineffective_weight),
    "alone-in-cohort": LintRule(_alone),
    "no-lending": LintRule(_no_lending),
    "excluded-quota": LintRule(_excluded_and_declared),
    "no-effect": LintRule(_no_effect),
    "unread-configuration": LintRule(_unread_configuration),
}
