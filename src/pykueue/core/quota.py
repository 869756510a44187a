"""Available, borrowed, lent: the arithmetic of the tree. Short functions, each with the sentence that makes it true.

`number` is a pair of flavor and resource in the tree's own numbering. Amounts saturate (`core.amounts`), so unlimited
quota stays unlimited whatever is taken from it.

Usage is written through a log of what was there before. `undo` walks it back, so a cycle tries out what it likes and
the tree is afterwards the very one it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pykueue.core import amounts
from pykueue.core.amounts import UNLIMITED
from pykueue.core.cohort import QuotaNode

Usage: TypeAlias = tuple[tuple[int, int], ...]
"""(number, amount) pairs: what a workload uses of its tree."""

UndoLog: TypeAlias = list[tuple[list[int], int, int]]


def undo(log: UndoLog, mark: int) -> None:
    """Take back everything written since the log was `mark` long."""
    while len(log) > mark:
        usage, number, before = log.pop()
        usage[number] = before


def headroom(node: QuotaNode, number: int) -> int:
    """What is left of the quota that a node keeps to itself."""
    kept, used = node.guaranteed[number], node.usage[number]
    if kept <= used:
        return 0
    return amounts.subtract(kept, used)


def add(node: QuotaNode, number: int, amount: int, log: UndoLog) -> None:
    """[TR5] Usage fills a node's own room first; only what exceeds it shows at the parent."""
    at: QuotaNode | None = node
    while at is not None:
        room = headroom(at, number)
        before = at.usage[number]
        log.append((at.usage, number, before))
        at.usage[number] = amounts.add(before, amount)
        if amount <= room:
            return
        amount = amounts.subtract(amount, room)
        at = at.parent


def remove(node: QuotaNode, number: int, amount: int, log: UndoLog) -> None:
    """[TR6] What was stored at the parent comes back first."""
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


def add_all(node: QuotaNode, usage: Iterable[tuple[int, int]], log: UndoLog) -> None:
    for number, amount in usage:
        add(node, number, amount, log)


def remove_all(node: QuotaNode, usage: Iterable[tuple[int, int]], log: UndoLog) -> None:
    for number, amount in usage:
        remove(node, number, amount, log)


def balance(node: QuotaNode, number: int) -> int:
    """[TR8] What the node may still use; negative where it, or a cohort above it, is in debt."""
    root = node.root
    free = amounts.subtract(root.subtree[number], root.usage[number])
    for below in node.descent:
        limit = below.borrowing_limit[number]
        if limit != UNLIMITED:
            kept = below.guaranteed[number]
            offered = amounts.subtract(below.subtree[number], kept)
            taken = max(0, amounts.subtract(below.usage[number], kept))
            free = min(free, amounts.add(amounts.subtract(offered, taken), limit))
        free = amounts.add(headroom(below, number), free)
    return free


def available(queue: QuotaNode, number: int) -> int:
    """What a queue may still use: a debt is nobody's room."""
    return max(0, balance(queue, number))


def borrows_with(node: QuotaNode, number: int, amount: int) -> bool:
    """[TR10] Whether a node would use more than the quota of its own subtree."""
    return amounts.add(node.usage[number], amount) > node.subtree[number]


def is_borrowing_any(node: QuotaNode, numbers: Iterable[int]) -> bool:
    usage, subtree = node.usage, node.subtree
    for number in numbers:  # noqa: SIM110 - asked for every queue of a tree, so the loop is written out
        if usage[number] > subtree[number]:
            return True
    return False


def borrowing(nodes: Iterable[QuotaNode], numbers: Iterable[int]) -> list[QuotaNode]:
    """Those of the nodes that use more than their quota of any of the numbers."""
    return [node for node in nodes if is_borrowing_any(node, numbers)]


def level(queue: QuotaNode, number: int, amount: int) -> tuple[int, bool]:
    """[TR12] How high up the tree the quota for an amount must come from, and whether that is below the root."""
    if queue.parent is None or not borrows_with(queue, number, amount):
        return 0, queue.parent is not None
    rest = amounts.subtract(amount, headroom(queue, number))
    for cohort in queue.ancestors:
        if not borrows_with(cohort, number, rest):
            return cohort.height, cohort.parent is not None
        rest = amounts.subtract(rest, headroom(cohort, number))
    return queue.root.height, False


def fits_in_subtree(node: QuotaNode, requests: Mapping[int, int]) -> tuple[bool, dict[int, int]]:
    """[PR4] Whether the requests fit in the node's own quota, and what of them reaches its parent."""
    fits = True
    rest: dict[int, int] = {}
    for number, amount in requests.items():
        if borrows_with(node, number, amount):
            fits = False
        rest[number] = max(0, amounts.subtract(amount, headroom(node, number)))
    return fits, rest
