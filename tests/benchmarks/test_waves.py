"""Loads in two waves: the first one fills the quota at every scale, and runs until the second has been admitted."""

from __future__ import annotations

import pytest
from bench import _measure, _player
from bench._engines import embedded
from bench._load import LOADS, Load, WorkloadClass

IN_WAVES = ("storm", "fair")


def requested_cpus(load: Load, wave: int) -> int:
    return sum(load.count(each) * each.cpu for _, each in load.streams() if each.wave == wave)


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", IN_WAVES)
def test_first_wave_fills_the_quota_at_every_scale(name: str, scale: float) -> None:
    load = LOADS[name].scaled(scale)
    assert requested_cpus(load, wave=0) == load.quota_cpus
    # All Workloads of the second wave can be admitted while the first one still runs.
    assert 0 < requested_cpus(load, wave=1) <= load.quota_cpus


def test_scale_changes_the_number_of_cluster_queues() -> None:
    totals = [LOADS["storm"].scaled(scale).total for scale in (0.1, 0.2, 0.5, 1.0)]
    assert totals == [120, 240, 360, 900]


@pytest.mark.parametrize("name", IN_WAVES)
def test_second_wave_preempts_the_first(name: str) -> None:
    load = LOADS[name].scaled(0.05)
    with embedded(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **load.configuration}
    ) as engine:
        figures = _measure.run(engine, load, limit_seconds=200)
    assert _measure.is_complete(figures), figures["left"]
    assert figures["evictions_by_reason"]["Preempted"] > 0
    assert figures["lost_cpu_seconds"] > 0
    first, second = figures["waves"]
    assert first["admitted"] < second["created"] < second["admitted"] < figures["wall_seconds"]
    assert first["missing"] == second["missing"] == 0


def test_wave_that_is_never_admitted_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second wave may not preempt the first one, which waits for it.
    classes = WorkloadClass("first", 2, 0.0, 0.2, 50, 10), WorkloadClass("second", 1, 0.0, 0.2, 10, 20, wave=1)
    monkeypatch.setattr(_player, "WAVE_SECONDS", 2.0)
    with embedded() as engine:
        figures = _measure.run(engine, Load("blocked", classes, cohorts=1, queues=1, borrowing=0), limit_seconds=200)
    assert [wave["missing"] for wave in figures["waves"]] == [0, 1]
    assert _measure.is_complete(figures), figures["left"]
    assert figures["evictions"] == 0
