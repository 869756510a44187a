"""The API server on a port: where it listens, where it keeps its objects, and the credentials of its clients.

async with api_server(ServerSettings(data_dir=path), bare_parts()) as serving:
    print(serving.url, serving.kubeconfig)
"""

from __future__ import annotations

import contextlib
import datetime
import random
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from kubemachinery import http_server, tls
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.errors import UsageError
from kubemachinery.key_pairs import write_private
from kubemachinery.status import StatusError
from kubeserver.assembly import Embedded, Parts
from kubeserver.builtin import admission, scheduling
from kubeserver.builtin.kinds import RESOURCES
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication, server_credentials
from kubeserver.storage.sqlite import (
    DatabaseIdentity,
    Durability,
    Journal,
    LoadedState,
    MemoryJournal,
    SqliteJournal,
    StoreError,
)

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
# Names by which clients in a cluster address the API server; test suites expect them in its certificate.
_USUAL_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
_DISTRIBUTION: Final = "pykueue"


def version() -> str:
    """Return the version of the distribution that this package is part of."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a server listens, where it keeps its data, and how durably."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    durability: Durability = Durability.FULL
    kubeconfig: Path | None = None
    view_kubeconfig: Path | None = None
    # Certificate authorities beside the server's own whose client certificates are accepted.
    client_authorities: tuple[Path, ...] = ()
    # The certificate to serve with, and its key, instead of one that the server issues itself.
    certificate: tuple[Path, Path] | None = None
    hosts: tuple[str, ...] = field(default=())
    max_bytes: int = 0
    # The TLS versions and cipher suites that clients must support.
    tls: tls.TlsProfile = field(default_factory=tls.TlsProfile)


class Serving(msgspec.Struct, frozen=True):
    """A server that listens. `database` is the one that it found on disk; None for one that keeps its objects in
    memory."""

    url: str
    kubeconfig: Path
    embedded: Embedded
    credentials: server_credentials.ServerCredentials
    database: DatabaseIdentity | None


def bare_parts() -> Parts:
    """Return the parts of a server with the built-in kinds alone."""
    return Parts(builtin=RESOURCES, plugins=admission.hooks, initial=scheduling.SYSTEM_CLASSES)


@asynccontextmanager
async def api_server(
    settings: ServerSettings,
    parts: Parts,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    *,
    announced: bool = True,
) -> AsyncIterator[Serving]:
    """Run a server on a port while inside.

    Its kubeconfig is written when it is ready, or by the caller through `announce` where `announced` is false.
    """
    clock = clock or SystemClock()
    kubeconfig = settings.kubeconfig or settings.data_dir / "kubeconfig"
    hosts = tuple(dict.fromkeys((settings.host, *LOOPBACK, *_USUAL_NAMES, *settings.hosts)))
    now = datetime.datetime.fromtimestamp(clock.now() / 1e9, datetime.UTC)
    with (
        _opened(settings) as (journal, loaded, executor),
        ThreadPoolExecutor(max_workers=2, thread_name_prefix="long-work") as threads,
    ):
        # A kubeconfig is the sign that the server is ready, so the one of an earlier run is deleted first, but not
        # before the lock on the data directory is held.
        with _kubeconfig_at(kubeconfig):
            kubeconfig.unlink(missing_ok=True)
        credentials = _credentials(settings, hosts, now)
        access = authentication.Authenticator(
            {credentials.admin_token: authentication.ADMIN, credentials.view_token: authentication.VIEWER}, hosts
        )
        keeps = settings.durability is not Durability.MEMORY
        embedded = Embedded(
            parts,
            journal,
            access,
            clock,
            rng or random.SystemRandom(),
            ServerInfo(version(), settings.data_dir / "backups" if keeps else None),
            loaded=loaded,
            executor=executor,
            threads=threads,
        )
        identity = loaded.identity if loaded is not None else None
        # The server has entries of its own, which it drops with the history; this would keep every body until it ends.
        del loaded
        http = None
        try:
            await _start(embedded, settings)
            http = await _listen(embedded, settings, _tls(settings, credentials))
            url = f"https://{f'[{http.host}]' if ':' in http.host else http.host}:{http.port}"
            ready = Serving(url, kubeconfig, embedded, credentials, identity)
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
) -> server_credentials.ServerCredentials:
    try:
        return server_credentials.prepare(settings.data_dir / "pki", hosts, now)
    except OSError as error:
        raise UsageError(f"the data directory cannot be used: {error.filename}: {error.strerror}") from error


async def _start(embedded: Embedded, settings: ServerSettings) -> None:
    try:
        await embedded.start()
    except StatusError as error:
        # The server's own objects are always valid, so only the disk can refuse them.
        if why := embedded.objects.failure:
            raise UsageError(f"the data directory cannot be used: {settings.data_dir}: {why}") from error
        raise


def _tls(settings: ServerSettings, credentials: server_credentials.ServerCredentials) -> ssl.SSLContext:
    certificate, key = settings.certificate or (credentials.server, None)
    return server_credentials.server_context(
        certificate, key, credentials.ca, *settings.client_authorities, profile=settings.tls
    )


async def _listen(embedded: Embedded, settings: ServerSettings, context: ssl.SSLContext) -> http_server.HttpServer:
    """Listen on the port of the settings. Port 0 means the port of the last run if it is still free, so that clients
    find a restarted server again."""
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
    with contextlib.suppress(OSError):  # the disk is full
        write_private(last, str(http.port).encode())
    return http


def _remembered(last: Path) -> int:
    """Return the port of the last run; 0 where none was recorded."""
    try:
        port = int(last.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


def announce(settings: ServerSettings, ready: Serving) -> None:
    """Write the kubeconfigs. Their appearance is the sign that the server is ready."""
    url, credentials = ready.url, ready.credentials
    if settings.view_kubeconfig is not None:
        view = server_credentials.kubeconfig(url, credentials.ca, credentials.viewer, credentials.view_token, "view")
        with _kubeconfig_at(settings.view_kubeconfig):
            server_credentials.write_private(settings.view_kubeconfig, view)
    admin = server_credentials.kubeconfig(url, credentials.ca, credentials.admin, credentials.admin_token)
    with _kubeconfig_at(ready.kubeconfig):
        server_credentials.write_private(ready.kubeconfig, admin)


@contextlib.contextmanager
def _kubeconfig_at(path: Path) -> Iterator[None]:
    """Raise UsageError where the file cannot be replaced: its place is a flag of the user."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"the kubeconfig cannot be written: {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def _opened(settings: ServerSettings) -> Iterator[tuple[Journal, LoadedState | None, ThreadPoolExecutor | None]]:
    """Open the journal: return it, the state it held, and the only thread that may use it from now on."""
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
