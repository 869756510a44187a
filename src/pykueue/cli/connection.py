"""The connection of a command: found as kubectl finds it, else the last server started by `pykueue up`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from pykueue.cli import completion_candidates
from pykueue.cli.connection_flags import FLAGS, ConnectionFlags

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class Connection(msgspec.Struct, frozen=True):
    """The server, and the default namespace."""

    connection_flags: ConnectionFlags
    namespace: str

    def talk(self, work: Callable[[ApiClient, str], Awaitable[T]]) -> T:
        """Run `work` with a client and a namespace, and return its result."""
        return self.connection_flags.run(lambda client, target: work(client, self.namespace or target.namespace))


def connection_options(command: Command, own: Collection[str] = ()) -> Command:
    """Add the connection options; the command receives them as one `connection_flags`.

    `own` names options that the command has for itself, with another meaning.
    """
    taken = [flag for flag in FLAGS if flag.name not in own]

    @functools.wraps(command)
    def parsed(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in ("kubeconfig", "context", *(flag.variable for flag in taken))}
        return command(*args, connection_flags=ConnectionFlags.of(given), **kwargs)

    for flag in reversed(taken):
        parsed = click.option(
            *filter(None, (flag.short, f"--{flag.name}", flag.variable)),
            is_flag=flag.is_switch or None,  # False would make the value of an option optional
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
            help="A context of the kubeconfig (default: the current one).",
            shell_complete=completion_candidates.entries("contexts"),
        ),
        click.option(
            "--kubeconfig",
            default="",
            help="The kubeconfig (default: as kubectl finds it). More connection flags: pykueue options.",
        ),
    ):
        parsed = option(parsed)
    return cast("Command", parsed)


def connects_but(*own: str) -> Callable[[Command], Command]:
    """The same as `connects`, without the connection flags that the command has for itself."""
    return lambda command: connects(command, own)


def connects(command: Command, own: Collection[str] = ()) -> Command:
    """Add the connection options and --namespace; the command receives them as one `connection`."""

    @functools.wraps(command)
    def parsed(*args: Any, connection_flags: ConnectionFlags, namespace: str, **kwargs: Any) -> Any:
        if namespace:
            check_namespace(namespace)
        return command(*args, connection=Connection(connection_flags, namespace), **kwargs)

    option = click.option(
        "-n",
        "--namespace",
        default="",
        help="The namespace (default: that of the kubeconfig).",
        shell_complete=completion_candidates.objects("namespace"),
    )
    return connection_options(cast("Command", option(parsed)), own)


def check_namespace(name: str) -> None:
    """Raise UsageError for what is no name of a namespace: in the path of a request it could name something else."""
    from kubemachinery import meta
    from kubemachinery.errors import UsageError

    if problems := meta.check_label_name(name):
        raise UsageError(f"--namespace {name}: {'; '.join(problems)}")
