"""The credentials in a data directory are replaced when clients would not accept them."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509

from kubeserver.protocol import server_credentials

NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
HOSTS = ("localhost", "127.0.0.1")


def _accepted(made: server_credentials.ServerCredentials, now: datetime.datetime) -> bool:
    """Whether every certificate is valid now and signed by the authority of the kubeconfig."""
    ca = x509.load_pem_x509_certificate(made.ca)
    leaves = [
        x509.load_pem_x509_certificate(each)
        for each in (made.server.read_bytes(), made.admin.certificate, made.viewer.certificate)
    ]
    for leaf in leaves:
        leaf.verify_directly_issued_by(ca)
    return all(each.not_valid_before_utc <= now < each.not_valid_after_utc for each in (ca, *leaves))


@pytest.mark.parametrize("days", [-3650, -1, 0, 1, 340, 3640, 4000])
def test_a_start_on_another_day_has_credentials_that_are_valid(tmp_path: Path, days: int) -> None:
    """Also on an earlier one: the first start may have been on a clock that was ahead [CS5]."""
    first = server_credentials.prepare(tmp_path, HOSTS, NOW)
    later = NOW + datetime.timedelta(days=days)
    second = server_credentials.prepare(tmp_path, HOSTS, later)
    assert _accepted(second, later)
    assert (second.ca == first.ca) is (0 <= days < 3620)
    assert second.admin_token == first.admin_token


def test_certificates_of_another_authority_are_replaced(tmp_path: Path) -> None:
    server_credentials.prepare(tmp_path, HOSTS, NOW)
    (tmp_path / "ca.pem").write_text("damaged")
    assert _accepted(server_credentials.prepare(tmp_path, HOSTS, NOW), NOW)
