"""The connection flags of kubectl, and the client configuration that they select."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from kubemachinery.errors import UsageError
from pykueue import paths
from pykueue.cli import progress

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kubemachinery.client.client import ApiClient
    from kubemachinery.client.client_config import ClientConfig, ConfigOverrides
    from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport

T = TypeVar("T")

# Few attempts: an unreachable server is reported soon.
_ATTEMPTS: Final = 3
_LIST_LIMIT: Final = "KUEUECTL_LIST_REQUEST_LIMIT"


class Flag(NamedTuple):
    """A connection flag of kubectl, and the field of a kubeconfig that it overrides."""

    name: str
    section: str  # cluster or user: a field of that entry; entry: selects the entry; empty: not in a kubeconfig
    help: str
    field: str = ""  # the name of the field, if it differs
    short: str = ""
    is_path: bool = False
    is_switch: bool = False
    is_repeated: bool = False

    @property
    def variable(self) -> str:
        """The name of the parameter of the command's function."""
        return f"flag_{self.name.replace('-', '_')}"


# One row is one flag of every command that connects to a server. `pykueue options` prints them.
FLAGS: Final = (
    Flag("cluster", "entry", "The cluster of the kubeconfig to use instead of the context's."),
    Flag("user", "entry", "The user of the kubeconfig to use instead of the context's."),
    Flag("server", "cluster", "The address of the server.", short="-s"),
    Flag("certificate-authority", "cluster", "A file with the certificate authority of the server.", is_path=True),
    Flag("insecure-skip-tls-verify", "cluster", "Do not verify the certificate of the server.", is_switch=True),
    Flag("tls-server-name", "cluster", "The name to verify in the certificate of the server."),
    Flag("disable-compression", "cluster", "Request uncompressed responses.", is_switch=True),
    Flag("token", "user", "A bearer token for authentication."),
    Flag("client-certificate", "user", "A file with the client certificate.", is_path=True),
    Flag("client-key", "user", "A file with the key of the client certificate.", is_path=True),
    Flag("as", "user", "The user to impersonate."),
    Flag("as-uid", "user", "The UID to impersonate."),
    Flag("as-group", "user", "A group to impersonate; may be repeated.", field="as-groups", is_repeated=True),
    Flag("as-user-extra", "user", "Extra KEY=VALUE to impersonate; may be repeated.", is_repeated=True),
    Flag("request-timeout", "", "The timeout of one request, such as 5s; 0 is no timeout."),
    Flag("cache-dir", "", "Accepted for compatibility, and not used: responses are not cached."),
)


class ConnectionFlags(msgspec.Struct, frozen=True):
    """The given connection flags."""

    kubeconfig: str
    context: str
    flags: Mapping[str, Any]  # by name; only those that were given

    @classmethod
    def of(cls, parameters: Mapping[str, Any], *, patience: str = "") -> ConnectionFlags:
        """The flags from the parameters of a command; `patience` is the default of --request-timeout."""
        given = {flag.name: value for flag in FLAGS if (value := _value(flag, parameters.get(flag.variable)))}
        waits = {"request-timeout": patience} if patience else {}
        return cls(parameters.get("kubeconfig") or "", parameters.get("context") or "", waits | given)

    def kubectl_arguments(self) -> list[str]:
        """The same flags on a command line of kubectl."""
        given = {"kubeconfig": self.kubeconfig, "context": self.context, **self.flags}
        return [f"--{name}={text}" for name, value in given.items() if value for text in _texts(value)]

    def target(self) -> ClientConfig:
        """The server they select; else the last one started by `pykueue up`."""
        from kubemachinery.client import client_config

        return client_config.find(os.environ, self.kubeconfig, overrides=self._overrides(), fallback=paths.kubeconfig())

    def _overrides(self) -> ConfigOverrides:
        from kubemachinery.client import client_config

        def section_fields(section: str) -> dict[str, Any]:
            flags = (flag for flag in FLAGS if flag.section == section and flag.name in self.flags)
            return {flag.field or flag.name: self.flags[flag.name] for flag in flags}

        timeout = self.flags.get("request-timeout")
        return client_config.ConfigOverrides(
            context=self.context,
            cluster_fields=section_fields("cluster"),
            user_fields=section_fields("user"),
            timeout_seconds=_timeout(timeout) if timeout is not None else None,
            **section_fields("entry"),
        )

    def run(self, work: Callable[[ApiClient, ClientConfig], Awaitable[T]]) -> T:
        """Run `work` with a client and the client configuration, and return its result."""
        from kubemachinery.client import client_config, errors
        from kubemachinery.client.client import ApiClient
        from kubemachinery.clock import SystemClock

        async def run() -> T:
            target, page = self.target(), _page(os.environ)
            way = _Watched(client_config.connect(target, SystemClock()), target.server)
            # An explicit timeout is not multiplied by retries.
            attempts = 1 if "request-timeout" in self.flags else _ATTEMPTS
            client = ApiClient(way, random.Random(), attempts=attempts, page=page)
            try:
                return await work(client, target)
            except (errors.ApiError, errors.Unanswered) as error:
                raise UsageError(_message(error, target)) from None
            finally:
                await client.close()

        return asyncio.run(run())


def _message(error: Exception, target: ClientConfig) -> str:
    """The message of a failed request. The message of a 401 response is a single word, so a reason is added."""
    if getattr(error, "code", None) != HTTPStatus.UNAUTHORIZED:
        return str(error)
    return f"{target.server}: authentication failed ({error}): the token or certificate is missing, invalid or expired"


def _page(environment: Mapping[str, str]) -> int:
    """The page size of lists, by the variable of kueuectl."""
    from kubemachinery.client.client import PAGE

    given = environment.get(_LIST_LIMIT, "")
    if given and not given.isdecimal():
        raise UsageError(f"{_LIST_LIMIT}={given}: must be a whole number; 0 is no limit")
    return int(given) if given else PAGE


def _value(flag: Flag, value: Any) -> Any:
    """The value for the kubeconfig field. Paths are relative to the working directory, not to the kubeconfig."""
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
    """The timeout in seconds, as kubectl reads it: a duration, or a number of seconds."""
    from kubemachinery import meta

    if text.isdecimal():
        return float(text)
    try:
        timeout = meta.parse_duration(text) / meta.SECOND
    except meta.TimeError as error:
        raise UsageError(f"--request-timeout {text}: {error}") from None
    if timeout < 0:
        raise UsageError(f"--request-timeout {text}: must not be negative; 0 is no timeout")
    return timeout


class _Watched:
    """A transport that reports progress while a response takes long, and prints each warning of the server once, as
    kubectl does: a job that is tried before it is stored has its warnings twice."""

    def __init__(self, way: Transport, server: str) -> None:
        self._way = way
        self._server = server
        self._warned: set[str] = set()

    async def send(self, call: ApiRequest) -> ApiResponse:
        with progress.awaiting(f"waiting for {self._server}"):
            response = await self._way.send(call)
        if header := response.headers.get("Warning", ""):
            self._warn(header)
        return response

    def _warn(self, header: str) -> None:
        from kubemachinery.client import warning_headers

        for text in warning_headers.texts(header):
            if text not in self._warned:
                self._warned.add(text)
                progress.aside(f"Warning: {progress.cleaned(text)}")

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        return self._way.stream(call)

    async def close(self) -> None:
        await self._way.close()
