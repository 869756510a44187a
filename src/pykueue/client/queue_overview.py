"""The tree of cohorts and queues, with quota, usage and pending Workloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from kubemachinery import conditions, quantity
from kubemachinery.quantity import Quantity
from pykueue.api import kueue
from pykueue.api.quota_schedule import QuotaSchedule

_NO_QUOTAS: Final[Mapping[tuple[str, str, str], Quantity]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a flavor's resource in one queue."""

    flavor: str
    resource: str
    used: Quantity
    borrowed: Quantity
    nominal: Quantity

    @property
    def share(self) -> float:
        """Usage divided by nominal quota; above 1 the queue borrows. 0 without quota and usage."""
        if self.nominal.sign > 0:
            return self.used.milli_value() / self.nominal.milli_value()
        return 2.0 if self.used.sign > 0 else 0.0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A cohort or a queue, with its depth in the tree."""

    depth: int
    name: str
    is_cohort: bool
    pending: int = 0
    admitted: int = 0
    is_active: bool = True
    usages: tuple[Usage, ...] = ()


EffectiveQuotas: TypeAlias = Mapping[tuple[str, str, str], Quantity]
"""Nominal quotas that windows of QuotaSchedules give now, by ClusterQueue, flavor and resource."""


def effective_quotas(schedules: Iterable[QuotaSchedule]) -> dict[tuple[str, str, str], Quantity]:
    """The quotas in the status of QuotaSchedules with a window in force [QS2]."""
    return {
        (entry.cluster_queue, entry.flavor, entry.resource): quantity.parse(entry.nominal_quota)
        for schedule in schedules
        if schedule.status.active
        for entry in schedule.status.effective_quotas
        if entry.cluster_queue is not None
    }


def lines(
    queues: Iterable[kueue.ClusterQueue], cohorts: Iterable[kueue.Cohort], effective: EffectiveQuotas = _NO_QUOTAS
) -> list[QueueRow]:
    """The tree from the top down, by name; queues without a cohort last."""
    members: dict[str, list[kueue.ClusterQueue]] = {}
    for queue in sorted(queues, key=lambda queue: queue.metadata.name):
        members.setdefault(queue.spec.cohort_name or "", []).append(queue)
    parents = {cohort.metadata.name: cohort.spec.parent_name or "" for cohort in cohorts}
    for name in members:
        if name:
            parents.setdefault(name, "")
    for parent in list(parents.values()):
        if parent:
            parents.setdefault(parent, "")
    children: dict[str, list[str]] = {}
    for name, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(name)
    shown: set[str] = set()

    def below(cohort: str, depth: int) -> Iterator[QueueRow]:
        if cohort in shown:
            return
        shown.add(cohort)
        found = [*(_line(queue, depth + 1, effective) for queue in members.get(cohort, ()))]
        for child in children.get(cohort, ()):
            found += below(child, depth + 1)
        own = [line for line in found if not line.is_cohort]
        yield QueueRow(depth, cohort, True, sum(line.pending for line in own), sum(line.admitted for line in own))
        yield from found

    lines = [line for root in children.get("", ()) for line in below(root, 0)]
    for name in parents:  # a cohort cycle has no root
        lines += below(name, 0)
    return [*lines, *(_line(queue, 0, effective) for queue in members.get("", ()))]


def _line(queue: kueue.ClusterQueue, depth: int, effective: EffectiveQuotas) -> QueueRow:
    status = queue.status
    return QueueRow(
        depth,
        queue.metadata.name,
        False,
        status.pending_workloads,
        status.admitted_workloads,
        conditions.is_true(status.conditions, "Active"),
        tuple(_usages(queue, effective)),
    )


def _usages(queue: kueue.ClusterQueue, effective: EffectiveQuotas) -> Iterator[Usage]:
    used: Mapping[tuple[str, str], kueue.ResourceUsage] = {
        (flavor.name, resource.name): resource
        for flavor in queue.status.flavors_reservation
        for resource in flavor.resources
    }
    nothing = kueue.ResourceUsage(name="")
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                found = used.get((flavor.name, quota.name), nothing)
                yield Usage(
                    flavor.name,
                    quota.name,
                    quantity.parse(found.total),
                    quantity.parse(found.borrowed),
                    effective.get((queue.metadata.name, flavor.name, quota.name), quantity.parse(quota.nominal_quota)),
                )
