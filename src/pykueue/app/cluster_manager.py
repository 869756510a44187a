"""The manager for any cluster, inside it or outside; and the populator, which only creates default LocalQueues."""

from __future__ import annotations

import logging
import random
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kubemachinery import process
from kubemachinery.client import client_config as servers
from kubemachinery.client.client import ApiClient, RateLimiter
from kubemachinery.client.delegated_auth import DelegatedAuthorizer
from kubemachinery.client.leader_election import LeaderElector
from kubemachinery.client.transport import Transport
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.meta import Nanoseconds
from pykueue.api import config
from pykueue.app import options, ports
from pykueue.app.ports import Address
from pykueue.controllers.aggregation import SERVICE_BESIDE
from pykueue.controllers.assembly import Manager, ManagerOptions
from pykueue.controllers.history_recorder import HistoryOptions
from pykueue.controllers.populator import Populator, PopulatorConfiguration
from pykueue.errors import NegativeResult
from pykueue.install.names import METRICS_SERVICE
from pykueue.observe.metrics import ReplicaRole
from pykueue.observe.visibility import SERVICE
from pykueue.settings import Settings, notices_beside
from pykueue.state.troubles import STARVING_AFTER
from pykueue.version import __version__
from pykueue.webhooks import webhook_server
from pykueue.webhooks.facts import InformerSources

if TYPE_CHECKING:
    from pykueue.dashboard.summaries import ExplainFunction

log = logging.getLogger(__name__)


async def manage(
    target: servers.ClientConfig,
    settings: Settings,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    *,
    built: Callable[[Manager], None] = lambda manager: None,
    dashboard: Address | None = None,
    explain: ExplainFunction | None = None,
    webhook_client_authority: Path | None = None,
    history: HistoryOptions | None = None,
    starving_after: Nanoseconds = STARVING_AFTER,
) -> None:
    """Manage a cluster until cancelled, or until the lease is lost. `built` is called with the manager.

    `dashboard` is the address of the dashboard, if it is served, and `explain` computes its explanations.
    `webhook_client_authority` signs the client certificates that the webhooks require. `history` is where the history
    of Workloads is kept, if it is; `starving_after` is how long a Workload waits before it may count as starving.
    """
    clock, rng = clock or SystemClock(), rng or random.Random()
    agent = f"pykueue-manager/{__version__}"
    transport = servers.connect(target, clock, user_agent=agent)
    in_pod = target.folder == servers.SERVICE_ACCOUNT

    def own_connection() -> ApiClient:
        return ApiClient(servers.connect(target, clock, user_agent=agent, connections=2), random.Random())

    chosen = options.manager_options(settings, history, starving_after)
    running = _ClusterManager(transport, settings, clock, rng, chosen, in_pod=in_pod, own_connection=own_connection)
    built(running.manager)
    for notice in () if in_pod else notices_beside(settings):
        log.warning("configuration: %s", notice)
    try:
        await running.serve(dashboard, explain, webhook_client_authority)
    finally:
        await transport.close()
    raise NegativeResult("the lease was lost: another manager may be the leader now")


class _ClusterManager:
    """A manager with its servers: informers and webhooks always run, controllers and scheduler while it is the
    leader."""

    def __init__(
        self,
        transport: Transport,
        settings: Settings,
        clock: Clock,
        rng: random.Random,
        chosen: ManagerOptions,
        *,
        in_pod: bool,
        own_connection: Callable[[], ApiClient],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._in_pod = in_pod
        # Requests of leader election and webhooks are not rate limited.
        self._unlimited = ApiClient(transport, rng)
        self._leads_alone = not (settings.configuration.leader_election or config.LeaderElection()).leader_elect
        identity = f"{socket.gethostname()}_{uuid.UUID(int=rng.getrandbits(128), version=4)}"
        election_config = options.leader_election_config(settings)
        self._election = LeaderElector(self._unlimited, clock, election_config, identity, own_connection=own_connection)
        self._candidate = None if self._leads_alone else self._election
        connection = settings.configuration.client_connection or config.ClientConnection()
        client = ApiClient(transport, rng, RateLimiter(connection.qps or 0.0, connection.burst or 0))
        self.manager = Manager(client, chosen, clock, rng, instance=identity, election=self._candidate)
        self.manager.metrics.set_role(ReplicaRole.STANDALONE if self._leads_alone else ReplicaRole.FOLLOWER)
        self._webhooks: webhook_server.WebhookServer | None = None

    async def serve(
        self, dashboard: Address | None, explain: ExplainFunction | None, webhook_client_authority: Path | None = None
    ) -> None:
        """Serve until cancelled, or until the lease is lost."""
        settings, manager, in_pod = self._settings, self.manager, self._in_pod
        sources = InformerSources(self._unlimited, manager.informers.shaping, self._election.is_superseded)
        fenced = self._unlimited if self._candidate is None else self._unlimited.with_fence(self._candidate.may_write)
        anywhere = ports.EVERYWHERE if in_pod else ports.LOOPBACK[0]
        async with (
            process.monitored_event_loop(manager.metrics.loop_delayed),
            ports.probes(settings, self._missing, in_pod),
            ports.profiling(manager, settings, anywhere),
        ):
            serving, own = await self._serving_options(), settings.configuration.namespace
            serving = replace(serving, client_authority=webhook_client_authority)
            chosen = options.webhook_options(settings)
            # Before objects are read: the API server may need the conversion webhook to list them.
            async with webhook_server.webhooks(
                fenced, chosen, sources, serving, self._clock, own, settings.tls.profile
            ) as served:
                # Ready: the Service leads to managers that are, and conversions have to reach this one.
                self._webhooks = served
                async with (
                    manager.reading(),
                    ports.metrics(manager, settings, served, self._authorizer(), in_pod),
                    ports.visibility_api(manager, settings, served, self._authorizer(), in_pod, self._clock),
                    ports.dashboard(manager, dashboard, served, self._authorizer(), self._clock, explain),
                ):
                    await (self._lead() if self._leads_alone else self._election.run(self._lead))

    async def _serving_options(self) -> webhook_server.ServingOptions:
        """Return where the webhooks are served and how the API server reaches them."""
        configuration = self._settings.configuration
        if self._in_pod:
            return webhook_server.in_cluster(self._unlimited, configuration, (SERVICE, METRICS_SERVICE))
        return await webhook_server.beside(self._unlimited, configuration, (SERVICE_BESIDE,))

    def _authorizer(self) -> DelegatedAuthorizer:
        """Return an authorizer; one per port, because requests that the API server forwards are trusted on one port
        only."""
        return DelegatedAuthorizer(self._unlimited, self._clock)

    def _missing(self) -> str:
        return "" if self._webhooks is not None else "webhooks are not served yet"

    async def _lead(self) -> None:
        assert self._webhooks is not None, "the manager leads only after its webhooks are served"
        if not self._leads_alone:
            self.manager.metrics.set_role(ReplicaRole.LEADER)
        # Outside the cluster the API server calls the leader; inside, all replicas answer behind one Service.
        await self._webhooks.register()
        await (self.manager.lead() if self._leads_alone else self.manager.take_over())


async def populate(
    target: servers.ClientConfig,
    configuration: PopulatorConfiguration,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> None:
    """Create default LocalQueues in a cluster until cancelled."""
    clock, rng = clock or SystemClock(), rng or random.Random()
    transport = servers.connect(target, clock, user_agent=f"pykueue-populator/{__version__}")
    try:
        await Populator(ApiClient(transport, rng), configuration, clock, rng, instance=socket.gethostname()).run()
    finally:
        await transport.close()
