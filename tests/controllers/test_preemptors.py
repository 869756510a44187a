"""Gate PrioritizePreemptorWorkloads in the manager: quota that a preemptor freed goes to the preemptor."""

from __future__ import annotations

from pathlib import Path

import pytest

from keps.engines import Embedded
from keps.system import System, gates, now, system

_POLICY = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "Any",
    "borrowWithinCohort": {"policy": "LowerPriority"},
}


async def _contended(env: System) -> None:
    """Two ClusterQueues without quota of their own share two cores of their cohort; `mid` preempts `low` for them, and
    then `high` arrives in the other queue."""
    shared = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
    await env.cluster_queue("a", {"cpu": "0"}, cohortName="c", preemption=_POLICY)
    await env.cluster_queue("b", {"cpu": "0"}, cohortName="c")
    await env.create("Cohort", "c", {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [shared]}]})
    for name in ("a", "b"):
        await env.create("LocalQueue", name, {"clusterQueue": name})
    await env.asks("low", {"cpu": "2"}, "a", priority=1)
    await env.until_condition("low", "Admitted", "True/Admitted")
    await env.asks("mid", {"cpu": "2"}, "a", priority=5)
    await env.until_condition("low", "Evicted", "True/Preempted")
    await env.asks("high", {"cpu": "2"}, "b", priority=9)
    await env.until_condition("high", "QuotaReserved", "False/WaitingForQuota")
    await env.quiet()


@pytest.mark.parametrize(("names", "admitted"), [(("PrioritizePreemptorWorkloads",), "mid"), ((), "high")])
async def test_freed_quota_goes_to_the_preemptor_with_the_gate_on(
    tmp_path: Path, names: tuple[str, ...], admitted: str
) -> None:
    async with system(Embedded(tmp_path), **gates(*names)) as env:
        await _contended(env)
        await env.release("low")
        await env.until_condition(admitted, "Admitted", "True/Admitted")
        await env.quiet()
        assert await env.admitted() == [admitted]


async def test_a_preemptor_keeps_its_precedence_when_only_its_status_changes(tmp_path: Path) -> None:
    async with system(Embedded(tmp_path), **gates("PrioritizePreemptorWorkloads")) as env:
        await _contended(env)
        noted = {"type": "Example", "status": "True", "reason": "Noted", "message": "", "lastTransitionTime": now()}
        await env.amend("Workload", "mid", lambda found: {"conditions": [*found["status"]["conditions"], noted]})
        await env.quiet()
        await env.release("low")
        await env.until_condition("mid", "Admitted", "True/Admitted")
