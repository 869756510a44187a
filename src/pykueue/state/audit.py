"""Comparison of two states: one that was updated incrementally, and one that was rebuilt from the objects.

The manager runs it from time to time; every difference is a sentence, and a bug.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.state.world import World


def differences(kept: World, rebuilt: World) -> list[str]:
    """Return how the incrementally updated state differs from the rebuilt one."""
    return [found for found in compared(kept, rebuilt) if found is not None]


def compared(kept: World, rebuilt: World) -> Iterator[str | None]:
    """Yield the differences, and None before each part that is compared: a caller may let other tasks run there, and
    must not go on once one of the states has changed."""
    yield from _reservations(kept, rebuilt)
    yield from _usage(kept, rebuilt)
    yield from _pending(kept, rebuilt)


def _reservations(kept: World, rebuilt: World) -> Iterator[str | None]:
    for key in sorted(kept.reservations.keys() | rebuilt.reservations.keys()):
        yield None
        ours, theirs = kept.reservations.get(key), rebuilt.reservations.get(key)
        if ours is None or theirs is None:
            if not kept.is_assumed(key):  # what is still being written is not in the objects yet
                yield f"{key}: holds quota only {'after a rebuild' if ours is None else 'in the cache'}"
        elif (ours.cluster_queue, sorted(ours.usage)) != (theirs.cluster_queue, sorted(theirs.usage)):
            yield f"{key}: holds {ours.usage} in {ours.cluster_queue}, rebuilt {theirs.usage} in {theirs.cluster_queue}"


def _usage(kept: World, rebuilt: World) -> Iterator[str | None]:
    if kept.assumed_count:
        return  # the sums differ by what is being written
    _copy_deferred_preemptions(kept, rebuilt)
    yield None
    ours, theirs = _figures(kept), _figures(rebuilt)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name, 0) != theirs.get(name, 0):
            yield f"{name}: uses {ours.get(name, 0)}, rebuilt {theirs.get(name, 0)}"


def _copy_deferred_preemptions(kept: World, rebuilt: World) -> None:
    """Copy which targets leave later for which Workload (KEP-993): no object has it, and the sums depend on it. Usage
    that is hidden behind a Workload without quota, or behind one that does not assume the target, is not copied: it
    should have been shown again, and the sums differ by it."""
    for key, held in kept.reservations.items():
        theirs = rebuilt.reservations.get(key)
        if held.hidden and theirs is not None:
            theirs.hidden = {
                preemptor: amounts
                for preemptor, amounts in held.hidden.items()
                if preemptor in kept.reservations and key in kept.reservations[preemptor].assumed_targets
            }
            rebuilt._parts.structure.recount(theirs)


def _pending(kept: World, rebuilt: World) -> Iterator[str | None]:
    for name in sorted(kept.queues.keys() | rebuilt.queues.keys()):
        yield None
        ours, theirs = _waiting(kept, name), _waiting(rebuilt, name)
        for key in sorted(ours ^ theirs):
            if not kept.is_assumed(key):
                yield f"{key}: is pending in {name} only {'in the cache' if key in ours else 'after a rebuild'}"


def _waiting(world: World, name: str) -> set[str]:
    queue = world.queues.get(name)
    if queue is None:
        return set()
    return {workload.key for workload in (*queue.active(), *queue.parked(), *queue.in_flight.values())}


def _figures(world: World) -> dict[str, int]:
    """Return every usage that is not zero, by node and flavor-resource."""
    trees = {id(queue.node.tree): queue.node.tree for queue in world.snapshot().queues.values()}
    return {
        f"{'queue' if node.is_queue else 'cohort'} {node.name}, {pair.resource} of {pair.flavor}": node.usage[number]
        for tree in trees.values()
        for node in tree.nodes
        for number, pair in enumerate(tree.pairs)
        if node.usage[number]
    }
