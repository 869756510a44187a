"""The certificate of webhooks with its CA, as it is stored."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

import msgspec

from kubemachinery.key_pairs import KeyPair


class CertificateBundle(msgspec.Struct, frozen=True):
    """The stored files, under their conventional names. `ca` may hold several CAs, the signing one first."""

    ca: bytes = b""
    ca_key: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    @property
    def identity(self) -> KeyPair:
        return KeyPair(self.certificate, self.key)


# Field of CertificateBundle -> name of the file, or of the key in the Secret.
NAMES: Final[Mapping[str, str]] = {"ca": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


class RenewalRequest(msgspec.Struct, frozen=True):
    """A bundle that may have to be renewed, the hosts that its certificate is for, and the time."""

    kept: CertificateBundle
    hosts: tuple[str, ...]
    now: datetime.datetime
