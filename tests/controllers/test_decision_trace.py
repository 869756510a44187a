"""A manager's trace, replayed on an empty state, gives the same decisions."""

from __future__ import annotations

import asyncio
import json
import random
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controllers.conftest import Environment
from kubemachinery.clock import SystemClock
from kubemachinery.errors import UsageError
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.cli import replay as replay_command
from pykueue.controllers import decision_trace, scheduler
from pykueue.controllers.assembly import Manager
from pykueue.core import cycle
from pykueue.errors import NegativeResult

Tree = dict[str, Any]

FAIR: Tree = {
    "admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1s"},
    "featureGates": {"AdmissionFairSharing": True},
}


@asynccontextmanager
async def recorded(env: Environment, path: Path, **configuration: Any) -> AsyncIterator[Manager]:
    """A manager whose state is recorded from the first object on."""
    chosen = settings.load({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration})
    manager = Manager(env.client, manager_options(chosen), SystemClock(), random.Random(7))
    with decision_trace.trace(path, chosen.tree) as write:
        decision_trace.record(manager.world, write)
        async with manager.reading(), asyncio.TaskGroup() as group:
            leading = group.create_task(manager.lead())
            yield manager
            leading.cancel()


async def lived(env: Environment, manager: Manager) -> None:
    """Workloads are created, finish, are deleted, and one preempts."""
    await env.queues(cpu="3", preemption={"withinClusterQueue": "LowerPriority"})
    for number in range(6):
        await env.workload(f"w{number}", priority=number % 3)
    await env.until_quiet(manager)
    for name in (await env.admitted())[:2]:
        await env.finish(name)
    await env.delete("Workload", "w5")
    await env.workload("late", cpu="2", priority=9)
    await env.until_quiet(manager)


def replayed(path: Path) -> str:
    result = CliRunner().invoke(replay_command.command, [str(path)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.mark.parametrize("configuration", [{}, FAIR], ids=["plain", "usage-based"])
async def test_the_same_is_decided_when_a_trace_is_played_again(
    env: Environment, tmp_path: Path, configuration: Tree
) -> None:
    path = tmp_path / "trace"
    async with recorded(env, path, **configuration) as manager:
        await lived(env, manager)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    words = replayed(path).split()
    assert words[0] == "equal:"
    assert int(words[words.index("decisions") - 1]) >= 8


async def test_a_cycle_that_broke_off_is_part_of_the_trace(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks again when it is played, and what was decided afterwards is the same; a program that has learnt better
    decides something else."""
    path, run = tmp_path / "trace", cycle.run

    def breaking(snapshot: Any, heads: list[cycle.Head], *rest: Any, **options: Any) -> Any:
        if any(head.workload.key == "default/odd" and not head.workload.priority for head in heads):
            raise ArithmeticError("there is no such number")
        return run(snapshot, heads, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(cycle, "run", breaking)
        patch.setattr(scheduler, "_BROKEN_PAUSE_SECONDS", 0.01)
        async with recorded(env, path) as manager:
            await env.queues(cpu="2")
            await env.workload("odd")
            await env.until(lambda: asyncio.to_thread(lambda: b"ArithmeticError" in path.read_bytes()))
            await env.patch("Workload", "odd", {"spec": {"priority": 1}})
            await env.workload("even")
            await env.until_quiet(manager)
            assert await env.admitted() == ["even", "odd"]
        assert replayed(path).startswith("equal:")
    with pytest.raises(NegativeResult, match="a different decision"):
        replayed(path)


async def test_another_decision_is_shown_with_its_line(env: Environment, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    async with recorded(env, path) as manager:
        await lived(env, manager)
    # As if a user had set a larger quota than the manager saw.
    path.write_text(path.read_text().replace('"nominalQuota":"3"', '"nominalQuota":"4"'))
    with pytest.raises(NegativeResult, match=r"trace: line \d+: a different decision"):
        replayed(path)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "line 1: is not the header of a trace"),
        (["{}"], "line 1: is not the header of a trace"),
        ([{"do": "put"}], "line 2: is no line of a trace"),
        ([{"do": "__init__", "given": []}], "line 2: __init__ is no method that changes the scheduler's state"),
        ([{"on": "elsewhere", "do": "put", "given": []}], "line 2: is no line of a trace"),
    ],
)
def test_what_is_no_trace_is_one_sentence(tmp_path: Path, lines: list[Any], sentence: str) -> None:
    path = tmp_path / "trace"
    head = {"pykueue": "1", "configuration": settings.defaults().tree}
    whole = lines if lines in ([], ["{}"]) else [json.dumps(head), *map(json.dumps, lines)]
    path.write_text("".join(f"{line}\n" for line in whole))
    with pytest.raises(UsageError, match=sentence):
        replayed(path)
