"""Webhooks for an API server elsewhere, from start to end: a certificate, a port, the registration, and their upkeep.

    async with running.webhooks(client, choices, sources, place, clock, namespace) as served:
        await served.register()     # when elected; from here on the API server asks us

In a cluster, every replica serves behind one Service with the certificate that they share. Outside of one there is no
Service that leads to us: we listen on the loopback address, and the API server, on the same machine, is told the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from kubemachinery import certificates, http_server, tls
from kubemachinery.client.client import ApiClient
from kubemachinery.client.retry import retry_transient
from kubemachinery.clock import Clock
from kubemachinery.errors import UsageError
from pykueue.api import config
from pykueue.errors import PykueueError
from pykueue.webhooks import certificate, registration
from pykueue.webhooks import review_handler as service
from pykueue.webhooks.certificate import CertificateStore, DirectoryStore, SecretStore
from pykueue.webhooks.facts import AdmissionSources
from pykueue.webhooks.registration import WebhookClientConfig
from pykueue.webhooks.review import WebhookOptions

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
# A file that somebody replaces is noticed after this long; a certificate that ends has a month.
UPKEEP_SECONDS: Final = 60.0


@dataclass(frozen=True)
class ServingOptions:
    """Where webhooks are served, how they are reached, and who looks after the certificate."""

    host: str
    port: int
    hosts: tuple[str, ...]
    reach: WebhookClientConfig
    keeper: CertificateStore
    # False where somebody else makes the certificate known, as cert-manager does.
    registers: bool = True
    # Whether another port will do where this one is taken.
    any_port: bool = False
    # The authority of the certificates that clients of webhooks, the API server that is, have to present.
    client_authority: Path | None = None

    def reach_at(self, port: int, ca: bytes) -> WebhookClientConfig:
        """How the API server is to reach us, now that the port and the authority are known."""
        return replace(self.reach, ca=ca, url="" if self.reach.service else f"https://{LOOPBACK}:{port}")


def in_cluster(client: ApiClient, configuration: config.Configuration, services: Sequence[str] = ()) -> ServingOptions:
    """A place in a pod, behind the Service that was installed with it; `services` lead to its companions."""
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
    """A place on the machine of the API server, outside of its cluster.

    Certificate and port are those of last time, where they can be had: each change of how conversion is reached makes
    an API server set up the storage of the kind anew, and turn clients away meanwhile.
    """
    own = configuration.internal_cert_management or config.InternalCertManagement()
    namespace = configuration.namespace or config.DEFAULT_NAMESPACE
    keeper = SecretStore(client, namespace, own.webhook_secret_name)
    hosts = tuple(f"{service}.{namespace}.svc" for service in services)
    return on_loopback(keeper, await registration.registered_port(client, LOOPBACK), hosts)


def on_loopback(keeper: CertificateStore, port: int = 0, hosts: Sequence[str] = ()) -> ServingOptions:
    return ServingOptions(LOOPBACK, port, (LOOPBACK, "localhost", *hosts), WebhookClientConfig(), keeper, any_port=True)


class Companion(Protocol):
    """Something else that the API server is led to, with the same certificate and by whoever leads."""

    async def renew(self) -> None: ...

    async def lead_here(self, authority: bytes) -> Iterable[str]:
        """Names what had to be changed for that."""
        ...


class WebhookServer:
    """Webhooks that are being served. Made by `webhooks`."""

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
        self._kept = certificate.CertificateBundle()
        self._is_registered = False
        self._profile = profile
        # The certificate comes with `certificates.load_into`, now and whenever it is renewed.
        self._contexts = [profile.server_context()]
        if place.client_authority is not None:
            # On this port alone: metrics and lists have other clients.
            certificate.require_client(self.tls, place.client_authority)
        self._companions: list[Companion] = []
        self.port = 0

    @property
    def tls(self) -> ssl.SSLContext:
        return self._contexts[0]

    def another_context(self) -> ssl.SSLContext:
        """TLS for another server with the same certificate, today's and every later one."""
        made = self._profile.server_context()
        certificates.load_into(made, self._kept.identity)
        self._contexts.append(made)
        return made

    async def accompany(self, companion: Companion) -> None:
        """Look after something else as well from now on."""
        await retry_transient(companion.renew)
        self._companions.append(companion)

    async def renew(self) -> None:
        """Take the certificate that is kept now; the next connection sees it."""
        now = datetime.datetime.fromtimestamp(self._clock.now() / 1e9, datetime.UTC)
        kept = await self._place.keeper.current(self._place.hosts, now)
        if kept.identity != self._kept.identity:
            for context in self._contexts:
                certificates.load_into(context, kept.identity)
        self._kept = kept
        for companion in self._companions:
            await companion.renew()

    async def register(self) -> None:
        """Lead the API server here. For whoever leads: replicas with other settings must not take turns."""
        if self._place.registers:
            reach = self._place.reach_at(self.port, self._kept.ca)
            changed = await registration.register(self._client, self._choices, reach, self._own_namespace)
            for companion in self._companions:
                changed += await companion.lead_here(self._kept.ca)
            for name in changed:
                log.info("%s leads to us now", name)
        self._is_registered = True

    async def keep_up(self) -> None:
        """Renew in time, and put right what others changed. What fails is tried again the next time."""
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                await self.renew()
                if self._is_registered:
                    await self.register()
            except PykueueError as error:
                log.warning("the upkeep of webhooks failed and will be tried again: %s", error)


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
    """Serve until the end of the block. Inside of it, connections are taken; `register` makes the API server come."""
    served = WebhookServer(client, choices, place, clock, own_namespace, profile)
    await retry_transient(served.renew)
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
    handler: http_server.Handler, place: ServingOptions, context: ssl.SSLContext
) -> http_server.HttpServer:
    try:
        return await http_server.serve(handler, place.host, place.port, tls=context)
    except OSError as error:
        if place.any_port and place.port:
            return await _listening(handler, replace(place, port=0), context)
        raise UsageError(f"webhooks: cannot listen on {place.host}:{place.port}: {error.strerror or error}") from None
