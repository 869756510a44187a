"""Dominant resource shares, on the example of [FS6]."""

from __future__ import annotations

from pykueue.core import cohort, fair_sharing, quota
from pykueue.core.cohort import CohortTree, QuotaNode
from pykueue.core.queue import FlavorResource, QueueSpec, Quota

CPU, MEMORY = FlavorResource("default", "cpu"), FlavorResource("default", "memory")


def queues(**specs: tuple[int, float, int]) -> dict[str, QuotaNode]:
    """name -> nominal cpu, weight, usage; all in one cohort."""
    plan = cohort.plan_trees(
        [
            QueueSpec(name, cohort="c", quotas={CPU: Quota(nominal)}, weight=weight)
            for name, (nominal, weight, _) in specs.items()
        ],
        {},
    ).trees[0]
    tree = CohortTree.build(plan)
    for name, (_, _, used) in specs.items():
        quota.add(tree.queues[name], tree.number(*CPU), used, [])
    return tree.queues


def test_share_is_borrowed_per_thousand_of_lendable_divided_by_weight() -> None:
    nodes = queues(a=(4, 2.0, 7), b=(2, 1.0, 4), c=(6, 1.0, 0))
    assert fair_sharing.dominant_resource_share(nodes["a"]).rank == (False, 125.0)
    assert fair_sharing.dominant_resource_share(nodes["b"]).rank == (False, 2 * 1000.0 / 12)
    assert fair_sharing.dominant_resource_share(nodes["c"]).rank == (False, 0.0)


def test_queue_of_weight_zero_within_its_quota_has_share_zero() -> None:
    assert fair_sharing.dominant_resource_share(queues(a=(4, 0.0, 4), b=(4, 1.0, 0))["a"]) == fair_sharing.ZERO_SHARE


def test_borrowing_queue_of_weight_zero_ranks_last_and_by_what_it_borrows() -> None:
    nodes = queues(a=(1, 0.0, 3), b=(1, 0.0, 2), c=(9, 0.001, 11))
    ranks = [fair_sharing.dominant_resource_share(nodes[name]).rank for name in "abc"]
    assert ranks[2] < ranks[1] < ranks[0]
    assert fair_sharing.dominant_resource_share(nodes["a"]).is_boundless


def test_usage_beyond_quota_of_an_unlendable_resource_is_borrowing_with_share_zero() -> None:
    nodes = queues(a=(0, 1.0, 2), b=(0, 1.0, 0))
    share = fair_sharing.dominant_resource_share(nodes["a"])
    assert share.rank == (False, 0.0)
    assert share.is_borrowing


def test_the_dominant_resource_is_the_one_with_the_largest_ratio() -> None:
    plan = cohort.plan_trees(
        [QueueSpec(name, cohort="c", quotas={CPU: Quota(10), MEMORY: Quota(4)}) for name in "ab"], {}
    ).trees[0]
    tree = CohortTree.build(plan)
    quota.add(tree.queues["a"], tree.number(*CPU), 12, [])
    quota.add(tree.queues["a"], tree.number(*MEMORY), 6, [])
    share = fair_sharing.dominant_resource_share(tree.queues["a"])
    assert share.dominant_resource == "memory"
    assert share.rank == (False, 250.0)
    assert fair_sharing.dominant_resource_share(tree.root) == fair_sharing.ZERO_SHARE
