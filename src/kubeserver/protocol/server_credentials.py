"""The credentials of a server and of its clients, and their kubeconfigs.

Everything is made at the first start and kept in the data directory (mode 0600). Certificates are good for less than a
year; a start within a month of the end makes new ones from the same authority. A start also replaces an authority
that expires within a month, or is not valid yet because it was made while the clock was ahead.
"""

from __future__ import annotations

import base64
import datetime
import secrets
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from kubemachinery import tls
from kubemachinery.certificates import CertificateAuthority, still_good
from kubemachinery.key_pairs import KeyPair, write_private
from kubeserver.protocol import authentication

__all__ = ["KeyPair", "ServerCredentials", "kubeconfig", "prepare", "server_context", "write_private"]

_KEY: Final = b"-----BEGIN PRIVATE KEY"


class ServerCredentials(msgspec.Struct, frozen=True):
    """The certificates and tokens of a server and of its two clients."""

    ca: bytes
    server: Path
    admin: KeyPair
    viewer: KeyPair
    admin_token: str
    view_token: str


def prepare(directory: Path, hosts: Sequence[str], now: datetime.datetime) -> ServerCredentials:
    """Return the credentials in a directory; create what is missing, expired or for other host names."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _authority(directory / "ca.pem", now)
    server = directory / "server.pem"
    if not _is_good(authority, server, now, hosts):
        _write(server, authority.issue("kube-apiserver", (), now, hosts=hosts))
    return ServerCredentials(
        ca=authority.key_pair.certificate,
        server=server,
        admin=_client(authority, directory / "admin.pem", authentication.ADMIN, now),
        viewer=_client(authority, directory / "view.pem", authentication.VIEWER, now),
        admin_token=_token(directory / "admin.token"),
        view_token=_token(directory / "view.token"),
    )


def server_context(
    server: Path, key: Path | None, client_ca: bytes, *more_client_ca: Path, profile: tls.TlsProfile = tls.DEFAULT
) -> ssl.SSLContext:
    """Return a TLS context that accepts client certificates of the given authorities, and clients without one.

    `key` is None where the file of the certificate holds it, too.
    """
    context = profile.server_context()
    context.load_cert_chain(server, key)
    context.load_verify_locations(cadata=client_ca.decode())
    for path in more_client_ca:
        context.load_verify_locations(cafile=path)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _authority(path: Path, now: datetime.datetime) -> CertificateAuthority:
    if path.exists():
        kept = _read(path)
        found = CertificateAuthority.load(kept.certificate, kept.key)
        if found is not None and still_good(kept.certificate, now):
            return found
    made = CertificateAuthority.make("embedded-ca", now)
    _write(path, made.key_pair)
    return made


def _client(
    authority: CertificateAuthority, path: Path, user: authentication.RequestUser, now: datetime.datetime
) -> KeyPair:
    if not _is_good(authority, path, now, ()):
        groups = [group for group in user.groups if group != authentication.AUTHENTICATED]
        _write(path, authority.issue(user.name, groups, now))
    return _read(path)


def _token(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
    return path.read_text(encoding="ascii").strip()


def _is_good(authority: CertificateAuthority, path: Path, now: datetime.datetime, hosts: Sequence[str]) -> bool:
    """Whether the file has a certificate that clients accept: valid now, and signed by the authority they trust."""
    if not path.is_file():
        return False
    certificate = _read(path).certificate
    return still_good(certificate, now, hosts) and authority.signed(certificate)


def _read(path: Path) -> KeyPair:
    """Certificate and key share a file, so that one is never replaced without the other."""
    certificate, border, key = path.read_bytes().partition(_KEY)
    return KeyPair(certificate, border + key)


def _write(path: Path, identity: KeyPair) -> None:
    write_private(path, identity.certificate + identity.key)


def kubeconfig(url: str, ca: bytes, identity: KeyPair, token: str, name: str = "embedded") -> bytes:
    """Return a kubeconfig with a token, and with a certificate for clients that drop tokens."""

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
