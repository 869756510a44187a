"""Whether a reservation is still valid: checked when its last admission check turns Ready, and when deferred
preemptions are due (KEP-993).

Time has passed since quota was reserved. Quota may have been lowered, a flavor changed or removed, priorities,
preemption policies and cohorts changed. So everything is computed from the facts of this moment: the flavors that were
assigned, the quota they need, the placement on the nodes, and the preemption targets. Targets that were assumed at the
time of the reservation have no privilege: they are evicted only if the search for targets finds them again.

The result is one of three: it holds, it holds once these targets have ended, or it is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.core import eligibility, preemption, quota
from pykueue.core.decision import TargetWorkload
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import PreemptionTarget, TargetSearch
from pykueue.core.queue import FlavorResource, UsageByNumber
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import Reservation, WorkloadInfo, WorkloadShape


class Holds(msgspec.Struct, frozen=True):
    """The reservation fits as things are."""


class HoldsAfter(msgspec.Struct, frozen=True):
    """The reservation fits once these targets have ended. Those that are being evicted already are not evicted
    again."""

    targets: tuple[TargetWorkload, ...]


class Lost(msgspec.Struct, frozen=True):
    """The reservation does not fit: the Workload is requeued."""

    why: str


def recheck(
    snapshot: Snapshot,
    queue: Queue | None,
    reservation: Reservation,
    policy: SchedulingPolicy,
    now: Nanoseconds,
    leaving: Iterable[PreemptionTarget] = (),
    preemptors: Iterable[tuple[Queue, Mapping[FlavorResource, int]]] = (),
) -> Holds | HoldsAfter | Lost:
    """Evaluate the reservation as if its Workload requested the same flavors and amounts now.

    `leaving` are targets of earlier checks whose eviction is under way. It can no longer be undone, so their usage
    counts as free, whether or not they would be legal targets now. `preemptors` wait for the end of this reservation:
    their ClusterQueues, and the part of its usage that counts as theirs meanwhile. It is evaluated with its whole
    usage, in place of that part. A reservation in an inactive ClusterQueue holds as long as it fits; nothing is
    preempted for it.
    """
    if queue is None:
        return Lost(f"ClusterQueue {reservation.cluster_queue} no longer exists")
    missing = _unusable_flavor(snapshot, queue, reservation, policy)
    if missing:
        return Lost(missing)
    leaving = tuple(leaving)
    usage = _numbered(queue, reservation.usage)
    mark = snapshot.mark()
    snapshot.withdraw(queue, reservation.usage_by_number, reservation.placed)
    for waiting, hidden in preemptors:
        snapshot.withdraw(waiting, _numbered(waiting, hidden.items()).items())
    try:
        if _fits(snapshot, queue, reservation, usage):
            return Holds()
        for target in leaving:
            snapshot.remove(target.reservation)
        if _fits(snapshot, queue, reservation, usage):
            return HoldsAfter(_target_workloads(leaving))
        targets: list[PreemptionTarget] = []
        if queue.name in snapshot.queues:
            # Neither the reservation itself nor a Workload that is being evicted already can be a new target.
            with snapshot.treating_as_ended((reservation.key, *(target.reservation.key for target in leaving))):
                targets = preemption.find(_search(snapshot, queue, reservation, usage, policy, now))
        if targets:
            return HoldsAfter(_target_workloads((*leaving, *targets)))
        return Lost(_shortage(queue, usage))
    finally:
        snapshot.undo(mark)


def _unusable_flavor(snapshot: Snapshot, queue: Queue, reservation: Reservation, policy: SchedulingPolicy) -> str:
    """Why the Workload could not get one of its flavors now; empty where it could."""
    shape = {pod_set.name: pod_set for pod_set in reservation.shape.pod_sets} if reservation.shape is not None else {}
    for assigned in reservation.pod_sets:
        for resource, flavor in sorted(assigned.flavors.items()):
            group = queue.group_of.get(resource)
            if flavor not in snapshot.flavors:
                return f"ResourceFlavor {flavor} no longer exists"
            if group is None or flavor not in group.flavors:
                return f"ClusterQueue {queue.name} no longer has quota for {resource} in flavor {flavor}"
            pod_set = shape.get(assigned.name)
            if pod_set is not None:
                obstacle = eligibility.obstacle(snapshot, policy, queue, flavor, group, (pod_set,))
                if obstacle is not None:
                    return f"flavor {flavor} is no longer eligible for pod set {assigned.name}: {obstacle.detail}"
    return ""


def _numbered(queue: Queue, usage: Iterable[tuple[FlavorResource, int]]) -> UsageByNumber:
    return {queue.node.tree.number(*pair): amount for pair, amount in usage}


def _fits(snapshot: Snapshot, queue: Queue, reservation: Reservation, usage: UsageByNumber) -> bool:
    return not _short(queue, usage) and (not reservation.placed or snapshot.topology_cache.fits(reservation.placed))


def _short(queue: Queue, usage: UsageByNumber) -> frozenset[int]:
    return frozenset(n for n, amount in usage.items() if amount > quota.available(queue.node, n))


def _search(
    snapshot: Snapshot,
    queue: Queue,
    reservation: Reservation,
    usage: UsageByNumber,
    policy: SchedulingPolicy,
    now: Nanoseconds,
) -> TargetSearch:
    """The search for targets that a cycle would run for the same amounts and the same placement."""
    preemptor = WorkloadInfo(
        reservation.key,
        reservation.uid,
        WorkloadShape(()),
        cluster_queue=queue.name,
        priority=reservation.priority,
        queue_time=reservation.queue_time,
    )
    # Where only the nodes are full, everything that the Workload uses is contested.
    contested = _short(queue, usage) or reservation.used_numbers
    return TargetSearch(
        snapshot,
        policy,
        now,
        preemptor,
        queue,
        contested=contested,
        requests=usage,
        placed=reservation.placed,
    )


def _target_workloads(targets: Iterable[PreemptionTarget]) -> tuple[TargetWorkload, ...]:
    return tuple(
        TargetWorkload(
            target.reservation.key, target.reservation.cluster_queue, target.reason, target.reservation.evicted
        )
        for target in targets
        if target.reason is not None
    )


def _shortage(queue: Queue, usage: UsageByNumber) -> str:
    short = _short(queue, usage)
    if not short:
        return "the capacity of its placement is in use"
    pairs = ", ".join(
        f"{pair.resource} in flavor {pair.flavor}" for pair in (queue.node.tree.pairs[n] for n in sorted(short))
    )
    return f"insufficient unused quota for {pairs}"
