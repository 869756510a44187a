"""`tls` of the Configuration: which handshakes succeed and fail, and the messages for the operator."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import ssl
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import certificates, key_pairs, tls
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import SystemClock
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.api.validation import configuration
from pykueue.app.options import webhook_options
from pykueue.app.server import kueue_parts
from pykueue.errors import ConfigurationError
from pykueue.webhooks import facts, webhook_server
from pykueue.webhooks.certificate import InMemoryStore

TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
ECDSA_GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def load(**fields: Any) -> settings.Settings:
    return settings.load({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "tls": fields})


@pytest.fixture(scope="module")
def identity() -> key_pairs.KeyPair:
    now = datetime.datetime.now(datetime.UTC)
    return certificates.CertificateAuthority.make("test", now).issue("here", (), now, hosts=("localhost",))


def client(
    newest: ssl.TLSVersion = TLS13, *, oldest: ssl.TLSVersion = TLS12, ciphers: str = "", group: str = ""
) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.minimum_version, made.maximum_version = oldest, newest
    if ciphers:
        made.set_ciphers(ciphers)
    if group:
        made.set_ecdh_curve(group)
    return made


def handshake(server: ssl.SSLContext, of: ssl.SSLContext) -> tuple[str, str]:
    """The version and the cipher that the two agree on. Raises SSLError where they do not."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    there, here = server.wrap_bio(up, down, server_side=True), of.wrap_bio(down, up)
    waiting = [here, there]
    while waiting:
        for side in tuple(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    version, cipher = here.version(), here.cipher()
    assert version is not None
    assert cipher is not None
    return version, cipher[0]


def served(chosen: settings.Settings, identity: key_pairs.KeyPair) -> ssl.SSLContext:
    context = chosen.tls.profile.server_context()
    key_pairs.load_into(context, identity)
    return context


def test_by_default_tls_12_and_13_are_accepted(identity: key_pairs.KeyPair) -> None:
    context = served(settings.defaults(), identity)
    assert handshake(context, client(TLS12))[0] == "TLSv1.2"
    assert handshake(context, client(TLS13))[0] == "TLSv1.3"


@pytest.mark.parametrize("absent", ["files in memory", "/proc", ""])
def test_key_pair_is_loaded_and_leaves_no_file(
    identity: key_pairs.KeyPair, absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if absent == "files in memory":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    if absent == "/proc":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else set()
    assert handshake(served(settings.defaults(), identity), client())[0] == "TLSv1.3"
    assert not list(tmp_path.iterdir())
    assert (set(os.listdir("/proc/self/fd")) if before else set()) == before


def test_min_version_13_refuses_tls_12(identity: key_pairs.KeyPair) -> None:
    context = served(load(minVersion="VersionTLS13"), identity)
    assert handshake(context, client(TLS13))[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        handshake(context, client(TLS12))


def test_only_the_named_suites_of_tls_12_are_accepted(identity: key_pairs.KeyPair) -> None:
    context = served(load(cipherSuites=[ECDSA_GCM]), identity)
    assert handshake(context, client(TLS12))[1] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    with pytest.raises(ssl.SSLError):
        handshake(context, client(TLS12, ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"))
    assert handshake(context, client(TLS13))[0] == "TLSv1.3"  # its suites cannot be chosen, as in Go


def test_suites_of_tls_13_alone_leave_no_tls_12(identity: key_pairs.KeyPair) -> None:
    context = served(load(cipherSuites=["TLS_AES_128_GCM_SHA256"]), identity)
    assert handshake(context, client(TLS13))[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        handshake(context, client(TLS12))


@pytest.mark.parametrize(("number", "name", "other"), [(29, "X25519", "prime256v1"), (24, "secp384r1", "prime256v1")])
@pytest.mark.parametrize("version", [TLS12, TLS13])
def test_only_the_named_group_is_accepted(
    identity: key_pairs.KeyPair, number: int, name: str, other: str, version: ssl.TLSVersion
) -> None:
    context = served(load(curvePreferences=[number]), identity)
    # Below TLS 1.3 a client must also accept the curve of the certificate, which is P-256.
    assert handshake(context, client(version, oldest=version, group=name if version is TLS13 else ""))
    with pytest.raises(ssl.SSLError):
        handshake(context, client(version, oldest=version, group=other))


def test_groups_that_python_cannot_offer_beside_the_first_are_named() -> None:
    chosen = load(curvePreferences=[4588, 29, 23])
    if hasattr(ssl.SSLContext, "set_groups"):
        assert chosen.tls.profile.groups[-2:] == ("X25519", "prime256v1")
        return
    assert chosen.tls.profile.groups == ("X25519",)
    (notice,) = chosen.notices
    assert notice == (
        "tls.curvePreferences: only 29 (X25519) is offered, because this Python cannot offer 4588 (X25519MLKEM768),"
        " 23 (prime256v1) as well"
    )


def test_a_group_that_cannot_be_offered_at_all_is_refused_at_start() -> None:
    if hasattr(ssl.SSLContext, "set_groups"):
        pytest.skip("this Python may offer it")
    (why,) = settings.obstacles(load(curvePreferences=[4589]))
    assert why == "tls.curvePreferences: this Python can offer none of 4589 (SecP384r1MLKEM1024)"


def test_suites_without_ecdsa_are_named_as_useless_below_tls_13_with_the_own_certificate() -> None:
    suites = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
    (notice,) = load(cipherSuites=suites).notices
    assert notice.startswith("tls.cipherSuites: no suite fits the ECDSA certificate")
    assert not load(cipherSuites=[*suites, ECDSA_GCM]).notices


def test_every_suite_and_group_that_validation_accepts_is_known_here() -> None:
    suites, groups = configuration.CIPHER_SUITES, configuration.CURVES
    assert {suite for suite in suites if "_WITH_" in suite} == tls.SUITES.keys()
    assert groups == tls.GROUPS.keys()


def test_suites_cannot_be_chosen_with_tls_13() -> None:
    with pytest.raises(ConfigurationError, match="cannot be chosen with minVersion VersionTLS13"):
        load(minVersion="VersionTLS13", cipherSuites=[ECDSA_GCM])


async def connected(port: int, context: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    version: str = writer.get_extra_info("ssl_object").version()
    writer.close()
    return version


async def test_every_server_of_up_and_of_a_manager_follows_the_configuration(tmp_path: Path) -> None:
    profile = load(minVersion="VersionTLS13").tls.profile
    server = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY, tls=profile)
    async with api_server(server, kueue_parts()) as serving:
        transport = LocalTransport(partial(serving.embedded.server.handle_as, authentication.ADMIN))
        there, choices = ApiClient(transport, random.Random(7)), webhook_options(settings.defaults())
        place, sources = webhook_server.on_loopback(InMemoryStore()), facts.InformerSources(there, ())
        async with webhook_server.webhooks(
            there, choices, sources, place, SystemClock(), "kueue-system", profile
        ) as hooks:
            for port in (int(serving.url.rpartition(":")[2]), hooks.port):
                assert await connected(port, client(TLS13)) == "TLSv1.3"
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await connected(port, client(TLS12))
            # Metrics, the visibility API and the dashboard are served with such contexts.
            assert hooks.another_context().minimum_version is TLS13
