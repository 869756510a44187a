"""A manager and a runner in the process of the API server, without sockets between them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from enum import StrEnum
from functools import partial

from kubemachinery import codec, process, unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.delegated_auth import DelegatedAuthorizer
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.meta import Nanoseconds
from kubemachinery.serving.views import merged
from kubeserver.assembly import Embedded
from kubeserver.protocol import authentication
from kubeserver.registry import extensions
from kubeserver.serve import ServerSettings
from kubeserver.storage.sqlite import Durability
from pykueue.api import config
from pykueue.app import options, ports
from pykueue.controllers import forecast_views, history_views, visibility
from pykueue.controllers.assembly import Manager
from pykueue.controllers.history_recorder import HistoryOptions
from pykueue.dashboard.endpoints import PREFIX
from pykueue.dashboard.summaries import ExplainFunction
from pykueue.observe import health
from pykueue.runner import devices
from pykueue.runner.assembly import Runner, configuration_reader
from pykueue.runner.kept_logs import KeptLogs
from pykueue.runner.logs import PodLogs
from pykueue.runner.machine import Machine
from pykueue.runner.process_executor import IN_MEMORY, Database, ProcessExecutor
from pykueue.runner.simulated_executor import SimulatedExecutor
from pykueue.settings import Settings
from pykueue.state.troubles import STARVING_AFTER


@asynccontextmanager
async def embedded_manager(
    embedded: Embedded,
    settings: Settings,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    *,
    explain: ExplainFunction | None = None,
    history: HistoryOptions | None = None,
    starving_after: Nanoseconds = STARVING_AFTER,
) -> AsyncIterator[Manager]:
    """Run a manager in the process of the API server, without leader election.

    `explain` computes the explanations of the dashboard; `history` is where the history is kept; `starving_after` is
    how long a Workload waits before it may count as starving.
    """
    is_real_time = clock is None
    clock = clock or SystemClock()
    client = _client(embedded, rng or random.Random())
    chosen = options.manager_options(settings, history, starving_after, is_real_time=is_real_time)
    manager = Manager(client, chosen, clock, rng or random.Random())
    configuration = {"apiVersion": config.V1BETA2, "kind": config.KIND, **codec.to_tree(settings.configuration)}
    pages = {health.CONFIGURATION_PATH: health.document(configuration)}
    if ports.metrics_address(settings):
        pages["/metrics"] = health.exposition(manager.metrics.scrape)
    seen = (
        visibility.rows(manager.world, manager.informers, manager.forecaster)
        if settings.gates["VisibilityOnDemand"]
        else ()
    )
    views = merged(
        (
            *seen,
            *history_views.rows(manager.history, manager.informers, clock),
            *forecast_views.rows(manager.forecaster, manager.informers),
            *manager.troubles.rows(),
        )
    )
    # If the manager ends, the server ends too: it would accept jobs that no manager admits.
    # On a virtual clock no timer is late.
    monitored = process.monitored_event_loop(manager.metrics.loop_delayed) if is_real_time else nullcontext()
    async with monitored, ports.profiling(manager, settings), manager.reading(), asyncio.TaskGroup() as group:
        leading = group.create_task(manager.lead())
        try:
            with (
                ports.dashboard_pages(manager, DelegatedAuthorizer(client, clock), clock, explain) as shown,
                embedded.registry.extended(extensions.resources(views)),
                embedded.server.showing(pages),
                embedded.server.hosting({PREFIX: shown.answer}),
            ):
                yield manager
        finally:
            leading.cancel()


class RunnerName(StrEnum):
    """The values of `--runner`."""

    PROCESS = "process"
    SIMULATED = "simulated"
    NONE = "none"


@asynccontextmanager
async def embedded_runner(
    embedded: Embedded,
    name: RunnerName,
    settings: ServerSettings,
    machine: Machine,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    *,
    database: Database = IN_MEMORY,
    discards_unknown: bool = False,
) -> AsyncIterator[ProcessExecutor | None]:
    """Run pods in the process of the API server; yields the process executor, if it is one.

    Processes of pods that are not in the database are killed, unless `database` is new or was restored and cannot
    contain them. `discards_unknown` kills these as well.
    """
    if name is RunnerName.NONE:
        yield None
        return
    clock, rng = clock or SystemClock(), rng or random.Random()
    client = _client(embedded, rng)
    if name is RunnerName.SIMULATED:
        simulated = SimulatedExecutor(clock, rng)
        runner = Runner(client, machine, simulated, clock, rng, serves=lambda node: True)
        async with _run(runner, simulated, simulated.sweep):
            yield None
        return

    def present() -> dict[str, int]:
        return devices.counts(
            unstructured.texts(unstructured.get(runner.nodes.get(machine.name), "status", "allocatable"))
        )

    read = configuration_reader(client)
    processes = ProcessExecutor(settings.data_dir / "pods", read, present, clock, os.environ)
    runner = Runner(client, machine, processes, clock, rng, serves=lambda node: node == machine.name)
    kept = KeptLogs(settings.data_dir / "logs")
    processes.keep_logs = kept.keep
    with (
        embedded.server.answering({"pods/log": PodLogs(processes, clock.now)}),
        embedded.registry.extended(extensions.resources([kept.resource()])),
    ):

        async def sweep(known: Iterable[str]) -> None:
            await processes.sweep(known, database, discards_unknown=discards_unknown)

        async with _run(runner, processes, sweep, is_durable=settings.durability is not Durability.MEMORY):
            yield processes


@asynccontextmanager
async def _run(
    runner: Runner,
    executor: ProcessExecutor | SimulatedExecutor,
    sweep: Callable[[Iterable[str]], Awaitable[None]],
    *,
    is_durable: bool = True,
) -> AsyncIterator[None]:
    """Run pods while inside. Pods of a database in memory are killed at the end."""
    try:
        async with runner.reading(), asyncio.TaskGroup() as group:
            await sweep(str(unstructured.get(pod, "metadata", "uid")) for pod in runner.pods.values())
            running = group.create_task(runner.run())
            try:
                yield
            finally:
                running.cancel()
    finally:
        # After the controllers have ended, so that nothing is started again.
        if not is_durable:
            await sweep(())
        await executor.close()


def _client(embedded: Embedded, rng: random.Random) -> ApiClient:
    return ApiClient(LocalTransport(partial(embedded.server.handle_as, authentication.ADMIN)), rng)
