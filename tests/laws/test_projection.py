"""Laws of runs ahead of time, on random clusters."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.meta import SECOND, Nanoseconds
from laws.random_clusters import NOW, ClusterCase, clusters
from pykueue import projection
from pykueue.api import kueue
from pykueue.projection import ConstantDraws, Projection, SchedulerCase, uniform


def seconds(workload: kueue.Workload) -> int:
    return 1 + int(uniform(7, workload.metadata.uid, 0) * 1000)


DRAWS = ConstantDraws(seconds, stop=5)
# Clusters may have preemption loops, which have no end.
EFFORT = 500


def case_of(cluster: ClusterCase) -> SchedulerCase:
    return SchedulerCase(tuple(cluster.things()), policy=cluster.policy)


def lines(found: Projection) -> list[str]:
    return [repr(attempt) for attempt in found.attempts] + [repr(sorted(found.pending)), str(found.decisions)]


@given(clusters())
def test_equal_input_gives_equal_output(cluster: ClusterCase) -> None:  # [TL-L5]
    first, second = (projection.run(case_of(cluster), NOW, DRAWS, effort=EFFORT) for _ in range(2))
    assert lines(first) == lines(second)


@given(clusters())
def test_a_run_of_one_scope_finds_the_same_starts(cluster: ClusterCase) -> None:  # [RA5]
    case = case_of(cluster)
    whole = projection.run(case, NOW, DRAWS, effort=EFFORT)
    if not whole.is_complete:
        return
    world = case.world(NOW)
    world.settle(NOW)
    starts = whole.starts()
    for name in world.cluster_queues:
        queues = world.scope_queues(name)
        part = projection.run(case.within(queues), NOW, DRAWS, effort=EFFORT)
        mine = {each.key for each in whole.attempts if each.cluster_queue in queues}
        assert part.starts() == {key: at for key, at in starts.items() if key in mine}


@given(clusters(), st.booleans())
def test_every_workload_is_pending_or_has_an_attempt_and_usage_returns_to_zero(
    cluster: ClusterCase, grid: bool
) -> None:
    case = case_of(cluster)
    found = projection.run(case, NOW, DRAWS, effort=EFFORT, grid=grid)
    tried = {attempt.key for attempt in found.attempts}
    assert {f"{each.metadata.namespace}/{each.metadata.name}" for each in case.workloads()} == tried | set(
        found.pending
    )
    if not found.is_complete:
        return
    assert not found.endless
    used: Counter[tuple[str, str, str]] = Counter()
    for change in projection.usage_changes(found):
        used[change.cluster_queue, change.flavor, change.resource] += change.amount
        assert used[change.cluster_queue, change.flavor, change.resource] >= 0
    assert not any(used.values())


@given(st.integers(min_value=0, max_value=10**7), st.integers(min_value=0, max_value=10**7))
def test_the_grid_is_monotone_and_at_most_a_hundredth_later(first: int, second: int) -> None:  # [RA3]
    def point(distance: int) -> Nanoseconds:
        return projection.engine.on_grid(NOW + distance * SECOND, NOW) - NOW

    early, late = sorted((first, second))
    assert point(early) <= point(late)
    assert 0 <= point(late) - late * SECOND <= max(SECOND, late * SECOND // 100)


def test_the_output_does_not_depend_on_the_hash_seed() -> None:  # [TL-L5]
    tests = Path(__file__).parents[1]
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "laws.projection_program"],
            cwd=tests,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert "Finished" in outputs.pop()
