"""How commands find their server and talk to it: as kubectl does, and else as `pykueue up` left word."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from pykueue import home
from pykueue.cli import completing
from pykueue.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from pykueue.kube.access import Target, Wish
    from pykueue.kube.client import Client
    from pykueue.kube.transport import Answer, Call, Lines, Transport

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class Flag(NamedTuple):
    """A flag that says how to reach the server, as kubectl has it, and where a kubeconfig says the same."""

    name: str
    section: str  # cluster or user: a field of that entry; entry: which of them; empty: in no kubeconfig
    help: str
    field: str = ""  # where it has another name there
    short: str = ""
    is_path: bool = False
    is_switch: bool = False
    is_repeated: bool = False


# One row is one flag of every command that talks to a server. `pykueue options` prints them.
FLAGS: Final = (
    Flag("cluster", "entry", "A cluster of the kubeconfig, in place of the context's."),
    Flag("user", "entry", "A user of the kubeconfig, in place of the context's."),
    Flag("server", "cluster", "The address of the server.", short="-s"),
    Flag("certificate-authority", "cluster", "A file: whom the server must be certified by.", is_path=True),
    Flag("insecure-skip-tls-verify", "cluster", "Believe any server.", is_switch=True),
    Flag("tls-server-name", "cluster", "The name to expect in the server's certificate."),
    Flag("disable-compression", "cluster", "Have answers sent as they are, not compressed.", is_switch=True),
    Flag("token", "user", "A bearer token that proves who calls."),
    Flag("client-certificate", "user", "A file: the certificate that proves it.", is_path=True),
    Flag("client-key", "user", "A file: the key of that certificate.", is_path=True),
    Flag("as", "user", "Somebody to call as, for those who may."),
    Flag("as-uid", "user", "The same: their UID."),
    Flag("as-group", "user", "The same: a group of theirs; may be repeated.", field="as-groups", is_repeated=True),
    Flag("as-user-extra", "user", "The same: KEY=VALUE about them; may be repeated.", is_repeated=True),
    Flag("request-timeout", "", "How long to wait for one answer, such as 5s; 0 is for ever."),
    Flag("cache-dir", "", "Taken for the sake of scripts, and not used: nothing that a server says is kept."),
)


@dataclass(frozen=True, slots=True)
class Reach:
    """Which server, and as whom."""

    kubeconfig: str
    context: str
    flags: Mapping[str, Any]  # by their names; only those that were given

    @classmethod
    def of(cls, said: Mapping[str, Any], *, patience: str = "") -> Reach:
        """What options say, by their variables; `patience` is how long to wait where nothing is said of it."""
        given = {flag.name: value for flag in FLAGS if (value := _given(flag, said.get(_variable(flag))))}
        waits = {"request-timeout": patience} if patience else {}
        return cls(said.get("kubeconfig") or "", said.get("context") or "", waits | given)

    def target(self) -> Target:
        """Where that is; else where `pykueue up` left word."""
        from pykueue.kube import access

        return access.find(os.environ, self.kubeconfig, wish=self._wish(), fallback=home.kubeconfig())

    def _wish(self) -> Wish:
        from pykueue.kube import access

        def said(section: str) -> dict[str, Any]:
            given = (flag for flag in FLAGS if flag.section == section and flag.name in self.flags)
            return {flag.field or flag.name: self.flags[flag.name] for flag in given}

        timeout = self.flags.get("request-timeout")
        return access.Wish(
            context=self.context,
            of_cluster=said("cluster"),
            of_user=said("user"),
            timeout_seconds=_timeout(timeout) if timeout is not None else None,
            **said("entry"),
        )

    def run(self, work: Callable[[Client, Target], Awaitable[T]]) -> T:
        """Do something with the server; the work is handed a client, and where it leads."""
        from pykueue.clock import SystemClock
        from pykueue.kube import access, errors
        from pykueue.kube.client import Client

        async def run() -> T:
            target = self.target()
            way = _Watched(access.connect(target, SystemClock()), target.server)
            # Whoever says how long to wait means it.
            client = Client(way, random.Random(), attempts=1 if "request-timeout" in self.flags else _ATTEMPTS)
            try:
                return await work(client, target)
            except (errors.ApiError, errors.Unanswered) as error:
                raise UsageError(str(error)) from None
            finally:
                await client.close()

        return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class Connection:
    """Which server, and the namespace that is meant when none is named."""

    reach: Reach
    namespace: str

    def talk(self, work: Callable[[Client, str], Awaitable[T]]) -> T:
        """Do something with the server; the work is handed a client and a namespace."""
        return self.reach.run(lambda client, target: work(client, self.namespace or target.namespace))


def reaches(command: Command) -> Command:
    """Options that say which server; the command takes them as one `reach`."""

    @functools.wraps(command)
    def parsed(*args: Any, **kwargs: Any) -> Any:
        said = {name: kwargs.pop(name) for name in ("kubeconfig", "context", *map(_variable, FLAGS))}
        return command(*args, reach=Reach.of(said), **kwargs)

    for flag in reversed(FLAGS):
        parsed = click.option(
            *filter(None, (flag.short, f"--{flag.name}", _variable(flag))),
            is_flag=flag.is_switch,
            multiple=flag.is_repeated,
            type=click.Path(path_type=Path) if flag.is_path else None,
            help=flag.help,
            hidden=True,
            shell_complete=completing.entries(f"{flag.name}s") if flag.section == "entry" else None,
        )(parsed)
    for option in (
        click.option(
            "--context",
            default="",
            help="A context of the kubeconfig; the current one by default.",
            shell_complete=completing.entries("contexts"),
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
    def parsed(*args: Any, reach: Reach, namespace: str, **kwargs: Any) -> Any:
        return command(*args, connection=Connection(reach, namespace), **kwargs)

    option = click.option(
        "-n",
        "--namespace",
        default="",
        help="The namespace; that of the kubeconfig by default.",
        shell_complete=completing.objects("namespace"),
    )
    return reaches(cast("Command", option(parsed)))


def _variable(flag: Flag) -> str:
    return f"flag_{flag.name.replace('-', '_')}"


def _given(flag: Flag, value: Any) -> Any:
    """What a kubeconfig would have in its place. Files are named from here, not from where the kubeconfig is."""
    if flag.is_path and value is not None:
        return str(value.absolute())
    if flag.name == "as-user-extra":
        return _extra(value or ())
    return list(value or ()) if flag.is_repeated else value


def _extra(pairs: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"--as-user-extra {pair}: must be KEY=VALUE")
        found.setdefault(key, []).append(value)
    return found


def _timeout(text: str) -> float:
    """As kubectl reads it: a duration, or a bare number of seconds."""
    from pykueue.api import meta

    if text.isdecimal():
        return float(text)
    try:
        return meta.parse_duration(text) / meta.SECOND
    except meta.TimeError as error:
        raise UsageError(f"--request-timeout {text}: {error}") from None


# A person would rather hear soon that a server is not there, and try again.
_ATTEMPTS: Final = 3

# What takes longer than this shows that it goes on: at once to a person, and later in a log.
_PATIENCE_SECONDS: Final = 2.0
_PATIENCE_OF_LOGS_SECONDS: Final = 30.0


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Says on stderr what is being done, once it has taken a while. On a terminal it is one line, which is gone at the
    end; elsewhere a line for each new thing."""
    is_terminal = sys.stderr.isatty()
    doing, is_late = "", False
    speaking = threading.Lock()  # the clock is a thread of its own

    def show() -> None:
        if doing:
            click.echo(f"\r\x1b[K{doing} ..." if is_terminal else doing, err=True, nl=not is_terminal)

    def late() -> None:
        nonlocal is_late
        with speaking:
            is_late = True
            show()

    def told(now_doing: str) -> None:
        nonlocal doing
        with speaking:
            is_new, doing = now_doing != doing, now_doing
            if is_late and is_new:
                show()

    timer = threading.Timer(_PATIENCE_SECONDS if is_terminal else _PATIENCE_OF_LOGS_SECONDS, late)
    timer.daemon = True
    timer.start()
    try:
        yield told
    finally:
        timer.cancel()
        timer.join()
        if is_late and is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


class _Watched:
    """A way to a server that takes its time: whoever waits for an answer is told so."""

    def __init__(self, way: Transport, server: str) -> None:
        self._way = way
        self._server = server

    async def send(self, call: Call) -> Answer:
        with progress() as told:
            told(f"waiting for {self._server}")
            return await self._way.send(call)

    def stream(self, call: Call) -> AbstractAsyncContextManager[Lines]:
        return self._way.stream(call)

    async def close(self) -> None:
        await self._way.close()
