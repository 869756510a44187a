"""A private certificate authority: creates itself, issues certificates for servers and clients, checks their expiry.

Everything is PEM. The time is an argument; keys come from the random source of the operating system. The library behind
it takes some 10 MiB of a process: programs that run for long import this module only where they need it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubemachinery.key_pairs import KeyPair

CERTIFICATE_DAYS: Final = 360
AUTHORITY_DAYS: Final = 3650
RENEW_DAYS: Final = 30
# Clocks of other machines may be behind: a new certificate is valid since a while ago.
_SKEW: Final = datetime.timedelta(hours=1)


class CertificateAuthority:
    """A certificate authority."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, name: str, now: datetime.datetime) -> CertificateAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> CertificateAuthority | None:
        """Load a stored authority; None when it cannot be parsed, or the key does not belong to the certificate."""
        try:
            found = x509.load_pem_x509_certificate(certificate)
            private = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError):
            return None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or found.public_key() != private.public_key():
            return None
        return cls(found, private)

    @property
    def key_pair(self) -> KeyPair:
        """The certificate and key of the authority, to be stored."""
        return KeyPair(self._certificate.public_bytes(serialization.Encoding.PEM), _key_pem(self._key))

    def issue(self, name: str, groups: Sequence[str], now: datetime.datetime, *, hosts: Sequence[str] = ()) -> KeyPair:
        """A certificate for the server of these hosts; without hosts, for a client in these groups."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), now, CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))

    def signed(self, certificate: bytes) -> bool:
        """Whether this authority signed the certificate."""
        try:
            x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(self._certificate)
        except Exception:  # the library has one exception class per kind of invalid signature
            return False
        return True


def still_good(
    certificate: bytes, now: datetime.datetime, hosts: Sequence[str] = (), renew_days: int = RENEW_DAYS
) -> bool:
    """Whether a certificate is valid now, for at least `renew_days` more, and for exactly these hosts.

    One that was made while the clock was ahead is not valid yet: it is replaced like one that has expired.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        return False
    if found.not_valid_before_utc > now or found.not_valid_after_utc - now < datetime.timedelta(days=renew_days):
        return False
    if not hosts:
        return True
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return set(_alternatives(hosts)) == set(names)


def is_pair(certificate: bytes, key: bytes) -> bool:
    """Whether a certificate and a key, both in PEM, can be parsed and belong together."""
    try:
        proven = x509.load_pem_x509_certificate(certificate).public_key()
        return proven == serialization.load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


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
