"""The real binaries: found, else built once, else a message that names the problem."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cluster import assets, real
from waiting import PATIENCE_SECONDS

TESTS = Path(__file__).resolve().parents[1]


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "cluster.assets"],
        cwd=TESTS,
        env={**kept, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_existing_binaries_are_used(tmp_path: Path) -> None:
    put(tmp_path, "etcd", "kube-apiserver")
    done = run(KUBEBUILDER_ASSETS=str(tmp_path), PATH="")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path))


def test_directory_without_binaries_is_named(tmp_path: Path) -> None:
    put(tmp_path, "etcd")
    done = run(KUBEBUILDER_ASSETS=str(tmp_path), PATH=os.environ["PATH"])
    assert done.returncode == 2
    assert f"KUBEBUILDER_ASSETS is {tmp_path}, which has no kube-apiserver" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_go_there_is_one_sentence_and_exit_code_two(tmp_path: Path) -> None:
    done = run(PYKUEUE_CACHE=str(tmp_path), PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert "needs Go" in done.stderr


def test_what_was_built_for_another_version_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PYKUEUE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = assets.folder()
    folder.mkdir()
    put(folder, "etcd", "kube-apiserver")
    (folder / "etcd.version").write_text(assets.ETCD)
    (folder / "kube-apiserver.version").write_text("v1.0.0")
    with pytest.raises(assets.AssetsError, match="building kube-apiserver needs Go"):
        assets.ensure()
    (folder / "kube-apiserver.version").write_text(assets.KUBERNETES)
    assert assets.ensure() == folder


def test_modules_have_the_versions_of_the_tool() -> None:
    here = Path(assets.__file__).parent
    assert f"k8s.io/kubernetes {assets.KUBERNETES}" in (here / "apiserver" / "go.mod").read_text()
    assert f"go.etcd.io/etcd/server/v3 {assets.ETCD}" in (here / "etcd" / "go.mod").read_text()
    client_go = assets.KUBERNETES.replace("v1.", "v0.")
    assert f"k8s.io/client-go {client_go}" in (here.parent / "programs" / "go.mod").read_text()


@pytest.mark.cluster
def test_a_real_server_answers_and_leaves_nothing_behind() -> None:
    with real.started() as server:
        assert server.request("GET", "/version").body["gitVersion"] == assets.KUBERNETES
        again = msgspec.json.decode(server.kubeconfig())
        assert again["clusters"][0]["cluster"]["server"] == server.url
        url = server.url
    with pytest.raises(OSError):
        real.Client(url).request("GET", "/healthz")
