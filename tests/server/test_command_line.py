"""`python -m kubeserver`: the API server alone, as a process."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from server.conftest import CONFIG_MAPS, Client, config_map
from waiting import PATIENCE_SECONDS, until

KUBESERVER = (sys.executable, "-m", "kubeserver")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KUBESERVER, *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--data-dir", str(tmp_path / "data"), "--view-kubeconfig", str(tmp_path / "view")]
    started = subprocess.Popen([*KUBESERVER, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: started.poll() is not None or (tmp_path / "data" / "kubeconfig").exists())
        yield started
    finally:
        started.kill()
        started.communicate()


def client_of(kubeconfig: Path) -> Client:
    tree = yaml.safe_load(kubeconfig.read_text())
    cluster, user = tree["clusters"][0]["cluster"], tree["users"][0]["user"]
    return Client(cluster["server"], base64.b64decode(cluster["certificate-authority-data"]), user["token"])


def stop(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.send_signal(signal.SIGTERM)
    _, written = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, written


def test_it_serves_create_get_and_watch_until_sigterm(process: subprocess.Popen[str], tmp_path: Path) -> None:
    client = client_of(tmp_path / "data" / "kubeconfig")
    assert client.url.startswith("https://127.0.0.1:")
    created = client.post(CONFIG_MAPS, config_map("a", {"key": "value"})).ok()
    assert client.get(f"{CONFIG_MAPS}/a").ok()["data"] == {"key": "value"}
    before = str(int(created["metadata"]["resourceVersion"]) - 1)
    event = next(client.watch(CONFIG_MAPS, resourceVersion=before, timeoutSeconds=60))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
    viewer = client_of(tmp_path / "view")
    viewer.get(f"{CONFIG_MAPS}/a").ok()
    viewer.post(CONFIG_MAPS, config_map("b")).refused(403)
    code, written = stop(process)
    assert code == 0, written
    assert f"API server at {client.url}" in written
    assert client.token not in written


def test_objects_outlive_the_process(process: subprocess.Popen[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    client_of(data / "kubeconfig").post(CONFIG_MAPS, config_map("a")).ok()
    stop(process)
    (data / "kubeconfig").unlink()
    again = subprocess.Popen([*KUBESERVER, "--data-dir", str(data)], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: again.poll() is not None or (data / "kubeconfig").exists())
        client_of(data / "kubeconfig").get(f"{CONFIG_MAPS}/a").ok()
    finally:
        assert stop(again)[0] == 0


def test_a_second_server_of_one_data_directory_is_refused(process: subprocess.Popen[str], tmp_path: Path) -> None:
    refused = run("--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert "the data directory cannot be used" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--listen", "nowhere"], "--listen nowhere: must be HOST:PORT, such as 127.0.0.1:6443"),
        (["--listen", "127.0.0.1:70000"], "--listen 127.0.0.1:70000: must be HOST:PORT, such as 127.0.0.1:6443"),
        (["--port", "1"], "unrecognized arguments: --port 1"),
        (["--data-dir", "/dev/null/x"], "the data directory cannot be used: /dev/null/x: Not a directory"),
        (["testenv"], "the following arguments are required: command"),
        (["testenv", "path", "--folder", "/dev/null/x"], "--folder /dev/null/x: Not a directory"),
        (["testenv", "kube-apiserver", "--secure-port=x"], "--secure-port=x: must be a port number from 0 to 65535"),
    ],
)
def test_an_error_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    refused = run(*arguments)
    assert (refused.returncode, refused.stderr) == (2, f"python -m kubeserver: error: {sentence}\n")


def test_help_names_every_option() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for option in ("--data-dir", "--listen", "--kubeconfig", "--view-kubeconfig", "--durability", "--log-level"):
        assert option in shown.stdout
    assert "testenv path" in shown.stdout


def test_version_is_that_of_the_distribution() -> None:
    from pykueue.version import __version__

    assert run("--version").stdout == f"kubeserver {__version__}\n"


def test_testenv_path_prints_a_folder_with_the_stand_ins(tmp_path: Path) -> None:
    folder = Path(run("testenv", "path", "--folder", str(tmp_path / "assets")).stdout.strip())
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver"]
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())
    shown = subprocess.run([folder / "kube-apiserver", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--secure-port" in shown


def test_it_loads_no_module_of_pykueue() -> None:
    script = "import sys, kubeserver.command_line; print([name for name in sys.modules if name.startswith('pykueue')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
