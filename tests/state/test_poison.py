"""A Workload whose evaluation fails does not stop others."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from kubemachinery import meta
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase, figures
from pykueue.api import kueue
from pykueue.core.decision import Admit, Requeue, Wait
from pykueue.state.world import World

BAD = WorkloadCase(0, "q", 3, 9, 0)
GOOD = WorkloadCase(1, "q", 2, 0, 0)
NEIGHBOUR = WorkloadCase(2, "r", 2, 0, 0)


def bad(min_count: object = "two", message: str = "") -> kueue.Workload:
    """Three pods, or at least "two". That is looked at only once it is clear that three do not fit."""
    thing = BAD.thing()
    pod_set = msgspec.structs.replace(thing.spec.pod_sets[0], count=3, min_count=cast(Any, min_count))
    reported = meta.Condition(type="QuotaReserved", status="False", reason="PendingEvaluation", message=message)
    return msgspec.structs.replace(
        thing,
        spec=msgspec.structs.replace(thing.spec, pod_sets=(pod_set,)),
        status=kueue.WorkloadStatus(conditions=(reported,) if message else ()),
    )


@pytest.fixture(params=[False, True], ids=["best-effort", "strict"])
def world(request: pytest.FixtureRequest) -> World:
    """It is the head of a queue, with a good one behind it and another good one in the same cohort."""
    queues = tuple(
        QueueCase(name, "c", (QuotaCase(3, 0, 0),), "Never", "Never", strict=bool(request.param)) for name in "qr"
    )
    world = ClusterCase((), queues, (GOOD, NEIGHBOUR), fair=False).world()
    world.put(bad(), NOW)
    return world


def test_it_is_set_aside_with_a_reason_and_the_others_are_decided(world: World) -> None:
    decisions = {decision.workload: decision for decision in world.decide(NOW)}
    refusal = decisions[BAD.key]
    assert isinstance(refusal, Wait)
    assert refusal.requeue is Requeue.SET_ASIDE
    assert "TypeError" in refusal.message
    assert isinstance(decisions[NEIGHBOUR.key], Admit)
    assert [(type(d), d.workload) for d in world.decide(NOW)] == [(Admit, GOOD.key)]
    assert figures(world) == {"queue q f0": 2000, "queue r f0": 2000}


def test_a_poison_workload_is_reported_once(world: World) -> None:
    while world.decide(NOW):
        pass
    world.put(bad(message="it could not be judged"), NOW)  # the reported reason comes back by the watch
    world.drop(GOOD.thing())
    world.retry_all()
    assert world.decide(NOW) == []
    assert world.queues["q"].is_parked(BAD.key)


def test_a_poison_workload_is_evaluated_again_once_it_changes(world: World) -> None:
    while world.decide(NOW):
        pass
    world.drop(GOOD.thing())
    world.put(bad(min_count=1), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)
    assert [pod_set.count for pod_set in decision.pod_sets] == [1]


def test_a_decision_that_the_server_will_never_take_is_not_made_again(world: World) -> None:
    """Its neighbour is admitted, the server calls the reservation invalid, and so it would the next one."""
    while world.decide(NOW):
        pass
    world.refuse(NEIGHBOUR.key)
    world.put(NEIGHBOUR.thing(), NOW)
    wait = world.set_aside(NEIGHBOUR.key, "refused", NOW)
    assert wait is not None
    assert wait.requeue is Requeue.SET_ASIDE
    assert world.decide(NOW) == []
    assert world.queues["r"].is_parked(NEIGHBOUR.key)
