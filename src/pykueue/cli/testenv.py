"""`pykueue testenv`: stand in for kube-apiserver and etcd, so that envtest suites run against the embedded server.

The programs are those of `kubeserver.envtest`; this server also converts Kueue's kinds between their versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pykueue.version import __version__

if TYPE_CHECKING:
    from kubeserver.assembly import Parts

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
    help="Where to write the two programs (default: a folder of this version in ~/.cache/pykueue).",
)
def path(folder: Path | None) -> None:
    """Print a folder with a kube-apiserver and an etcd, for KUBEBUILDER_ASSETS."""
    from kubeserver import envtest

    folder = folder or Path("~/.cache/pykueue").expanduser() / f"testenv-{__version__}"
    envtest.write_programs(folder, ["-m", "pykueue", "testenv"])
    click.echo(str(folder.resolve()))


@command.command(name="kube-apiserver", context_settings=_AS_IS, hidden=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kube_apiserver(arguments: tuple[str, ...]) -> None:
    """Serve as a kube-apiserver for envtest, with storage in memory."""
    _run("kube-apiserver", arguments)


@command.command(name="etcd", context_settings=_AS_IS, hidden=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def etcd(arguments: tuple[str, ...]) -> None:
    """Answer the health checks that envtest sends to etcd; nothing is stored."""
    _run("etcd", arguments)


def _run(program: str, arguments: tuple[str, ...]) -> None:
    from kubeserver import envtest

    envtest.run(program, arguments, _bare_parts, lambda: f"pykueue {__version__}")


def _bare_parts() -> Parts:
    from pykueue.app.bare_server import bare_parts

    return bare_parts()
