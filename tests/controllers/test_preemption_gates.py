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
    async with system(Embedded(tmp_path), **gates(*names)) as env:
        await env.queue({"cpu": "2"}, preemption=_LOWER)
        await env.asks("low", {"cpu": "2"}, priority=1)
        await env.until_condition("low", "Admitted", "True/Admitted")
        yield env


async def _positions(env: System, name: str) -> dict[str, str]:
    found = await env.read("Workload", name)
    return {each["name"]: each["position"] for each in get(found, "status", "preemptionGates") or []}


async def _turn(env: System, name: str, **positions: str) -> None:
    """Play the controller that owns the gates."""
    states = [{"name": gate, "position": position, "lastTransitionTime": now()} for gate, position in positions.items()]

    def turned(found: Tree) -> Tree:
        others = [each for each in get(found, "status", "preemptionGates") or [] if each["name"] not in positions]
        return {"preemptionGates": [*others, *states]}

    await env.amend("Workload", name, turned)


async def test_a_workload_preempts_once_all_its_gates_are_open(tmp_path: Path) -> None:
    async with _full(tmp_path, _GATE) as env:
        await env.asks("high", {"cpu": "2"}, priority=9, preemptionGates=[{"name": "a"}, {"name": "b"}])
        await env.until_condition("high", "BlockedOnPreemptionGates", "True/PreemptionGated")
        await env.until_condition("high", "QuotaReserved", "False/AdmissionGated")
        await env.quiet()
        assert await _positions(env, "high") == {"a": "Closed", "b": "Closed"}
        await _turn(env, "high", a="Open")
        await env.quiet()
        assert await env.condition("low", "Evicted") == ""
        await _turn(env, "high", b="Open")
        await env.until_condition("low", "Evicted", "True/Preempted")
        await env.release("low")
        await env.until_condition("high", "Admitted", "True/Admitted")
        assert await env.condition("high", "BlockedOnPreemptionGates") == "False/QuotaReserved"


async def test_an_eviction_closes_the_gates_again(tmp_path: Path) -> None:
    async with _full(tmp_path, _GATE) as env:
        await env.asks("high", {"cpu": "2"}, priority=9, preemptionGates=[{"name": "a"}])
        await env.until_condition("high", "BlockedOnPreemptionGates", "True/PreemptionGated")
        await _turn(env, "high", a="Open")
        await env.until_condition("low", "Evicted", "True/Preempted")
        await env.release("low")
        await env.until_condition("high", "Admitted", "True/Admitted")
        await env.asks("higher", {"cpu": "2"}, priority=10)
        await env.until_condition("high", "Evicted", "True/Preempted")
        assert await _positions(env, "high") == {"a": "Closed"}


async def test_a_gate_that_leaves_the_spec_leaves_the_status(tmp_path: Path) -> None:
    async with _full(tmp_path, _GATE) as env:
        await env.asks("high", {"cpu": "2"}, priority=9, preemptionGates=[{"name": "a"}, {"name": "b"}])
        await env.until_condition("high", "BlockedOnPreemptionGates", "True/PreemptionGated")
        await env.patch("Workload", "high", {"spec": {"preemptionGates": [{"name": "b"}]}})

        async def only_b() -> bool:
            return await _positions(env, "high") == {"b": "Closed"}

        await env.until(only_b)


@pytest.mark.parametrize("spec", [{}, {"preemptionGates": [{"name": "a"}]}])
async def test_without_a_gate_of_the_configuration_preemption_gates_have_no_effect(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    async with _full(tmp_path) as env:
        await env.asks("high", {"cpu": "2"}, priority=9, **spec)
        await env.until_condition("low", "Evicted", "True/Preempted")
        assert await _positions(env, "high") == {}
