"""Issues and renews the certificate of webhooks.

As a program: a RenewalRequest on standard input, the bundle on standard output, both in JSON.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from kubemachinery import certificates
from kubemachinery.certificates import CertificateAuthority, still_good
from pykueue.webhooks.certificate_bundle import CertificateBundle, RenewalRequest

AUTHORITY_NAME: Final = "kueue-ca"
# A CA is valid longer than the certificates that it signs.
_AUTHORITY_RENEW_DAYS: Final = certificates.CERTIFICATE_DAYS + certificates.RENEW_DAYS
_END: Final = b"-----END CERTIFICATE-----\n"


def renewed(kept: CertificateBundle, hosts: Sequence[str], now: datetime.datetime) -> CertificateBundle:
    """The bundle to store: the same while it is valid, else with a new certificate, and a new CA where needed."""
    signing, *others = _authorities(kept.ca) or [b""]
    authority = CertificateAuthority.load(signing, kept.ca_key)
    if authority is None or not still_good(signing, now, renew_days=_AUTHORITY_RENEW_DAYS):
        authority = CertificateAuthority.make(AUTHORITY_NAME, now)
        others = [signing, *others] if signing else others
    elif (
        still_good(kept.certificate, now, hosts)
        and authority.signed(kept.certificate)
        and certificates.is_pair(kept.certificate, kept.key)
    ):
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


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=RenewalRequest)
    sys.stdout.buffer.write(msgspec.json.encode(renewed(request.kept, request.hosts, request.now)))


if __name__ == "__main__":
    main()
