"""Quota holds in every revision that a real API server ever stored: answers are lost, managers are killed or stopped.

Short scenarios by default; with PYKUEUE_FAULTS=full the long ones: every fault rate, twenty kills among 2,000
Workloads, and a
leader that is paused for twenty seconds. Each kind of scenario also has to detect a planted bug.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from cluster import faulty_proxy, planted, real, watched
from cluster.faulty_proxy import Faults, FaultyProxy
from cluster.watched import CPUS, Environment
from pykueue.api import registry, schema

FULL: Final = os.environ.get("PYKUEUE_FAULTS") == "full"

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.timeout(1500)]

ROOT: Final = Path(__file__).resolve().parents[2]
WORKLOADS: Final = 300 if FULL else 80
# All Workloads of a scenario finish within this; there is no hurry on a busy machine, and no end to a broken one.
PATIENCE_SECONDS: Final = 1000.0 if FULL else 300.0


@pytest.fixture(scope="module")
def server() -> Iterator[real.Client]:
    # Every revision is kept: scenarios are watched from the first one.
    with real.started("--etcd-compaction-interval=0") as started:
        started.install(*map(schema.crd, registry.KUEUE))
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        assert started.request("POST", "/api/v1/namespaces", home).code == 201
        yield started


@contextlib.asynccontextmanager
async def manager(
    kubeconfig: str, folder: Path, *, elected: bool = False, bug: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`pykueue manager` in its own process. Without leader election the next manager need not wait for a lease."""
    chosen = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": elected},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    paths = _written(folder, {"kubeconfig": kubeconfig, "config": json.dumps(chosen)})
    program = (planted.__file__, bug) if bug else ("-m", "pykueue")
    arguments = ("manager", "--kubeconfig", paths["kubeconfig"], "--config", paths["config"])
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = await asyncio.create_subprocess_exec(sys.executable, *program, *arguments, env=environment)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _written(folder: Path, texts: dict[str, str]) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


# --- Lost answers -----------------------------------------------------------------------------------------------------

# Answers are given up late, news come later still, and work ends later than both: there is time to err.
WORST: Final = Faults(lost=0.3, watch_lag_seconds=0.4, patience_seconds=0.2)
RUNTIME_SECONDS: Final = 0.8
FAULT_RATES: Final = [WORST, *(Faults(lost, lag) for lost in (0.05, 0.2) for lag in (0.0, 0.2))] if FULL else [WORST]


@contextlib.asynccontextmanager
async def behind_proxy(
    server: real.Client, folder: Path, faults: Faults, *, bug: str = ""
) -> AsyncIterator[tuple[Environment, FaultyProxy]]:
    """A started scenario with its manager behind the proxy."""
    name = f"lost-{faults.lost:.0%}-{faults.watch_lag_seconds * 1000:.0f}ms{'-bug' if bug else ''}".replace("%", "")
    async with (
        faulty_proxy.between(server, faults, random.Random(f"{faults}")) as proxy,
        watched.env(server, name, runtime_seconds=RUNTIME_SECONDS) as env,
        manager(proxy.kubeconfig(), folder, bug=bug) as process,
    ):
        await env.begin()
        await env.submit_many(WORKLOADS // 2, random.Random(7))
        await env.lift_hold()
        await env.submit_urgent(range(WORKLOADS // 2), random.Random(8))
        yield env, proxy
        assert process.returncode is None


@contextlib.asynccontextmanager
async def new_workloads(env: Environment) -> AsyncIterator[None]:
    """Create Workloads as long as a planted bug has no effect yet, so that it can still have one."""
    coming = asyncio.create_task(env.submit_urgent(range(WORKLOADS, 9_999), random.Random(9)))
    try:
        yield
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


@pytest.mark.parametrize("faults", FAULT_RATES, ids=str)
async def test_lost_answers_neither_overcommit_quota_nor_lose_workloads(
    server: real.Client, tmp_path: Path, faults: Faults
) -> None:
    async with behind_proxy(server, tmp_path, faults) as (env, proxy):
        await env.until(lambda: len(env.finished) == WORKLOADS, PATIENCE_SECONDS)
    assert env.overruns == []
    assert env.ran == dict.fromkeys(env.cpu, 1)
    assert proxy.lost > 0, "nothing was lost, so nothing was shown"
    assert env.most > CPUS * 0.8, "the quota was never contended, so the test proves nothing"


async def test_planted_release_on_a_lost_answer_is_detected(server: real.Client, tmp_path: Path) -> None:
    # It takes a lost answer at the wrong moment.
    async with behind_proxy(server, tmp_path, WORST, bug="a lost answer frees") as (env, _), new_workloads(env):
        await env.until(lambda: bool(env.overruns), PATIENCE_SECONDS)


# --- Killed managers --------------------------------------------------------------------------------------------------

KILLS: Final = 20 if FULL else 3
MANY: Final = 2_000 if FULL else WORKLOADS


async def test_killed_managers_neither_overcommit_quota_nor_lose_workloads(server: real.Client, tmp_path: Path) -> None:
    async with watched.env(server, "killed") as env:
        async with manager(server.kubeconfig(), tmp_path):
            await env.begin()
            await env.submit_many(MANY, random.Random(11))
            await env.lift_hold()
        for kill in range(1, KILLS):
            async with manager(server.kubeconfig(), tmp_path):
                # Killed in the middle: it has done its part, and some of the Workloads that it admitted still run.
                enough = kill * MANY // (KILLS + 1)
                await env.until(lambda: len(env.finished) >= enough and bool(env.admitted()), PATIENCE_SECONDS)  # noqa: B023
        async with manager(server.kubeconfig(), tmp_path):
            await env.until(lambda: len(env.finished) == MANY, PATIENCE_SECONDS)
            assert env.ran == dict.fromkeys(env.cpu, 1)
            # Six Workloads use all quota; three more are pending.
            for number in range(9):
                await env.submit(f"stays-{number}", 10, number, stays=True)
            await env.until(lambda: len(env.admitted()) == CPUS // 10 and len(env.waiting()) == 3, PATIENCE_SECONDS)
        before = env.admitted()
        async with manager(server.kubeconfig(), tmp_path):
            # The newest Workload is decided after all that a restart finds.
            await env.submit("last", 1, 0, stays=True)
            await env.until(lambda: "last" in env.waiting(), PATIENCE_SECONDS)
        assert env.admitted() == before
        assert env.overruns == []


# --- A leader that stands still ---------------------------------------------------------------------------------------

PAUSE_SECONDS: Final = 20.0 if FULL else 0.0  # at least; until another manager leads
ENOUGH_FOR_TWO: Final = 600 if FULL else 180


@contextlib.asynccontextmanager
async def woken(
    server: real.Client, folder: Path, *, bug: str = ""
) -> AsyncIterator[tuple[Environment, asyncio.subprocess.Process, FaultyProxy, float]]:
    """Pause the leader, let another take over, resume the first; yields when that was."""
    behind = Faults(watch_lag_seconds=0.1)
    async with (
        faulty_proxy.between(server, behind, random.Random(1)) as first_way,
        watched.env(server, f"paused{'-bug' if bug else ''}") as env,
        manager(first_way.kubeconfig(), folder / "first", elected=True, bug=bug) as first,
    ):
        await env.begin()
        await env.submit_many(ENOUGH_FOR_TWO, random.Random(13))
        async with manager(server.kubeconfig(), folder / "second", elected=True):
            await env.lift_hold()
            await env.until(lambda: len(env.finished) >= 10 and bool(env.admitted()), PATIENCE_SECONDS)
            first.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            ended = len(env.finished)
            # Running Workloads finish by themselves; more finishes mean that another manager admits.
            await env.until(lambda: len(env.finished) > ended + CPUS, PATIENCE_SECONDS)
            await asyncio.sleep(max(0.0, stopped + PAUSE_SECONDS - time.monotonic()))
            assert len(env.finished) < ENOUGH_FOR_TWO, "nothing is left to fight for, so nothing is shown"
            first.send_signal(signal.SIGCONT)
            yield env, first, first_way, time.monotonic()


def _late(way: FaultyProxy, since: float) -> list[str]:
    """The writes of a manager after that. Leases are excluded, and reviews, which are not stored.

    Nor is what comes first: a process does one thing at a time, and it may have been stopped in the very moment between
    being allowed to write and doing so.
    """
    written = [f"{write.method} {write.path}" for write in way.writes if write.at > since][1:]
    return [each for each in written if "/leases/" not in each and not each.endswith("reviews")]


async def test_resumed_former_leader_writes_nothing_and_exits(server: real.Client, tmp_path: Path) -> None:
    async with woken(server, tmp_path) as (env, first, way, since):
        assert await asyncio.wait_for(first.wait(), PATIENCE_SECONDS) == 1
        await env.until(lambda: len(env.finished) == ENOUGH_FOR_TWO, PATIENCE_SECONDS)
        assert _late(way, since) == []
    assert env.overruns == []
    assert env.ran == dict.fromkeys(env.cpu, 1)


async def test_planted_former_leader_that_writes_is_detected(server: real.Client, tmp_path: Path) -> None:
    bug = "a lost lease is not noticed"
    async with woken(server, tmp_path, bug=bug) as (env, _, way, since), new_workloads(env):
        await env.until(lambda: bool(_late(way, since)), PATIENCE_SECONDS)


async def test_late_reservation_of_a_former_leader_is_refused(server: real.Client, tmp_path: Path) -> None:
    """A request can be on its way for longer than a lease lasts; the webhooks know whose term it is by then."""
    async with watched.env(server, "late") as env, manager(server.kubeconfig(), tmp_path, elected=True):
        await env.begin()
        await env.submit("w", 10, 0, stays=True)
        (lease,) = (await env.send("GET", watched.LEASES))[1]["items"]
        term = lease["spec"]["leaseTransitions"]
        code, answered = await env.forge_reservation("w", 0, f"pykueue-manager-term-{term - 1}")
        assert (code, answered["reason"]) == (403, "Forbidden")
        assert f"pykueue-manager-term-{term - 1} is no longer the leader" in answered["message"]
        assert (await env.forge_reservation("w", 0, f"pykueue-manager-term-{term}"))[0] == 200


# --- Conversion -------------------------------------------------------------------------------------------------------

_COHORT_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cohorts.kueue.x-k8s.io"


async def _store(env: Environment, version: str) -> None:
    """Have Cohorts stored in a version from now on; what is stored stays as it is."""
    crd = (await env.send("GET", _COHORT_CRD))[1]
    for each in crd["spec"]["versions"]:
        each["storage"] = each["name"] == version
    assert (await env.send("PUT", _COHORT_CRD, crd))[0] == 200


async def test_manager_starts_although_objects_cannot_be_listed_without_its_conversion(
    server: real.Client, tmp_path: Path
) -> None:
    """Objects of an older version are listed only while the conversion webhook answers, which the last manager
    registered and this one has to serve."""
    new, old = "/apis/kueue.x-k8s.io/v1beta2/cohorts", "/apis/kueue.x-k8s.io/v1beta1/cohorts"
    async with watched.env(server, "converted") as env:
        async with manager(server.kubeconfig(), tmp_path):
            await env.begin()
        await env.forget_managers()
        await _store(env, "v1beta1")
        cohort = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": "old"}}
        await env.insist("POST", old, cohort)
        await _store(env, "v1beta2")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await env.send("GET", new))[0] == 200:
                await asyncio.sleep(0.1)
            async with manager(server.kubeconfig(), tmp_path) as process:
                while (await env.send("GET", new))[0] != 200:
                    assert process.returncode is None
                    await asyncio.sleep(0.1)


# --- The checker ------------------------------------------------------------------------------------------------------


async def test_checker_detects_overcommitted_quota(server: real.Client) -> None:
    """The checker itself, on forged reservations without a manager."""
    async with watched.env(server, "forged") as env:
        await env.begin(managed=False)
        for number in range(CPUS // 10 + 1):
            name = f"forged-{number}"
            await env.submit(name, 10, number, stays=True)
            await env.forge_reservation(name, number)
        await env.until(lambda: sum(env.reserved.values()) > CPUS, PATIENCE_SECONDS)
    assert [answered.partition(": ")[2] for answered in env.overruns] == [f"{CPUS + 10} of {CPUS} CPUs are given away"]
