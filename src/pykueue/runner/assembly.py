"""The assembled runner: it creates the pods of Jobs and other kinds, and runs them on this machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.clock_watch import ClockWatch
from kubemachinery.client.event_recorder import EventRecorder
from kubemachinery.client.informer import Informer, run_informers
from kubemachinery.clock import Clock
from pykueue.api import kube, registry
from pykueue.runner import process_spec
from pykueue.runner.controllers import JOBS, NODES, PODS, BatchJobController, PodController, Trees
from pykueue.runner.executor import ContainerExecutor
from pykueue.runner.machine import Machine
from pykueue.runner.node import NodeHeartbeat
from pykueue.runner.process_executor import Read
from pykueue.runner.replica_controllers import ReplicaControllers

_CONFIGURATION = {kind.__name__: registry.ALL.of(kind) for kind in (kube.ConfigMap, kube.Secret)}


class Runner:
    """The controllers around one executor; `run` starts them."""

    def __init__(
        self,
        client: ApiClient,
        machine: Machine,
        executor: ContainerExecutor,
        clock: Clock,
        rng: random.Random,
        *,
        serves: Callable[[str], bool],
    ) -> None:
        def copy(kind: Any) -> Trees:
            return Informer(client, kind, codec.shared_tree, rng)

        self._jobs, self.pods, self.nodes = copy(JOBS), copy(PODS), copy(NODES)
        self._keeper = NodeHeartbeat(client, machine, clock)
        self._events = EventRecorder(client, clock, machine.name, compares_notes=True)
        replicas = ReplicaControllers(client, self._jobs, self.pods, copy, self._events, clock, rng)
        self._replicas = tuple(replicas.informers.values())
        self._pod_controller = PodController(client, self.pods, self.nodes, executor, self._events, clock, rng, serves)
        self._loops = (
            replicas.loop,
            BatchJobController(client, self._jobs, self.pods, self._events, clock, rng).loop,
            self._pod_controller.loop,
        )
        self._clock_watch = ClockWatch(clock, self._loops)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Create the Node, sync the informers, and keep them running while inside."""
        await self._keeper.begin()
        async with run_informers((self.nodes, self._jobs, self.pods, *self._replicas)):
            yield

    async def run(self) -> None:
        """Run pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events.run(), name="runner-events")
            group.create_task(self._keeper.run(), name="node")
            group.create_task(self._clock_watch.run(), name="runner-clock")
            await self._pod_controller.report_ended()
            for loop in self._loops:
                group.create_task(loop.run(), name=f"runner-{loop.name}")


def configuration_reader(client: ApiClient) -> Read:
    """Return a reader of the entries of ConfigMaps and Secrets, for the environment of processes."""

    async def read(namespace: str, kind: str, name: str) -> dict[str, str] | None:
        found = await client.find(_CONFIGURATION[kind], name, namespace)
        return process_spec.texts_of(kind, found) if found is not None else None

    return read
