"""The command line: output, help, exit codes and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from pykueue import cli
from pykueue.jobs import kinds
from pykueue.version import __version__


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pykueue", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n")
    return path


def test_the_version_is_printed_for_people_and_programs() -> None:
    assert run("version").stdout.startswith(f"pykueue {__version__} ")
    assert json.loads(run("version", "-o", "json").stdout)["pykueue"] == __version__
    assert run("--version").stdout == f"pykueue {__version__}\n"


def test_a_command_that_does_not_exist_is_one_sentence_with_the_nearest_name() -> None:
    result = run("verison")
    assert result.returncode == 2
    assert "Did you mean 'version'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_closed_stdout_ends_a_command_as_sigpipe_would() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pykueue", "version"], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("submit --gpus 0.5 -- true", "Invalid value for '--gpus': '0.5' is not a valid integer."),
        ("submit --time 90 -- true", "--time-limit 90: is a time of sbatch; write 1h30m"),
        ("submit --time 0 -- true", "--time-limit 0: must be at least a second"),
        ("submit --time 30:15 -- true", "--time-limit 30:15: is a time of sbatch; write 30m15s"),
        ("submit --time 2:00:00 -- true", "--time-limit 2:00:00: is a time of sbatch; write 2h"),
        ("submit --expected-time 1-02:30 -- true", "--expected-time 1-02:30: is a time of sbatch; write 26h30m"),
        ("submit --hold -- true", "submit has no option --hold: jobs are held after they are submitted"),
        ("install --dry-run --namespace A_B", "pykueue: --namespace A_B: must be lower case letters"),
        ("uninstall --namespace A_B", "pykueue: --namespace A_B: must be lower case letters"),
        ("queue -s https://localhost:1 --request-timeout=-1s", "-1s: must not be negative; 0 is no timeout"),
    ],
)
def test_refusal_names_the_flag_and_the_rule(words: str, sentence: str) -> None:
    result = run(*words.split())
    assert result.returncode == 2
    assert sentence in result.stderr.splitlines()[-1]


def test_an_answer_that_cannot_be_written_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pykueue", "version"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"pykueue: the output cannot be written: No space left on device\n"


def test_a_bug_of_ours_is_one_sentence_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.VERBS, "version", cli.Verb("none", "There is no such module."))
    with pytest.raises(SystemExit) as ended:
        cli.main(["version"])
    assert ended.value.code == os.EX_SOFTWARE
    [sentence] = capsys.readouterr().err.splitlines()
    assert "No module named 'pykueue.cli.none'" in sentence
    assert ", line " in sentence
    monkeypatch.setenv("PYKUEUE_TRACEBACK", "1")
    with pytest.raises(ModuleNotFoundError):
        cli.main(["version"])


@pytest.mark.parametrize("path", [path for path, _ in cli.help_texts()])
def test_every_command_has_help(path: str) -> None:
    result = run(*path.split()[1:], "--help")
    assert result.returncode == 0
    usage, *rest = result.stdout.splitlines()
    assert usage.startswith(f"Usage: {path}")
    assert any(line.strip().endswith((".", ":")) for line in rest if line.startswith("  "))


def test_the_table_names_every_command_there_is() -> None:
    modules = Path(cli.__file__).parent.glob("*.py")
    commands = {path.stem for path in modules if "\ndef command(" in path.read_text()}
    assert {verb.module for verb in cli.VERBS.values() if verb.attribute == "command"} == commands
    assert all(verb.summary.endswith(".") for verb in cli.VERBS.values())


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("list clusterqueue -o=json", "clusterqueue -o json"),
        ("list lq -n=team -l=a=b x", "lq -n team -l a=b x"),
        ("list lq -nteam --namespace=x", "lq -nteam --namespace=x"),
        ("history -n=team", "-n team"),
        ("history list -n=team", "list -n team"),
        ("stop cq a --dry-run -n=team", "cq a --dry-run -n team"),
        ("create lq a -c -n=b -n=c", "lq a -c -n=b -n c"),
        ("cancel a -- -n=b", "a -- -n=b"),
        ("submit --name a -n=team run -n=1", "--name a -n team run -n=1"),
        ("queue -A=b", "-A=b"),
        ("get cq a -o=json", "cq a -o=json"),
    ],
)
def test_short_option_may_have_its_value_after_an_equals_sign(words: str, read: str) -> None:
    arguments = cli.program.resolve_command(click.Context(cli.program), words.split())[2]
    assert arguments == read.split()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("stop localqueue a --dry-run server", {"name": "a", "dry_run": "server"}),
        ("stop cq --dry-run client a", {"name": "a", "dry_run": "client"}),
        ("resume workload a --dry-run=none", {"name": "a", "dry_run": "none"}),
        ("create resourceflavor --dry-run a", {"name": "a", "dry_run": "client"}),
        ("create rf a --dry-run -o yaml", {"name": "a", "dry_run": "client"}),
        ("list clusterqueue --active false", {"active": False}),
        ("list clusterqueue --active", {"active": True}),
    ],
)
def test_flag_of_kueuectl_takes_its_value_after_a_space(words: str, values: dict[str, object]) -> None:
    """Any other word after the flag is an argument."""
    _, verb, arguments = cli.program.resolve_command(click.Context(cli.program), words.split())
    assert isinstance(verb, click.Group)
    _, command, rest = verb.resolve_command(click.Context(verb), arguments)
    assert command is not None
    assert command.make_context("test", rest).params.items() >= values.items()


def test_short_option_with_an_equals_sign_takes_effect() -> None:
    assert json.loads(run("version", "-o=json").stdout)["pykueue"] == __version__


@pytest.mark.parametrize(
    ("words", "received"),
    [
        ("get kwl a -n=b -o=jsonpath={.spec.active}", "get workloads.kueue.x-k8s.io a -n=b -o=jsonpath={.spec.active}"),
        ("patch lq a -nshared --patch {}", "patch localqueues.kueue.x-k8s.io a -nshared --patch {}"),
        ("delete rf -- a", "delete resourceflavors.kueue.x-k8s.io -- a"),
        ("describe cq a -h", "Usage:"),
        ("edit cq --help", "Usage:"),
    ],
)
def test_kubectl_receives_the_words_as_they_are(
    words: str, received: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    printed = run(*words.split()).stdout
    assert printed.startswith(received) if received == "Usage:" else printed == f"{received}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str) -> None:
    assert "_PYKUEUE_COMPLETE" in run("completion", shell).stdout


def test_config_check_prints_the_effective_configuration(file: Path) -> None:
    result = run("config", "check", str(file))
    assert result.returncode == 0
    assert "recoveryTimeout: 30m" in result.stdout
    assert json.loads(run("config", "check", str(file), "-o", "json").stdout)["clientConnection"]["burst"] == 500


def test_config_check_reads_standard_input(file: Path) -> None:
    assert run("config", "check", "-", text=file.read_text()).returncode == 0


def test_config_check_reports_every_error_with_exit_code_1(file: Path) -> None:
    file.write_text(file.read_text() + "fairSharin: {}\nfeatureGates: {Nope: true}\n")
    result = run("config", "check", str(file))
    assert result.returncode == 1
    assert result.stdout == ""
    assert "fairSharin: Forbidden: is not a field of a Configuration; did you mean fairSharing?" in result.stderr
    assert "featureGates.Nope" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("2 errors, not usable")


def test_config_check_gives_notice_of_what_is_old(file: Path) -> None:
    file.write_text(file.read_text().replace("v1beta2", "v1beta1"))
    result = run("config", "check", str(file))
    assert result.returncode == 0
    assert "notice: apiVersion" in result.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\n---\nb: 2\n", "contains 2 documents"),
        ("", "contains 0 documents"),
        ("a: [", "line 2, column 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(file: Path, text: str, sentence: str) -> None:
    file.write_text(text)
    result = run("config", "check", str(file))
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    result = run("config", "check", str(tmp_path / "none"))
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("verb", ["up", "manager"])
def test_a_kind_of_job_that_cannot_be_had_is_refused_before_anything_starts(verb: str, tmp_path: Path) -> None:
    file, data = tmp_path / "config.yaml", tmp_path / "data"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [example.com/flow]}\n"
    )
    place = ["--data-dir", str(data)] if verb == "up" else []
    result = run(verb, "--config", str(file), *place)
    assert result.returncode == 2
    assert result.stderr == (
        f"pykueue: {file}: integrations.frameworks[0]: "
        'Unsupported value: "example.com/flow": is not a supported framework\n'
    )
    assert not data.exists()


# The frameworks and the shape of the file that Kueue ships.
_AS_SHIPPED = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller:
  groupKindConcurrency: {Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 10, ResourceFlavor.kueue.x-k8s.io: 1}
clientConnection: {qps: 300, burst: 500}
integrations:
  frameworks: [FRAMEWORKS]
"""


def _as_shipped(frameworks: Iterable[str]) -> str:
    return _AS_SHIPPED.replace("FRAMEWORKS", ", ".join(frameworks))


ALL_FRAMEWORKS = [row.framework for row in kinds.BUILT_IN]
SPARK = "sparkoperator.k8s.io/sparkapplication"


def test_config_check_passes_every_framework_of_kueue(file: Path) -> None:
    assert len(ALL_FRAMEWORKS) == 18
    file.write_text(_as_shipped(ALL_FRAMEWORKS) + "featureGates: {SparkApplicationIntegration: true}\n")
    checked = run("config", "check", str(file))
    assert (checked.returncode, checked.stderr) == (0, "")


def test_framework_without_its_gate_is_refused_by_config_check_and_at_every_start(file: Path, tmp_path: Path) -> None:
    file.write_text(_as_shipped(ALL_FRAMEWORKS))
    sentence = (
        f"{file}: integrations.frameworks[{ALL_FRAMEWORKS.index(SPARK)}]: {SPARK} needs the feature gate "
        "SparkApplicationIntegration, which is off"
    )
    checked = run("config", "check", str(file))
    assert (checked.returncode, checked.stdout) == (1, "")
    assert checked.stderr.splitlines() == [sentence, f"{file}: 1 error, not usable"]
    for verb in (["up", "--data-dir", str(tmp_path / "data")], ["manager"], ["install", "--dry-run"]):
        started = run(*verb, "--config", str(file))
        assert (started.returncode, started.stderr) == (2, f"pykueue: {sentence}\n"), verb


@pytest.mark.parametrize(
    ("field", "address"), [("metrics: {bindAddress: %s}", "here"), ("pprofBindAddress: %s", "localhost:99999")]
)
def test_an_address_that_cannot_be_bound_is_refused_by_config_check_and_at_start(
    file: Path, field: str, address: str
) -> None:
    file.write_text(file.read_text() + field % address + "\n")
    assert "must be HOST:PORT, :PORT or 0" in run("config", "check", str(file)).stderr
    assert run("install", "--dry-run", "--config", str(file)).returncode == 2


class TestFeatureGatesFlag:
    def test_gates_of_the_flag_reach_the_installed_configuration(self) -> None:
        result = run("install", "--dry-run", "-o", "json", "--feature-gates=PartialAdmission=false,PriorityBoost=true")
        assert result.returncode == 0
        assert "PartialAdmission: false" in result.stdout
        assert "PriorityBoost: true" in result.stdout

    @pytest.mark.parametrize("verb", ["up", "manager", "install"])
    def test_the_flag_and_the_file_cannot_both_set_gates(self, file: Path, tmp_path: Path, verb: str) -> None:
        file.write_text(file.read_text() + "featureGates: {PriorityBoost: true}\n")
        place = ["--data-dir", str(tmp_path / "data")] if verb == "up" else []
        result = run(verb, *place, "--config", str(file), "--feature-gates=PartialAdmission=false")
        assert result.returncode == 2
        assert result.stderr == (
            f"pykueue: {file}: featureGates: cannot be combined with the flag --feature-gates;"
            " set the gates in one of the two\n"
        )

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("PartialAdmission", "PartialAdmission has no value; write NAME=true or NAME=false"),
            ("Nope=true", "featureGates.Nope: Invalid value: is not a known gate"),
            ("MultiKueue=true", "is not implemented in this version and cannot be turned on"),
        ],
    )
    def test_a_flag_that_cannot_be_used_is_one_sentence(self, text: str, sentence: str) -> None:
        result = run("manager", f"--feature-gates={text}")
        assert result.returncode == 2
        assert sentence in result.stderr
        assert len(result.stderr.splitlines()) == 1
