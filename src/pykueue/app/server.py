"""The embedded API server on a port: what it is made of, where it keeps its objects, and who may come in."""

from __future__ import annotations

import contextlib
import datetime
import random
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from kubemachinery import http_server, tls
from kubemachinery.certificates import write_private
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.errors import UsageError
from kubemachinery.status import StatusError
from kubeserver.assembly import Embedded, Parts
from kubeserver.builtin import admission, scheduling
from kubeserver.builtin.kinds import RESOURCES
from kubeserver.http.health import About
from kubeserver.protocol import authentication, server_credentials
from kubeserver.storage.sqlite import Durability, Journal, Loaded, MemoryJournal, SqliteJournal, StoreError
from pykueue.api import conversion, registry, schema
from pykueue.app import options
from pykueue.app.ports import LOOPBACK
from pykueue.runner import node
from pykueue.runner.machine import Machine
from pykueue.runner.process_executor import IN_MEMORY, Database
from pykueue.settings import Settings
from pykueue.version import __version__
from pykueue.webhooks import in_process

ORPHAN_SECONDS: Final = 6.0
# Without a runner it is somebody else who plays the controllers around us, and who looks at how things end.
UNATTENDED_ORPHAN_SECONDS: Final = 30.0
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
    # What clients have to be able to: `tls` of the Configuration.
    tls: tls.TlsProfile = field(default_factory=tls.TlsProfile)


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that answers."""

    url: str
    kubeconfig: Path
    embedded: Embedded
    credentials: server_credentials.Credentials
    database: Database


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
    parts, chosen = kueue_parts(), options.for_webhooks(settings)
    return replace(
        parts,
        plugins=lambda find: (*parts.plugins(find), *in_process.hooks(chosen, find)),
        # The controllers write how the Workload of a deleted job ended; that is worth a look before it goes.
        orphan_seconds=orphan_seconds,
        first=node.initial_queues(machine) if machine is not None else (),
    )


@asynccontextmanager
async def api_server(
    settings: ServerSettings,
    parts: Parts,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    *,
    announced: bool = True,
) -> AsyncIterator[Serving]:
    """A server on a port, ready; its kubeconfig appears when it is, or when somebody who adds to it says `announce`."""
    clock = clock or SystemClock()
    kubeconfig = settings.kubeconfig or settings.data_dir / "kubeconfig"
    hosts = tuple(dict.fromkeys((settings.host, *LOOPBACK, *_USUAL_NAMES, *settings.hosts)))
    now = datetime.datetime.fromtimestamp(clock.now() / 1e9, datetime.UTC)
    with (
        _opened(settings) as (journal, loaded, executor),
        ThreadPoolExecutor(max_workers=2, thread_name_prefix="long-work") as threads,
    ):
        # Its appearance says that the server is ready, so one from an earlier life has to go first; and not before it
        # is sure that no other server lives here.
        kubeconfig.unlink(missing_ok=True)
        credentials = _credentials(settings, hosts, now)
        door = authentication.Access(
            {credentials.admin_token: authentication.ADMIN, credentials.view_token: authentication.VIEWER}, hosts
        )
        keeps = settings.durability is not Durability.MEMORY
        embedded = Embedded(
            parts,
            journal,
            door,
            clock,
            rng or random.SystemRandom(),
            About(__version__, settings.data_dir / "backups" if keeps else None),
            loaded=loaded,
            executor=executor,
            threads=threads,
        )
        http = None
        try:
            await _start(embedded, settings)
            http = await _listen(embedded, settings, _tls(settings, credentials))
            url = f"https://{f'[{http.host}]' if ':' in http.host else http.host}:{http.port}"
            ready = Serving(url, kubeconfig, embedded, credentials, _database(loaded))
            if announced:
                announce(settings, ready)
            yield ready
        finally:
            embedded.stop_watches()
            if http is not None:
                await http.close()
            await embedded.close()


def _credentials(
    settings: ServerSettings, hosts: tuple[str, ...], now: datetime.datetime
) -> server_credentials.Credentials:
    try:
        return server_credentials.prepare(settings.data_dir / "pki", hosts, now)
    except OSError as error:
        raise UsageError(f"the data directory cannot be used: {error.filename}: {error.strerror}") from error


async def _start(embedded: Embedded, settings: ServerSettings) -> None:
    try:
        await embedded.start()
    except StatusError as error:
        # What the server brings itself is always valid, so only the disk can refuse it.
        if why := embedded.objects.failure:
            raise UsageError(f"the data directory cannot be used: {settings.data_dir}: {why}") from error
        raise


def _database(loaded: Loaded | None) -> Database:
    """The database as it was found. One that has been restored is another one than before."""
    if loaded is None:
        return IN_MEMORY
    return Database(f"{loaded.cluster_id} {loaded.restored}", loaded.revision, is_new=not loaded.rows)


def _tls(settings: ServerSettings, credentials: server_credentials.Credentials) -> ssl.SSLContext:
    certificate, key = settings.certificate or (credentials.server, None)
    return server_credentials.server_context(
        certificate, key, credentials.ca, *settings.client_authorities, profile=settings.tls
    )


async def _listen(embedded: Embedded, settings: ServerSettings, context: ssl.SSLContext) -> http_server.HttpServer:
    """Where it is told to. Where any port will do, on the last one if it is still free: whoever watches, follows or has
    a page open finds the server again when it has been restarted."""
    serve = partial(http_server.serve, embedded.server.handle, settings.host, tls=context)
    last = settings.data_dir / "port"
    http = None
    if not settings.port and (port := _remembered(last)):
        with contextlib.suppress(OSError):
            http = await serve(port)
    try:
        http = http or await serve(settings.port)
    except OSError as error:
        raise UsageError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}") from None
    with contextlib.suppress(OSError):  # a disk that is full
        write_private(last, str(http.port).encode())
    return http


def _remembered(last: Path) -> int:
    """The port that was left word of; 0 where nothing of use was."""
    try:
        port = int(last.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


def announce(settings: ServerSettings, ready: Serving) -> None:
    """Write the kubeconfigs, which say to whoever waits for them that everything is there."""
    url, credentials = ready.url, ready.credentials
    if settings.view_kubeconfig is not None:
        view = server_credentials.kubeconfig(url, credentials.ca, credentials.viewer, credentials.view_token, "view")
        server_credentials.write_private(settings.view_kubeconfig, view)
    admin = server_credentials.kubeconfig(url, credentials.ca, credentials.admin, credentials.admin_token)
    server_credentials.write_private(ready.kubeconfig, admin)


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


@asynccontextmanager
async def etcd_stand_in(host: str, port: int) -> AsyncIterator[None]:
    """Says that it is healthy. A test suite waits for that before it starts an API server; ours needs nothing of it."""

    async def answer(request: http_server.Request) -> http_server.Response:
        return http_server.Response(body=b'{"health":"true","reason":""}')

    http = await http_server.serve(answer, host, port)
    try:
        yield
    finally:
        await http.close()
