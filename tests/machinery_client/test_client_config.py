"""The client configuration is found as kubectl finds it, or refused with a sentence."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kubemachinery.client import client_config, transport
from kubemachinery.client.errors import Unanswered
from kubemachinery.client.transport import ApiRequest
from kubemachinery.clock import SystemClock
from kubemachinery.errors import UsageError
from silent_server import silent_server


def kubeconfig(path: Path, server: str = "https://127.0.0.1:1", *, context: str = "main", **user: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def test_explicit_file_takes_precedence(tmp_path: Path) -> None:
    named = kubeconfig(tmp_path / "named", "https://127.0.0.1:1")
    other = kubeconfig(tmp_path / "other", "https://127.0.0.1:2")
    target = client_config.find({"KUBECONFIG": str(other)}, str(named))
    assert (target.server, target.namespace) == ("https://127.0.0.1:1", "team")


def test_of_several_files_the_first_value_wins(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "1", "https://127.0.0.1:1")
    second = kubeconfig(tmp_path / "2", "https://127.0.0.1:2")
    assert client_config.find({"KUBECONFIG": f"{first}:{second}"}).server == "https://127.0.0.1:1"


def test_default_file_comes_before_the_fallback(tmp_path: Path) -> None:
    fallback = kubeconfig(tmp_path / "up", "https://127.0.0.1:2")
    assert client_config.find({"HOME": str(tmp_path)}, fallback=fallback).server == "https://127.0.0.1:2"
    kubeconfig(tmp_path / ".kube" / "config", "https://127.0.0.1:1")
    assert client_config.find({"HOME": str(tmp_path)}, fallback=fallback).server == "https://127.0.0.1:1"


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("queues\n")
    target = client_config.in_cluster(
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path
    )
    assert (target.server, target.namespace) == ("https://10.0.0.1:6443", "queues")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"context": "missing"}, "there is no context 'missing'"),
        ({"server": "nonsense"}, "has no usable server address"),
    ],
)
def test_unusable_kubeconfig_is_refused_with_the_reason(tmp_path: Path, change: dict[str, str], sentence: str) -> None:
    path = kubeconfig(tmp_path / "k", **change)
    with pytest.raises(UsageError, match=sentence):
        client_config.from_files([path])


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ({"clusters": 5}, "clusters is not a list"),
        ({"clusters": [{"name": "c", "cluster": "x"}]}, "cluster 'c': cluster is not an object"),
        ({"users": [{"name": "u", "user": {"token": ["x"]}}]}, "user 'u': token is not a text"),
        ({"users": [{"name": "u", "user": {"exec": "login"}}]}, "user 'u': exec is not an object"),
        ({"users": [{"name": "u", "user": {"as-groups": "admins"}}]}, "user 'u': as-groups is not a list"),
    ],
)
def test_field_of_another_type_is_refused_with_its_place(tmp_path: Path, tree: dict[str, Any], sentence: str) -> None:
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(UsageError, match=f"^{path}: {sentence}$"):
        client_config.from_files([path])


@pytest.mark.parametrize(
    "server", ["https://127.0.0.1:99999", "https://[::1", "https://", "https://:6443", "http://h:0"]
)
def test_address_that_cannot_be_connected_to_is_refused(tmp_path: Path, server: str) -> None:
    with pytest.raises(UsageError, match="is not a server address"):
        client_config.find({"KUBECONFIG": str(kubeconfig(tmp_path / "k", server))})


@pytest.mark.parametrize("user", [{"token": "a\nb"}, {"as": "a\rb"}, {"as": "a", "as-groups": ["b\0"]}])
async def test_credentials_with_control_characters_are_refused(tmp_path: Path, user: dict[str, Any]) -> None:
    """They would begin another header. The sentence does not contain them."""
    target = client_config.from_files([kubeconfig(tmp_path / "k", **user)])
    with pytest.raises(UsageError, match=r"contain a control character$"):
        await client_config.ClientCredentials(target, SystemClock()).headers()


@pytest.mark.parametrize(("name", "sentence"), [("none", "none: No such file"), ("", ": Is a directory")])
def test_missing_file_is_refused_with_its_name(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        client_config.from_files([tmp_path / name])
    there = kubeconfig(tmp_path / "k")
    assert client_config.from_files([tmp_path / "none", there]).server, "a missing file may be in the list"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            client_config.ConfigOverrides(cluster_fields={"certificate-authority-data": "AAAA"}),
            "certificate-authority of the kubeconfig",
        ),
        (
            client_config.ConfigOverrides(user_fields={"client-certificate-data": "AAAA", "client-key-data": "AAAA"}),
            "client-certificate and client-key of the kubeconfig",
        ),
    ],
)
async def test_invalid_certificate_is_refused_with_its_field(
    tmp_path: Path, overrides: client_config.ConfigOverrides, sentence: str
) -> None:
    target = overrides.apply(client_config.from_files([kubeconfig(tmp_path / "k")]))
    with pytest.raises(UsageError, match=sentence):
        client_config.connect(target, SystemClock())


def test_missing_configuration_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--kubeconfig"):
        client_config.find({"HOME": str(tmp_path)})


async def test_token_is_sent_and_token_file_is_reread(tmp_path: Path) -> None:
    target = client_config.from_files([kubeconfig(tmp_path / "k", token="secret")])
    assert await client_config.ClientCredentials(target, SystemClock()).headers() == [
        ("Authorization", "Bearer secret")
    ]
    (tmp_path / "token").write_text("first\n")
    target = client_config.from_files([kubeconfig(tmp_path / "k", tokenFile="token")])
    credentials = client_config.ClientCredentials(target, SystemClock())
    assert await credentials.headers() == [("Authorization", "Bearer first")]
    (tmp_path / "token").write_text("second\n")
    credentials._until = 0.0
    assert await credentials.headers() == [("Authorization", "Bearer second")]


def program(tmp_path: Path, body: str) -> dict[str, object]:
    path = tmp_path / "login.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}


async def test_credential_plugin_returns_the_token(tmp_path: Path) -> None:
    answer = '{"kind":"ExecCredential","status":{"token":"from-program","expirationTimestamp":"2999-01-01T00:00:00Z"}}'
    runs = program(tmp_path, f"echo x >> {tmp_path}/runs; echo '{answer}'")
    target = client_config.from_files([kubeconfig(tmp_path / "k", exec=runs)])
    credentials = client_config.ClientCredentials(target, SystemClock())
    for _ in range(2):
        assert await credentials.headers() == [("Authorization", "Bearer from-program")]
    assert (tmp_path / "runs").read_text() == "x\n", "a valid token is not requested again"


@pytest.mark.parametrize(
    ("body", "sentence"), [("echo oops >&2; exit 3", "failed with 3: oops"), ("echo hi", "did not print")]
)
async def test_failed_credential_plugin_is_reported_with_the_reason(tmp_path: Path, body: str, sentence: str) -> None:
    target = client_config.from_files([kubeconfig(tmp_path / "k", exec=program(tmp_path, body))])
    with pytest.raises(UsageError, match=sentence):
        await client_config.ClientCredentials(target, SystemClock()).headers()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"args": 5}, "args is not a list"),
        ({"env": {"A": "b"}}, "env is not a list"),
        ({"env": ["A=b"]}, "an entry of env is not an object"),
        ({"command": "a\0b"}, "did not complete"),
    ],
)
async def test_unusable_credential_plugin_is_refused(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    target = client_config.from_files([kubeconfig(tmp_path / "k", exec={**program(tmp_path, "true"), **change})])
    with pytest.raises(UsageError, match=sentence):
        await client_config.ClientCredentials(target, SystemClock()).headers()


def test_overrides_take_precedence_over_the_file(tmp_path: Path) -> None:
    user: dict[str, Any] = {"exec": {"command": "x"}, "client-certificate-data": "AA==", "client-key": "k"}
    path = kubeconfig(tmp_path / "k", **user)
    overrides = client_config.ConfigOverrides(
        cluster_fields={"server": "https://127.0.0.1:2", "insecure-skip-tls-verify": True},
        user_fields={"token": "t", "client-certificate": "/c"},
        timeout_seconds=5,
    )
    target = client_config.find({}, str(path), overrides=overrides)
    assert (target.server, target.namespace, target.timeout_seconds) == ("https://127.0.0.1:2", "team", 5)
    assert target.cluster["insecure-skip-tls-verify"] is True
    # Neither the credential plugin nor the certificate of the file is used.
    assert target.user == {"client-key": "k", "token": "t", "client-certificate": "/c"}


def test_cluster_and_user_are_selected_by_name(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", context="", token="of-u")
    tree = yaml.safe_load(path.read_text())
    tree["clusters"].append({"name": "d", "cluster": {"server": "https://127.0.0.1:2"}})
    tree["users"].append({"name": "v", "user": {"token": "of-v"}})
    path.write_text(yaml.safe_dump(tree))
    target = client_config.find({}, str(path), overrides=client_config.ConfigOverrides(cluster="d", user="v"))
    assert (target.server, target.user, target.namespace) == ("https://127.0.0.1:2", {"token": "of-v"}, "default")
    with pytest.raises(UsageError, match="there is no user 'w'"):
        client_config.find({}, str(path), overrides=client_config.ConfigOverrides(user="w"))


def test_explicit_server_needs_no_file(tmp_path: Path) -> None:
    overrides = client_config.ConfigOverrides(cluster_fields={"server": "http://127.0.0.1:3"})
    assert client_config.find({"HOME": str(tmp_path)}, overrides=overrides).server == "http://127.0.0.1:3"
    with pytest.raises(UsageError, match="must begin with https://"):
        client_config.find(
            {"HOME": str(tmp_path)}, overrides=client_config.ConfigOverrides(cluster_fields={"server": "127.0.0.1"})
        )


async def test_impersonation_is_sent_in_headers(tmp_path: Path) -> None:
    user = {"as": "ann", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Scopes/x": ["1", "2"]}}
    target = client_config.find(
        {}, str(kubeconfig(tmp_path / "k")), overrides=client_config.ConfigOverrides(user_fields=user)
    )
    assert await client_config.ClientCredentials(target, SystemClock()).headers() == [
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes%2Fx", "1"),
        ("Impersonate-Extra-scopes%2Fx", "2"),
    ]


async def test_request_timeout_of_the_overrides_applies() -> None:
    """It replaces the timeout of the request."""
    async with silent_server() as (host, port):
        url = f"http://{host}:{port}"
        target = client_config.find(
            {}, overrides=client_config.ConfigOverrides(cluster_fields={"server": url}, timeout_seconds=0.05)
        )
        transport = client_config.connect(target, SystemClock())
        with pytest.raises(Unanswered, match=f"{url} does not answer GET /version: not within 0.05 s"):
            await transport.send(ApiRequest("GET", "/version"))
        await transport.close()


@pytest.mark.parametrize("disabled", [False, True])
async def test_responses_are_compressed_unless_disabled(disabled: bool) -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        overrides = client_config.ConfigOverrides(cluster_fields={"server": url, "disable-compression": disabled})
        transport = client_config.connect(client_config.find({}, overrides=overrides), SystemClock())
        await transport.send(ApiRequest("GET", "/version"))
        await transport.close()
    assert (b"Accept-Encoding" in asked[0]) is not disabled


async def test_unreachable_server_is_a_short_message() -> None:
    transport = client_config.connect(
        client_config.find(
            {}, overrides=client_config.ConfigOverrides(cluster_fields={"server": "http://127.0.0.1:1"})
        ),
        SystemClock(),
    )
    with pytest.raises(Unanswered) as refused:
        await transport.send(ApiRequest("GET", "/version"))
    with pytest.raises(Unanswered) as refused_stream:
        async with transport.stream(ApiRequest("GET", "/version")):
            pass
    await transport.close()
    for caught in (refused, refused_stream):
        assert str(caught.value) == "http://127.0.0.1:1 cannot be reached: Connection refused"


def test_unknown_host_name_is_a_short_message() -> None:
    unknown = aiohttp.ClientConnectionError()
    unknown.os_error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")  # type: ignore[attr-defined]
    assert transport.reason_of(unknown) == "Name or service not known"
