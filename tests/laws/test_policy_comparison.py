"""Laws of policy comparisons: the replay is the system, queueing theory holds, and nothing is lost."""

from __future__ import annotations

import heapq
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.comparison_cases import START, Row, case, job, jobs_of, queue, trace, two_queues
from kubemachinery import yaml_documents
from pykueue.analysis import measures, planner, policy_comparison, traces
from pykueue.analysis.measures import JobOutcome
from pykueue.analysis.policy_comparison import CHANGED, REPLAYED, compare
from pykueue.analysis.trace_replay import TraceDraws, replay
from pykueue.analysis.traces import TraceJob
from pykueue.history import documents
from pykueue.testing import Kueue, system

# --- The replay is the system [PC-L1] ---------------------------------------------------------------------------------

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: small}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: physics}
spec:
  cohortName: science
  namespaceSelector: {}
  queueingStrategy: STRATEGY
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: small, resources: [{name: cpu, nominalQuota: 3}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: chemistry}
spec:
  cohortName: science
  namespaceSelector: {}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: small, resources: [{name: cpu, nominalQuota: 2}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: physics, namespace: default}
spec: {clusterQueue: physics}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: chemistry, namespace: default}
spec: {clusterQueue: chemistry}
"""


def lived(kueue: Kueue, rng: random.Random, count: int) -> None:
    """Submit jobs at random times to a running system, and let all of them end."""
    for number in range(count):
        kueue.submit(
            ["sleep", str(rng.randint(20, 200))],
            name=f"job-{number}",
            cpu=rng.choice((1, 1, 2, 3)),
            queue=rng.choice(("physics", "chemistry")),
        )
        kueue.advance(rng.randint(1, 60))
    kueue.advance(5_000)


@pytest.mark.parametrize(("strategy", "seed"), [("StrictFIFO", 5), ("BestEffortFIFO", 5)])
def test_a_replay_of_the_history_gives_the_recorded_starts(strategy: str, seed: int) -> None:
    """[PC-L1] To the second, where no job is submitted in the second in which another one ends: the history does not have
    the order of two events of one second, and a replay takes ends first."""
    text = QUEUES.replace("STRATEGY", strategy)
    with system() as kueue:
        kueue.apply(text)
        lived(kueue, random.Random(seed), 14)
        shown = kueue.history()
    every = [documents.record_of(each) for each in shown]
    ends = {each.ended for each in every}
    assert not ends & {each.submitted for each in every}, "choose another seed"
    begin = min(each.submitted for each in every)
    found = traces.of_records(every, begin, max(each.ended or 0 for each in every) + 1, "the system")
    base = planner.read(yaml_documents.parse(text, "queues"))
    # Simulated pods stop at once.
    replayed = replay(base, found, TraceDraws(found, stop_seconds=0)).outcomes
    assert [(each.job.name, admissions(each)) for each in replayed] == [
        (each.name, admissions(JobOutcome(each, each.attempts))) for each in found.jobs
    ]
    assert sum(measures.waiting(each) > 5 for each in replayed) > 1
    assert any(len(each.attempts) > 1 for each in replayed)


def admissions(outcome: JobOutcome) -> list[int | None]:
    return [attempt.admitted for attempt in outcome.attempts]


# --- Queueing theory [PC-L2] ------------------------------------------------------------------------------------------


def mean_waiting(jobs: list[TraceJob], cpus: int) -> float:
    found = compare(trace(jobs), case(*queue(cpu=cpus)), case(*queue(cpu=cpus)), warm_up=0.0)
    column = found.column(REPLAYED)
    assert column is not None
    value = column.value("waiting.mean")
    assert value is not None
    return value


def lindley(jobs: Sequence[tuple[float, float]], cpus: int) -> float:
    """The mean waiting of a first-come-first-served queue with equal servers, of jobs as submission and run time, by the
    recursion of Kiefer and Wolfowitz. It shares no code with the scheduler."""
    free = [0.0] * cpus
    waited = 0.0
    for submitted, run in jobs:
        start = max(submitted, heapq.heappop(free))
        waited += start - submitted
        heapq.heappush(free, start + run)
    return waited / len(jobs)


def times(rng: random.Random, count: int, rate: float, run: Callable[[], float]) -> list[tuple[float, float]]:
    """Submissions of a Poisson process."""
    at, found = 0.0, []
    for _ in range(count):
        at += rng.expovariate(rate)
        found.append((at, run()))
    return found


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("kind", ["M/M/c", "M/D/c"])
def test_waiting_is_that_of_the_queue_of_the_theory(servers: int, kind: str) -> None:
    """[PC-L2] Exactly, on the same arrivals; the recursion itself is compared with the closed forms below."""
    rng = random.Random(f"{kind}{servers}")
    found = times(rng, 400, 0.8 * servers / 100, lambda: rng.expovariate(1 / 100) if kind == "M/M/c" else 100)
    whole = [(int(at), max(1, round(run))) for at, run in found]
    jobs = [job(number, at, run=run) for number, (at, run) in enumerate(whole)]
    assert mean_waiting(jobs, servers) == pytest.approx(lindley(whole, servers), abs=1e-9)


@pytest.mark.parametrize("kind", ["M/M/1", "M/D/1"])
def test_the_recursion_agrees_with_the_closed_forms(kind: str) -> None:
    """[PC-L2] Within 2 %: load / (1 - load) times the mean run, and half of it where all runs are equal."""
    rng = random.Random(11)
    found = times(rng, 300_000, 0.5 / 1000, lambda: rng.expovariate(1 / 1000) if kind == "M/M/1" else 1000)
    assert lindley(found, 1) == pytest.approx(1000 if kind == "M/M/1" else 500, rel=0.02)


# --- Nothing is lost --------------------------------------------------------------------------------------------------

JOBS = st.lists(
    st.builds(
        lambda at, run, cpus, name, priority: (at, run, cpus, name, priority),
        st.integers(0, 300),
        st.integers(0, 120),
        st.integers(1, 4),
        st.sampled_from(("a", "b")),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=25,
)


@given(JOBS, st.integers(100, 600))
@settings(max_examples=40)
def test_work_in_is_work_out_and_work_left(rows: list[Row], end: int) -> None:
    """[PC-L4] Every job of a range has finished, runs or waits; and a job runs its whole length, once."""
    found = compare(trace(jobs_of(rows), end=end), two_queues(), two_queues(), warm_up=0.0)
    column = found.columns[0]
    finished = running = waiting = 0
    for each in column.replay.outcomes:
        last = each.attempts[-1] if each.attempts else None
        if each.finished is not None and last is not None:
            finished += 1
            assert each.finished - (last.admitted or 0) == each.job.run_seconds
        elif last is not None and last.released is None:
            running += 1
        else:
            waiting += 1
        assert all(a.released is not None for a in each.attempts[:-1])
    submitted = sum(each.submitted <= START + end for each in found.trace.jobs)
    assert finished + running + waiting == len(rows)
    assert waiting >= len(rows) - submitted


@given(JOBS, st.integers(4, 6), st.integers(1, 3))
@settings(max_examples=40)
def test_more_quota_in_a_strict_queue_never_raises_the_waiting(rows: list[Row], cpu: int, more: int) -> None:
    """[PC-L5] One queue, jobs in the order of submission, no preemption. Jobs of one cpu: with larger ones, more quota
    can make the total worse by an anomaly of packing."""
    jobs = [job(number, at, run=run) for number, (at, run, *_) in enumerate(rows)]
    few, many = case(*queue(cpu=cpu, strategy="StrictFIFO")), case(*queue(cpu=cpu + more, strategy="StrictFIFO"))
    found = compare(trace(jobs), few, many, warm_up=0.0)
    total = {
        column.name: sum((each.started or 0) - each.job.submitted for each in column.replay.outcomes)
        for column in found.columns
    }
    assert total[CHANGED] <= total[REPLAYED]


_PRINTS = """
import json, random, sys
from analysis.comparison_cases import jobs_of, trace, two_queues
from pykueue.analysis import comparison_report
from pykueue.analysis.policy_comparison import compare
rng = random.Random(5)
rows = [(rng.randint(0, 300), rng.randint(1, 99), rng.randint(1, 4), rng.choice("ab"), rng.randint(0, 2)) for _ in range(60)]
found = compare(trace(jobs_of(rows), end=900), two_queues(), two_queues(queueingStrategy="StrictFIFO"), warm_up=0.0)
sys.stdout.write(json.dumps(comparison_report.tree(found)) + comparison_report.html(found))
"""


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    """[PC-L6]"""
    tests = Path(__file__).resolve().parents[1]
    found = set()
    for seed in ("0", "1"):
        path = os.pathsep.join([str(tests), str(tests.parent / "src")])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", _PRINTS], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        found.add(done.stdout)
    (text,) = found
    assert json.JSONDecoder().raw_decode(text)[0]["complete"] is True
    assert policy_comparison.CANNOT_KNOW[0] in text
