"""The stand-ins for kube-apiserver and etcd, called as envtest calls the real ones."""

from __future__ import annotations

import datetime
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from kubeserver.protocol import server_credentials
from server.conftest import CONFIG_MAPS, Client, config_map
from started import held_port
from waiting import PATIENCE_SECONDS, until


@pytest.fixture(params=["pykueue", "kubeserver"])
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(program: str, tmp_path: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", program, "testenv", "path", "--folder", str(tmp_path / "assets")],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def soon(ask: Callable[[], Any]) -> Any:
    """The first answer of a server that has just been started."""

    def answered() -> Any:
        with suppress(OSError):
            return ask()

    return until(answered)


def test_the_folder_has_what_envtest_looks_for(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver"]
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())
    help_text = subprocess.run([folder / "kube-apiserver", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--secure-port" in help_text
    assert "--insecure-port" not in help_text, "envtest asks for this one, and would then use it"


API_SERVER = ("kubeserver.serve", "kubeserver.assembly", "kubemachinery.cel", "cryptography")
CONTROLLERS = ("pykueue.controllers", "pykueue.webhooks", "pykueue.jobs", "pykueue.core", "pykueue.history")
_MODULES_SCRIPT = """
import importlib, sys
main = importlib.import_module(f"{sys.argv.pop(1)}.__main__").main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def modules_of_stand_in(program: str, arguments: list[str], url: str = "") -> set[str]:
    """The modules that a stand-in has imported when it ends, by itself or after the URL is answered."""
    command = [sys.executable, "-c", _MODULES_SCRIPT, program, "testenv", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            if url:
                context = ssl._create_unverified_context() if url.startswith("https") else None
                soon(lambda: urlopen(url, timeout=PATIENCE_SECONDS, context=context)).close()
        finally:
            if url:
                process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        return set(process.stderr.read().split())


def below(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    """Those of the modules that are in these packages."""
    return sorted(name for name in modules if f"{name}.".startswith(tuple(f"{each}." for each in packages)))


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as port:
        yield port


def test_etcd_answers_health_checks(folder: Path, port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            folder / "etcd",
            "--listen-peer-urls=http://localhost:0",
            f"--data-dir={tmp_path}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--unsafe-no-fsync=true",
        ]
    )
    try:
        with soon(lambda: urlopen(f"{url}/health", timeout=PATIENCE_SECONDS)) as answer:
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.fixture
def api_server(folder: Path, port: int, tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """A client with the certificate of the suite's administrator, and one without a certificate."""
    made = server_credentials.prepare(tmp_path / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
    directory = tmp_path / "certs"
    directory.mkdir()
    text = made.server.read_bytes()
    border = text.index(b"-----BEGIN PRIVATE KEY")
    (directory / "apiserver.crt").write_bytes(text[:border])
    (directory / "apiserver.key").write_bytes(text[border:])
    (directory / "client-cert-auth-ca.crt").write_bytes(made.ca)
    admin = tmp_path / "admin.pem"
    admin.write_bytes(made.admin.certificate + made.admin.key)
    process = subprocess.Popen(
        [
            folder / "kube-apiserver",
            "--advertise-address=127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={directory}",
            "--etcd-servers=http://127.0.0.1:1",
            f"--client-ca-file={directory / 'client-cert-auth-ca.crt'}",
        ]
    )
    try:
        client = Client(f"https://127.0.0.1:{port}", made.ca, certificate=admin)
        assert soon(lambda: client.get("/healthz")).body == b"ok"
        yield client, Client(f"https://127.0.0.1:{port}", made.ca)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


def test_kube_apiserver_takes_the_flags_of_envtest(api_server: tuple[Client, Client]) -> None:
    """Its certificates are made by the suite, and so is the one of the administrator."""
    client, stranger = api_server
    client.get("/api/v1/namespaces/default").ok()
    client.post(CONFIG_MAPS, config_map("c")).ok()
    stranger.get(CONFIG_MAPS).refused(401)


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHIPS = "/apis/example.com/v1/ships"


def ship_crd() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }


def test_kube_apiserver_collects_what_it_collects_without_a_controller_manager(
    api_server: tuple[Client, Client],
) -> None:
    """Dependents and the content of namespaces stay, as envtest runs no kube-controller-manager; instances of a deleted
    CRD do not."""
    client, _ = api_server
    owner = client.post(CONFIG_MAPS, config_map("owner")).ok()
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    client.post(CONFIG_MAPS, config_map("dependent", ownerReferences=[reference])).ok()
    client.post("/api/v1/namespaces", {"metadata": {"name": "deleted"}}).ok()
    client.post("/api/v1/namespaces/deleted/configmaps", config_map("content")).ok()
    client.post(CRDS, ship_crd()).ok()
    client.post(SHIPS, {"apiVersion": "example.com/v1", "kind": "Ship", "metadata": {"name": "s"}}).ok()

    client.delete(f"{CONFIG_MAPS}/owner").ok()
    client.delete("/api/v1/namespaces/deleted").ok()
    # The collector deletes dependents and the content of namespaces before it comes to CRDs.
    client.delete(f"{CRDS}/ships.example.com").ok()
    until(lambda: client.get(f"{CRDS}/ships.example.com").code == 404)

    client.get(f"{CONFIG_MAPS}/dependent").ok()
    client.get("/api/v1/namespaces/deleted/configmaps/content").ok()
    assert client.get("/api/v1/namespaces/deleted").ok()["status"]["phase"] == "Terminating"


def test_the_stand_in_of_etcd_imports_no_api_server(program: str, port: int) -> None:
    """A suite waits 20 seconds for each of them, also on a busy machine."""
    url = f"http://127.0.0.1:{port}"
    modules = modules_of_stand_in(program, ["etcd", f"--listen-client-urls={url}"], f"{url}/health")
    assert "kubemachinery.http_server" in modules
    assert not below(modules, (*API_SERVER, *CONTROLLERS))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_of_a_stand_in_start_no_server(option: str) -> None:
    modules = modules_of_stand_in("pykueue", ["kube-apiserver", option])
    assert "kubeserver.envtest" in modules
    assert not below(modules, ("asyncio", *API_SERVER, *CONTROLLERS))


def test_the_stand_in_of_kube_apiserver_imports_no_controllers(port: int, tmp_path: Path) -> None:
    arguments = ["kube-apiserver", f"--secure-port={port}", f"--cert-dir={tmp_path}"]
    modules = modules_of_stand_in("pykueue", arguments, f"https://127.0.0.1:{port}/healthz")
    assert {"kubeserver.serve", "pykueue.api.conversion"} <= modules
    assert not below(modules, CONTROLLERS)
