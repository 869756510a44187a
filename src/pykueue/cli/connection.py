"""How commands find their server and talk to it: as kubectl does, and else as `pykueue up` left word."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pykueue.cli import completion_candidates
from pykueue.cli.connection_flags import FLAGS, ConnectionFlags

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Connection:
    """Which server, and the namespace that is meant when none is named."""

    reach: ConnectionFlags
    namespace: str

    def talk(self, work: Callable[[ApiClient, str], Awaitable[T]]) -> T:
        """Do something with the server; the work is handed a client and a namespace."""
        return self.reach.run(lambda client, target: work(client, self.namespace or target.namespace))


def reaches(command: Command) -> Command:
    """Options that say which server; the command takes them as one `reach`."""

    @functools.wraps(command)
    def parsed(*args: Any, **kwargs: Any) -> Any:
        said = {name: kwargs.pop(name) for name in ("kubeconfig", "context", *(flag.variable for flag in FLAGS))}
        return command(*args, reach=ConnectionFlags.of(said), **kwargs)

    for flag in reversed(FLAGS):
        parsed = click.option(
            *filter(None, (flag.short, f"--{flag.name}", flag.variable)),
            is_flag=flag.is_switch,
            multiple=flag.is_repeated,
            type=click.Path(path_type=Path) if flag.is_path else None,
            help=flag.help,
            hidden=True,
            shell_complete=completion_candidates.entries(f"{flag.name}s") if flag.section == "entry" else None,
        )(parsed)
    for option in (
        click.option(
            "--context",
            default="",
            help="A context of the kubeconfig; the current one by default.",
            shell_complete=completion_candidates.entries("contexts"),
        ),
        click.option(
            "--kubeconfig",
            default="",
            help="The server; found as kubectl finds it by default. More such flags: pykueue options.",
        ),
    ):
        parsed = option(parsed)
    return cast("Command", parsed)


def connects(command: Command) -> Command:
    """The same and a namespace; the command takes them as one `connection`."""

    @functools.wraps(command)
    def parsed(*args: Any, reach: ConnectionFlags, namespace: str, **kwargs: Any) -> Any:
        return command(*args, connection=Connection(reach, namespace), **kwargs)

    option = click.option(
        "-n",
        "--namespace",
        default="",
        help="The namespace; that of the kubeconfig by default.",
        shell_complete=completion_candidates.objects("namespace"),
    )
    return reaches(cast("Command", option(parsed)))
