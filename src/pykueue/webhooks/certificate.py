"""The serving certificate of webhooks: issued, stored, renewed in time; and the CA bundle to register.

    in a Secret      for managers in a cluster, which share one
    in a directory   written by another program (`webhook.certDir`); only read
    in memory        for a manager outside of the cluster, which issues its own at every start

A CA that is about to expire is replaced by a new one. The bundle has both until the old one has expired, so that a
replica that still serves the old certificate is trusted.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
import ssl
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from kubemachinery import key_pairs, unstructured
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.errors import UsageError
from pykueue.api import kube, registry
from pykueue.webhooks.certificate_bundle import NAMES, CertificateBundle, RenewalRequest

log = logging.getLogger(__name__)

SECRET: Final = registry.KUBERNETES.of(kube.Secret)

# A certificate that is valid is checked again after this time: it may be about to expire by then.
_CHECK_AGAIN: Final = datetime.timedelta(hours=1)
_RENEWAL_SECONDS: Final = 60
_ATTEMPTS: Final = 5


class CertificateRenewal:
    """Renews certificates in a process of its own: the library for it would stay in this one for good.

    A certificate that was found valid is not checked again for an hour.
    """

    def __init__(self) -> None:
        self._valid: RenewalRequest | None = None

    async def renewed(self, kept: CertificateBundle, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        """The bundle to store: the same while it is valid."""
        request = RenewalRequest(kept, tuple(hosts), now)
        valid = self._valid
        if valid is not None and replace(valid, now=now) == request and abs(now - valid.now) < _CHECK_AGAIN:
            return kept
        made = await asyncio.to_thread(_renewed_apart, request)
        self._valid = RenewalRequest(made, tuple(hosts), now)
        return kept if made == kept else made


def _renewed_apart(request: RenewalRequest) -> CertificateBundle:
    """Renew in another process; in this one, where no other can be started."""
    command = (sys.executable, "-m", "pykueue.webhooks.certificate_renewal")
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(request), capture_output=True, check=True, timeout=_RENEWAL_SECONDS
        )
        return msgspec.json.decode(done.stdout, type=CertificateBundle)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        from pykueue.webhooks import certificate_renewal

        log.warning("the webhook certificate is renewed in this process, because another failed: %s", error)
        return certificate_renewal.renewed(request.kept, request.hosts, request.now)


class CertificateStore(Protocol):
    """Where the certificate is stored."""

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        """The certificate to serve with now; renewed if it is about to expire. Called regularly."""
        ...


@dataclass
class InMemoryStore:
    kept: CertificateBundle = field(default_factory=CertificateBundle)
    renewal: CertificateRenewal = field(default_factory=CertificateRenewal)

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        self.kept = await self.renewal.renewed(self.kept, hosts, now)
        return self.kept


class SecretStore(msgspec.Struct, frozen=True):
    """Shared by all replicas: the first one renews it, the others read the renewed one."""

    client: ApiClient
    namespace: str
    name: str
    renewal: CertificateRenewal = msgspec.field(default_factory=CertificateRenewal)

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        for _ in range(_ATTEMPTS):
            secret = await self.client.find(SECRET, self.name, self.namespace)
            before = _unpacked(unstructured.get(secret, "data"))
            after = await self.renewal.renewed(before, hosts, now)
            if after is before and secret is not None:
                return after
            try:
                await self._write(secret, after)
                return after
            except (errors.Conflict, errors.AlreadyExists):
                continue  # another replica was faster: its certificate is equally good
        raise errors.Unanswered(f"Secret {self.namespace}/{self.name} changes faster than it can be written")

    async def _write(self, secret: unstructured.Tree | None, kept: CertificateBundle) -> None:
        packed = {name: base64.b64encode(getattr(kept, field)).decode() for field, name in NAMES.items()}
        if secret is None:
            named = {"name": self.name, "namespace": self.namespace}
            await self.client.create(
                SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": named, "type": "Opaque", "data": packed}
            )
        else:
            data = {**unstructured.texts(secret.get("data")), **packed}
            await self.client.replace(SECRET, {**secret, "data": data})


def _unpacked(data: object) -> CertificateBundle:
    def part(name: str) -> bytes:
        try:
            return base64.b64decode(unstructured.text(unstructured.get(data, name)), validate=True)
        except ValueError:
            return b""

    return CertificateBundle(**{field: part(name) for field, name in NAMES.items()})


class DirectoryStore(msgspec.Struct, frozen=True):
    """Another program writes the certificate; a replaced one is read again."""

    folder: Path

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        certificate, key = self.folder / NAMES["certificate"], self.folder / NAMES["key"]
        ca = self.folder / NAMES["ca"]
        try:
            found = CertificateBundle(
                ca=ca.read_bytes() if ca.is_file() else b"",
                certificate=certificate.read_bytes(),
                key=key.read_bytes(),
            )
        except OSError as error:
            raise UsageError(f"webhook.certDir: {error.filename}: {error.strerror}") from None
        # The files may be replaced one after the other, between the two reads.
        if not key_pairs.is_usable(found.identity):
            raise UsageError(f"webhook.certDir: {certificate} and {key} are not a PEM certificate and its key")
        return found


def require_client(context: ssl.SSLContext, authority: Path) -> None:
    """Require a client certificate of this CA."""
    try:
        context.load_verify_locations(cafile=authority)
    except OSError as error:  # an SSLError is one
        cause = error.strerror if not isinstance(error, ssl.SSLError) else "it holds no certificate in PEM"
        raise UsageError(f"the CA of webhook clients, {authority}: {cause}") from None
    context.verify_mode = ssl.CERT_REQUIRED
