"""The comparison of two managers: what counts as a difference, and that worlds are the same for both."""

from __future__ import annotations

import json

import pytest
from bench._player import SeenStatus
from bench._worlds import RandomWorld
from bench.differences import Played, State, are_observed, differences

QUOTA = State((("s0", 1, (("cpu", "f0"),), ()),))
OTHER_FLAVOR = State((("s0", 1, (("cpu", "f1"),), ()),))
MORE_PODS = State((("s0", 2, (("cpu", "f0"),), ()),))
WORLDS = [RandomWorld("a", number, 6) for number in range(2)]


def played(*steps: State, restless: int | None = None) -> Played:
    states = [{"w000-00": state, "w001-00": State()} for state in steps]
    return Played(list(states), {} if restless is None else {"w000": restless})


@pytest.mark.parametrize("other", [State(), OTHER_FLAVOR, MORE_PODS, State(QUOTA.admitted, is_finished=True)], ids=str)
def test_first_step_that_differs_is_reported(other: State) -> None:
    (found,) = differences(WORLDS, played(State(), QUOTA, QUOTA), played(State(), other, State()))
    assert (found.world, found.step) == ("w000", 1)
    assert found.workloads == (("w000-00", QUOTA, other),)


def test_equal_worlds_do_not_differ() -> None:
    assert not differences(WORLDS, played(State(), QUOTA), played(State(), QUOTA))


def test_world_that_is_not_at_rest_is_compared_up_to_that_step() -> None:
    one, other = played(State(), QUOTA, restless=1), played(State(), State())
    assert not differences(WORLDS, one, other)
    assert not differences(WORLDS, other, one)
    assert differences(WORLDS, played(QUOTA, QUOTA, restless=1), other)


def test_steps_after_the_end_of_a_manager_are_not_compared() -> None:
    assert not differences(WORLDS, played(State()), played(State(), QUOTA))


def test_state_is_read_from_the_admission() -> None:
    assigned = {"name": "s0", "count": 1, "flavors": {"cpu": "f0"}}
    assert State.of(SeenStatus({"podSetAssignments": [assigned]})) == QUOTA
    assert State.of(SeenStatus()) == State()
    finished = {"type": "Finished", "status": "True"}
    assert State.of(SeenStatus(None, [finished])).is_finished


def test_world_is_the_same_for_the_same_seed_and_has_names_of_its_own() -> None:
    one, again, other = (RandomWorld("a", number, 12) for number in (3, 3, 4))
    assert (one.objects, one.steps) == (again.objects, again.steps)
    assert one.steps != other.steps
    assert all(tree["metadata"]["name"].startswith("w003-") for tree in one.objects)
    assert len(one.steps) == 12


def test_workloads_finish_after_they_arrived() -> None:
    for number in range(40):
        arrived: set[str] = set()
        for step in RandomWorld("b", number, 12).steps:
            if step.arrival is not None:
                arrived.add(step.arrival["metadata"]["name"])
            else:
                assert step.finishes in arrived


def test_first_workload_arrives_when_all_cluster_queues_are_observed() -> None:
    held = json.dumps({"status": {"conditions": [{"type": "Active", "status": "False"}]}}).encode()
    assert are_observed([held, held])
    assert not are_observed([held, b'{"metadata": {}}'])
    assert not are_observed([b'{"status": {"conditions": []}}'])
