"""`pykueue testenv`: stand in for kube-apiserver and etcd, so that envtest suites run against the embedded server.

A suite looks for two programs in the folder that `KUBEBUILDER_ASSETS` names and starts them with flags of their own.
`pykueue testenv path` prints such a folder; the programs in it come back here.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from kubemachinery.errors import UsageError
from pykueue.cli import signals
from pykueue.version import __version__

PROGRAMS: Final = ("kube-apiserver", "etcd")

# What is listened to, and by which words a probe of `--help` finds it.
_APISERVER_FLAGS: Final = {
    "bind-address": "the address to listen on",
    "secure-port": "the port to listen on",
    "cert-dir": "where apiserver.crt and apiserver.key are",
    "tls-cert-file": "the certificate to serve with, instead of the one in cert-dir",
    "tls-private-key-file": "its key",
    "client-ca-file": "the authority whose client certificates are let in",
}
_ETCD_FLAGS: Final = {"listen-client-urls": "where to say that all is well"}

_AS_IS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.group(name="testenv")
def command() -> None:
    """Stand in for kube-apiserver and etcd in envtest suites.

    KUBEBUILDER_ASSETS=$(pykueue testenv path) go test ./test/integration/...
    """


@command.command(name="path")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where to put the two programs; a folder of this version in ~/.cache/pykueue by default.",
)
def path(folder: Path | None) -> None:
    """Print a folder with a kube-apiserver and an etcd, for KUBEBUILDER_ASSETS."""
    folder = folder or Path("~/.cache/pykueue").expanduser() / f"testenv-{__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pykueue testenv {name} "$@"\n')
        program.chmod(0o755)
    click.echo(str(folder.resolve()))


@command.command(name="kube-apiserver", context_settings=_AS_IS, hidden=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kube_apiserver(arguments: tuple[str, ...]) -> None:
    """Serve as envtest asks a kube-apiserver to, keeping everything in memory."""
    flags = _flags("kube-apiserver", arguments, _APISERVER_FLAGS)
    from pykueue import app

    with tempfile.TemporaryDirectory(prefix="pykueue-testenv-") as directory:
        settings = app.ServerSettings(
            data_dir=Path(directory),
            host=flags.get("bind-address", "127.0.0.1"),
            port=_port(flags.get("secure-port", "6443")),
            durability=app.Durability.MEMORY,
            certificate=_certificate(flags),
            client_authorities=tuple(Path(flags[name]) for name in ("client-ca-file",) if name in flags),
        )
        asyncio.run(_until_told(app.api_server(settings, app.bare_parts())))


@command.command(name="etcd", context_settings=_AS_IS, hidden=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def etcd(arguments: tuple[str, ...]) -> None:
    """Answer the health checks that envtest sends to an etcd; nothing is kept here."""
    flags = _flags("etcd", arguments, _ETCD_FLAGS)
    from pykueue import app

    address = urlsplit(flags.get("listen-client-urls", "http://127.0.0.1:2379").split(",")[0])
    asyncio.run(_until_told(app.etcd_stand_in(address.hostname or "127.0.0.1", address.port or 2379)))


async def _until_told(service: AbstractAsyncContextManager[Any]) -> None:
    stop = signals.told()
    async with service:
        await stop.wait()


def _flags(program: str, arguments: Iterable[str], known: dict[str, str]) -> dict[str, str]:
    """The flags that are listened to. The others of the real program are taken and have no effect."""
    words = list(arguments)
    if any(word in ("--help", "-h") for word in words):
        lines = [f"      --{name} string   {what}" for name, what in known.items()]
        click.echo("\n".join([f"A stand-in for {program}. It listens to:", *lines]))
        raise click.exceptions.Exit(0)
    if "--version" in words:
        click.echo(f"{program} stand-in, pykueue {__version__}")
        raise click.exceptions.Exit(0)
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
        raise UsageError(f"--secure-port={text}: not a port")
    return int(text)


def _certificate(flags: dict[str, str]) -> tuple[Path, Path] | None:
    if "tls-cert-file" in flags:
        return Path(flags["tls-cert-file"]), Path(flags.get("tls-private-key-file", flags["tls-cert-file"]))
    folder = Path(flags["cert-dir"]) if "cert-dir" in flags else None
    if folder is not None and (folder / "apiserver.crt").exists():
        return folder / "apiserver.crt", folder / "apiserver.key"
    return None
