"""The servers of a manager: probes, profiling, metrics, visibility API, dashboard.

A port that is in use disables its server, not the manager: admission matters more than metrics.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from kubemachinery import codec, http_messages, http_server
from kubemachinery.client.client import ApiClient
from kubemachinery.client.delegated_auth import DelegatedAuthorizer, authorized
from kubemachinery.client.errors import KubeError
from kubemachinery.clock import Clock
from kubemachinery.errors import UsageError
from kubemachinery.serving import aggregated_api
from kubemachinery.serving.views import merged
from pykueue.api import config, kube, registry
from pykueue.controllers import forecast_views, history_views, visibility
from pykueue.controllers.aggregation import Aggregated
from pykueue.controllers.assembly import Manager
from pykueue.controllers.informers import Informers
from pykueue.observe import health, state_dump
from pykueue.observe import profiling as profiles
from pykueue.observe.visibility import BIND_PORT
from pykueue.settings import Settings, is_address
from pykueue.webhooks import webhook_server

if TYPE_CHECKING:
    from pykueue.dashboard.endpoints import DashboardEndpoints
    from pykueue.dashboard.summaries import ExplainFunction

log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
EVERYWHERE: Final = "0.0.0.0"

Address: TypeAlias = tuple[str, int]


@asynccontextmanager
async def probes(settings: Settings, missing: health.ReadinessCheck, in_pod: bool) -> AsyncIterator[None]:
    """Serve the probes while inside: on all addresses in a pod, for the kubelet; else on loopback."""
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
async def profiling(manager: Manager, settings: Settings, anywhere: str = LOOPBACK[0]) -> AsyncIterator[None]:
    """Serve profiles, stacks and the state of the scheduler while inside, if `pprofBindAddress` is set."""
    address = _address("pprofBindAddress", settings.configuration.pprof_bind_address, anywhere)
    if address is None:
        yield
        return
    handler = profiles.handler(lambda: state_dump.document(manager.world))
    async with _served("profiling", handler, address):
        yield


@asynccontextmanager
async def metrics(
    manager: Manager,
    settings: Settings,
    served: webhook_server.WebhookServer,
    authorizer: DelegatedAuthorizer,
    in_pod: bool,
) -> AsyncIterator[None]:
    """Serve metrics while inside: without authentication on loopback, else over TLS with authorization."""
    address = metrics_address(settings, EVERYWHERE if in_pod else LOOPBACK[0])
    if address is None:
        yield
        return
    handler, tls = health.exposition(manager.metrics.scrape), None
    if address[0] not in LOOPBACK:
        handler, tls = authorized(handler, authorizer), served.another_context()
    async with _served("metrics", handler, address, tls):
        yield


@asynccontextmanager
async def visibility_api(
    manager: Manager,
    settings: Settings,
    served: webhook_server.WebhookServer,
    authorizer: DelegatedAuthorizer,
    in_pod: bool,
    clock: Clock,
) -> AsyncIterator[None]:
    """Serve the visibility API and `views.pykueue.io` while inside; the API server forwards requests to them."""
    chosen = settings.configuration.visibility_server or config.VisibilityServerConfiguration()
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
    namespace = settings.configuration.namespace or config.DEFAULT_NAMESPACE
    tls = served.another_context()
    groups = tuple(dict.fromkeys((row.group, row.version) for row in views))
    aggregated = Aggregated(authorizer, tls, namespace, groups, beside=not in_pod)
    await served.accompany(aggregated)
    handler = aggregated_api.handler(views, aggregated.admit)
    # Outside the cluster any port will do: it is registered with the API server.
    address = (chosen.bind_address or EVERYWHERE, chosen.bind_port or BIND_PORT) if in_pod else (LOOPBACK[0], 0)
    async with _served("visibility API", handler, address, tls) as http:
        if http is not None:
            aggregated.port = http.port
        yield


@asynccontextmanager
async def dashboard(
    manager: Manager,
    address: Address | None,
    served: webhook_server.WebhookServer,
    authorizer: DelegatedAuthorizer,
    clock: Clock,
    explain: ExplainFunction | None,
) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    from pykueue.dashboard.endpoints import PREFIX

    with dashboard_pages(manager, authorizer, clock, explain) as pages:
        async with _served("dashboard", pages.answer, address, served.another_context()) as http:
            if http is not None:
                log.info("dashboard at https://%s:%s%s", http.host, http.port, PREFIX)
            yield


@contextmanager
def dashboard_pages(
    manager: Manager, authorizer: DelegatedAuthorizer, clock: Clock, explain: ExplainFunction | None
) -> Iterator[DashboardEndpoints]:
    """Return the endpoints of the dashboard for a manager; their streams end on exit."""
    # The dashboard is off by default, and its modules take memory.
    from pykueue.dashboard.endpoints import DashboardEndpoints
    from pykueue.dashboard.summaries import DashboardSources, DashboardSummaries

    informers = manager.informers
    sources = DashboardSources(
        world=manager.world,
        workloads=informers.workloads,
        local_queues=informers.local_queues,
        cluster_queues=informers.cluster_queues,
        flavors=informers.flavors,
        shaping=informers.shaping,
        explain=explain,
        unwatched=partial(_unwatched, authorizer.client, manager.informers),
        troubles=manager.troubles.found,
        history=manager.history.ask if manager.history is not None else None,
        budgets=manager.budgets.budgets if manager.budgets is not None else None,
        forecasts=manager.forecaster,
    )
    pages = DashboardEndpoints(DashboardSummaries(sources, clock), authorizer)
    try:
        yield pages
    finally:
        pages.close()


async def _unwatched(client: ApiClient, informers: Informers, namespace: str) -> list[msgspec.Struct]:
    """The QuotaSchedules and Budgets; without topologies also the nodes, and the pods of a namespace that have none.
    Kinds that are not served, or that the manager may not list, are left out."""
    wanted = [(row, "", "") for row in registry.EXTENSIONS]
    if informers.nodes not in informers.shaping:
        wanted += [(registry.ALL.of(kube.Node), "", ""), (registry.ALL.of(kube.Pod), namespace, "spec.nodeName=")]
    found: list[msgspec.Struct] = []
    for row, place, fields in wanted:
        try:
            listing = await client.list(row, place, fields=fields)
        except KubeError:
            continue
        found += [codec.decode(bytes(item), row.type) for item in listing.items]
    return found


@asynccontextmanager
async def _served(
    name: str, handler: http_messages.Handler, address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[http_server.HttpServer | None]:
    http = None
    try:
        http = await http_server.serve(handler, *address, tls=tls)
    except OSError as error:
        log.error("%s is not served: cannot listen on %s:%s: %s", name, *address, error.strerror or error)
    try:
        yield http
    finally:
        if http is not None:
            await http.close()


def metrics_address(settings: Settings, anywhere: str = LOOPBACK[0]) -> Address | None:
    """Return the address of the metrics server (`metrics.bindAddress`); None if it is disabled."""
    text = (settings.configuration.metrics or config.ControllerMetrics()).bind_address
    return _address("metrics.bindAddress", text, anywhere)


def _address(field: str, text: str, anywhere: str) -> Address | None:
    """Parse HOST:PORT of the Configuration. Without a host it is `anywhere`; `0` disables the server."""
    if not is_address(text):
        raise UsageError(f"{field} {text}: must be HOST:PORT, :PORT or 0")
    if text in ("", "0"):
        return None
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]") or anywhere, int(port)
