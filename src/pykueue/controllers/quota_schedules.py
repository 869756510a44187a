"""QuotaSchedules: gives their windows to the scheduler's state, evicts where they withdraw quota, writes their status.

The windows are set when a schedule is read or changed, before anything else is decided, and again once a day. The state
applies them at their instants by itself; this controller only acts at the edges (rules QS).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kubemachinery import codec, conditions
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from pykueue import calendars
from pykueue.api import quota_schedule, registry
from pykueue.api.conditions import QuotaScheduleCondition, QuotaScheduleReadyReason
from pykueue.api.quota_schedule import (
    STATUS_ENTRIES_MAX,
    EffectiveQuota,
    NextWindow,
    OvercommittedQuota,
    QuotaSchedule,
    QuotaScheduleStatus,
)
from pykueue.calendars import CalendarError
from pykueue.controllers.informers import Informers
from pykueue.controllers.scheduler import Scheduler
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.controllers.world_feed import key_of
from pykueue.core import amounts, quota
from pykueue.core.amounts import Amount
from pykueue.core.queue import FlavorResource, Quota
from pykueue.lifecycle.workload_changes import EmitEvent, EventType
from pykueue.observe.events import SCHEDULER
from pykueue.state import quota_windows
from pykueue.state.quota_windows import QuotaOwner, ScheduledWindows, WindowQuota
from pykueue.state.quota_withdrawal import Withdrawal
from pykueue.state.world import World

log = logging.getLogger(__name__)

_SCHEDULE: Final = registry.EXTENSIONS.of(quota_schedule.QuotaSchedule)
_EVERY: Final = ""  # the one key: windows of all schedules have edges together
_SHORTEST_PAUSE_SECONDS: Final = 0.01
_NOTICED_MAX: Final = 10_000

T = TypeVar("T")


class QuotaScheduleController:
    """Expands schedules to instants, and carries out what their windows begin with."""

    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        scheduler: Scheduler,
        writer: WorkloadWriter,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._informers = informers
        self._scheduler = scheduler
        self._writer = writer
        self._clock = clock
        # An installation that was not upgraded has no CRD.
        self.informer: Informer[QuotaSchedule] = Informer(
            client, _SCHEDULE, ObjectDecoder(QuotaSchedule, counts_generations=True), rng, may_be_absent=True
        )
        self._edges: Controller[str] = Controller("quota-schedules", self._reconcile, rng)
        # By schedule: a status that the API server refuses delays no other one, and no eviction.
        self._statuses: Controller[str] = Controller("quota-schedule-status", self._write_status, rng)
        self._expanded: dict[str, ScheduledWindows] = {}
        self._invalid: dict[str, str] = {}
        self._expanded_at: Nanoseconds = 0
        self._noticed: set[tuple[str, str, Nanoseconds, str]] = set()
        self.informer.add_handler(self._schedule_changed)
        informers.cluster_queues.add_handler(self._owner_changed)
        informers.cohorts.add_handler(self._owner_changed)

    @property
    def loops(self) -> tuple[Controller[str], ...]:
        return self._edges, self._statuses

    # --- Windows ------------------------------------------------------------------------------------------------------

    def _schedule_changed(self, event: InformerEvent[QuotaSchedule]) -> None:
        """Apply a schedule at once: the first ones are read before the first decision."""
        old, new = event.old, event.new
        if new is not None and old is not None and new.spec == old.spec:
            return
        if new is not None:
            self._expand(new, self._clock.now())
        else:
            self._expanded.pop(event.key.name, None)
            self._invalid.pop(event.key.name, None)
        self._scheduler.set_windows(self._expanded.values())
        self._edges.add(_EVERY)

    def _expand(self, schedule: QuotaSchedule, now: Nanoseconds) -> None:
        name = schedule.metadata.name
        self._expanded.pop(name, None)
        self._invalid.pop(name, None)
        try:
            self._expanded[name] = calendars.scheduled_windows(schedule, now)
        except CalendarError as error:
            # The webhook did not see it. It has no effect, and its status has the reason.
            self._invalid[name] = str(error)

    def _owner_changed(self, event: InformerEvent[Any]) -> None:
        """A ClusterQueue or a Cohort may have gained or lost a flavor that a schedule names. While a status lists usage
        above a quota, it follows the usage as well: that of its ClusterQueue, and of those that it borrows from."""
        old, new = event.old, event.new
        if new is None or old is None or new.spec != old.spec or (new.status != old.status and self._is_overcommitted):
            self._edges.add(_EVERY)

    @property
    def _is_overcommitted(self) -> bool:
        return any(schedule.status.overcommitted for schedule in self.informer.values())

    # --- Edges --------------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> float | None:
        now = self._clock.now()
        if now >= self._expanded_at + calendars.REFRESH or now < self._expanded_at:
            self._expanded_at = now
            for schedule in self.informer.values():
                self._expand(schedule, now)
            self._scheduler.set_windows(self._expanded.values())
        world = self._scheduler.world
        world.settle(now)
        for withdrawal in world.withdrawals(now):
            self._scheduler.withdraw(withdrawal, _withdrawn(withdrawal))
        self._give_notice(world, now)
        for schedule in sorted(self.informer.values(), key=lambda each: each.metadata.name):
            self._statuses.add(schedule.metadata.name)
        return self._pause_seconds(world, now)

    def _pause_seconds(self, world: World, now: Nanoseconds) -> float | None:
        """How long until the next edge, the next notice, or the next day."""
        if not self._expanded and not self._invalid:
            return None
        notices = (
            span.start - each.notice
            for each in self._expanded.values()
            if each.evicts and each.notice
            for span in each.spans
            if span.start - each.notice > now
        )
        due = min((*notices, self._expanded_at + calendars.REFRESH, world.windows.next_edge or quota_windows.FOREVER))
        return max(_SHORTEST_PAUSE_SECONDS, (due - now) / SECOND)

    def _give_notice(self, world: World, now: Nanoseconds) -> None:
        """Emit an Event on every Workload that will be evicted when a window begins, once each."""
        starts = {
            span.start
            for each in self._expanded.values()
            if each.evicts and each.notice
            for span in each.spans
            if now < span.start <= now + each.notice
        }
        for start in sorted(starts):
            for withdrawal in world.withdrawals(start):
                window = withdrawal.window
                seen = (window.schedule, window.window, start, withdrawal.workload)
                workload = self._writer.current(key_of(withdrawal.workload))
                if window.since != start or seen in self._noticed or workload is None:
                    continue
                if len(self._noticed) >= _NOTICED_MAX:
                    self._noticed.clear()
                self._noticed.add(seen)
                note = (
                    f"The Workload will be evicted at {format_time(start)}: window {window.window} of QuotaSchedule"
                    f" {window.schedule} lowers the quota of {withdrawal.pair.resource} in flavor"
                    f" {withdrawal.pair.flavor}"
                )
                self._writer.emit(workload, EmitEvent(EventType.WARNING, "QuotaWithdrawal", note), SCHEDULER)

    # --- Status -------------------------------------------------------------------------------------------------------

    async def _write_status(self, name: str) -> None:
        schedule = self.informer.get(name)
        if schedule is None:
            return
        world, now = self._scheduler.world, self._clock.now()
        world.settle(now)
        wanted = self._status(schedule, world, now)
        if wanted == schedule.status:
            return
        patch = {
            "metadata": {"resourceVersion": schedule.metadata.resource_version},
            "status": {"active": None, "next": None, "effectiveQuotas": None, "overcommitted": None}
            | codec.to_tree(wanted),
        }
        await self._client.patch_revision(_SCHEDULE, schedule.metadata.name, patch, subresource="status")

    def _status(self, schedule: QuotaSchedule, world: World, now: Nanoseconds) -> QuotaScheduleStatus:
        name, generation = schedule.metadata.name, schedule.metadata.generation
        expanded = self._expanded.get(name)
        ready, reason, message = self._ready(name, world, now)
        status = QuotaScheduleStatus(
            conditions=conditions.set_condition(
                schedule.status.conditions,
                QuotaScheduleCondition.READY,
                ConditionStatus.TRUE if ready else ConditionStatus.FALSE,
                reason,
                message,
                now=now,
                generation=generation,
            ),
            observed_generation=generation,
        )
        if expanded is None:
            return status
        coming = min((span for span in expanded.spans if span.start > now), key=lambda span: span.start, default=None)
        return replace(
            status,
            active=tuple(sorted({one.window for one in quota_windows.in_force((expanded,), now)})),
            next=NextWindow(coming.window, format_time(coming.start)) if coming is not None else None,
            effective_quotas=_first(effective_quotas(expanded, world)),
            overcommitted=_first(overcommitted(expanded, world)),
        )

    def _ready(self, name: str, world: World, now: Nanoseconds) -> tuple[bool, QuotaScheduleReadyReason, str]:
        if name in self._invalid:
            return False, QuotaScheduleReadyReason.INVALID, self._invalid[name]
        reasons = sorted(
            (problem for each in self._expanded[name].quotas if (problem := _problem(each, world)) is not None),
            key=lambda found: list(QuotaScheduleReadyReason).index(found[0]),
        )
        if reasons:
            return False, *reasons[0]
        for overlap in quota_windows.overlaps(self._expanded.values(), now):
            if name in (overlap.winner.schedule, overlap.loser.schedule):
                winner, loser = (f"{one.window} of {one.schedule}" for one in (overlap.winner, overlap.loser))
                message = (
                    f"Windows {winner} and {loser} both set {overlap.pair.resource} of {overlap.pair.flavor} in"
                    f" {_title(overlap.owner)}; {winner} counts"
                )
                return True, QuotaScheduleReadyReason.OVERLAPS, message
        return True, QuotaScheduleReadyReason.READY, "The schedule is applied"


def _first(entries: Iterable[T]) -> tuple[T, ...]:
    return tuple(entry for entry, _ in zip(entries, range(STATUS_ENTRIES_MAX), strict=False))


def _title(owner: QuotaOwner) -> str:
    return f"{'Cohort' if owner.is_cohort else 'ClusterQueue'} {owner.name}"


def _problem(given: WindowQuota, world: World) -> tuple[QuotaScheduleReadyReason, str] | None:
    """Why a target has no effect [QS3]."""
    quotas = world.spec_quotas(given.owner)
    if quotas is None:
        return QuotaScheduleReadyReason.UNKNOWN_TARGET, f"{_title(given.owner)} does not exist"
    if given.pair not in quotas:
        what = f"{given.resource} in flavor {given.flavor}"
        return QuotaScheduleReadyReason.UNKNOWN_FLAVOR, f"{_title(given.owner)} declares no {what}"
    return None


def _withdrawn(withdrawal: Withdrawal) -> str:
    window, pair = withdrawal.window, withdrawal.pair
    return (
        f"Evicted because window {window.window} of QuotaSchedule {window.schedule} lowered the quota of"
        f" {pair.resource} in flavor {pair.flavor}"
    )


def effective_quotas(expanded: ScheduledWindows, world: World) -> Iterator[EffectiveQuota]:
    """The quotas of the targets as they count now, with all schedules."""
    for each in expanded.quotas:
        found = (world.effective_quotas(each.owner) or {}).get(each.pair)
        if found is not None:
            yield _effective(each.owner, each.pair, found)


def _effective(owner: QuotaOwner, pair: FlavorResource, found: Quota) -> EffectiveQuota:
    borrowing, lending = (
        None if limit == amounts.UNLIMITED else _quantity(pair.resource, limit)
        for limit in (found.borrowing_limit, found.lending_limit)
    )
    return EffectiveQuota(
        cohort=owner.name if owner.is_cohort else None,
        cluster_queue=None if owner.is_cohort else owner.name,
        flavor=pair.flavor,
        resource=pair.resource,
        nominal_quota=_quantity(pair.resource, found.nominal),
        borrowing_limit=borrowing,
        lending_limit=lending,
    )


def overcommitted(expanded: ScheduledWindows, world: World) -> Iterator[OvercommittedQuota]:
    """The ClusterQueues among the targets that use more than they may."""
    for each in expanded.quotas:
        node = world.queue_node(each.name) if not each.is_cohort else None
        if node is None:
            continue
        number = node.tree.number(each.flavor, each.resource)
        used, left = node.usage[number], quota.balance(node, number)
        if used and left < 0:
            yield OvercommittedQuota(
                each.name,
                each.flavor,
                each.resource,
                _quantity(each.resource, used),
                _quantity(each.resource, max(0, amounts.add(used, left))),
            )


def _quantity(resource: str, amount: Amount) -> str:
    """The amount as a quantity of the API. An unlimited one is the highest number: it is unlimited when it is read."""
    return amounts.as_quantity(resource, amount).canonical
