"""The usage of LocalQueues over time: what counts, and that nothing counts twice."""

from __future__ import annotations

import pytest

from kubemachinery import meta
from pykueue.api import kueue
from pykueue.core.policy import SchedulingPolicy, UsageHistory
from pykueue.state.world import World

NOW = meta.parse_time("2026-01-01T00:00:00Z")
CORE = 10**9  # the state counts in billionths


def local_queue(cpu: str | None = None) -> kueue.LocalQueue:
    """A LocalQueue, with this usage in its status."""
    used = kueue.AdmissionFairSharingStatus(consumed_resources={"cpu": cpu or "0"}, last_update=meta.format_time(NOW))
    share = kueue.LocalQueueFairSharingStatus(admission_fair_sharing_status=used)
    return kueue.LocalQueue(
        metadata=meta.ObjectMeta(name="lq", namespace="ns"),
        spec=kueue.LocalQueueSpec(cluster_queue="cq"),
        status=kueue.LocalQueueStatus(fair_sharing=share if cpu is not None else None),
    )


@pytest.fixture
def world() -> World:
    return World(SchedulingPolicy(usage_history=UsageHistory(600.0, 300.0, {})))


def test_the_first_status_of_a_new_local_queue_is_not_counted_again(world: World) -> None:
    """[AF9]"""
    world.put(local_queue(), NOW)
    world.sample_usage("ns/lq", {"cpu": 8 * CORE}, NOW + 600 * meta.SECOND)
    assert world.weighted_usage("ns/lq") == 4.0
    world.put(local_queue("4"), NOW + 600 * meta.SECOND)
    assert world.weighted_usage("ns/lq") == 4.0


def test_after_a_restart_the_status_is_counted_once(world: World) -> None:
    """[AF9] Whether an admission was counted before the LocalQueue was read or not."""
    world.settle_usage("ns/lq", "ns/w", {"cpu": 0}, NOW)
    world.put(local_queue("4"), NOW)
    world.put(local_queue("4"), NOW)
    assert world.weighted_usage("ns/lq") == 4.0


def test_a_local_queue_that_is_created_again_starts_without_usage(world: World) -> None:
    world.put(local_queue("4"), NOW)
    world.drop(local_queue("4"))
    world.put(local_queue(), NOW)
    assert world.weighted_usage("ns/lq") == 0.0
