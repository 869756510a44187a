"""Client configuration: the server and the credentials, from kubeconfig files or the service account of a pod.

The order is kubectl's: an explicit file, else `KUBECONFIG` (several files, merged; the first that sets a value wins),
else the default file, else the service account of the pod that this process runs in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery import key_pairs, meta, yaml_documents
from kubemachinery.client.transport import ConnectionOptions, Headers, Transport
from kubemachinery.clock import Clock
from kubemachinery.errors import UsageError
from kubemachinery.key_pairs import KeyPair

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_SECONDS: Final = 60.0
_TOKEN_SECONDS: Final = 60.0
# Renew this long before expiry: a request in progress must not outlive its token.
_EARLY_SECONDS: Final = 30.0
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class ClientConfig(msgspec.Struct, frozen=True):
    """A server, and what is needed to connect to it."""

    server: str
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    # The directory that relative paths in the file refer to.
    folder: Path
    # Overrides the timeout of every request; 0 is no timeout.
    timeout_seconds: float | None = None


class ConfigOverrides(msgspec.Struct, frozen=True):
    """Values that override those of kubeconfig files: context, cluster and user by name, and single fields of the
    cluster and the user by their kubeconfig names."""

    context: str = ""
    cluster: str = ""
    user: str = ""
    cluster_fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    user_fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    timeout_seconds: float | None = None

    def apply(self, target: ClientConfig) -> ClientConfig:
        cluster, user = _overridden(target.cluster, self.cluster_fields), _overridden(target.user, self.user_fields)
        return replace(
            target,
            server=str(self.cluster_fields.get("server", target.server)),
            cluster=cluster,
            user=user,
            timeout_seconds=self.timeout_seconds,
        )


# A token in the overrides replaces these other credentials.
_REPLACED_BY_TOKEN: Final = frozenset({"tokenFile", "exec", "username", "password"})


def _overridden(entry: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with the overrides; a field also replaces its `-data` form."""
    over = {*overrides, *(f"{name}-data" for name in overrides), *(_REPLACED_BY_TOKEN if "token" in overrides else ())}
    return {**{name: value for name, value in entry.items() if name not in over}, **overrides}


def find(
    environment: Mapping[str, str],
    kubeconfig: str = "",
    *,
    overrides: ConfigOverrides = ConfigOverrides(),  # noqa: B008 - frozen
    fallback: Path | None = None,
) -> ClientConfig:
    """The configuration that kubectl would use; `fallback` is a file to try when none is named and none exists."""
    there = files(environment, kubeconfig, fallback=fallback)
    if there:
        target = from_files(there, overrides)
    elif overrides.cluster_fields.get("server"):
        target = ClientConfig("", "default", {}, {}, Path())
    elif environment.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").is_file():
        target = in_cluster(environment)
    else:
        raise UsageError(
            "no server is configured: name a file with --kubeconfig, set KUBECONFIG, or start `pykueue up`"
        )
    found = overrides.apply(target)
    _check_address(found.server)
    return found


def _check_address(server: str) -> None:
    if not server.startswith(("http://", "https://")):
        raise UsageError(f"{server!r} is not a server address: it must begin with https:// or http://")
    try:
        address = urllib.parse.urlsplit(server)
        is_usable = bool(address.hostname) and address.port != 0
    except ValueError as error:
        raise UsageError(f"{server!r} is not a server address: {error}") from None
    if not is_usable:
        raise UsageError(f"{server!r} is not a server address: it has no host, or port 0")


def default(environment: Mapping[str, str]) -> Path:
    """The default kubeconfig file."""
    return Path(environment.get("HOME", "/")) / ".kube" / "config"


def files(environment: Mapping[str, str], kubeconfig: str = "", *, fallback: Path | None = None) -> list[Path]:
    """The kubeconfig files that kubectl would read; `fallback` as for `find`."""
    named = [Path(part) for part in (kubeconfig or environment.get("KUBECONFIG", "")).split(":") if part]
    return named or [path for path in (default(environment), fallback) if path is not None and path.is_file()][:1]


def in_cluster(environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """The API server of the cluster that this pod runs in, as its service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    return ClientConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=own_namespace(account) or "default",
        cluster={"certificate-authority": str(account / "ca.crt")},
        user={"tokenFile": str(account / "token")},
        folder=account,
    )


def own_namespace(account: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of the pod that this runs in; empty outside of one."""
    file = account / "namespace"
    return file.read_text().strip() if file.is_file() else ""


def from_files(paths: Sequence[Path], overrides: ConfigOverrides = ConfigOverrides()) -> ClientConfig:  # noqa: B008 - frozen
    """The current context of the merged files, or the one in the overrides."""
    found = [path for path in paths if path.exists()] or paths[:1]  # a missing first file is reported when it is read
    named, chosen_there = entries(found)
    current = overrides.context or chosen_there
    source = ":".join(map(str, found))
    name = current or ("" if overrides.cluster else _only(named["contexts"]))
    # With a cluster or a server in the overrides, no context is needed.
    is_needed = bool(name) or not (overrides.cluster or overrides.cluster_fields.get("server"))
    chosen = _entry(named, "contexts", name, source)[1] if is_needed else {}
    of_cluster, of_user = overrides.cluster or chosen.get("cluster") or "", overrides.user or chosen.get("user") or ""
    folder, cluster = _entry(named, "clusters", str(of_cluster), source) if of_cluster or is_needed else (Path(), {})
    user_folder, user = _entry(named, "users", str(of_user), source) if of_user else (folder, {})
    server = str(cluster.get("server") or "")
    if not server.startswith(("http://", "https://")) and not overrides.cluster_fields.get("server"):
        raise UsageError(f"{source}: cluster {of_cluster!r} has no usable server address")
    return ClientConfig(server, str(chosen.get("namespace") or "default"), cluster, user, user_folder)


# Section (clusters, users, contexts) -> name -> the directory of its file, and its fields.
Entries: TypeAlias = Mapping[str, Mapping[str, tuple[Path, Mapping[str, Any]]]]


def entries(paths: Sequence[Path]) -> tuple[Entries, str]:
    """The entries of merged kubeconfig files, and their current context."""
    named: dict[str, dict[str, tuple[Path, Mapping[str, Any]]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    for path in paths:
        for document in yaml_documents.read(path):
            tree = document.tree if isinstance(document.tree, dict) else {}
            current = current or str(tree.get("current-context") or "")
            for section, found in named.items():
                for name, fields in _read_section(path, tree, section):
                    found.setdefault(name, (path.parent, fields))
    return named, current


def _read_section(path: Path, tree: Mapping[str, Any], section: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The named entries of one section."""
    for entry in _list(tree.get(section), f"{path}: {section}"):
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            name, what = entry["name"], section[:-1]
            place = f"{path}: {what} {name!r}"
            fields = _object(entry.get(what), f"{place}: {what}")
            for field, value in fields.items():
                if (read := _CONTAINERS.get(field)) is not None:
                    read(value, f"{place}: {field}")
                elif isinstance(value, list | dict):
                    raise UsageError(f"{place}: {field} is not a text")
            yield name, fields


def _list(value: object, place: str) -> list[Any]:
    """The list; an empty one where it is absent."""
    if not isinstance(value, list | None):
        raise UsageError(f"{place} is not a list")
    return value or []


def _object(value: object, place: str) -> dict[str, Any]:
    """The object; an empty one where it is absent."""
    if not isinstance(value, dict | None):
        raise UsageError(f"{place} is not an object")
    return value or {}


# The fields of clusters, users and contexts that are not a text, a number or a boolean.
_CONTAINERS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "exec": _object,
    "auth-provider": _object,
    "as-groups": _list,
    "as-user-extra": _object,
    "extensions": _list,
}


def _only(entries: Mapping[str, Any]) -> str:
    return next(iter(entries)) if len(entries) == 1 else ""


def _entry(named: Entries, section: str, name: str, source: str) -> tuple[Path, Mapping[str, Any]]:
    if name not in named[section]:
        what = section[:-1]
        raise UsageError(f"{source}: there is no {what} {name!r}" if name else f"{source}: no {what} is selected")
    return named[section][name]


def connect(target: ClientConfig, clock: Clock, *, user_agent: str = "pykueue", connections: int = 128) -> Transport:
    """A transport to the server, with the credentials of the user."""
    from kubemachinery.client.http_transport import HttpTransport

    return HttpTransport(target.server, _options(target, clock, user_agent), connections=connections)


def _options(target: ClientConfig, clock: Clock, user_agent: str) -> ConnectionOptions:
    return ConnectionOptions(
        tls=_tls(target) if target.server.startswith("https://") else None,
        credentials=ClientCredentials(target, clock).headers,
        user_agent=user_agent,
        server_hostname=str(target.cluster.get("tls-server-name") or "") or None,
        timeout_seconds=target.timeout_seconds,
        compressed=not target.cluster.get("disable-compression"),
    )


# --- Credentials ------------------------------------------------------------------------------------------------------


class ClientCredentials:
    """The authentication headers; tokens are renewed before they expire."""

    def __init__(self, target: ClientConfig, clock: Clock) -> None:
        self._user = target.user
        self._folder = target.folder
        self._cluster = target.cluster
        self._clock = clock
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def headers(self) -> Headers:
        token = await self._current()
        if self._user.get("username"):
            pair = f"{self._user['username']}:{self._user.get('password', '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            authorization = f"Bearer {token}" if token else ""
        headers = [*([("Authorization", authorization)] if authorization else []), *self._impersonation()]
        for name, value in headers:
            # Without the value: it may be a credential.
            if _CONTROL_CHARACTER.search(value):
                raise UsageError(f"the credentials for the header {name} contain a control character")
        return headers

    def _impersonation(self) -> Iterator[tuple[str, str]]:
        """The impersonation headers."""
        if self._user.get("as"):
            yield "Impersonate-User", str(self._user["as"])
        if self._user.get("as-uid"):
            yield "Impersonate-Uid", str(self._user["as-uid"])
        for group in self._user.get("as-groups") or ():
            yield "Impersonate-Group", str(group)
        for name, values in (self._user.get("as-user-extra") or {}).items():
            for value in _list(values, f"as-user-extra: {name}"):
                yield f"Impersonate-Extra-{urllib.parse.quote(name.lower(), safe='')}", str(value)

    async def _current(self) -> str:
        if self._user.get("token"):
            return str(self._user["token"])
        if not self._user.get("tokenFile") and not self._user.get("exec"):
            return ""
        async with self._lock:
            now = self._clock.monotonic()
            if now >= self._until:
                if self._user.get("tokenFile"):
                    self._token = _read_text(self._folder / str(self._user["tokenFile"])).strip()
                    self._until = now + _TOKEN_SECONDS
                else:
                    self._token, lasts = await self._run(self._user["exec"])
                    self._until = now + lasts
            return self._token

    async def _run(self, program: Mapping[str, Any]) -> tuple[str, float]:
        """Run the credential plugin of the kubeconfig; return a token and how many seconds it is valid."""
        command = str(program.get("command") or "")
        version = str(program.get("apiVersion") or "")
        if version not in _EXEC_VERSIONS:
            raise UsageError(
                f"the credential plugin {command!r} uses {version!r}; supported are {', '.join(_EXEC_VERSIONS)}"
            )
        info: dict[str, Any] = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if program.get("provideClusterInfo"):
            info["spec"]["cluster"] = {"server": self._cluster.get("server")}
        plugin = f"the credential plugin {command!r}"
        entries = [
            _object(entry, f"{plugin}: an entry of env") for entry in _list(program.get("env"), f"{plugin}: env")
        ]
        environment = {str(entry.get("name")): str(entry.get("value", "")) for entry in entries}
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
        path = str(self._folder / command) if "/" in command and not command.startswith("/") else command
        try:
            process = await asyncio.create_subprocess_exec(
                "/usr/bin/env",
                *(f"{name}={value}" for name, value in environment.items()),
                path,
                *map(str, _list(program.get("args"), f"{plugin}: args")),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(_EXEC_SECONDS):
                output, errors = await process.communicate()
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"the credential plugin {command!r} did not complete: {error!r}") from None
        if process.returncode != 0:
            why = errors.decode(errors="replace").strip()[-200:]
            raise UsageError(f"the credential plugin {command!r} failed with {process.returncode}: {why}")
        return self._answer(command, output)

    def _answer(self, command: str, output: bytes) -> tuple[str, float]:
        try:
            status = json.loads(output)["status"]
            token = str(status.get("token") or "")
            until = status.get("expirationTimestamp")
            lasts = (meta.parse_time(until) - self._clock.now()) / meta.SECOND - _EARLY_SECONDS if until else 3600.0
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"the credential plugin {command!r} did not print an ExecCredential") from None
        if not token:
            raise UsageError(
                f"the credential plugin {command!r} returned no token; its client certificates are not supported"
            )
        return token, max(lasts, 1.0)


def _tls(target: ClientConfig) -> ssl.SSLContext:
    cluster, user, folder = target.cluster, target.user, target.folder
    authority = _bytes(cluster, "certificate-authority", folder)
    try:
        # Without an authority, the certificates of the machine are loaded, which takes longer.
        context = ssl.create_default_context(cadata=authority.decode() or None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise UsageError("the certificate-authority of the kubeconfig is not a PEM certificate") from None
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _bytes(user, "client-certificate", folder), _bytes(user, "client-key", folder)
    if certificate and key:
        try:
            key_pairs.load_into(context, KeyPair(certificate, key))
        except ssl.SSLError:
            raise UsageError(
                "the client-certificate and client-key of the kubeconfig are not a PEM certificate and its key"
            ) from None
    return context


def _bytes(section: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """The inline value (`NAME-data`), or the content of the file that `NAME` names."""
    if section.get(f"{name}-data"):
        try:
            return base64.b64decode(str(section[f"{name}-data"]), validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(f"{name}-data in the kubeconfig is not base64") from None
    if section.get(name):
        return _read_text(folder / str(section[name])).encode()
    return b""


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
