"""Whether a reservation still holds: asked when the last admission check turns Ready (KEP-993).

Time has passed since quota was reserved: quota may have been lowered, a flavor taken away, and preemptions that were
put off may be due. The answer is one of three: it holds, it holds once these victims are gone, or it does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykueue.api.meta import Nanoseconds
from pykueue.core import preemption, quota
from pykueue.core.decision import Victim
from pykueue.core.policy import Policy
from pykueue.core.preemption import Search
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import Reservation, Shape, Workload


@dataclass(frozen=True, slots=True)
class Holds:
    """Nothing changed that matters."""


@dataclass(frozen=True, slots=True)
class HoldsAfter:
    """It holds once these are gone."""

    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """It does not hold: the Workload goes back to its queue."""

    why: str


def recheck(
    snapshot: Snapshot, queue: Queue | None, reservation: Reservation, policy: Policy, now: Nanoseconds
) -> Holds | HoldsAfter | Lost:
    """Look at the reservation as if its Workload asked its queue for the same flavors and amounts now.

    A queue that has become inactive gives nothing new, but what it has given holds.
    """
    if queue is None:
        return Lost(f"ClusterQueue {reservation.cluster_queue} does not exist any more")
    missing = _missing_flavor(snapshot, queue, reservation)
    if missing:
        return Lost(missing)
    if queue.name not in snapshot.queues:
        return Holds()
    mark, gone = snapshot.mark(), snapshot.gone
    snapshot.remove(reservation)
    snapshot.gone = gone | {reservation.key}
    try:
        return _judge(snapshot, queue, reservation, policy, now)
    finally:
        snapshot.gone = gone
        snapshot.undo(mark)


def _missing_flavor(snapshot: Snapshot, queue: Queue, reservation: Reservation) -> str:
    for assigned in reservation.pod_sets:
        for resource, flavor in sorted(assigned.flavors.items()):
            group = queue.group_of.get(resource)
            if flavor not in snapshot.flavors:
                return f"ResourceFlavor {flavor} does not exist any more"
            if group is None or flavor not in group.flavors:
                return f"ClusterQueue {queue.name} has no {resource} of flavor {flavor} any more"
    return ""


def _judge(
    snapshot: Snapshot, queue: Queue, reservation: Reservation, policy: Policy, now: Nanoseconds
) -> Holds | HoldsAfter | Lost:
    short = frozenset(n for n, amount in reservation.numbers if amount > quota.available(queue.node, n))
    if not short:
        if reservation.placed and not snapshot.fleet.fits(reservation.placed):
            return Lost("its place on the nodes is taken")
        return Holds()
    asking = Workload(
        reservation.key,
        reservation.uid,
        Shape(()),
        cluster_queue=queue.name,
        priority=reservation.priority,
        queue_time=reservation.queue_time,
    )
    targets = preemption.find(
        Search(snapshot, policy, now, asking, queue, contested=short, requests=dict(reservation.numbers))
    )
    if not targets:
        pairs = ", ".join(
            f"{pair.resource} of {pair.flavor}" for pair in (queue.node.tree.pairs[n] for n in sorted(short))
        )
        return Lost(f"the quota for {pairs} is gone")
    return HoldsAfter(
        tuple(
            Victim(t.reservation.key, t.reservation.cluster_queue, t.reason, t.reservation.evicted)
            for t in targets
            if t.reason is not None
        )
    )
