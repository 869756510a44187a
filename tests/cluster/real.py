"""A real API server for tests: etcd and kube-apiserver on loopback, and the few lines that talk to any server.

    with real.started() as server:
        answer = server.request("GET", "/api/v1/namespaces")

Nothing outlives the `with`: both processes are ended by their own ids, and their data goes with the folder they had.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import datetime
import http.client
import os
import secrets
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cluster import assets
from kubemachinery.certificates import CertificateAuthority
from started import held_port
from waiting import PATIENCE_SECONDS, until

_READY_SECONDS: Final = 2 * PATIENCE_SECONDS
# The objects that a server creates after it reports ready.
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PR_SET_PDEATHSIG: Final = 1
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Answer:
    """The answer of a server: code, headers (lower case, lists joined) and body, decoded if it is JSON."""

    code: int
    headers: Mapping[str, str]
    body: Any


@dataclass
class Client:
    """Requests to one server over one connection that is kept open."""

    url: str
    token: str = ""
    ca: bytes | None = None  # None over TLS: whatever certificate there is, for the server has yet to make its own
    etcd_url: str = ""  # where the server keeps everything
    process_ids: Mapping[str, int] = field(default_factory=dict)  # of etcd and kube-apiserver, if started here
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> Answer:
        """Send one request. A body that is not bytes goes as JSON; header names are written with `_` for `-`."""
        sent = {"Accept": "application/json", "User-Agent": "twin/1.0"}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        payload = None
        if body is not None:
            payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
            if content_type:
                sent["Content-Type"] = content_type
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        for attempt in (1, 2):
            connection = self._open()
            try:
                connection.request(method, path, payload, sent)
                response = connection.getresponse()
                data = response.read()
                break
            except (http.client.HTTPException, OSError):
                self.close()
                if attempt == 2:
                    raise
        found: dict[str, str] = {}
        for name, value in response.getheaders():
            key = name.lower()
            found[key] = f"{found[key]}, {value}" if key in found else value
        return Answer(response.status, found, _decoded(data))

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self.url)
            assert parts.hostname is not None
            if parts.scheme == "https":
                context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
                if self.ca is None:
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=60)
            else:
                self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        return self._connection

    def install(self, *crds: Mapping[str, Any]) -> None:
        """Have kinds served. One that is there already stays as it is."""
        for crd in crds:
            answer = self.request("POST", _CRDS, crd)
            assert answer.code in (201, 409), answer.body
        for crd in crds:
            until(partial(self._serves, crd["spec"]))

    def _serves(self, spec: Mapping[str, Any]) -> bool:
        """Whether objects of a kind can be written. A server lists them before that, and answers with a retry."""
        version, names = spec["versions"][0]["name"], spec["names"]
        place = "namespaces/default/" if spec["scope"] == "Namespaced" else ""
        probe = {"apiVersion": f"{spec['group']}/{version}", "kind": names["kind"], "metadata": {"generateName": "p-"}}
        path = f"/apis/{spec['group']}/{version}/{place}{names['plural']}?dryRun=All"
        return self.request("POST", path, probe).code not in (404, 429, 500, 503)

    def kubeconfig(self) -> str:
        """A kubeconfig for this server, as JSON, which is YAML too."""
        cluster = {"server": self.url}
        if self.ca is not None:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca).decode()
        return msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "real",
                "clusters": [{"name": "real", "cluster": cluster}],
                "users": [{"name": "admin", "user": {"token": self.token}}],
                "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
            }
        ).decode()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def of_kubeconfig(path: Path) -> Client:
    """A client with the server, the authority and the token of a kubeconfig."""
    document = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    return Client(cluster["server"], user["token"], base64.b64decode(cluster["certificate-authority-data"]))


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode(errors="replace")


@contextlib.contextmanager
def started(*flags: str, durable: bool = False, environment: Mapping[str, str] | None = None) -> Iterator[Client]:
    """A fresh, empty cluster. `flags` and `environment` go to kube-apiserver as they are; `durable` has etcd sync what it
    writes."""
    binaries = assets.ensure()
    with tempfile.TemporaryDirectory(prefix="pykueue-real-") as home, contextlib.ExitStack() as running:
        folder = Path(home)
        etcd_port, peer_port, port = (running.enter_context(held_port()) for _ in range(3))
        etcd_url = f"http://127.0.0.1:{etcd_port}"
        etcd = running.enter_context(
            process(
                folder / "etcd.log",
                binaries / "etcd",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                # The data need not survive, except in benchmarks, which measure fsync.
                *([] if durable else ["--unsafe-no-fsync"]),
                "--log-level=error",
            )
        )
        token = secrets.token_urlsafe(16)
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (folder / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        log = folder / "kube-apiserver.log"
        server = running.enter_context(
            process(
                log,
                binaries / "kube-apiserver",
                f"--etcd-servers={etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={folder / 'certs'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                f"--service-account-key-file={folder / 'sa.key'}",
                f"--service-account-signing-key-file={folder / 'sa.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--authorization-mode=RBAC",
                # Pods would need an account and its token, which a controller that is not here makes; and claims would
                # keep a finalizer that another removes.
                "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
                *flags,
                environment=environment,
            )
        )
        ids = {"etcd": etcd.pid, "kube-apiserver": server.pid}
        client = Client(f"https://127.0.0.1:{port}", token, etcd_url=etcd_url, process_ids=ids)
        try:
            _wait_until_ready(client, server, log)
            # It made its certificate itself when it started, with its authority behind it.
            client.close()
            client.ca = (folder / "certs" / "apiserver.crt").read_bytes()
            yield client
        finally:
            client.close()


def front(folder: Path) -> tuple[str, ...]:
    """Flags for a server that proves itself with a certificate to those it passes requests on to, as real ones do."""
    now = datetime.datetime.now(datetime.UTC)
    authority = CertificateAuthority.make("front-ca", now)
    proof = authority.issue("front", (), now)
    files = {"ca": authority.key_pair.certificate, "crt": proof.certificate, "key": proof.key}
    for name, content in files.items():
        (folder / f"front.{name}").write_bytes(content)
    return (
        f"--requestheader-client-ca-file={folder / 'front.ca'}",
        f"--proxy-client-cert-file={folder / 'front.crt'}",
        f"--proxy-client-key-file={folder / 'front.key'}",
        "--requestheader-allowed-names=front",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    )


def _wait_until_ready(client: Client, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError, http.client.HTTPException):
            paths = ("/readyz", *(f"/api/v1/namespaces/{name}" for name in _NAMESPACES))
            if all(client.request("GET", path).code == 200 for path in paths):
                return
        time.sleep(0.1)
    raise RuntimeError(f"kube-apiserver did not become ready:\n{log.read_text()[-3000:]}")


@contextlib.contextmanager
def process(
    log: Path, binary: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in a log, that is ended by its id when the block ends."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            [binary, *arguments],
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=_environment() | dict(environment or {}),
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        try:
            yield running
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def _end_with_parent() -> None:
    """Ask the kernel to end this process when a test run is killed and cannot do so itself."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
