"""The sweep: it finds nothing where every requeue has its cause, and would find a Workload that was missed."""

from __future__ import annotations

import pytest

from controllers.conftest import Environment
from controllers.test_metrics import STANDALONE, page
from pykueue.controllers import scheduler
from pykueue.state.reservations import Reservations

SWEEPS = f"pykueue_sweeps_total{{{STANDALONE}}}"
ADMITTED = f"pykueue_admitted_by_sweep_total{{{STANDALONE}}}"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_SWEEP_SECONDS", 0.1)


async def sweeps(env: Environment, count: int) -> None:
    async def made() -> bool:
        return (await page(env)).get(SWEEPS, 0) >= count

    await env.until(made)


async def test_a_sweep_admits_no_workload_that_an_event_retries(env: Environment) -> None:
    async with env.manager():
        await env.queues("1")
        await env.workload("first")
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.workload("second")
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        await sweeps(env, 2)
        await env.finish("first")
        await env.until_condition("second", "Admitted", "True/Admitted")
        assert (await page(env))[ADMITTED] == 0


async def test_a_sweep_admits_a_workload_that_no_event_retried(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Reservations.end

    def quiet(self: Reservations, key: str) -> None:
        end(self, key)
        self._scopes.take_released()

    monkeypatch.setattr(Reservations, "end", quiet)
    async with env.manager():
        await env.queues("1")
        await env.workload("first")
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.workload("second")
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        await env.finish("first")
        await env.until_condition("second", "Admitted", "True/Admitted")
        await sweeps(env, 1)
        assert (await page(env))[ADMITTED] == 1
