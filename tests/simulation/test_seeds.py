"""Simulations from seeds: whatever faults occur, the stored history keeps the invariants, and the same seed repeats it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from simulation.engine import faults, simulation_run
from simulation.engine.traits import LATER, NEEDS, TRAITS

# `make soak ARGS="--seeds 0-9999 --jobs 2"` runs more.
SEEDS, TOGETHER = 500, 10


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_runs_obey_the_invariants(first: int) -> None:
    wrong = [report for seed in range(first, first + TOGETHER) if (report := simulation_run.run(seed)).violations]
    assert not wrong, "\n".join(line for report in wrong for line in (report.replay, *map(str, report.violations)))


def test_the_same_seed_repeats_the_run_under_any_hash_seed() -> None:
    code = "from simulation.engine import simulation_run as it; print(*(it.run(seed).digest for seed in (3, 8, 436)))"
    reported = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "2")
    }
    assert len(reported) == 1
    assert simulation_run.run(3).digest != simulation_run.run(4).digest, "another seed gives another run"


# A few of the writes of a run are enough here; `make soak ARGS="--seeds 0-9 --kill-at every"` takes all of them.
KILLED, EVERY = (0, 2, 3, 5), 25


@pytest.mark.parametrize("seed", KILLED)
def test_a_manager_may_be_killed_at_any_of_its_writes(seed: int) -> None:
    """Just before it, and just after: what it had half done is found and finished by the next."""
    reports = list(simulation_run.killed_at_every_write(seed, step=EVERY, first=1 + seed))
    assert all(report.faults["kill"] == 1 for report in reports)
    wrong = [report for report in reports if report.violations]
    assert not wrong, "\n".join(line for report in wrong for line in (report.replay, *map(str, report.violations)))


@pytest.mark.parametrize("name", [*faults.FAULTS, *faults.TROUBLES])
def test_every_fault_strikes(name: str) -> None:
    """A fault that never occurs shows nothing. Here it is the only one, at its highest rate."""
    rates = {name: 1.0 if name.startswith("watch") else 0.5}
    if name in ("watch dropped", "watch refused"):
        rates[name] = 0.3  # at 1.0 no request would succeed
    if name == "stale list":
        rates["history gone"] = 0.2  # else no informer lists twice
    report = simulation_run.run(1, rates=rates)
    assert report.faults[name] > 0
    assert not report.violations, "\n".join(map(str, report.violations))


# Events that the invariants are about: a run without evictions shows nothing about evictions.
HAPPENS = (
    "QuotaReserved QuotaReserved",
    "Admitted Admitted",
    "Finished Succeeded",
    "Evicted Preempted",
    "Evicted AdmissionCheck",
    "Evicted ClusterQueueStopped",
    "Evicted PodsReadyTimeout",
    "Evicted Deactivated",
    "Evicted DeactivatedDueToMaximumExecutionTimeExceeded",
    "Evicted DeactivatedDueToAdmissionCheck",
    "Requeued BackoffFinished",
    "waits when healed",
)


def test_every_event_that_the_invariants_are_about_occurs() -> None:
    """The rarer traits are forced on in turn; what else happens is up to the seeds."""
    seen: Counter[str] = Counter()
    for seed in range(20, 60):
        trait = list(LATER)[seed % len(LATER)]
        report = simulation_run.run(seed, also=(trait, NEEDS.get(trait, trait)))
        seen += report.seen
        seen.update(report.traits)
    assert [what for what in (*TRAITS, *HAPPENS) if not seen[what]] == []
