"""The real binaries: found, else built once, else a message that names the problem."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cluster import assets, real
from cluster.assets import building, partners
from cluster.assets.partners import PARTNERS, Partner
from cluster.queued_kinds import KINDS
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


# A go command that finds a module with one file, and builds what it is asked for, unless FAILING names the command.
GO = """#!/bin/sh
echo "$@" >> {folder}/commands
case "$1 $2" in
"$FAILING "*) echo "no such version" >&2; exit 1;;
"mod download") echo '{{"GoMod": "{folder}/go.mod", "Dir": "{folder}/module"}}';;
"mod edit") echo '{{"Replace": [{{"Old": {{"Path": "k8s.io/api"}}, "New": {{"Path": "./staging/src/k8s.io/api"}}}}]}}';;
"get "*) cp go.mod {folder}/written.mod; test ! -f go.sum || cp go.sum {folder}/written.sum;;
build*) while [ "$1" != -o ]; do shift; done; echo "#!/bin/sh" > "$2"; chmod +x "$2";;
esac
"""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "module" / "config" / "crd").mkdir(parents=True)
    (tmp_path / "module" / "config" / "crd" / "things.yaml").write_text("kind: CustomResourceDefinition\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO.format(folder=tmp_path))
    (tmp_path / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYKUEUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(assets.OPERATORS, "")
    row = Partner(
        "thing", "Thing", "example.com/thing", "v1.2.3", "example.com/thing/cmd", "own", ("config/crd/*.yaml",), True
    )
    slow = Partner("slow", "Slow", "example.com/slow", "v2.0.0", "example.com/slow", "own")
    for module in (assets, building):
        monkeypatch.setattr(module, "PARTNERS", (row, slow))
    return tmp_path


def test_partner_is_built_once_in_a_module_of_its_own_with_its_files(fake_go: Path) -> None:
    built = assets.partner("thing")
    assert os.access(built.binary, os.X_OK)
    assert [path.name for path in built.paths("config/crd/*.yaml")] == ["things.yaml"]
    asked = (fake_go / "commands").read_text()
    # Partners with the same libraries are asked for together: so they are compiled with the same versions.
    assert "get example.com/thing/cmd@v1.2.3 example.com/slow@v2.0.0" in asked
    assert "build -p 1" in asked
    assert "replace k8s.io/api => k8s.io/api v0.2.3" in (fake_go / "written.mod").read_text()
    assert assets.partner("thing") == built
    assert (fake_go / "commands").read_text() == asked, "a second call does no work"
    with pytest.raises(assets.AssetsError, match=r"thing v1.2.3 has no file \*.txt"):
        built.paths("*.txt")


def test_libraries_of_a_partner_have_the_checksums_of_its_module(fake_go: Path) -> None:
    # A checksum database that is reached through a mirror need not have every library.
    (fake_go / "module" / "go.sum").write_text("example.com/library v1.0.0 h1:AAAA=\n")
    (fake_go / "module" / "go.sum").chmod(0o444)
    assets.partner("thing")
    assert (fake_go / "written.sum").read_text() == "example.com/library v1.0.0 h1:AAAA=\n"


@pytest.mark.parametrize("command", ["mod", "get", "build"])
def test_failed_build_names_the_command_its_output_and_the_log(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("FAILING", command)
    with pytest.raises(assets.AssetsError) as failed:
        assets.partner("thing")
    log = fake_go / "cache" / "operators" / "thing.log"
    assert str(failed.value) == f"go {command} failed for thing; the whole log is {log}:\nno such version"
    assert "no such version" in log.read_text()
    monkeypatch.delenv("FAILING")
    assets.partner("thing")


def test_partner_that_is_not_selected_names_the_switch(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(assets.AssetsError, match=r"Slow v2.0.0 is not selected: OPERATORS=all or OPERATORS=slow"):
        assets.partner("slow")
    for value in ("all", "slow", "thing, slow"):
        monkeypatch.setenv(assets.OPERATORS, value)
        assert assets.partner("slow").binary.name == "slow"
    monkeypatch.setenv(assets.OPERATORS, "slwo")
    with pytest.raises(assets.AssetsError, match="PYKUEUE_OPERATORS names slwo: known are all, slow, thing"):
        assets.selected()


def test_partner_names_are_unique_and_of_one_kubernetes_version() -> None:
    names = [partner.name for partner in PARTNERS]
    assert len(set(names)) == len(names)
    assert {partner.version for partner in PARTNERS if partner.module == "k8s.io/kubernetes"} == {assets.KUBERNETES}


def test_every_kind_of_the_scenarios_names_its_operator() -> None:
    first = {kind.framework: (kind.partners or ("kube-controller-manager",))[-1] for kind in KINDS}
    assert first == partners.OPERATORS
    assert set(partners.STAND_INS) <= set(first)


@pytest.mark.cluster
def test_a_real_server_answers_and_leaves_nothing_behind() -> None:
    with real.started() as server:
        assert server.request("GET", "/version").body["gitVersion"] == assets.KUBERNETES
        again = msgspec.json.decode(server.kubeconfig())
        assert again["clusters"][0]["cluster"]["server"] == server.url
        url = server.url
    with pytest.raises(OSError):
        real.Client(url).request("GET", "/healthz")
