"""Which server, and as whom: the flags of kubectl that say so, and what is found by them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kubemachinery.errors import UsageError
from pykueue import paths
from pykueue.cli import progress

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kubemachinery.client.client import ApiClient
    from kubemachinery.client.client_config import ClientConfig, ConfigOverrides
    from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport

T = TypeVar("T")

# A person would rather hear soon that a server is not there, and try again.
_ATTEMPTS: Final = 3
_LIST_LIMIT: Final = "KUEUECTL_LIST_REQUEST_LIMIT"


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

    @property
    def variable(self) -> str:
        """What a command's function takes it as."""
        return f"flag_{self.name.replace('-', '_')}"


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
class ConnectionFlags:
    """Which server, and as whom."""

    kubeconfig: str
    context: str
    flags: Mapping[str, Any]  # by their names; only those that were given

    @classmethod
    def of(cls, said: Mapping[str, Any], *, patience: str = "") -> ConnectionFlags:
        """What options say, by their variables; `patience` is how long to wait where nothing is said of it."""
        given = {flag.name: value for flag in FLAGS if (value := _given(flag, said.get(flag.variable)))}
        waits = {"request-timeout": patience} if patience else {}
        return cls(said.get("kubeconfig") or "", said.get("context") or "", waits | given)

    def kubectl_arguments(self) -> list[str]:
        """The same flags on a command line of kubectl."""
        given = {"kubeconfig": self.kubeconfig, "context": self.context, **self.flags}
        return [f"--{name}={text}" for name, value in given.items() if value for text in _texts(value)]

    def target(self) -> ClientConfig:
        """Where that is; else where `pykueue up` left word."""
        from kubemachinery.client import client_config

        return client_config.find(os.environ, self.kubeconfig, overrides=self._wish(), fallback=paths.kubeconfig())

    def _wish(self) -> ConfigOverrides:
        from kubemachinery.client import client_config

        def said(section: str) -> dict[str, Any]:
            given = (flag for flag in FLAGS if flag.section == section and flag.name in self.flags)
            return {flag.field or flag.name: self.flags[flag.name] for flag in given}

        timeout = self.flags.get("request-timeout")
        return client_config.ConfigOverrides(
            context=self.context,
            cluster_fields=said("cluster"),
            user_fields=said("user"),
            timeout_seconds=_timeout(timeout) if timeout is not None else None,
            **said("entry"),
        )

    def run(self, work: Callable[[ApiClient, ClientConfig], Awaitable[T]]) -> T:
        """Do something with the server; the work is handed a client, and where it leads."""
        from kubemachinery.client import client_config, errors
        from kubemachinery.client.client import ApiClient
        from kubemachinery.clock import SystemClock

        async def run() -> T:
            target = self.target()
            way = _Watched(client_config.connect(target, SystemClock()), target.server)
            # Whoever says how long to wait means it.
            attempts = 1 if "request-timeout" in self.flags else _ATTEMPTS
            client = ApiClient(way, random.Random(), attempts=attempts, page=_page(os.environ))
            try:
                return await work(client, target)
            except (errors.ApiError, errors.Unanswered) as error:
                raise UsageError(_told(error, target)) from None
            finally:
                await client.close()

        return asyncio.run(run())


def _told(error: Exception, target: ClientConfig) -> str:
    """What a server says to those whom it does not know is a single word."""
    if getattr(error, "code", None) != HTTPStatus.UNAUTHORIZED:
        return str(error)
    return (
        f"{target.server} does not know who calls ({error}): the token or certificate is missing, wrong or out of date"
    )


def _page(environment: Mapping[str, str]) -> int:
    """How much of a list to ask for at once: kueuectl has a variable for it."""
    from kubemachinery.client.client import PAGE

    said = environment.get(_LIST_LIMIT, "")
    if said and not said.isdecimal():
        raise UsageError(f"{_LIST_LIMIT}={said}: must be a whole number; 0 is no limit")
    return int(said) if said else PAGE


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


def _texts(value: Any) -> list[str]:
    """The values of a flag as kubectl takes them; KEY=VALUE for as-user-extra."""
    if isinstance(value, Mapping):
        return [f"{key}={text}" for key, texts in value.items() for text in texts]
    if isinstance(value, bool):
        return [str(value).lower()]
    return list(value) if isinstance(value, list) else [value]


def _timeout(text: str) -> float:
    """As kubectl reads it: a duration, or a bare number of seconds."""
    from kubemachinery import meta

    if text.isdecimal():
        return float(text)
    try:
        return meta.parse_duration(text) / meta.SECOND
    except meta.TimeError as error:
        raise UsageError(f"--request-timeout {text}: {error}") from None


class _Watched:
    """A way to a server that takes its time: whoever waits for an answer is told so."""

    def __init__(self, way: Transport, server: str) -> None:
        self._way = way
        self._server = server

    async def send(self, call: ApiRequest) -> ApiResponse:
        with progress.awaiting(f"waiting for {self._server}"):
            return await self._way.send(call)

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        return self._way.stream(call)

    async def close(self) -> None:
        await self._way.close()
