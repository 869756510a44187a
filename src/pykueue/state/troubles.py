"""The troubles of Workloads as one list: preemption loops, thrashing, starvation.

EvictionLoop   Workloads preempt each other in turns, and nothing else changes [LG2], [LG3]
Thrashing      a Workload is preempted again and again and hardly runs [LG4]
Starving       a Workload waits for long, and others behind it start [LG7]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from kubemachinery.meta import SECOND, Nanoseconds, format_time
from pykueue.api import backfill
from pykueue.core.workload import WorkloadInfo
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.thrashing import Thrashing
from pykueue.state.world import World

STARVING_AFTER: Final = 24 * 3600 * SECOND
# How many later Workloads have to start before a Workload that waits counts as starving.
PASSED_MIN: Final = 10
# A Workload that was forecast to wait for long starves only after so many times the wait until its first P90.
FORECAST_TIMES: Final = 3
# The Workloads without a time limit that a message names.
_NAMED_MAX: Final = 3


class TroubleType(StrEnum):
    EVICTION_LOOP = "EvictionLoop"
    THRASHING = "Thrashing"
    STARVING = "Starving"


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one Workload, since when, and a sentence about it."""

    type: TroubleType
    workload: str
    cluster_queue: str
    since: Nanoseconds
    message: str


class StarvationRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a Workload starves, and what is known about other Workloads."""

    after: Nanoseconds = STARVING_AFTER
    has_limit: Callable[[str], bool] = lambda key: False  # whether a time limit of a Workload is enforced
    has_planned_start: Callable[[str], bool] = lambda key: False
    first_p90: Callable[[str], Nanoseconds | None] = lambda key: None  # of a forecast made before `after`


def long_wait(after: Nanoseconds, queued: Nanoseconds, first_p90: Nanoseconds | None) -> Nanoseconds:
    """Return after how long a wait is too long: `after`, or three times the wait that the first forecast named as its
    P90, whichever is longer."""
    return after if first_p90 is None else max(after, FORECAST_TIMES * (first_p90 - queued))


def in_loops(world: World) -> Iterator[Trouble]:
    """Yield a trouble for each Workload in a preemption loop that goes on."""
    for loop in world.loops():
        yield from in_loop(world, loop)


def in_loop(world: World, loop: PreemptionLoop) -> Iterator[Trouble]:
    """Yield a trouble for each member of a preemption loop."""
    for member in loop.members:
        held, pending = world.reservations.get(member), world.pending_workload(member)
        if held is None and pending is None:
            continue  # a pod that another one has replaced
        queue = held.cluster_queue if held is not None else pending.cluster_queue if pending is not None else ""
        yield Trouble(
            type=TroubleType.EVICTION_LOOP,
            workload=member,
            cluster_queue=queue,
            since=loop.since,
            message=loop_message(loop),
        )


def loop_message(loop: PreemptionLoop) -> str:
    """Return which Workload preempts which, and how often since when: the trouble may have begun earlier, before an
    outside change or a restart of the manager, after which rounds are counted again."""
    counted = f"{loop.rounds} rounds since {format_time(loop.since)} without any other change"
    return f"{loop.title()}: {loop.sentence()}; {counted}"


def thrashing(world: World, now: Nanoseconds) -> Iterator[Trouble]:
    """Yield a trouble for each Workload that is preempted again and again, unless a loop explains it."""
    for each in world.thrashing(now):
        if world.loop_of(each.workload) is not None:
            continue
        yield Trouble(
            type=TroubleType.THRASHING,
            workload=each.workload,
            cluster_queue=each.cluster_queue,
            since=each.since,
            message=thrashing_message(each),
        )


def thrashing_message(found: Thrashing) -> str:
    seconds, ran = (found.until - found.since) // SECOND, found.ran // SECOND
    return f"preempted {found.preemptions} times in {seconds} seconds, of which it ran for {ran}"


def within(message: str, namespace: str) -> str:
    """Return a message with the Workloads of other namespaces as `another Workload`."""
    words = (
        "another Workload" + word[len(word.rstrip(";,:")) :]
        if "/" in word and not word.startswith((f"{namespace}/", "pykueue.io/"))
        else word
        for word in message.split(" ")
    )
    return " ".join(words)


# --- Starvation [LG7] -------------------------------------------------------------------------------------------------


def starving(world: World, name: str, now: Nanoseconds, rules: StarvationRules) -> Iterator[Trouble]:
    """Yield a trouble for each Workload of a ClusterQueue that waits for too long and was passed by others."""
    starved = list(_starved(world, name, now, rules))
    help_ = _what_would_help(world, name, rules) if starved else ""
    for workload in starved:
        hours = (now - workload.queue_time) // (3600 * SECOND)
        passed = world.passed_by(workload)
        p90 = rules.first_p90(workload.key)
        expected = "" if p90 is None else f" instead of at most {_hours_up(p90 - workload.queue_time)} as forecast"
        yield Trouble(
            type=TroubleType.STARVING,
            workload=workload.key,
            cluster_queue=name,
            since=workload.queue_time,
            message=(
                f"waits for {hours} hours{expected}; {passed:,} Workloads behind it in ClusterQueue {name} have "
                f"started; {help_}"
            ),
        )


def _hours_up(wait: Nanoseconds) -> int:
    """A wait in whole hours, rounded up."""
    return max(1, -(-wait // (3600 * SECOND)))


def starving_count(world: World, name: str, now: Nanoseconds, rules: StarvationRules) -> int:
    """Return how many Workloads of a ClusterQueue starve."""
    return sum(1 for _ in _starved(world, name, now, rules))


def oldest_pending_seconds(world: World, name: str, now: Nanoseconds) -> float:
    """Return how long the oldest pending Workload of a ClusterQueue waits; 0 without one."""
    oldest = min((workload.queue_time for workload in _pending(world, name)), default=now)
    return max(0, now - oldest) / SECOND


def _pending(world: World, name: str) -> Iterator[WorkloadInfo]:
    queue = world.queues.get(name)
    if queue is not None:
        yield from queue.active()
        yield from queue.in_flight.values()
        yield from queue.parked()


def _starved(world: World, name: str, now: Nanoseconds, rules: StarvationRules) -> Iterator[WorkloadInfo]:
    return (workload for workload in _pending(world, name) if _starves(world, workload, now, rules))


def _starves(world: World, workload: WorkloadInfo, now: Nanoseconds, rules: StarvationRules) -> bool:
    waited = now - workload.queue_time
    return (
        waited > rules.after  # the usual answer, without a look at forecasts
        and waited > long_wait(rules.after, workload.queue_time, rules.first_p90(workload.key))
        and world.passed_by(workload) >= PASSED_MIN
        and not rules.has_planned_start(workload.key)
    )


def _what_would_help(world: World, cluster_queue: str, rules: StarvationRules) -> str:
    tree = sorted({cluster_queue, *world.tree_queues(cluster_queue)})
    unlimited = sorted(
        held.key for name in tree for held in world.reservations_in(name) if not rules.has_limit(held.key)
    )
    if unlimited:
        more = f" and {len(unlimited) - _NAMED_MAX:,} more" if len(unlimited) > _NAMED_MAX else ""
        return f"no time limit is known for {', '.join(unlimited[:_NAMED_MAX])}{more}"
    queue = world.cluster_queues.get(cluster_queue)
    annotated = queue is None or backfill.MODE in queue.metadata.annotations
    lacking = [] if annotated else [f"annotation {backfill.MODE} on ClusterQueue {cluster_queue}"]
    if not world.policy.planned_backfill:
        lacking.append("the gate PlannedBackfill, which is off,")
    if lacking:
        return f"{' and '.join(lacking)} would plan its start"
    return f"more quota in ClusterQueue {cluster_queue} would admit it"
