"""KEP-993, Story 2: `examples/budget`, a check controller of another project, bases admission on a weekly budget."""

from __future__ import annotations

import asyncio
import datetime
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from keps.engines import Engine
from keps.system import System, Tree, system
from kubemachinery import http_messages, http_server
from kubemachinery.kinds import Kind, Version
from kubemachinery.unstructured import get
from pykueue.api import registry

FOLDER = Path(__file__).parents[2] / "examples" / "budget"
BUDGET = Kind("budget.example.com", "WeeklyBudget", "weeklybudgets", (Version("v1", storage=True),))


def _program() -> Any:
    """The example as a module, though it stands in no package."""
    spec = importlib.util.spec_from_file_location("budget_example", FOLDER / "budget.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


budget = _program()


class Monitoring:
    """As much of Prometheus as is asked: one figure for each namespace."""

    def __init__(self) -> None:
        self.consumed: dict[str, str] = {}
        self.url = ""

    async def answer(self, request: http_messages.Request) -> http_messages.Response:
        query = dict(request.query)["query"]
        found = [{"metric": {}, "value": [0, value]} for name, value in self.consumed.items() if f'"{name}"' in query]
        return http_messages.Response(body=msgspec.json.encode({"status": "success", "data": {"result": found}}))


@asynccontextmanager
async def budgets(engine: Engine) -> AsyncIterator[tuple[System, Monitoring]]:
    """The objects of the example, a monitoring system, and the program of the example as its reader would start it."""
    monitoring = Monitoring()
    http = await http_server.serve(monitoring.answer, "127.0.0.1", 0)
    try:
        async with system(engine) as env:
            await env.install(_documents("weeklybudgets.yaml")[0], BUDGET)
            await _apply(env, "queue.yaml")
            url = f"http://127.0.0.1:{http.port}"
            program = await asyncio.create_subprocess_exec(
                sys.executable,
                str(FOLDER / "budget.py"),
                *("--kubeconfig", str(env.kubeconfig), "--prometheus", url, "--every", "0.2"),
            )
            try:
                await env.until_condition("budget", "Active", "True/Active", "AdmissionCheck")
                yield env, monitoring
            finally:
                program.terminate()
                await program.wait()
                await env.client.delete(BUDGET, "budget", "physics")
    finally:
        await http.close()


def _documents(name: str) -> list[Tree]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


async def _apply(env: System, name: str) -> None:
    for tree in _documents(name):
        row = BUDGET if tree["kind"] == BUDGET.kind else registry.ALL.named(tree["kind"])
        assert row is not None
        await env.client.create(row, tree)


async def _workload(env: System) -> Tree:
    """The one Workload, once it is there."""

    async def is_there() -> bool:
        return bool(await env.all("Workload"))

    await env.until(is_there)
    (found,) = await env.all("Workload")
    return found


async def _is_suspended(env: System) -> bool:
    return bool(get(await env.find_in("physics", "Job", "train"), "spec", "suspend"))


async def _runs(env: System) -> bool:
    return not await _is_suspended(env)


async def _has_condition(env: System, type_: str, expected: str) -> bool:
    found = get(await _workload(env), "status", "conditions") or []
    return any(each["type"] == type_ and f"{each['status']}/{each['reason']}" == expected for each in found)


async def test_a_job_starts_within_the_budget_and_is_stopped_when_it_is_spent(engine: Engine) -> None:
    """Goals: green light, a hold, and back to the suspended state; and light again when there is more budget."""
    async with budgets(engine) as (env, monitoring):
        monitoring.consumed = {"physics": "12.5", "chemistry": "4000"}
        await _apply(env, "job.yaml")
        await env.until(lambda: _runs(env))
        monitoring.consumed["physics"] = "100"
        await env.until(lambda: _is_suspended(env))
        await env.until(lambda: _has_condition(env, "Requeued", "False/AdmissionCheck"))
        at = get(await _workload(env), "status", "requeueState", "requeueAt")
        assert datetime.datetime.fromisoformat(at) > datetime.datetime.now(datetime.UTC)


async def test_what_no_week_could_pay_is_rejected(engine: Engine) -> None:
    async with budgets(engine) as (env, _):
        (job,) = _documents("job.yaml")
        job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = str(60 * 3600)  # of two cores
        row = registry.ALL.named("Job")
        assert row is not None
        await env.client.create(row, job)
        await env.until(lambda: _has_condition(env, "Evicted", "True/DeactivatedDueToAdmissionCheck"))
        assert await _is_suspended(env)


MONDAY = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC)


def held(**spec: Any) -> Tree:
    assigned = [{"name": "main", "resourceUsage": {"cpu": "1500m"}}, {"name": "other"}]
    return {"spec": spec, "status": {"admission": {"podSetAssignments": assigned}}}


@pytest.mark.parametrize(
    ("amount", "consumed", "state"),
    [(None, 1000, "Ready"), (10, 9, "Ready"), (10, 10, "Retry"), (0, 0, "Retry")],
    ids=["no budget", "below", "spent", "nothing to spend"],
)
def test_the_answer_follows_the_budget(amount: int | None, consumed: int, state: str) -> None:
    limit = None if amount is None else Decimal(amount)
    assert budget.decide(held(), limit, Decimal(consumed), MONDAY).state == state


def test_a_pause_ends_with_the_week_at_the_latest() -> None:
    late = MONDAY - datetime.timedelta(minutes=4)
    assert budget.decide(held(), Decimal(1), Decimal(1), late).again == datetime.timedelta(minutes=4)
    assert budget.decide(held(), Decimal(1), Decimal(1), MONDAY).again == budget.LONGEST_PAUSE


def test_what_may_be_taken_is_cores_times_hours() -> None:
    assert budget.core_hours(held(maximumExecutionTimeSeconds=7200)) == 3
    assert budget.core_hours(held()) is None
