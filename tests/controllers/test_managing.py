"""`pykueue manager`: the same controllers over HTTP, of which one at a time leads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from controllers.conftest import Environment
from kubemachinery.client import client_config, errors
from pykueue import settings
from pykueue.api import kube, registry
from pykueue.app.cluster_manager import manage

# Quick to see that a lease was given back, and patient with a leader that stands still.
_QUICK = {"leaseDuration": "80s", "renewDeadline": "60s", "retryPeriod": "200ms"}


def _manager(env: Environment, seed: int) -> asyncio.Task[None]:
    chosen = settings.load(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "leaderElection": _QUICK}
    )
    target = client_config.from_files([env.serving.kubeconfig])
    return asyncio.create_task(manage(target, chosen, rng=random.Random(seed)))


async def _holder(env: Environment) -> str:
    leases = [lease for lease in await env.all("Lease") if lease["metadata"]["name"].endswith("kueue.x-k8s.io")]
    return str(leases[0]["spec"].get("holderIdentity") or "") if leases else ""


async def _worked(write: Coroutine[Any, Any, object]) -> bool:
    try:
        await write
    except errors.ApiError:
        return False
    return True


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_manager_leads_and_the_next_takes_over_where_it_stopped(env: Environment) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
    await env.client.create(registry.KUBERNETES.of(kube.Namespace), namespace)
    await env.queues(cpu="1")
    first = _manager(env, 1)
    try:
        await env.workload("a")
        await env.until_condition("a", "Admitted", "True/Admitted")
        leader = await _holder(env)
        second = _manager(env, 2)
        await env.workload("b")
        await env.until_condition("b", "QuotaReserved", "False/WaitingForQuota")
        assert await _holder(env) == leader
        await _stop(first)
        # Until the next leader is elected, writes of Workloads are refused with a retry: no webhook server answers.
        await env.until(lambda: _worked(env.finish("a")))
        await env.until_condition("b", "Admitted", "True/Admitted")
        assert await _holder(env) not in ("", leader)
        await _stop(second)
    finally:
        await _stop(first)
