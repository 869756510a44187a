"""How commands find their server and talk to it: as kubectl does, and else as `pykueue up` left word."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from pykueue import home
from pykueue.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykueue.kube.client import Client

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Connection:
    """Which server, and the namespace that is meant when none is named."""

    kubeconfig: str
    context: str
    namespace: str

    def talk(self, work: Callable[[Client, str], Awaitable[T]]) -> T:
        """Do something with the server; the work is handed a client and a namespace."""
        from pykueue.clock import SystemClock
        from pykueue.kube import access, errors
        from pykueue.kube.client import Client

        async def run() -> T:
            target = access.find(os.environ, self.kubeconfig, context=self.context, fallback=home.kubeconfig())
            client = Client(access.connect(target, SystemClock()), random.Random())
            try:
                return await work(client, self.namespace or target.namespace)
            except errors.ApiError as error:
                raise UsageError(str(error)) from None
            except errors.Unanswered as error:
                raise UsageError(f"{target.server} does not answer: {error}") from None
            finally:
                await client.close()

        return asyncio.run(run())


def connects(command: Command) -> Command:
    """Options that say which server; the command takes them as one `connection`."""

    @functools.wraps(command)
    def parsed(*args: Any, kubeconfig: str, context: str, namespace: str, **kwargs: Any) -> Any:
        return command(*args, connection=Connection(kubeconfig, context, namespace), **kwargs)

    for option in (
        click.option("-n", "--namespace", default="", help="The namespace; that of the kubeconfig by default."),
        click.option("--context", default="", help="A context of the kubeconfig; the current one by default."),
        click.option("--kubeconfig", default="", help="The server; found as kubectl finds it by default."),
    ):
        parsed = option(parsed)
    return cast("Command", parsed)


# What takes longer than this shows that it goes on.
_PATIENCE_SECONDS: Final = 2.0


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on a terminal's stderr that says what is being done, once it has taken a while; gone at the end."""
    doing, is_late = "", False

    def show() -> None:
        if doing:
            click.echo(f"\r\x1b[K{doing} ...", err=True, nl=False)

    def late() -> None:
        nonlocal is_late
        is_late = True
        show()

    def told(now_doing: str) -> None:
        nonlocal doing
        doing = now_doing
        if is_late:
            show()

    timer = threading.Timer(_PATIENCE_SECONDS, late)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield told
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if is_late:
            click.echo("\r\x1b[K", err=True, nl=False)
