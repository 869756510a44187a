"""What holds of quota in every tree of cohorts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from laws.random_clusters import NOW, ClusterCase, clusters, figures
from pykueue.core import amounts, invariants, quota
from pykueue.core.cohort import QuotaNode
from pykueue.core.quota import UndoLog
from pykueue.state.world import World

SMALL = settings(max_examples=60)


def nodes(world: World) -> list[QuotaNode]:
    trees = {id(queue.node.tree): queue.node.tree for queue in world.snapshot().queues.values()}
    return [node for tree in trees.values() for node in tree.nodes]


@SMALL
@given(clusters())
def test_usage_sums_along_the_tree(case: ClusterCase) -> None:
    assert invariants.broken(case.world().snapshot()) == []


@SMALL
@given(clusters())
def test_available_never_exceeds_potential(case: ClusterCase) -> None:
    for node in nodes(case.world()):
        for number in range(len(node.tree.pairs)):
            assert quota.balance(node, number) <= node.potential[number]


@SMALL
@given(clusters(), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=8))
def test_what_is_added_and_removed_in_any_order_leaves_the_same_sums(
    case: ClusterCase, changes: list[tuple[int, int]]
) -> None:
    world = case.world()
    queues = [node for node in nodes(world) if node.is_queue and node.tree.pairs]
    if not queues:
        return
    before = figures(world)
    log: UndoLog = []
    added = []
    for pick, amount in changes:
        node = queues[pick % len(queues)]
        number = pick % len(node.tree.pairs)
        quota.add(node, number, amount, log)
        added.append((node, number, amount))
    for node in nodes(world):
        assert list(invariants.usage_adds_up(node.tree)) == []
    for node, number, amount in added:  # first added, first removed: not the order of undoing
        quota.remove(node, number, amount, log)
    assert figures(world) == before


@SMALL
@given(clusters(), st.integers(0, 20))
def test_borrowing_level_never_falls_with_a_larger_request(case: ClusterCase, most: int) -> None:
    for node in nodes(case.world()):
        if node.is_queue and node.tree.pairs:
            levels = [quota.level(node, 0, amount)[0] for amount in range(most)]
            assert levels == sorted(levels)


@SMALL
@given(clusters())
def test_admission_within_available_never_exceeds_the_root_quota(case: ClusterCase) -> None:
    world = case.world()
    for queue in world.snapshot().queues.values():
        for number in range(len(queue.node.tree.pairs)):
            root = queue.node.root
            free = quota.available(queue.node, number)
            if free and quota.balance(root, number) >= 0:
                mark = world.snapshot().mark()
                world.snapshot().assume(queue, ((number, free),))
                assert quota.balance(root, number) >= 0
                world.snapshot().undo(mark)


@SMALL
@given(clusters())
def test_rebuilt_tree_equals_the_tree_updated_by_differences(case: ClusterCase) -> None:
    """A change of any ClusterQueue rebuilds its tree; the figures equal those of a tree built from the final specs."""
    world = case.world()
    for queue in case.queues:
        thing = queue.thing()
        changed = type(thing)(metadata=thing.metadata, spec=type(thing.spec)(cohort_name=thing.spec.cohort_name))
        world.put(changed, NOW)
        world.settle(NOW)
        world.put(thing, NOW)
        world.settle(NOW)
    assert figures(world) == figures(case.world())


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_amounts_never_leave_their_range(a: int, b: int) -> None:
    for result in (amounts.add(a, b), amounts.subtract(a, b)):
        assert amounts.NOTHING_LEFT <= result <= amounts.UNLIMITED
