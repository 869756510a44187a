"""A what-if, undone, was never there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from laws.worlds import NOW, WorldOf, figures, worlds
from pykueue.core import cycle, preemption
from pykueue.core.cycle import Head
from pykueue.core.preemption import Search

SMALL = settings(max_examples=60)


@SMALL
@given(worlds())
def test_a_cycle_leaves_the_picture_as_it_was(case: WorldOf) -> None:
    world = case.world()
    before = figures(world)
    heads = [Head(workload) for queue in world.queues.values() if (workload := queue.pop()) is not None]
    cycle.run(world.snapshot, heads, world.policy, NOW)
    assert figures(world) == before


@SMALL
@given(worlds(), st.integers(0, 8))
def test_a_search_for_victims_leaves_the_picture_as_it_was(case: WorldOf, amount: int) -> None:
    world = case.world()
    before = figures(world)
    for name, pending in world.queues.items():
        workload = pending.pop()
        queue = world.snapshot.queues.get(name)
        if workload is None or queue is None or not queue.node.tree.pairs:
            continue
        preemption.find(Search(world.snapshot, world.policy, NOW, workload, queue, frozenset((0,)), {0: amount}))
        assert figures(world) == before


@SMALL
@given(worlds(), st.lists(st.booleans(), max_size=10))
def test_what_ifs_nest(case: WorldOf, steps: list[bool]) -> None:
    world = case.world()
    snapshot = world.snapshot
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
@given(worlds())
def test_victims_make_room_and_each_of_them_is_needed(case: WorldOf) -> None:
    """[PR7] With the victims gone the Workload fits; with the last of them back it does not."""
    world = case.world()
    snapshot = world.snapshot
    for name, pending in world.queues.items():
        workload = pending.pop()
        queue = snapshot.queues.get(name)
        if workload is None or queue is None or not queue.node.tree.pairs:
            continue
        requests = dict(workload.shape.pod_sets[0].requests)
        search = Search(snapshot, world.policy, NOW, workload, queue, frozenset((0,)), {0: requests.get("cpu", 0)})
        if search.fits(borrowing=True):
            continue
        victims = preemption.find(search)
        if victims:
            mark = snapshot.mark()
            for victim in victims:
                snapshot.remove(victim.reservation)
            assert search.fits(borrowing=True)
            snapshot.undo(mark)
