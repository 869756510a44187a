"""The tree of cohorts from the root down, with sums and every ClusterQueue."""

from __future__ import annotations

from kubemachinery import meta
from pykueue.api import kueue
from pykueue.client.queue_overview import lines


def queue(name: str, cohort: str = "", pending: int = 0, used: int = 0, nominal: int = 4) -> kueue.ClusterQueue:
    quota = kueue.ResourceQuota(name="cpu", nominal_quota=nominal)
    group = kueue.ResourceGroup(covered_resources=("cpu",), flavors=(kueue.FlavorQuotas(name="f", resources=(quota,)),))
    usage = kueue.FlavorUsage(name="f", resources=(kueue.ResourceUsage(name="cpu", total=used),))
    return kueue.ClusterQueue(
        metadata=meta.ObjectMeta(name=name),
        spec=kueue.ClusterQueueSpec(cohort_name=cohort, resource_groups=(group,)),
        status=kueue.ClusterQueueStatus(pending_workloads=pending, flavors_reservation=(usage,)),
    )


def cohort(name: str, parent: str = "") -> kueue.Cohort:
    return kueue.Cohort(metadata=meta.ObjectMeta(name=name), spec=kueue.CohortSpec(parent_name=parent))


def test_queues_stand_below_their_cohorts_and_cohorts_sum_them_up() -> None:
    found = lines([queue("b", "team", 2), queue("a", "team", 1), queue("alone")], [cohort("team", "company")])
    assert [(line.depth, line.name, line.pending) for line in found] == [
        (0, "company", 3),
        (1, "team", 3),
        (2, "a", 1),
        (2, "b", 2),
        (0, "alone", 0),
    ]


def test_cohorts_in_a_circle_are_shown_all_the_same() -> None:
    found = lines([queue("q", "a")], [cohort("a", "b"), cohort("b", "a")])
    assert {line.name for line in found} == {"a", "b", "q"}


def test_a_share_is_of_the_queues_own_quota() -> None:
    [half] = lines([queue("q", used=2)], [])
    assert [usage.share for usage in half.usages] == [0.5]
    [without] = lines([queue("q", nominal=0)], [])
    assert [usage.share for usage in without.usages] == [0.0]
