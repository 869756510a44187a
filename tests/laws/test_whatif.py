"""Every what-if can be undone without a trace."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from laws.random_clusters import NOW, ClusterCase, clusters, figures
from pykueue.core import cycle, preemption
from pykueue.core.cycle import Head
from pykueue.core.preemption import PreemptionTarget, TargetSearch
from pykueue.core.snapshot import Snapshot
from pykueue.core.workload import Reservation, ScanPosition, WorkloadInfo

SMALL = settings(max_examples=60)


@SMALL
@given(clusters())
def test_cycle_changes_neither_snapshot_nor_workloads(case: ClusterCase) -> None:
    world = case.world()
    heads = [Head(workload) for queue in world.queues.values() if (workload := queue.pop()) is not None]
    for place, head in enumerate(heads):
        head.workload.scan_position = ScanPosition(({"cpu": place % 2 - 1},), 0, 0, None)
    before = figures(world), _snapshot_values(world.snapshot()), [_slots(head.workload) for head in heads]
    cycle.run(world.snapshot(), heads, world.policy, NOW)
    assert (figures(world), _snapshot_values(world.snapshot()), [_slots(head.workload) for head in heads]) == before


def _slots(value: WorkloadInfo | Reservation) -> dict[str, object]:
    """Every slot of a Workload (its scan position included) or reservation; mappings are copied."""
    found = ((name, getattr(value, name)) for name in type(value).__slots__)
    return {name: dict(held) if isinstance(held, dict) else held for name, held in found}


def _snapshot_values(snapshot: Snapshot) -> object:
    """What a snapshot holds beside its usage figures. The cache of eligibility is left out: a cycle may fill it."""
    queues = {
        name: (queue.generation, {key: _slots(held) for key, held in queue.reservations.items()})
        for name, queue in snapshot.queues.items()
    }
    return queues, set(snapshot.inactive), dict(snapshot.flavors), snapshot.ended, snapshot.mark()


@SMALL
@given(clusters(), st.integers(0, 8))
def test_target_search_leaves_the_snapshot_as_it_was(case: ClusterCase, amount: int) -> None:
    world = case.world()
    before = figures(world)
    for name, pending in world.queues.items():
        workload = pending.pop()
        queue = world.snapshot().queues.get(name)
        if workload is None or queue is None or not queue.node.tree.pairs:
            continue
        preemption.find(
            TargetSearch(world.snapshot(), world.policy, NOW, workload, queue, frozenset((0,)), {0: amount})
        )
        assert figures(world) == before


@SMALL
@given(clusters(), st.lists(st.booleans(), max_size=10))
def test_what_ifs_nest(case: ClusterCase, steps: list[bool]) -> None:
    world = case.world()
    snapshot = world.snapshot()
    held = [reservation for queue in snapshot.queues.values() for reservation in queue.reservations.values()]
    marks = []
    for step, reservation in zip(steps, held, strict=False):
        marks.append((snapshot.mark(), figures(world)))
        if step:
            snapshot.remove(reservation)
        else:
            snapshot.restore(reservation)
    for mark, before in reversed(marks):
        snapshot.undo(mark)
        assert figures(world) == before


@SMALL
@given(clusters())
def test_targets_make_the_workload_fit_and_each_is_needed(case: ClusterCase) -> None:
    """With the targets removed the Workload fits; with any one of them restored it does not. Both on the terms of the
    search that found them: with borrowing allowed, or without ([PR7])."""
    world = case.world()
    snapshot = world.snapshot()
    for name, pending in world.queues.items():
        workload = pending.pop()
        queue = snapshot.queues.get(name)
        if workload is None or queue is None or not queue.node.tree.pairs:
            continue
        requests = dict(workload.shape.pod_sets[0].requests)
        search = TargetSearch(
            snapshot, world.policy, NOW, workload, queue, frozenset((0,)), {0: requests.get("cpu", 0)}
        )
        if search.fits(borrowing=True):
            continue
        targets = preemption.find(search)
        if targets:
            mark = snapshot.mark()
            for target in targets:
                snapshot.remove(target.reservation)
            assert search.fits(borrowing=True)
            assert any(
                search.fits(borrowing=borrowing) and _is_minimal(search, targets, borrowing=borrowing)
                for borrowing in (True, False)
            ), [target.reservation.key for target in targets]
            snapshot.undo(mark)


def _is_minimal(search: TargetSearch, targets: Sequence[PreemptionTarget], *, borrowing: bool) -> bool:
    for target in targets:
        search.snapshot.restore(target.reservation)
        is_needed = not search.fits(borrowing=borrowing)
        search.snapshot.remove(target.reservation)
        if not is_needed:
            return False
    return True
