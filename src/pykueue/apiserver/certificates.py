"""The server's own little authority, and the kubeconfig that lets somebody in.

Everything is made at the first start and kept in the data directory (mode 0600). Certificates are good for less than a
year; a start within a month of the end makes new ones from the same authority.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pykueue.apiserver import access

CERTIFICATE_DAYS: Final = 360
CA_DAYS: Final = 3650
RENEW_DAYS: Final = 30
_SKEW: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server needs to be reached, and what its clients need to reach it."""

    ca: bytes
    server: Path
    admin: Identity
    viewer: Identity
    admin_token: str
    view_token: str


def prepare(directory: Path, hosts: Sequence[str], now: datetime.datetime) -> Credentials:
    """The credentials in a directory; what is missing, old or for other names is made."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _Authority.load(directory, now)
    server = directory / "server.pem"
    if not _still_good(server, now, hosts):
        identity = authority.issue("kube-apiserver", (), now, hosts=hosts)
        write_private(server, identity.certificate + identity.key)
    return Credentials(
        ca=authority.certificate.public_bytes(serialization.Encoding.PEM),
        server=server,
        admin=_client(authority, directory / "admin.pem", access.ADMIN, now),
        viewer=_client(authority, directory / "view.pem", access.VIEWER, now),
        admin_token=_token(directory / "admin.token"),
        view_token=_token(directory / "view.token"),
    )


def server_context(server: Path, key: Path | None, client_ca: bytes, *more_client_ca: Path) -> ssl.SSLContext:
    """TLS that asks clients for a certificate and takes those of the given authorities, or none.

    `key` is None where the file of the certificate holds it, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(server, key)
    context.load_verify_locations(cadata=client_ca.decode())
    for path in more_client_ca:
        context.load_verify_locations(cafile=path)
    context.verify_mode = ssl.CERT_OPTIONAL
    # Only HTTP/1.1 is spoken; a client that offers HTTP/2 learns it here.
    context.set_alpn_protocols(["http/1.1"])
    return context


def _client(authority: _Authority, path: Path, user: access.User, now: datetime.datetime) -> Identity:
    if not _still_good(path, now, ()):
        groups = [group for group in user.groups if group != access.AUTHENTICATED]
        identity = authority.issue(user.name, groups, now)
        write_private(path, identity.certificate + identity.key)
    text = path.read_bytes()
    border = text.index(b"-----BEGIN PRIVATE KEY")
    return Identity(text[:border], text[border:])


def _token(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
    return path.read_text(encoding="ascii").strip()


def _still_good(path: Path, now: datetime.datetime, hosts: Sequence[str]) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    if certificate.not_valid_after_utc - now < datetime.timedelta(days=RENEW_DAYS):
        return False
    if not hosts:
        return True
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(_alternatives(hosts)) == set(names)


class _Authority:
    """Signs the certificates of this server and of its clients."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def load(cls, directory: Path, now: datetime.datetime) -> _Authority:
        path = directory / "ca.pem"
        if path.exists():
            text = path.read_bytes()
            key = serialization.load_pem_private_key(text, None)
            if isinstance(key, ec.EllipticCurvePrivateKey):
                return cls(x509.load_pem_x509_certificate(text), key)
        made = cls._make(now)
        pem = made.certificate.public_bytes(serialization.Encoding.PEM)
        write_private(path, pem + _key_pem(made._key))
        return made

    @classmethod
    def _make(cls, now: datetime.datetime) -> _Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "embedded-ca")])
        certificate = (
            _builder(name, name, key.public_key(), now, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    def issue(self, name: str, groups: Sequence[str], now: datetime.datetime, *, hosts: Sequence[str] = ()) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(subject, self.certificate.subject, key.public_key(), now, CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Identity(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner can read, there in one piece or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def kubeconfig(url: str, ca: bytes, identity: Identity, token: str, name: str = "embedded") -> bytes:
    """How kubectl and everybody else finds the server: with a token, and a certificate for those who drop tokens."""

    def data(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": data(ca)}}],
        "users": [
            {
                "name": name,
                "user": {
                    "token": token,
                    "client-certificate-data": data(identity.certificate),
                    "client-key-data": data(identity.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
        "preferences": {},
    }
    return yaml.safe_dump(document, sort_keys=False).encode()
