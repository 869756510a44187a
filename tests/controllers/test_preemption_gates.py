"""Preemption gates in the manager: a Workload preempts nothing while one of its gates is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keps.engines import Embedded
from keps.system import System, Tree, gates, now, system
from kubemachinery.unstructured import get

_LOWER = {"withinClusterQueue": "LowerPriority"}
_GATE = "MultiKueueOrchestratedPreemption"


@asynccontextmanager
async def _full(tmp_path: Path, *names: str) -> AsyncIterator[System]:
    """A queue whose quota `low` holds."""
    async with system(Embedded(tmp_path), **gates(*names)) as story:
        await story.queue({"cpu": "2"}, preemption=_LOWER)
        await story.asks("low", {"cpu": "2"}, priority=1)
        await story.until_said("low", "Admitted", "True/Admitted")
        yield story


async def _positions(story: System, name: str) -> dict[str, str]:
    found = await story.read("Workload", name)
    return {each["name"]: each["position"] for each in get(found, "status", "preemptionGates") or []}


async def _turn(story: System, name: str, **positions: str) -> None:
    """Play the controller that owns the gates."""
    states = [{"name": gate, "position": said, "lastTransitionTime": now()} for gate, said in positions.items()]

    def turned(found: Tree) -> Tree:
        others = [each for each in get(found, "status", "preemptionGates") or [] if each["name"] not in positions]
        return {"preemptionGates": [*others, *states]}

    await story.amend("Workload", name, turned)


async def test_a_workload_preempts_once_all_its_gates_are_open(tmp_path: Path) -> None:
    async with _full(tmp_path, _GATE) as story:
        await story.asks("high", {"cpu": "2"}, priority=9, preemptionGates=[{"name": "a"}, {"name": "b"}])
        await story.until_said("high", "BlockedOnPreemptionGates", "True/PreemptionGated")
        await story.until_said("high", "QuotaReserved", "False/AdmissionGated")
        await story.quiet()
        assert await _positions(story, "high") == {"a": "Closed", "b": "Closed"}
        await _turn(story, "high", a="Open")
        await story.quiet()
        assert await story.condition("low", "Evicted") == ""
        await _turn(story, "high", b="Open")
        await story.until_said("low", "Evicted", "True/Preempted")
        await story.release("low")
        await story.until_said("high", "Admitted", "True/Admitted")
        assert await story.condition("high", "BlockedOnPreemptionGates") == "False/QuotaReserved"


async def test_an_eviction_closes_the_gates_again(tmp_path: Path) -> None:
    async with _full(tmp_path, _GATE) as story:
        await story.asks("high", {"cpu": "2"}, priority=9, preemptionGates=[{"name": "a"}])
        await story.until_said("high", "BlockedOnPreemptionGates", "True/PreemptionGated")
        await _turn(story, "high", a="Open")
        await story.until_said("low", "Evicted", "True/Preempted")
        await story.release("low")
        await story.until_said("high", "Admitted", "True/Admitted")
        await story.asks("higher", {"cpu": "2"}, priority=10)
        await story.until_said("high", "Evicted", "True/Preempted")
        assert await _positions(story, "high") == {"a": "Closed"}


async def test_a_gate_that_leaves_the_spec_leaves_the_status(tmp_path: Path) -> None:
    async with _full(tmp_path, _GATE) as story:
        await story.asks("high", {"cpu": "2"}, priority=9, preemptionGates=[{"name": "a"}, {"name": "b"}])
        await story.until_said("high", "BlockedOnPreemptionGates", "True/PreemptionGated")
        await story.patch("Workload", "high", {"spec": {"preemptionGates": [{"name": "b"}]}})

        async def only_b() -> bool:
            return await _positions(story, "high") == {"b": "Closed"}

        await story.until(only_b)


@pytest.mark.parametrize("spec", [{}, {"preemptionGates": [{"name": "a"}]}])
async def test_without_a_gate_of_the_configuration_preemption_gates_have_no_effect(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    async with _full(tmp_path) as story:
        await story.asks("high", {"cpu": "2"}, priority=9, **spec)
        await story.until_said("low", "Evicted", "True/Preempted")
        assert await _positions(story, "high") == {}
