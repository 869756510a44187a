"""`python -m kubeserver`: the API server alone, and the envtest stand-ins.

The modules of the API server are imported where it is run: the other stand-in does not need them.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from kubemachinery.errors import UsageError
from kubeserver import envtest

if TYPE_CHECKING:
    from kubeserver.assembly import Parts
    from kubeserver.serve import ServerSettings

PROGRAM: Final = "python -m kubeserver"
_LEVELS: Final = ("debug", "info", "warning", "error")
_DESCRIPTION: Final = """\
Serve a Kubernetes-compatible API on SQLite: the built-in kinds, CustomResourceDefinitions, admission webhooks, watches,
server-side apply. No controllers run beside it. It listens on the loopback address unless --listen names another one,
and accepts only clients with the credentials in the kubeconfig that it writes. SIGTERM or SIGINT ends it.
"""
_TESTENV: Final = f"""\
  {PROGRAM} testenv path [--folder DIR]
        print a folder with a kube-apiserver and an etcd for envtest suites:
        KUBEBUILDER_ASSETS=$({PROGRAM} testenv path) go test ./...
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence on stderr, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 where the arguments or the data directory cannot be used."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        match words:
            case ["testenv", ("kube-apiserver" | "etcd") as program, *rest]:
                envtest.run(program, rest, _bare_parts, _version)
            case ["testenv", *rest]:
                _print_programs(rest)
            case _:
                _serve(words)
    except UsageError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    return 0


def _print_programs(arguments: Sequence[str]) -> None:
    parser = _Parser(prog=f"{PROGRAM} testenv", description="Stand in for kube-apiserver and etcd in envtest suites.")
    parser.add_argument("command", choices=["path"], help="print the folder for KUBEBUILDER_ASSETS")
    parser.add_argument("--folder", type=Path, help="where to write the two programs (default: ~/.cache/kubeserver)")
    chosen = parser.parse_args(arguments)
    folder = chosen.folder or Path("~/.cache/kubeserver").expanduser() / f"testenv-{_version()}"
    try:
        envtest.write_programs(folder, ["-m", "kubeserver", "testenv"])
    except OSError as error:
        raise UsageError(f"--folder {folder}: {error.strerror}") from None
    print(folder.resolve())


def _version() -> str:
    from kubeserver import serve

    return serve.version()


def _bare_parts() -> Parts:
    from kubeserver import serve

    return serve.bare_parts()


def _serve(arguments: Sequence[str]) -> None:
    from kubemachinery import process
    from kubeserver.serve import ServerSettings
    from kubeserver.storage.sqlite import Durability

    chosen = _parser().parse_args(arguments)
    host, port = _address(chosen.listen)
    settings = ServerSettings(
        data_dir=chosen.data_dir or Path("~/.kubeserver").expanduser(),
        host=host,
        port=port,
        durability=Durability(chosen.durability),
        kubeconfig=chosen.kubeconfig,
        view_kubeconfig=chosen.view_kubeconfig,
    )
    logging.basicConfig(
        level=chosen.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    process.raise_open_files_limit()
    process.event_loop().run(_run(settings))


def _parser() -> argparse.ArgumentParser:
    from kubeserver.storage.sqlite import Durability

    parser = _Parser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=f"envtest:\n{_TESTENV}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where the data is kept; one server per directory (default: ~/.kubeserver)",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="the address to listen on; port 0 is the port of the last run, or a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="where the kubeconfig is written when the server is ready (default: kubeconfig in the data directory)",
    )
    parser.add_argument("--view-kubeconfig", type=Path, metavar="FILE", help="also write a read-only kubeconfig")
    parser.add_argument(
        "--durability",
        choices=[one.value for one in Durability],
        default=Durability.FULL.value,
        help="sync writes to disk (full), to the OS (relaxed), or not at all (memory) (default: %(default)s)",
    )
    parser.add_argument("--log-level", choices=_LEVELS, default="warning", help="default: %(default)s")
    parser.add_argument("--version", action="version", version=f"kubeserver {_version()}")
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {text}: must be HOST:PORT, such as 127.0.0.1:6443")
    return host, int(port)


async def _run(settings: ServerSettings) -> None:
    from kubemachinery import process
    from kubeserver import serve

    stop = process.stop_event()
    async with serve.api_server(settings, serve.bare_parts()) as serving:
        process.tune_garbage_collector()
        lines = [
            f"API server at {serving.url}",
            f"export KUBECONFIG={shlex.quote(str(serving.kubeconfig.resolve()))}",
            f"data in {settings.data_dir} ({settings.durability} durability; Secrets are stored unencrypted)",
            "Anyone with this kubeconfig has full access: RBAC is stored but not enforced",
        ]
        if settings.host not in serve.LOOPBACK:
            lines.append(f"listening on {settings.host}: other machines can reach the server")
        print("\n".join(lines), file=sys.stderr, flush=True)
        await stop.wait()
