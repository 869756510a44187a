"""The arithmetic of the cohort tree: what is available, borrowed and lent (rules TR).

`number` is the number of a flavor-resource in the tree. Amounts saturate (`core.amounts`), so unlimited quota stays
unlimited whatever is subtracted from it.

Usage is written through a log of the values before. `undo` restores them, so that a cycle can try out changes, and the
tree is afterwards exactly as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from pykueue.core import amounts
from pykueue.core.amounts import UNLIMITED, Amount
from pykueue.core.cohort import QuotaNode
from pykueue.core.queue import FlavorResourceNumber, UsageByNumber, UsagePairs

UndoLog: TypeAlias = list[tuple[list[int], int, int]]


def undo(log: UndoLog, mark: int) -> None:
    """Undo everything written since the log was `mark` long."""
    while len(log) > mark:
        usage, number, before = log.pop()
        usage[number] = before


def headroom(node: QuotaNode, number: FlavorResourceNumber) -> int:
    """What is left of the quota that a node does not lend."""
    kept, used = node.guaranteed[number], node.usage[number]
    if kept <= used:
        return 0
    return amounts.subtract(kept, used)


def add(node: QuotaNode, number: FlavorResourceNumber, amount: Amount, log: UndoLog) -> None:
    """Add usage: it fills a node's own guaranteed quota first; only what exceeds it counts at the parent ([TR5])."""
    at: QuotaNode | None = node
    while at is not None:
        usage, kept = at.usage, at.guaranteed[number]
        before = usage[number]
        log.append((usage, number, before))
        usage[number] = amounts.add(before, amount)
        own = amounts.subtract(kept, before) if kept > before else 0  # as `headroom`
        if amount <= own:
            return
        if own:
            amount = amounts.subtract(amount, own)
        at = at.parent


def remove(node: QuotaNode, number: FlavorResourceNumber, amount: Amount, log: UndoLog) -> None:
    """Remove usage: what counted at the parent is released first ([TR6])."""
    at: QuotaNode | None = node
    while at is not None:
        usage, kept = at.usage, at.guaranteed[number]
        before = usage[number]
        log.append((usage, number, before))
        usage[number] = amounts.subtract(before, amount)
        if before <= kept:
            return
        amount = min(amount, amounts.subtract(before, kept))
        at = at.parent


def add_all(node: QuotaNode, usage: UsagePairs, log: UndoLog) -> None:
    for number, amount in usage:
        add(node, number, amount, log)


def remove_all(node: QuotaNode, usage: UsagePairs, log: UndoLog) -> None:
    for number, amount in usage:
        remove(node, number, amount, log)


def is_saturated(node: QuotaNode, usage: UsagePairs) -> bool:
    """Whether usage of one of the flavor-resources reached the top of the range, in the node or above it: then it is
    not known how much it would be without one of its parts."""
    return any(at.usage[number] == UNLIMITED for number, _ in usage for at in (node, *node.ancestors))


def balance(node: QuotaNode, number: FlavorResourceNumber) -> int:
    """What the node may still use; negative where it, or a cohort above it, uses more than its quota ([TR8])."""
    root = node.root
    free = amounts.subtract(root.subtree[number], root.usage[number])
    for below in node.descent:
        limit, kept = below.borrowing_limit[number], below.guaranteed[number]
        if limit != UNLIMITED:
            offered = amounts.subtract(below.subtree[number], kept)
            taken = max(0, amounts.subtract(below.usage[number], kept))
            free = min(free, amounts.add(amounts.subtract(offered, taken), limit))
        if kept:  # without a lending limit there is no headroom of its own
            free = amounts.add(headroom(below, number), free)
    return free


def available(queue: QuotaNode, number: FlavorResourceNumber) -> int:
    """What a ClusterQueue may still use, never below zero."""
    return max(0, balance(queue, number))


def borrows_with(node: QuotaNode, number: FlavorResourceNumber, amount: Amount) -> bool:
    """Whether a node would use more than the quota of its own subtree ([TR10])."""
    return amounts.add(node.usage[number], amount) > node.subtree[number]


def is_borrowing_any(node: QuotaNode, numbers: Iterable[FlavorResourceNumber]) -> bool:
    usage, subtree = node.usage, node.subtree
    for number in numbers:  # noqa: SIM110 - runs for every queue of a tree; the loop is faster than `any`
        if usage[number] > subtree[number]:
            return True
    return False


def borrowing(nodes: Iterable[QuotaNode], numbers: Iterable[FlavorResourceNumber]) -> list[QuotaNode]:
    """The nodes that use more than their quota of any of the flavor-resources."""
    return [node for node in nodes if is_borrowing_any(node, numbers)]


def level(queue: QuotaNode, number: FlavorResourceNumber, amount: Amount) -> tuple[int, bool]:
    """The borrowing level: how high up the tree the quota for an amount must come from, and whether that is below the
    root ([TR12])."""
    if queue.parent is None or not borrows_with(queue, number, amount):
        return 0, queue.parent is not None
    rest = amounts.subtract(amount, headroom(queue, number))
    for cohort in queue.ancestors:
        if not borrows_with(cohort, number, rest):
            return cohort.height, cohort.parent is not None
        rest = amounts.subtract(rest, headroom(cohort, number))
    return queue.root.height, False


def fits_in_subtree(node: QuotaNode, requests: UsageByNumber) -> tuple[bool, dict[FlavorResourceNumber, Amount]]:
    """Whether the requests fit in the node's own quota, and what remains of them for its parent ([PR4])."""
    fits = True
    rest: dict[FlavorResourceNumber, Amount] = {}
    for number, amount in requests.items():
        if borrows_with(node, number, amount):
            fits = False
        rest[number] = max(0, amounts.subtract(amount, headroom(node, number)))
    return fits, rest
