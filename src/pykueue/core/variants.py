"""Variants of one Workload that are tried on different flavors at once (gate ConcurrentAdmission)."""

from __future__ import annotations

from pykueue.core.snapshot import Queue
from pykueue.core.workload import Reservation, WorkloadInfo


def is_unmarked_parent(workload: WorkloadInfo, queue: Queue) -> bool:
    """Whether a pending Workload is to be tried by variants and is not a variant itself."""
    return queue.spec.has_variants and not workload.details.parent_uid and workload.reservation is None


def better_sibling(workload: WorkloadInfo, queue: Queue) -> Reservation | None:
    """An admitted variant of the same parent on a flavor that the queue lists before this one's."""
    return next((sibling for place, sibling in _siblings(workload, queue) if place < _place(workload, queue)), None)


def worse_sibling(workload: WorkloadInfo, queue: Queue) -> Reservation | None:
    """An admitted variant of the same parent on a flavor that the queue lists behind this one's."""
    return next((sibling for place, sibling in _siblings(workload, queue) if place > _place(workload, queue)), None)


def may_migrate(workload: WorkloadInfo, queue: Queue) -> bool:
    """Whether its flavor is not listed behind the ClusterQueue's last acceptable flavor."""
    last = queue.spec.last_acceptable_flavor
    return last is None or _place(workload, queue) <= queue.spec.groups[0].flavors.index(last)


def _place(workload: WorkloadInfo, queue: Queue) -> int:
    return queue.spec.groups[0].flavors.index(workload.details.variant_flavor)


def _siblings(workload: WorkloadInfo, queue: Queue) -> list[tuple[int, Reservation]]:
    details = workload.details
    flavors = queue.spec.groups[0].flavors if queue.spec.groups else ()
    if not details.parent_uid or details.variant_flavor not in flavors:
        return []
    return [
        (flavors.index(other.variant_flavor), other)
        for other in sorted(queue.reservations.values(), key=lambda reservation: reservation.key)
        if other.uid != workload.uid
        and other.parent_uid == details.parent_uid
        and other.admitted
        and other.variant_flavor in flavors
    ]
