"""ClusterQueues, Cohorts, LocalQueues and flavors, read from API objects into the values the scheduler works on.

Nothing here fails: what the API would have refused is read as if it were absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from kubemachinery import quantity
from kubemachinery.meta import Nanoseconds
from pykueue.api import backfill, kueue, labels
from pykueue.core import amounts
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import (
    CohortInfo,
    FlavorResource,
    FlavorSpec,
    Fungibility,
    PreemptionPolicies,
    QueueSpec,
    Quota,
    ResourceGroupInfo,
)
from pykueue.lifecycle import queues
from pykueue.lifecycle.queues import References
from pykueue.state.workload_info import time_of

E = TypeVar("E", bound=StrEnum)


def flavor_spec(flavor: kueue.ResourceFlavor) -> FlavorSpec:
    spec = flavor.spec
    return FlavorSpec(
        name=flavor.metadata.name,
        node_labels=spec.node_labels,
        taints=spec.node_taints,
        tolerations=spec.tolerations,
        topology=spec.topology_name or None,
    )


def cohort_spec(cohort: kueue.Cohort) -> CohortInfo:
    return CohortInfo(
        name=cohort.metadata.name,
        parent=cohort.spec.parent_name or "",
        quotas=quotas(cohort.spec.resource_groups),
        weight=weight(cohort.spec.fair_sharing),
    )


class QueueContext(msgspec.Struct, frozen=True):
    """What a ClusterQueue depends on."""

    policy: SchedulingPolicy
    references: References
    checks: Mapping[str, kueue.AdmissionCheck]


class ResolvedQueue(msgspec.Struct, frozen=True):
    """A ClusterQueue as the scheduler reads it, and whether it is inactive."""

    spec: QueueSpec
    is_blocked: bool = False


def queue_spec(cluster_queue: kueue.ClusterQueue, context: QueueContext) -> ResolvedQueue:
    """Return the spec, and whether the queue is inactive [QU7]; its status has the reason."""
    spec, references = cluster_queue.spec, context.references
    groups = tuple(
        ResourceGroupInfo(frozenset(group.covered_resources), tuple(flavor.name for flavor in group.flavors))
        for group in spec.resource_groups
    )
    flavors = frozenset(flavor for group in groups for flavor in group.flavors)
    checks = _checks(spec.admission_checks_strategy, flavors)
    known = {name: references.checks[name] for name in checks if name in references.checks}
    provisioning = [name for name, check in known.items() if check.controller == labels.PROVISIONING_CONTROLLER]
    topologies = {name: topology for name in flavors if (topology := references.flavors.get(name))}
    later = kueue.CheckPreemptionPolicy.AFTER_CHECK_PASSED_OR_ON_DEMAND
    is_blocked = bool(queues.blockers(cluster_queue, references))
    scope = spec.admission_scope
    concurrent = spec.concurrent_admission_policy
    constraints = concurrent.migration.constraints if concurrent is not None else None
    return ResolvedQueue(
        spec=QueueSpec(
            name=cluster_queue.metadata.name,
            cohort=spec.cohort_name or "",
            groups=groups,
            quotas=quotas(spec.resource_groups),
            strategy=_enum(kueue.QueueingStrategy, spec.queueing_strategy, kueue.QueueingStrategy.BEST_EFFORT_FIFO),
            preemption=_preemption(spec.preemption),
            fungibility=_fungibility(spec.flavor_fungibility),
            weight=weight(spec.fair_sharing),
            checks=checks,
            deferring_checks=frozenset(name for name in known if context.checks[name].spec.preemption_policy == later),
            provisioned_flavors=frozenset(flavor for name in provisioning for flavor in checks[name]),
            is_multikueue=any(check.controller == labels.MULTIKUEUE_CONTROLLER for check in known.values()),
            is_usage_based=context.policy.usage_history is not None
            and scope is not None
            and scope.admission_mode == kueue.AdmissionMode.USAGE_BASED,
            is_topology_only=context.policy.topology and flavors <= topologies.keys(),
            has_variants=concurrent is not None,
            last_acceptable_flavor=constraints.last_acceptable_flavor_name if constraints is not None else None,
            backfill=backfill.settings(cluster_queue.metadata.annotations) if context.policy.planned_backfill else None,
            listed=not is_blocked and references.topologies.issuperset(topologies.values()),
        ),
        is_blocked=is_blocked,
    )


def quotas(groups: Iterable[kueue.ResourceGroup]) -> dict[FlavorResource, Quota]:
    return {
        FlavorResource(flavor.name, resource.name): Quota(
            _quota(resource.name, resource.nominal_quota, 0),
            _quota(resource.name, resource.borrowing_limit, amounts.UNLIMITED),
            _quota(resource.name, resource.lending_limit, amounts.UNLIMITED),
        )
        for group in groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


@lru_cache(maxsize=4096)
def _quota(resource: str, text: quantity.QuantityText | None, absent: int) -> int:
    read = _quantity(text)
    return absent if read is None else amounts.of_quota(resource, read)


def _quantity(text: quantity.QuantityText | None) -> quantity.Quantity | None:
    """Return a quantity; None if it is invalid, so that one invalid object does not stop the others."""
    try:
        return None if text is None else quantity.parse(text)
    except quantity.QuantityError:
        return None


def weight(fair_sharing: kueue.FairSharing | None) -> float:
    read = _quantity(fair_sharing.weight) if fair_sharing is not None else None
    return 1.0 if read is None else read.rounded(-9) / 10**9


class PastUsage(NamedTuple):
    """The usage that the status of a LocalQueue records."""

    consumed: Mapping[str, quantity.Quantity]
    at: Nanoseconds


def past_usage(local_queue: kueue.LocalQueue) -> PastUsage | None:
    status = local_queue.status.fair_sharing
    usage = status.admission_fair_sharing_status if status is not None else None
    if usage is None:
        return None
    read = {name: _quantity(amount) for name, amount in usage.consumed_resources.items()}
    consumed = {name: amount for name, amount in read.items() if amount is not None}
    return PastUsage(consumed, time_of(usage.last_update))


def _preemption(preemption: kueue.ClusterQueuePreemption | None) -> PreemptionPolicies:
    if preemption is None:
        return PreemptionPolicies()
    never, borrow = kueue.PreemptionPolicy.NEVER, preemption.borrow_within_cohort
    return PreemptionPolicies(
        within_cluster_queue=_enum(kueue.PreemptionPolicy, preemption.within_cluster_queue, never),
        reclaim_within_cohort=_enum(kueue.PreemptionPolicy, preemption.reclaim_within_cohort, never),
        borrow_within_cohort=borrow is not None and (borrow.policy or never) != never,
        max_priority_threshold=borrow.max_priority_threshold if borrow is not None else None,
    )


def _fungibility(fungibility: kueue.FlavorFungibility | None) -> Fungibility:
    if fungibility is None:
        return Fungibility()
    policy, preference = kueue.FlavorFungibilityPolicy, kueue.FlavorFungibilityPreference
    return Fungibility(
        stop_at_borrowing=(fungibility.when_can_borrow or policy.MAY_STOP_SEARCH) != policy.TRY_NEXT_FLAVOR,
        stop_at_preempting=(fungibility.when_can_preempt or policy.TRY_NEXT_FLAVOR) != policy.TRY_NEXT_FLAVOR,
        preference=_enum(preference, fungibility.preference, preference.BORROWING_OVER_PREEMPTION),
    )


def _checks(strategy: kueue.AdmissionChecksStrategy | None, flavors: frozenset[str]) -> dict[str, frozenset[str]]:
    if strategy is None:
        return {}
    return {rule.name: frozenset(rule.on_flavors) or flavors for rule in strategy.admission_checks}


def _enum(kind: type[E], text: str | None, absent: E) -> E:
    if text is None:
        return absent
    try:
        return kind(text)
    except ValueError:
        return absent
