"""The composition root: the only module that builds servers and clocks, and wires the rooms to each other."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import logging
import os
import random
import resource
import socket
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Final

from pykueue import serving
from pykueue.api import codec, config, conversion, meta, registry, schema, trees
from pykueue.apiserver import access, certificates, extensions
from pykueue.apiserver.builtin import admission, scheduling
from pykueue.apiserver.builtin.kinds import RESOURCES
from pykueue.apiserver.embedded import Embedded, Parts
from pykueue.apiserver.health import About
from pykueue.apiserver.store import Durability as Durability
from pykueue.apiserver.store import Journal, Loaded, MemoryJournal, SqliteJournal, StoreError
from pykueue.clock import Clock, SystemClock
from pykueue.controllers import visibility
from pykueue.controllers.aggregation import SERVICE_BESIDE, Aggregated
from pykueue.controllers.assembly import Choices, Manager
from pykueue.controllers.populator import Configuration as PopulatorConfiguration
from pykueue.controllers.populator import Populator
from pykueue.controllers.topology import NodeChoices
from pykueue.core import requests
from pykueue.core.topology import Profile
from pykueue.dashboard.board import Board, Explain
from pykueue.dashboard.board import Sources as DashboardSources
from pykueue.dashboard.pages import PREFIX, Pages
from pykueue.errors import AnswerIsNo, UsageError
from pykueue.installing.names import METRICS_SERVICE
from pykueue.jobs import kinds as job_kinds
from pykueue.jobs.options import Options as JobOptions
from pykueue.kube import access as servers
from pykueue.kube.client import Client, RateLimit
from pykueue.kube.delegation import Door, guarded
from pykueue.kube.election import Election, Terms
from pykueue.kube.transport import LocalTransport
from pykueue.observe import health
from pykueue.observe.metrics import Choices as MetricChoices
from pykueue.observe.metrics import Role
from pykueue.observe.visibility import BIND_PORT, SERVICE
from pykueue.runner import devices, node
from pykueue.runner.logs import Logs
from pykueue.runner.machine import Machine
from pykueue.runner.processes import Processes
from pykueue.runner.running import Runner, configuration_reader
from pykueue.runner.simulated import Simulated
from pykueue.settings import Settings
from pykueue.version import __version__
from pykueue.webhooks import in_process, running
from pykueue.webhooks.facts import InformedSources
from pykueue.webhooks.review import Choices as WebhookChoices

log = logging.getLogger(__name__)

ORPHAN_SECONDS: Final = 6.0
# Without a runner it is somebody else who plays the controllers around us, and who looks at how things end.
UNATTENDED_ORPHAN_SECONDS: Final = 30.0
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
EVERYWHERE: Final = "0.0.0.0"
# Names under which clients inside of a cluster know their server, and which test suites expect in its certificate.
_USUAL_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a server listens, what it keeps where, and how hard."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    durability: Durability = Durability.FULL
    kubeconfig: Path | None = None
    view_kubeconfig: Path | None = None
    # Authorities beside our own whose client certificates are taken.
    client_authorities: tuple[Path, ...] = ()
    # A served certificate that somebody else made, instead of our own, and its key.
    certificate: tuple[Path, Path] | None = None
    hosts: tuple[str, ...] = field(default=())
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that answers."""

    url: str
    kubeconfig: Path
    embedded: Embedded
    credentials: certificates.Credentials


def bare_parts() -> Parts:
    """A server with its built-in kinds alone; objects of our own group are converted here if somebody brings them."""
    return Parts(
        builtin=RESOURCES,
        plugins=admission.hooks,
        conversions={row.group: conversion.convert for row in registry.KUEUE if row.converts},
        initial=scheduling.SYSTEM_CLASSES,
    )


@cache
def kueue_parts() -> Parts:
    """The same with our own kinds as CRDs."""
    return replace(bare_parts(), crds=[schema.crd(row) for row in registry.KUEUE])


def managed_parts(settings: Settings, machine: Machine | None = None, orphan_seconds: float = ORPHAN_SECONDS) -> Parts:
    """The same with our webhooks inside, there before anybody is served; and, for a machine, queues of its size."""
    parts, choices = kueue_parts(), webhook_choices(settings)
    return replace(
        parts,
        plugins=lambda find: (*parts.plugins(find), *in_process.hooks(choices, find)),
        # The controllers write how the Workload of a deleted job ended; that is worth a look before it goes.
        orphan_seconds=orphan_seconds,
        first=node.queues(machine) if machine is not None else (),
    )


@asynccontextmanager
async def api_server(
    settings: ServerSettings, parts: Parts, clock: Clock | None = None, chance: random.Random | None = None
) -> AsyncIterator[Serving]:
    """A server on a port, ready; its kubeconfig appears when it is."""
    clock = clock or SystemClock()
    kubeconfig = settings.kubeconfig or settings.data_dir / "kubeconfig"
    # Its appearance says that the server is ready, so one from an earlier life has to go first.
    kubeconfig.unlink(missing_ok=True)
    hosts = tuple(dict.fromkeys((settings.host, *LOOPBACK, *_USUAL_NAMES, *settings.hosts)))
    now = datetime.datetime.fromtimestamp(clock.now() / 1e9, datetime.UTC)
    with _opened(settings) as (journal, loaded, executor):
        credentials = certificates.prepare(settings.data_dir / "pki", hosts, now)
        door = access.Access({credentials.admin_token: access.ADMIN, credentials.view_token: access.VIEWER}, hosts)
        keeps = settings.durability is not Durability.MEMORY
        embedded = Embedded(
            parts,
            journal,
            door,
            clock,
            chance or random.SystemRandom(),
            About(__version__, settings.durability, settings.data_dir / "backups" if keeps else None),
            loaded=loaded,
            executor=executor,
        )
        http = None
        try:
            await embedded.start()
            tls = _tls(settings, credentials)
            http = await _listen(embedded, settings, tls)
            url = f"https://{f'[{http.host}]' if ':' in http.host else http.host}:{http.port}"
            _write_kubeconfigs(settings, credentials, url, kubeconfig)
            yield Serving(url, kubeconfig, embedded, credentials)
        finally:
            embedded.stop_watches()
            if http is not None:
                await http.close()
            await embedded.close()


def webhook_choices(settings: Settings) -> WebhookChoices:
    jobs = JobOptions.of(settings.configuration, settings.gates, settings.pod_namespace_selector)
    return WebhookChoices.of(job_kinds.load(), jobs, settings.gates, only_declared=settings.ignores_undeclared)


def manager_choices(settings: Settings) -> Choices:
    """What the operator said, in the words of each room. The manager departs from Kueue where that is wrong."""
    resources, on = settings.configuration.resources, settings.gates
    prefixes = resources.exclude_resource_prefixes if resources else ()
    transformations = resources.transformations if resources else ()
    return Choices(
        policy=replace(settings.policy, departures=True),
        accounting=requests.accounting(prefixes, transformations),
        profile=Profile.of(on),
        kinds=job_kinds.load(),
        jobs=JobOptions.of(settings.configuration, settings.gates, settings.pod_namespace_selector),
        nodes=NodeChoices(
            on_pod_termination=on["TASReplaceNodeOnPodTermination"], on_taints=on["TASReplaceNodeOnNodeTaints"]
        ),
        blocks_admission=bool(
            settings.configuration.wait_for_pods_ready
            and settings.configuration.wait_for_pods_ready.block_admission
            and not on["DisableWaitForPodsReady"]
        ),
        default_local_queues=on["DefaultLocalQueue"],
        cleans_up_requests=on["CleanupProvisioningRequestsOnEviction"],
        metrics=MetricChoices.of(settings.configuration, settings.gates),
    )


async def manage(
    target: servers.Target,
    settings: Settings,
    clock: Clock | None = None,
    chance: random.Random | None = None,
    *,
    built: Callable[[Manager], None] = lambda manager: None,
    dashboard: tuple[str, int] | None = None,
    explain: Explain | None = None,
) -> None:
    """Manage a cluster until cancelled, or until somebody else leads. `built` gets the manager, to look at it.

    `dashboard` is where the dashboard is served, if anywhere, and `explain` what it asks why a Workload waits.
    """
    clock, chance = clock or SystemClock(), chance or random.Random()
    connection = settings.configuration.client_connection or config.ClientConnection()
    limit = RateLimit(connection.qps or 0.0, connection.burst or 0)
    transport = servers.connect(target, clock, user_agent=f"pykueue-manager/{__version__}")
    # What keeps the manager in office, its lease and its webhooks, waits behind no limit.
    office = Client(transport, chance)
    identity = f"{socket.gethostname()}_{uuid.UUID(int=chance.getrandbits(128), version=4)}"
    election = Election(office, clock, _terms(settings), identity)
    leads_alone = not (settings.configuration.leader_election or config.LeaderElection()).leader_elect
    client = Client(transport, chance, limit)
    candidate = None if leads_alone else election
    manager = Manager(client, manager_choices(settings), clock, chance, instance=identity, election=candidate)
    built(manager)
    manager.metrics.role = Role.STANDALONE if leads_alone else Role.FOLLOWER

    conf = settings.configuration
    in_pod = target.folder == servers.SERVICE_ACCOUNT
    sources = InformedSources(office, manager.views.shaping, election.is_over)
    answers: list[running.Served] = []

    async def lead() -> None:
        if not leads_alone:
            manager.metrics.role = Role.LEADER
        # The API server asks whoever leads; the others answer behind the same Service where there is one.
        await answers[0].register()
        await (manager.lead() if leads_alone else manager.take_over())

    def missing() -> str:
        return "" if answers else "webhooks are not served yet"

    try:
        async with _probes_served(settings, missing, in_pod), manager.reading():
            if in_pod:
                place = running.in_cluster(office, conf, (SERVICE, METRICS_SERVICE))
            else:
                place = await running.beside(office, conf, (SERVICE_BESIDE,))
            choices = webhook_choices(settings)
            fenced = office if candidate is None else office.fenced(candidate.may_write)
            async with (
                running.webhooks(fenced, choices, sources, place, clock, conf.namespace) as served,
                _metrics_served(manager, settings, served, Door(office, clock), in_pod),
                _lists_served(manager, settings, served, Door(office, clock), in_pod),
                _dashboard_served(manager, dashboard, served, Door(office, clock), clock, explain),
            ):
                answers.append(served)
                await (lead() if leads_alone else election.run(lead))
    finally:
        await transport.close()
    raise AnswerIsNo("the lease was lost: another manager may lead now")


async def populate(
    target: servers.Target,
    configuration: PopulatorConfiguration,
    clock: Clock | None = None,
    chance: random.Random | None = None,
) -> None:
    """Make default LocalQueues in a cluster until cancelled."""
    clock, chance = clock or SystemClock(), chance or random.Random()
    transport = servers.connect(target, clock, user_agent=f"pykueue-populator/{__version__}")
    try:
        await Populator(Client(transport, chance), configuration, clock, chance, instance=socket.gethostname()).run()
    finally:
        await transport.close()


@asynccontextmanager
async def _metrics_served(
    manager: Manager, settings: Settings, served: running.Served, door: Door, in_pod: bool
) -> AsyncIterator[None]:
    """Metrics on a port of their own while inside: open to who works on this machine, else for those who may.

    A port that is taken costs the metrics, and not the manager: work that nobody admits is worse than figures that
    nobody sees.
    """
    address = metrics_address(settings, EVERYWHERE if in_pod else LOOPBACK[0])
    if address is None:
        yield
        return
    handler, tls = health.exposition(manager.metrics.exposition), None
    if address[0] not in LOOPBACK:
        handler, tls = guarded(handler, door), served.another_context()
    async with _served("metrics", handler, address, tls):
        yield


@asynccontextmanager
async def _lists_served(
    manager: Manager, settings: Settings, served: running.Served, door: Door, in_pod: bool
) -> AsyncIterator[None]:
    """Who waits where, for an API server that passes on what it is asked about it."""
    chosen = settings.configuration.visibility_server or config.VisibilityServerConfiguration()
    if not settings.gates["VisibilityOnDemand"]:
        yield
        return
    namespace = settings.configuration.namespace or config.DEFAULT_NAMESPACE
    tls = served.another_context()
    lists = Aggregated(door, tls, namespace, beside=not in_pod)
    await served.accompany(lists)
    handler = extensions.handler(visibility.rows(manager.world, manager.views), lists.admit)
    # Beside a cluster any port will do: the API server is told which one it is.
    address = (chosen.bind_address or EVERYWHERE, chosen.bind_port or BIND_PORT) if in_pod else (LOOPBACK[0], 0)
    async with _served("visibility API", handler, address, tls) as http:
        if http is not None:
            lists.port = http.port
        yield


@asynccontextmanager
async def _dashboard_served(
    manager: Manager,
    address: tuple[str, int] | None,
    served: running.Served,
    door: Door,
    clock: Clock,
    explain: Explain | None,
) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    with _dashboard(manager, door, clock, explain) as pages:
        async with _served("dashboard", pages.answer, address, served.another_context()) as http:
            if http is not None:
                log.info("dashboard at https://%s:%s%s", http.host, http.port, PREFIX)
            yield


@contextlib.contextmanager
def _dashboard(manager: Manager, door: Door, clock: Clock, explain: Explain | None) -> Iterator[Pages]:
    """The dashboard over what a manager knows; leaving it ends the streams of those who watch."""
    views = manager.views
    sources = DashboardSources(
        world=manager.world,
        workloads=views.workloads,
        local_queues=views.local_queues,
        cluster_queues=views.cluster_queues,
        flavors=views.flavors,
        shaping=views.shaping,
        explain=explain,
    )
    pages = Pages(Board(sources, clock), door)
    try:
        yield pages
    finally:
        pages.close()


@asynccontextmanager
async def _probes_served(settings: Settings, missing: health.Question, in_pod: bool) -> AsyncIterator[None]:
    """The answers to the probes of a kubelet, which asks the pod's own address; beside a cluster, this machine's."""
    chosen = settings.configuration.health or config.ControllerHealth()
    anywhere = EVERYWHERE if in_pod else LOOPBACK[0]
    address = _address("health.healthProbeBindAddress", chosen.health_probe_bind_address, anywhere)
    if address is None:
        yield
        return
    handler = health.probes(
        {"webhooks": missing}, alive=chosen.liveness_endpoint_name, ready=chosen.readiness_endpoint_name
    )
    async with _served("health probes", handler, address):
        yield


@asynccontextmanager
async def _served(
    what: str, handler: serving.Handler, address: tuple[str, int], tls: ssl.SSLContext | None = None
) -> AsyncIterator[serving.HttpServer | None]:
    http = None
    try:
        http = await serving.serve(handler, *address, tls=tls)
    except OSError as error:
        log.error("no %s: cannot listen on %s:%s: %s", what, *address, error.strerror or error)
    try:
        yield http
    finally:
        if http is not None:
            await http.close()


def metrics_address(settings: Settings, anywhere: str = LOOPBACK[0]) -> tuple[str, int] | None:
    """Where `metrics.bindAddress` says that metrics are served; None where they are turned off."""
    text = (settings.configuration.metrics or config.ControllerMetrics()).bind_address
    return _address("metrics.bindAddress", text, anywhere)


def _address(field: str, text: str, anywhere: str) -> tuple[str, int] | None:
    """HOST:PORT as the Configuration spells it. Without a host it is `anywhere`; `0` turns the server off."""
    if text in ("", "0"):
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{field} {text}: must be HOST:PORT, :PORT or 0")
    return host.removeprefix("[").removesuffix("]") or anywhere, int(port)


def _terms(settings: Settings) -> Terms:
    chosen = settings.configuration.leader_election or config.LeaderElection()

    def seconds(text: str | None, otherwise: float) -> float:
        return meta.parse_duration(text) / meta.SECOND if text else otherwise

    return Terms(
        name=chosen.resource_name,
        namespace=chosen.resource_namespace or settings.configuration.namespace or config.DEFAULT_NAMESPACE,
        lease_seconds=seconds(chosen.lease_duration, 15.0),
        renew_seconds=seconds(chosen.renew_deadline, 10.0),
        retry_seconds=seconds(chosen.retry_period, 2.0),
    )


@asynccontextmanager
async def embedded_manager(
    embedded: Embedded,
    settings: Settings,
    clock: Clock | None = None,
    chance: random.Random | None = None,
    *,
    explain: Explain | None = None,
) -> AsyncIterator[Manager]:
    """A manager in the process of its server, without sockets between them and without rivals.

    `explain` is what the dashboard asks why a Workload waits.
    """
    clock = clock or SystemClock()
    client = Client(LocalTransport(partial(embedded.server.handle_as, access.ADMIN)), chance or random.Random())
    manager = Manager(client, manager_choices(settings), clock, chance or random.Random())
    said = {"apiVersion": config.V1BETA2, "kind": config.KIND, **codec.to_tree(settings.configuration)}
    pages = {health.CONFIGURATION_PATH: health.document(said)}
    if metrics_address(settings):
        pages["/metrics"] = health.exposition(manager.metrics.exposition)
    seen = visibility.rows(manager.world, manager.views) if settings.gates["VisibilityOnDemand"] else ()
    # What ends the manager ends everything: a server that takes work which nobody looks at would be worse.
    async with manager.reading(), asyncio.TaskGroup() as group:
        leading = group.create_task(manager.lead())
        try:
            with (
                _dashboard(manager, Door(client, clock), clock, explain) as shown,
                embedded.registry.extended(seen),
                embedded.server.showing(pages),
                embedded.server.hosting({PREFIX: shown.answer}),
            ):
                yield manager
        finally:
            leading.cancel()


class RunnerName(StrEnum):
    """What becomes of started pods."""

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
    chance: random.Random | None = None,
) -> AsyncIterator[Processes | None]:
    """Somebody who runs pods, in the process of their server; the processes, where these are any."""
    if name is RunnerName.NONE:
        yield None
        return
    clock, chance = clock or SystemClock(), chance or random.Random()
    client = Client(LocalTransport(partial(embedded.server.handle_as, access.ADMIN)), chance)
    if name is RunnerName.SIMULATED:
        pretended = Simulated(clock, chance)
        runner = Runner(client, machine, pretended, clock, chance, serves=lambda node: True)
        async with _run(runner, pretended):
            yield None
        return

    def present() -> dict[str, int]:
        return devices.counts(trees.texts(trees.get(runner.nodes.get(machine.name), "status", "allocatable")))

    read = configuration_reader(client)
    processes = Processes(settings.data_dir / "pods", read, present, clock, os.environ)
    runner = Runner(client, machine, processes, clock, chance, serves=lambda node: node == machine.name)
    with embedded.server.answering({"pods/log": Logs(processes, clock.now)}):
        async with _run(runner, processes, remembered=settings.durability is not Durability.MEMORY):
            yield processes


@asynccontextmanager
async def _run(runner: Runner, executor: Processes | Simulated, *, remembered: bool = True) -> AsyncIterator[None]:
    """Run pods while inside. What no server will remember does not go on afterwards."""
    try:
        async with runner.reading(), asyncio.TaskGroup() as group:
            await executor.sweep(str(trees.get(pod, "metadata", "uid")) for pod in runner.pods.values())
            running = group.create_task(runner.run())
            try:
                yield
            finally:
                running.cancel()
    finally:
        # Only now, when nobody is left who would start it again.
        if not remembered:
            await executor.sweep(())
        await executor.close()


def _tls(settings: ServerSettings, credentials: certificates.Credentials) -> ssl.SSLContext:
    certificate, key = settings.certificate or (credentials.server, None)
    return certificates.server_context(certificate, key, credentials.ca, *settings.client_authorities)


async def _listen(embedded: Embedded, settings: ServerSettings, tls: ssl.SSLContext) -> serving.HttpServer:
    try:
        return await serving.serve(embedded.server.handle, settings.host, settings.port, tls=tls)
    except OSError as error:
        raise UsageError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}") from None


def _write_kubeconfigs(settings: ServerSettings, credentials: certificates.Credentials, url: str, path: Path) -> None:
    if settings.view_kubeconfig is not None:
        view = certificates.kubeconfig(url, credentials.ca, credentials.viewer, credentials.view_token, "view")
        certificates.write_private(settings.view_kubeconfig, view)
    admin = certificates.kubeconfig(url, credentials.ca, credentials.admin, credentials.admin_token)
    certificates.write_private(path, admin)


@contextlib.contextmanager
def _opened(settings: ServerSettings) -> Iterator[tuple[Journal, Loaded | None, ThreadPoolExecutor | None]]:
    """The journal, what it held, and the one thread that may use it from now on."""
    if settings.durability is Durability.MEMORY:
        yield MemoryJournal(), None, None
        return
    try:
        journal = SqliteJournal(
            settings.data_dir,
            durability=settings.durability,
            cluster_id=str(uuid.uuid4()),
            max_bytes=settings.max_bytes,
        )
    except OSError as error:
        raise UsageError(f"the data directory cannot be used: {settings.data_dir}: {error.strerror}") from None
    except StoreError as error:
        raise UsageError(f"the data directory cannot be used: {error}") from None
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal") as executor:
        yield journal, journal.load(), executor


def calm_collector() -> None:
    """Tell Python's garbage collector that this process is a server; call it once, when all is set up.

    Requests make many short-lived trees and no cycles. Left alone, the collector looks for cycles every few hundred
    objects and walks everything that is kept every now and then: a quarter of the time of a write, measured.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def allow_many_files() -> None:
    """Every connection is a file to the system, and the usual limit of a shell is soon reached by watches."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536, hard))


@asynccontextmanager
async def etcd_stand_in(host: str, port: int) -> AsyncIterator[None]:
    """Says that it is healthy. A test suite waits for that before it starts an API server; ours needs nothing of it."""

    async def answer(request: serving.Request) -> serving.Response:
        return serving.Response(body=b'{"health":"true","reason":""}')

    http = await serving.serve(answer, host, port)
    try:
        yield
    finally:
        await http.close()
