"""`pykueue manager`: the same controllers over HTTP, of which one at a time leads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from controllers.conftest import Story
from kubemachinery.client import client_config, errors
from pykueue import app, settings
from pykueue.api import kube, registry

# Quick to see that a lease was given back, and patient with a leader that stands still.
_QUICK = {"leaseDuration": "80s", "renewDeadline": "60s", "retryPeriod": "200ms"}


def _manager(story: Story, seed: int) -> asyncio.Task[None]:
    chosen = settings.load(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "leaderElection": _QUICK}
    )
    target = client_config.from_files([story.serving.kubeconfig])
    return asyncio.create_task(app.manage(target, chosen, chance=random.Random(seed)))


async def _holder(story: Story) -> str:
    leases = [lease for lease in await story.all("Lease") if lease["metadata"]["name"].endswith("kueue.x-k8s.io")]
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


async def test_one_manager_leads_and_the_next_takes_over_where_it_stopped(story: Story) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
    await story.client.create(registry.KUBERNETES.of(kube.Namespace), namespace)
    await story.queues(cpu="1")
    first = _manager(story, 1)
    try:
        await story.workload("a")
        await story.until_said("a", "Admitted", "True/Admitted")
        leader = await _holder(story)
        second = _manager(story, 2)
        await story.workload("b")
        await story.until_said("b", "QuotaReserved", "False/WaitingForQuota")
        assert await _holder(story) == leader
        await _stop(first)
        # Until the next one is known, whoever writes a Workload is told to come back: nobody answers for the webhooks.
        await story.until(lambda: _worked(story.finish("a")))
        await story.until_said("b", "Admitted", "True/Admitted")
        assert await _holder(story) not in ("", leader)
        await _stop(second)
    finally:
        await _stop(first)
