"""The serving certificate of webhooks: issued, stored, renewed in time; and the CA bundle to register.

    in a Secret      for managers in a cluster, which share one
    in a directory   written by another program (`webhook.certDir`); only read
    in memory        for a manager outside of the cluster, which issues its own at every start

A CA that is about to expire is replaced by a new one. The bundle has both until the old one has expired, so that a
replica that still serves the old certificate is trusted.
"""

from __future__ import annotations

import base64
import datetime
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from kubemachinery import certificates, unstructured
from kubemachinery.certificates import CertificateAuthority, KeyPair, still_good
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.errors import UsageError
from pykueue.api import kube, registry

AUTHORITY_NAME: Final = "kueue-ca"
SECRET: Final = registry.KUBERNETES.of(kube.Secret)

# A CA is valid longer than the certificates that it signs.
_AUTHORITY_RENEW_DAYS: Final = certificates.CERTIFICATE_DAYS + certificates.RENEW_DAYS
_END: Final = b"-----END CERTIFICATE-----\n"
_ATTEMPTS: Final = 5


class CertificateBundle(msgspec.Struct, frozen=True):
    """The stored files, under their conventional names. `ca` may hold several CAs, the signing one first."""

    ca: bytes = b""
    ca_key: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    @property
    def identity(self) -> KeyPair:
        return KeyPair(self.certificate, self.key)


# Field of `Kept` -> name of the file, or of the key in the Secret.
NAMES: Final[Mapping[str, str]] = {"ca": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


def renewed(kept: CertificateBundle, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
    """The bundle to store: the same while it is valid, else with a new certificate, and a new CA where needed."""
    signing, *others = _authorities(kept.ca) or [b""]
    authority = CertificateAuthority.load(signing, kept.ca_key)
    if authority is None or not still_good(signing, now, renew_days=_AUTHORITY_RENEW_DAYS):
        authority = CertificateAuthority.make(AUTHORITY_NAME, now)
        others = [signing, *others] if signing else others
    elif still_good(kept.certificate, now, hosts) and authority.signed(kept.certificate):
        return kept
    made = authority.issue(hosts[0], (), now, hosts=hosts)
    trusted = [old for old in others if still_good(old, now, renew_days=0)]
    return CertificateBundle(
        ca=b"".join([authority.key_pair.certificate, *trusted]),
        ca_key=authority.key_pair.key,
        certificate=made.certificate,
        key=made.key,
    )


def _authorities(ca: bytes) -> list[bytes]:
    return [pem.lstrip() + _END for pem in ca.split(_END)[:-1]]


class CertificateStore(Protocol):
    """Where the certificate is stored."""

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        """The certificate to serve with now; renewed if it is about to expire. Called regularly."""
        ...


@dataclass
class InMemoryStore:
    kept: CertificateBundle = field(default_factory=CertificateBundle)

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        self.kept = renewed(self.kept, hosts, now)
        return self.kept


class SecretStore(msgspec.Struct, frozen=True):
    """Shared by all replicas: the first one renews it, the others read the renewed one."""

    client: ApiClient
    namespace: str
    name: str

    async def current(self, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
        for _ in range(_ATTEMPTS):
            secret = await self.client.find(SECRET, self.name, self.namespace)
            before = _unpacked(unstructured.get(secret, "data"))
            after = renewed(before, hosts, now)
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
            return CertificateBundle(
                ca=ca.read_bytes() if ca.is_file() else b"",
                certificate=certificate.read_bytes(),
                key=key.read_bytes(),
            )
        except OSError as error:
            raise UsageError(f"webhook.certDir: {error.filename}: {error.strerror}") from None


def require_client(context: ssl.SSLContext, authority: Path) -> None:
    """Require a client certificate of this CA."""
    try:
        context.load_verify_locations(cafile=authority)
    except OSError as error:  # an SSLError is one
        cause = error.strerror if not isinstance(error, ssl.SSLError) else "it holds no certificate in PEM"
        raise UsageError(f"the CA of webhook clients, {authority}: {cause}") from None
    context.verify_mode = ssl.CERT_REQUIRED
