"""The webhook server for an API server in another process: certificate, port, registration, and their upkeep.

    async with webhook_server.webhooks(client, choices, sources, place, clock, namespace) as served:
        await served.register()     # when elected; from here on the API server calls the webhooks

In a cluster, every replica serves behind one Service with the certificate that they share. Outside of a cluster no
Service leads to the manager: it listens on the loopback address, and the API server on the same machine uses the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from kubemachinery import http_messages, http_server, key_pairs, tls
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.client.retry import retry_transient
from kubemachinery.clock import Clock
from kubemachinery.errors import UsageError
from pykueue.api import config
from pykueue.errors import PykueueError
from pykueue.webhooks import certificate, registration
from pykueue.webhooks import review_handler as service
from pykueue.webhooks.certificate import CertificateStore, DirectoryStore, SecretStore
from pykueue.webhooks.certificate_bundle import CertificateBundle
from pykueue.webhooks.facts import AdmissionSources
from pykueue.webhooks.registration import WebhookClientConfig
from pykueue.webhooks.review import WebhookOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
# How often files are read again and the certificate is checked; it is renewed a month before it expires.
UPKEEP_SECONDS: Final = 60.0
# How long a start waits for the API server, as long as informers do by default.
START_SECONDS: Final = 120.0
_START_RETRY_SECONDS: Final = 2.0


class ServingOptions(msgspec.Struct, frozen=True):
    """Where webhooks are served, how they are reached, and where the certificate is stored."""

    host: str
    port: int
    hosts: tuple[str, ...]
    reach: WebhookClientConfig
    keeper: CertificateStore
    # False where another program registers the CA, as cert-manager does.
    registers: bool = True
    # Whether another port may be used if this one is taken.
    any_port: bool = False
    # The CA of the client certificates that the API server has to present.
    client_authority: Path | None = None

    def reach_at(self, port: int, ca: bytes) -> WebhookClientConfig:
        """How the API server reaches the webhooks, once port and CA are known."""
        return replace(self.reach, ca=ca, url="" if self.reach.service else f"https://{LOOPBACK}:{port}")


def in_cluster(client: ApiClient, configuration: config.Configuration, services: Sequence[str] = ()) -> ServingOptions:
    """Serving in a pod, behind the Service of the installation; `services` lead to its companions."""
    served = configuration.webhook or config.ControllerWebhook()
    own = configuration.internal_cert_management or config.InternalCertManagement()
    namespace = configuration.namespace or config.DEFAULT_NAMESPACE
    name = own.webhook_service_name
    keeper: CertificateStore = DirectoryStore(Path(served.cert_dir))
    if own.enable:
        keeper = SecretStore(client, namespace, own.webhook_secret_name)
    return ServingOptions(
        host=served.host or "0.0.0.0",
        port=served.port if served.port is not None else 9443,
        hosts=tuple(
            f"{service}.{namespace}.svc{domain}" for service in (name, *services) for domain in ("", ".cluster.local")
        ),
        reach=WebhookClientConfig(namespace=namespace, service=name),
        keeper=keeper,
        registers=bool(own.enable),
    )


async def beside(
    client: ApiClient, configuration: config.Configuration, services: Sequence[str] = ()
) -> ServingOptions:
    """Serving on the machine of the API server, outside of its cluster.

    Certificate and port are kept from the last run if possible: each change of the conversion webhook makes an API
    server set up the storage of the kind again, and refuse requests meanwhile.
    """
    own = configuration.internal_cert_management or config.InternalCertManagement()
    namespace = configuration.namespace or config.DEFAULT_NAMESPACE
    keeper = SecretStore(client, namespace, own.webhook_secret_name)
    hosts = tuple(f"{service}.{namespace}.svc" for service in services)
    return on_loopback(keeper, await _at_start(lambda: registration.registered_port(client, LOOPBACK)), hosts)


def on_loopback(keeper: CertificateStore, port: int = 0, hosts: Sequence[str] = ()) -> ServingOptions:
    return ServingOptions(LOOPBACK, port, (LOOPBACK, "localhost", *hosts), WebhookClientConfig(), keeper, any_port=True)


class Companion(Protocol):
    """Another service of the manager with the same certificate, registered by the leader."""

    async def renew(self) -> None: ...

    async def register(self, authority: bytes) -> Iterable[str]:
        """Register it; returns the names of the objects that were changed."""
        ...


class WebhookServer:
    """The webhook server. Created by `webhooks`."""

    def __init__(
        self,
        client: ApiClient,
        choices: WebhookOptions,
        place: ServingOptions,
        clock: Clock,
        own_namespace: str,
        profile: tls.TlsProfile,
    ) -> None:
        self._client = client
        self._choices = choices
        self._place = place
        self._clock = clock
        self._own_namespace = own_namespace
        self._kept = CertificateBundle()
        self._is_registered = False
        self._profile = profile
        # `key_pairs.load_into` sets the certificate, now and at every renewal.
        self._contexts = [profile.server_context()]
        if place.client_authority is not None:
            # On this port only: metrics and visibility have other clients.
            certificate.require_client(self.tls, place.client_authority)
        self._companions: list[Companion] = []
        self.port = 0

    @property
    def tls(self) -> ssl.SSLContext:
        return self._contexts[0]

    def another_context(self) -> ssl.SSLContext:
        """A TLS context for another server with the same certificate, also after renewals."""
        made = self._profile.server_context()
        key_pairs.load_into(made, self._kept.identity)
        self._contexts.append(made)
        return made

    async def accompany(self, companion: Companion) -> None:
        """Renew and register a companion as well from now on."""
        await retry_transient(companion.renew)
        self._companions.append(companion)

    async def renew(self) -> None:
        """Load the stored certificate; new connections use it."""
        now = datetime.datetime.fromtimestamp(self._clock.now() / 1e9, datetime.UTC)
        kept = await self._place.keeper.current(self._place.hosts, now)
        if kept.identity != self._kept.identity:
            for context in self._contexts:
                key_pairs.load_into(context, kept.identity)
        self._kept = kept
        for companion in self._companions:
            await companion.renew()

    async def register(self) -> None:
        """Register the webhooks. Only the leader does: replicas with other options would overwrite each other."""
        if self._place.registers:
            reach = self._place.reach_at(self.port, self._kept.ca)
            changed = await registration.register(self._client, self._choices, reach, self._own_namespace)
            for companion in self._companions:
                changed += await companion.register(self._kept.ca)
            for name in changed:
                log.info("registered webhooks in %s", name)
        self._is_registered = True

    async def keep_up(self) -> None:
        """Renew in time, and restore the registration. A failure is retried at the next interval."""
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                await self.renew()
                if self._is_registered:
                    await self.register()
            except PykueueError as error:
                log.warning(
                    "renewal or registration of webhooks failed, retrying in %g seconds: %s", UPKEEP_SECONDS, error
                )
            except Exception:
                # Without upkeep the certificate would expire, and the API server refuse all writes.
                log.exception("renewal or registration of webhooks failed, retrying in %g seconds", UPKEEP_SECONDS)


async def _at_start(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an attempt that an outage or a missing right makes fail for a while. The reason is logged;
    after `START_SECONDS` it is raised."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while True:
        try:
            return await retry_transient(attempt, attempts=3)
        except KubeError as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            log.warning("webhooks cannot be served yet: %s", error)
        await asyncio.sleep(_START_RETRY_SECONDS)


@asynccontextmanager
async def webhooks(
    client: ApiClient,
    choices: WebhookOptions,
    sources: AdmissionSources,
    place: ServingOptions,
    clock: Clock,
    own_namespace: str,
    profile: tls.TlsProfile = tls.DEFAULT,
) -> AsyncIterator[WebhookServer]:
    """Serve until the end of the block; the API server calls the webhooks after `register`."""
    served = WebhookServer(client, choices, place, clock, own_namespace, profile)
    await _at_start(served.renew)
    http = await _listening(service.handler(choices, sources), place, served.tls)
    served.port = http.port
    upkeep = asyncio.create_task(served.keep_up())
    try:
        yield served
    finally:
        upkeep.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await upkeep
        await http.close()


async def _listening(
    handler: http_messages.Handler, place: ServingOptions, context: ssl.SSLContext
) -> http_server.HttpServer:
    try:
        return await http_server.serve(handler, place.host, place.port, tls=context)
    except OSError as error:
        if place.any_port and place.port:
            return await _listening(handler, replace(place, port=0), context)
        raise UsageError(f"webhooks: cannot listen on {place.host}:{place.port}: {error.strerror or error}") from None
