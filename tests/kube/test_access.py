"""Finding a server as kubectl does, and saying in a sentence why there is none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from pykueue.clock import SystemClock
from pykueue.errors import UsageError
from pykueue.kube import access


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


def test_a_file_that_is_named_wins(tmp_path: Path) -> None:
    named = kubeconfig(tmp_path / "named", "https://127.0.0.1:1")
    other = kubeconfig(tmp_path / "other", "https://127.0.0.1:2")
    target = access.find({"KUBECONFIG": str(other)}, str(named))
    assert (target.server, target.namespace) == ("https://127.0.0.1:1", "team")


def test_of_several_files_the_first_to_say_something_wins(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "1", "https://127.0.0.1:1")
    second = kubeconfig(tmp_path / "2", "https://127.0.0.1:2")
    assert access.find({"KUBECONFIG": f"{first}:{second}"}).server == "https://127.0.0.1:1"


def test_the_default_file_comes_next_then_what_up_wrote(tmp_path: Path) -> None:
    fallback = kubeconfig(tmp_path / "up", "https://127.0.0.1:2")
    assert access.find({"HOME": str(tmp_path)}, fallback=fallback).server == "https://127.0.0.1:2"
    kubeconfig(tmp_path / ".kube" / "config", "https://127.0.0.1:1")
    assert access.find({"HOME": str(tmp_path)}, fallback=fallback).server == "https://127.0.0.1:1"


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("queues\n")
    target = access.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (target.server, target.namespace) == ("https://10.0.0.1:6443", "queues")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"context": "missing"}, "there is no context 'missing'"),
        ({"server": "nonsense"}, "has no usable server address"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, change: dict[str, str], sentence: str) -> None:
    path = kubeconfig(tmp_path / "k", **change)
    with pytest.raises(UsageError, match=sentence):
        access.from_files([path])


def test_without_any_server_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--kubeconfig"):
        access.find({"HOME": str(tmp_path)})


async def test_a_token_is_sent_and_one_in_a_file_is_read_again(tmp_path: Path) -> None:
    target = access.from_files([kubeconfig(tmp_path / "k", token="secret")])
    assert await access.Credentials(target, SystemClock()).headers() == {"Authorization": "Bearer secret"}
    (tmp_path / "token").write_text("first\n")
    target = access.from_files([kubeconfig(tmp_path / "k", tokenFile="token")])
    credentials = access.Credentials(target, SystemClock())
    assert await credentials.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    credentials._until = 0.0
    assert await credentials.headers() == {"Authorization": "Bearer second"}


def program(tmp_path: Path, body: str) -> dict[str, object]:
    path = tmp_path / "login.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}


async def test_a_program_gives_the_token(tmp_path: Path) -> None:
    answer = '{"kind":"ExecCredential","status":{"token":"from-program","expirationTimestamp":"2999-01-01T00:00:00Z"}}'
    runs = program(tmp_path, f"echo x >> {tmp_path}/runs; echo '{answer}'")
    target = access.from_files([kubeconfig(tmp_path / "k", exec=runs)])
    credentials = access.Credentials(target, SystemClock())
    for _ in range(2):
        assert await credentials.headers() == {"Authorization": "Bearer from-program"}
    assert (tmp_path / "runs").read_text() == "x\n", "a token that is still good is not asked for again"


@pytest.mark.parametrize(
    ("body", "sentence"), [("echo oops >&2; exit 3", "failed with 3: oops"), ("echo hi", "did not print")]
)
async def test_a_program_that_fails_says_why(tmp_path: Path, body: str, sentence: str) -> None:
    target = access.from_files([kubeconfig(tmp_path / "k", exec=program(tmp_path, body))])
    with pytest.raises(UsageError, match=sentence):
        await access.Credentials(target, SystemClock()).headers()
