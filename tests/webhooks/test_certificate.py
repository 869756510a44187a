"""The certificate of webhooks: made once, shared, renewed before it ends, and seen by the next connection."""

from __future__ import annotations

import asyncio
import datetime
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace

from kubemachinery import certificates, http_messages, http_server, key_pairs, tls
from kubemachinery.certificates import CertificateAuthority
from kubemachinery.client.client import ApiClient
from kubemachinery.errors import UsageError
from pykueue.webhooks import certificate
from pykueue.webhooks.certificate import CertificateRenewal, DirectoryStore, InMemoryStore, SecretStore
from pykueue.webhooks.certificate_bundle import CertificateBundle
from pykueue.webhooks.certificate_renewal import renewed
from webhooks.conftest import shown_certificate

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
HOSTS = ("webhooks.example.svc", "127.0.0.1")


def later(days: float) -> datetime.datetime:
    return NOW + datetime.timedelta(days=days)


def authorities(kept: CertificateBundle) -> int:
    return kept.ca.count(b"BEGIN CERTIFICATE")


def test_what_is_good_is_kept() -> None:
    made = renewed(CertificateBundle(), HOSTS, NOW)
    assert renewed(made, HOSTS, later(300)) is made


def test_a_certificate_is_renewed_a_month_before_its_end_by_the_same_authority() -> None:
    made = renewed(CertificateBundle(), HOSTS, NOW)
    new = renewed(made, HOSTS, later(certificates.CERTIFICATE_DAYS - 29))
    assert new.certificate != made.certificate
    assert (new.ca, new.ca_key) == (made.ca, made.ca_key)


def test_certificate_for_other_hosts_is_replaced() -> None:
    made = renewed(CertificateBundle(), HOSTS, NOW)
    assert renewed(made, ("other.example.svc",), NOW).certificate != made.certificate


def test_certificate_of_another_ca_is_replaced() -> None:
    made, other = renewed(CertificateBundle(), HOSTS, NOW), renewed(CertificateBundle(), HOSTS, NOW)
    mixed = CertificateBundle(made.ca, made.ca_key, other.certificate, other.key)
    assert renewed(mixed, HOSTS, NOW).certificate != other.certificate


def test_an_authority_near_its_end_is_followed_by_another_and_believed_until_it_ends() -> None:
    """A replica that has not seen the new certificate yet still serves the old one."""
    made = renewed(CertificateBundle(), HOSTS, NOW)
    soon = later(certificates.AUTHORITY_DAYS - certificates.CERTIFICATE_DAYS)
    second = renewed(made, HOSTS, soon)
    assert second.ca_key != made.ca_key
    assert made.ca in second.ca
    assert authorities(second) == 2
    third = renewed(second, HOSTS, later(certificates.AUTHORITY_DAYS + 1))
    assert authorities(third) == 1


@pytest.mark.parametrize(
    "kept", [CertificateBundle(b"?", b"?", b"?", b"?"), CertificateBundle(ca=b"-----END CERTIFICATE-----\n")]
)
def test_unreadable_certificate_is_replaced(kept: CertificateBundle) -> None:
    made = renewed(kept, HOSTS, NOW)
    assert renewed(made, HOSTS, NOW) is made


def test_a_certificate_with_the_key_of_another_one_is_renewed() -> None:
    made, other = renewed(CertificateBundle(), HOSTS, NOW), renewed(CertificateBundle(), HOSTS, NOW)
    new = renewed(replace(made, key=other.key), HOSTS, NOW)
    assert new.certificate not in (made.certificate, other.certificate)
    assert key_pairs.is_usable(new.identity)
    assert new.ca == made.ca


def test_an_authority_is_loaded_only_with_its_own_key() -> None:
    one, two = CertificateAuthority.make("one", NOW).key_pair, CertificateAuthority.make("two", NOW).key_pair
    assert CertificateAuthority.load(one.certificate, one.key) is not None
    assert CertificateAuthority.load(one.certificate, two.key) is None


# --- In a process of its own ------------------------------------------------------------------------------------------


_SCRIPT = """
import asyncio, datetime, sys
from pykueue.app import cluster_manager
from pykueue.webhooks.certificate import InMemoryStore
made = asyncio.run(InMemoryStore().current(["localhost"], datetime.datetime.now(datetime.UTC)))
assert b"BEGIN CERTIFICATE" in made.certificate
print(*sys.modules)
"""


def test_a_manager_imports_neither_the_library_for_certificates_nor_one_for_http() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert {"cryptography", "kubemachinery.certificates", "aiohttp"} & set(done.stdout.split()) == set()


async def test_a_valid_certificate_stays_and_one_that_expires_is_renewed_in_time() -> None:
    renewal = CertificateRenewal()
    first = await renewal.renewed(CertificateBundle(), HOSTS, NOW)
    assert await renewal.renewed(first, HOSTS, NOW) is first
    assert await CertificateRenewal().renewed(first, HOSTS, NOW) is first, "after a restart"
    assert (await renewal.renewed(first, ["other"], NOW)).certificate != first.certificate
    soon = later(certificates.CERTIFICATE_DAYS - 30) - datetime.timedelta(minutes=10)
    assert await renewal.renewed(first, HOSTS, soon) is first
    assert await renewal.renewed(first, HOSTS, soon + datetime.timedelta(minutes=30)) is first, "within the hour"
    assert (await renewal.renewed(first, HOSTS, soon + datetime.timedelta(minutes=90))).certificate != first.certificate


async def test_where_no_process_can_be_started_the_manager_renews_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/there/is/no/such/program")
    made = await CertificateRenewal().renewed(CertificateBundle(), HOSTS, NOW)
    assert renewed(made, HOSTS, NOW) is made
    assert "the webhook certificate is renewed in this process, because another failed" in caplog.text


# --- Where it is kept -------------------------------------------------------------------------------------------------


async def test_replicas_share_the_certificate_in_the_secret(client: ApiClient) -> None:
    """The first replica issues it; the Secret may exist already, empty, as it is installed."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "default"}}
    await client.create(certificate.SECRET, secret)
    replicas = [SecretStore(client, "default", "cert") for _ in range(5)]
    found = await asyncio.gather(*(replica.current(HOSTS, NOW) for replica in replicas))
    assert len(set(found)) == 1
    stored = await client.get(certificate.SECRET, "cert", "default")
    assert set(stored["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


async def test_a_secret_that_is_not_there_is_created(client: ApiClient) -> None:
    made = await SecretStore(client, "default", "cert").current(HOSTS, NOW)
    assert await SecretStore(client, "default", "cert").current(HOSTS, NOW) == made


def test_a_folder_is_read_and_never_written(tmp_path: Path) -> None:
    folder = DirectoryStore(tmp_path)
    with pytest.raises(UsageError, match=r"webhook\.certDir: .*tls\.crt"):
        asyncio.run(folder.current(HOSTS, NOW))
    made = renewed(CertificateBundle(), HOSTS, NOW)
    (tmp_path / "tls.crt").write_bytes(made.certificate)
    (tmp_path / "tls.key").write_bytes(made.key)
    assert asyncio.run(folder.current(HOSTS, NOW)).identity == made.identity
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tls.crt", "tls.key"]


def test_files_that_are_not_a_certificate_with_its_key_are_refused(tmp_path: Path) -> None:
    """As while they are replaced one after the other. The pass phrase of an encrypted key is not asked for."""
    made, other = renewed(CertificateBundle(), HOSTS, NOW), renewed(CertificateBundle(), HOSTS, NOW)
    folder = DirectoryStore(tmp_path)
    (tmp_path / "tls.crt").write_bytes(made.certificate)
    for key in (other.key, b"", encrypted(made.key)):
        (tmp_path / "tls.key").write_bytes(key)
        with pytest.raises(UsageError, match=r"webhook\.certDir: .*tls\.crt and .*tls\.key are not a PEM certificate"):
            asyncio.run(folder.current(HOSTS, NOW))
    (tmp_path / "tls.key").write_bytes(made.key)
    assert asyncio.run(folder.current(HOSTS, NOW)).identity == made.identity


def encrypted(key: bytes) -> bytes:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return serialization.load_pem_private_key(key, None).private_bytes(
        *form, serialization.BestAvailableEncryption(b"secret")
    )


# --- Served -----------------------------------------------------------------------------------------------------------


async def test_a_renewed_certificate_is_shown_to_the_next_connection() -> None:
    async def answer(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response()

    keeper, context = InMemoryStore(), tls.TlsProfile().server_context()
    first = await keeper.current(HOSTS, NOW)
    key_pairs.load_into(context, first.identity)
    http = await http_server.serve(answer, "127.0.0.1", 0, tls=context)
    try:
        assert await shown_certificate(http.port) == first.certificate
        second = await keeper.current(HOSTS, later(350))
        key_pairs.load_into(context, second.identity)
        assert await shown_certificate(http.port) == second.certificate != first.certificate
    finally:
        await http.close()
