"""Invariants of a snapshot, checked by tests and simulations after every step. Each violation is a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pykueue.core import amounts
from pykueue.core.amounts import UNLIMITED
from pykueue.core.cohort import CohortTree, QuotaNode
from pykueue.core.snapshot import Queue, Snapshot


def broken(snapshot: Snapshot) -> list[str]:
    """Every violation in the snapshot."""
    trees = {id(queue.node.tree): queue.node.tree for queue in snapshot.queues.values()}
    found = [sentence for tree in trees.values() for sentence in usage_adds_up(tree)]
    found += [sentence for queue in snapshot.queues.values() for sentence in usage_is_recorded(queue)]
    return found


def usage_adds_up(tree: CohortTree) -> Iterator[str]:
    """A cohort uses what its children use beyond their guaranteed quota ([TR14])."""
    children: dict[QuotaNode, list[QuotaNode]] = {}
    for node in tree.nodes:
        if node.parent is not None:
            children.setdefault(node.parent, []).append(node)
    for node in tree.nodes:
        if node.is_queue:
            continue
        for number, pair in enumerate(tree.pairs):
            beyond = 0
            for child in children.get(node, ()):
                beyond = amounts.add(beyond, max(0, amounts.subtract(child.usage[number], child.guaranteed[number])))
            if node.usage[number] != beyond:
                yield f"cohort {node.name} uses {node.usage[number]} of {pair}, its children {beyond} beyond their own"


def usage_is_recorded(queue: Queue) -> Iterator[str]:
    """A ClusterQueue uses exactly what its reservations record."""
    recorded: dict[int, int] = {}
    for reservation in queue.reservations.values():
        for number, amount in reservation.usage_by_number:
            recorded[number] = amounts.add(recorded.get(number, 0), amount)
    for number, pair in enumerate(queue.node.tree.pairs):
        if queue.node.usage[number] != recorded.get(number, 0):
            yield f"queue {queue.name} uses {queue.node.usage[number]} of {pair}, recorded is {recorded.get(number, 0)}"


def over_quota(snapshot: Snapshot) -> set[tuple[str, str]]:
    """(node, flavor/resource) wherever more is used than the tree allows: at a root more than its quota, below it more
    than nominal quota and borrowing limit. Legal only where quota was lowered while Workloads used it."""
    found = set()
    for node in _nodes(snapshot.queues.values()):
        for number, pair in enumerate(node.tree.pairs):
            limit = node.borrowing_limit[number] if node.parent is not None else 0
            most = UNLIMITED if limit == UNLIMITED else amounts.add(node.subtree[number], limit)
            if node.usage[number] > most:
                found.add((node.name, f"{pair.flavor}/{pair.resource}"))
    return found


def _nodes(queues: Iterable[Queue]) -> Iterator[QuotaNode]:
    trees = {id(queue.node.tree): queue.node.tree for queue in queues}
    for tree in trees.values():
        yield from tree.nodes
