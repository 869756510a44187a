"""`controller` of the Configuration: workers for each kind, and how long a start waits for its first lists."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from controllers.conftest import Environment
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import NotSynced
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.transport import ApiRequest, ApiResponse
from kubemachinery.clock import SystemClock
from pykueue import settings
from pykueue.api import config
from pykueue.app.options import manager_options
from pykueue.controllers import concurrency
from pykueue.controllers.assembly import Manager
from pykueue.jobs import kinds


def load(**controller: Any) -> settings.Settings:
    return settings.load({"apiVersion": config.V1BETA2, "kind": config.KIND, "controller": controller})


def manager(chosen: settings.Settings, env: Environment) -> Manager:
    return Manager(env.client, manager_options(chosen), SystemClock(), random.Random(1))


async def test_every_kind_that_is_known_limits_a_controller(env: Environment) -> None:
    known = sorted(concurrency.known(kinds.load()))
    plain, limited = manager(load(), env), manager(load(groupKindConcurrency=dict.fromkeys(known, 50)), env)
    assert not load(groupKindConcurrency=dict.fromkeys(known, 50)).notices
    of_everything = {loop.name for loop in limited.loops}
    assert concurrency.names() <= of_everything | {"multikueue-checks", "elastic-gate", "failure-recovery"}
    more = {loop.name for loop, before in zip(limited.loops, plain.loops, strict=True) if loop.workers > before.workers}
    assert more == concurrency.names() & of_everything


async def test_a_number_below_one_changes_nothing(env: Environment) -> None:
    chosen = load(groupKindConcurrency={"Workload.kueue.x-k8s.io": 0, "Job.batch": -3})
    counts = [loop.workers for loop in manager(chosen, env).loops]
    assert counts == [loop.workers for loop in manager(load(), env).loops]


def test_a_kind_that_nothing_reconciles_gives_a_notice() -> None:
    (notice,) = load(groupKindConcurrency={"Job.batch": 5, "RayJob.ray.example": 5}).notices
    assert notice.startswith("controller.groupKindConcurrency[RayJob.ray.example]: has no effect")


class NeverLists:
    """A server that never answers lists."""

    async def send(self, call: ApiRequest) -> ApiResponse:
        await asyncio.Event().wait()
        raise AssertionError

    def stream(self, call: ApiRequest) -> Any:
        return self

    async def __aenter__(self) -> Any:
        await asyncio.Event().wait()

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None: ...


async def test_a_start_that_cannot_read_its_objects_in_time_fails_with_their_kinds() -> None:
    chosen = manager_options(load(cacheSyncTimeout=50_000_000))
    stuck = Manager(ApiClient(NeverLists(), random.Random(1)), chosen, SystemClock(), random.Random(1))
    with pytest.raises(ExceptionGroup) as caught:
        async with stuck.reading():
            raise AssertionError
    found = caught.value.subgroup(NotSynced)
    assert found is not None
    (error,) = found.exceptions
    assert "clusterqueues.kueue.x-k8s.io" in str(error)
    assert str(error).endswith("within 0.05 seconds (controller.cacheSyncTimeout)")


async def test_a_kind_that_is_not_served_yet_is_waited_for(env: Environment) -> None:
    transport = env.transport()
    assert isinstance(transport, LocalTransport)
    chosen = manager_options(load(cacheSyncTimeout=1))  # a nanosecond
    there = Manager(ApiClient(transport, random.Random(1)), chosen, SystemClock(), random.Random(1))
    for informer in there.copies:
        informer.is_served = False
    async with asyncio.timeout(30), there.reading():
        pass


def test_a_timeout_of_zero_is_two_minutes_as_in_kueue() -> None:
    assert manager_options(load(cacheSyncTimeout=0)).sync_timeout_seconds == 120
    assert manager_options(load()).sync_timeout_seconds == 120
