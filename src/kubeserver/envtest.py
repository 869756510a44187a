"""Stand-ins for kube-apiserver and etcd, so that envtest suites run against this server.

A suite looks for two programs in the folder that `KUBEBUILDER_ASSETS` names and starts them with their usual flags.
`write_programs` makes such a folder; the programs in it call `run`. A suite asks both programs for their help before it
starts them, and allows each 20 seconds to start: a stand-in imports only the modules that it uses.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kubemachinery.errors import UsageError

if TYPE_CHECKING:
    from kubeserver.assembly import Parts

# The flags that have an effect, by program, with their help text.
_FLAGS: Final = {
    "kube-apiserver": {
        "bind-address": "the address to listen on",
        "secure-port": "the port to listen on",
        "cert-dir": "the folder of apiserver.crt and apiserver.key",
        "tls-cert-file": "the certificate to serve with, instead of the one in cert-dir",
        "tls-private-key-file": "the key of tls-cert-file",
        "client-ca-file": "the certificate authority whose client certificates are accepted",
    },
    "etcd": {"listen-client-urls": "the URL to answer health checks at"},
}
PROGRAMS: Final = tuple(_FLAGS)


def write_programs(folder: Path, command: Sequence[str]) -> None:
    """Write a kube-apiserver and an etcd that run `command` with their name and their arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *command])} {name} "$@"\n')
        program.chmod(0o755)


def run(program: str, arguments: Sequence[str], parts: Callable[[], Parts], version: Callable[[], str]) -> None:
    """Run a stand-in until SIGTERM or SIGINT, or print its help or its version. `parts` returns those of the API
    server."""
    if any(word in ("--help", "-h") for word in arguments):
        lines = [f"      --{name} string   {text}" for name, text in _FLAGS[program].items()]
        print("\n".join([f"A stand-in for {program}. It reads these flags and ignores the others:", *lines]))
        return
    if "--version" in arguments:
        print(f"{program} stand-in, {version()}")
        return
    flags = _flags(arguments, _FLAGS[program])
    if program == "etcd":
        _run_etcd(flags)
    else:
        _run_api_server(flags, parts())


def _run_api_server(flags: dict[str, str], parts: Parts) -> None:
    """Run the API server, which keeps everything in memory.

    It collects no garbage: envtest starts no kube-controller-manager, and suites read dependents after their owner is
    deleted, to check what their own controller has done.
    """
    import tempfile

    from msgspec import structs

    from kubeserver import serve
    from kubeserver.storage.sqlite import Durability

    with tempfile.TemporaryDirectory(prefix="kubeserver-envtest-") as directory:
        settings = serve.ServerSettings(
            data_dir=Path(directory),
            host=flags.get("bind-address", "127.0.0.1"),
            port=_port(flags.get("secure-port", "6443")),
            durability=Durability.MEMORY,
            certificate=_certificate(flags),
            client_authorities=tuple(Path(flags[name]) for name in ("client-ca-file",) if name in flags),
        )
        _run_until_stopped(serve.api_server(settings, structs.replace(parts, collects_garbage=False)))


def _run_etcd(flags: dict[str, str]) -> None:
    address = urlsplit(flags.get("listen-client-urls", "http://127.0.0.1:2379").split(",")[0])
    _run_until_stopped(_etcd(address.hostname or "127.0.0.1", address.port or 2379))


@asynccontextmanager
async def _etcd(host: str, port: int) -> AsyncIterator[None]:
    """Answer health checks. A suite waits for a healthy etcd before it starts the API server, which needs none."""
    from kubemachinery import http_messages, http_server

    async def answer(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response(body=b'{"health":"true","reason":""}')

    http = await http_server.serve(answer, host, port)
    try:
        yield
    finally:
        await http.close()


def _run_until_stopped(service: AbstractAsyncContextManager[Any]) -> None:
    import asyncio

    from kubemachinery import process

    async def run_until_stopped() -> None:
        stop = process.stop_event()
        async with service:
            await stop.wait()

    asyncio.run(run_until_stopped())


def _flags(arguments: Iterable[str], known: dict[str, str]) -> dict[str, str]:
    """Return the flags that have an effect. The other flags of the real program are accepted and ignored."""
    words = list(arguments)
    found: dict[str, str] = {}
    while words:
        name, equals, value = words.pop(0).removeprefix("--").partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name in known:
            found[name] = value
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"--secure-port={text}: must be a port number from 0 to 65535")
    return int(text)


def _certificate(flags: dict[str, str]) -> tuple[Path, Path] | None:
    if "tls-cert-file" in flags:
        return Path(flags["tls-cert-file"]), Path(flags.get("tls-private-key-file", flags["tls-cert-file"]))
    folder = Path(flags["cert-dir"]) if "cert-dir" in flags else None
    if folder is not None and (folder / "apiserver.crt").exists():
        return folder / "apiserver.crt", folder / "apiserver.key"
    return None
