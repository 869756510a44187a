"""Jobs in one line, on a real `pykueue up`: what a person types, and what they see."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import pykueue
from kubemachinery import codec, meta
from kubemachinery.client import client_config
from kubemachinery.errors import UsageError
from pykueue import cli
from pykueue import paths as places
from pykueue.api import kueue
from pykueue.cli import completion_candidates, up
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.client import job_request, job_service
from pykueue.client.queued_job import JOBS
from shell import CommandResult, Shell
from started import Up
from started import up as up_in
from waiting import PATIENCE_SECONDS, until


class HomeShell(Shell):
    """A shell whose HOME is an own folder."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys)
        self.home = home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home in which `pykueue up` runs with everything as it is by default, but for the size of its memory."""
    place = tmp_path_factory.mktemp("home")
    environment = {**os.environ, "HOME": str(place)}
    environment.pop("KUBECONFIG", None)
    up = Up(place / ".pykueue" / "kubeconfig", "--durability", "memory", environment=environment)
    try:
        yield place
    finally:
        _, output = up.end()
    assert "Traceback" not in output


@pytest.fixture
def shell(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> HomeShell:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(home)
    return HomeShell(home, capsys)


class TestDeleteWorkload:
    @pytest.mark.parametrize("answer", ["", "n\n"])
    def test_job_is_kept_unless_its_deletion_is_confirmed(
        self, shell: HomeShell, monkeypatch: pytest.MonkeyPatch, answer: str
    ) -> None:
        """The end of the input is a refusal, as in kueuectl."""
        name = f"kept-{len(answer)}"
        assert shell("submit", "--name", name, "--cpu", "1000", "--", "true").code == 0
        found = until(lambda: json.loads(shell("list", "workload", "-o", "json").out)["items"])
        (workload,) = (each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith(f"job-{name}"))
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        refused = shell("delete", "workload", workload)
        assert (refused.code, refused.err) == (0, "")
        assert f"jobs.batch/{name} associated with" in refused.out
        assert refused.out.endswith("Deletion is canceled\n")
        assert shell("list", "workload", "-o", "name").out.count(workload) == 1
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        assert f"jobs.batch/{name} deleted" in shell("delete", "workload", workload).out


class TestExplainFinished:
    def test_a_run_that_is_over_has_no_estimate(self, shell: Shell) -> None:
        shell("submit", "--name", "was-short", "--expected-time", "2h", "--", "true")
        assert shell("wait", "was-short").code == 0
        until(lambda: "is Finished" in shell("explain", "job/was-short").out)
        assert "Runs for" not in shell("explain", "job/was-short").out
        assert "runTime" not in json.loads(shell("explain", "job/was-short", "-o", "json").out)


class TestSubmit:
    def test_the_first_job_needs_no_set_up(self, shell: HomeShell) -> None:
        made = shell("submit", "--name", "first", "--", "sh", "-c", "echo hi")
        assert made == (0, "job first submitted to queue default\n", "")
        assert shell("wait", "first") == (0, "job first succeeded\n", "")
        assert shell("logs", "first") == (0, "hi\n", "")

    def test_warnings_of_the_server_are_printed(self, shell: HomeShell) -> None:
        """As kubectl prints them; a manifest is tried before it is stored, and its warning printed once [RT3]."""
        warning = "Warning: the expected run time of 7200 s is longer than the time limit of 3600 s\n"
        times = ("--time", "1h", "--expected-time", "2h")
        made = shell("submit", "--name", "hurried", *times, "--", "true")
        assert (made.code, made.err) == (0, warning)
        tree = shell("submit", "--name", "hurried-file", *times, "--dry-run", "--", "true").out
        (shell.home / "hurried.yaml").write_text(tree)
        assert shell("submit", "--filename", "hurried.yaml").err == warning

    def test_following_shows_the_log_and_the_end(self, shell: HomeShell) -> None:
        followed = shell("submit", "-f", "--name", "followed", "--", "sh", "-c", "pwd; echo $0; exit 3", "--name")
        assert followed.code == 1
        assert followed.out == f"job followed submitted to queue default\n{shell.home}\n--name\n"
        assert followed.err == "job followed failed with exit code 3; no retries left\n"

    def test_command_that_cannot_be_started_is_reported(self, shell: Shell) -> None:
        failed = shell("submit", "--wait", "--name", "typo", "--", "pyhton")
        assert (failed.code, failed.err) == (
            1,
            "job typo failed: cannot run 'pyhton': No such file or directory; no retries left\n",
        )

    @pytest.mark.parametrize(
        ("options", "script", "reason"),
        [
            ((), "exit 3", "failed with exit code 3; no retries left"),
            (("--time-limit", "1s"), "sleep 600", "time limit of 1 s exceeded"),
        ],
    )
    def test_every_command_gives_the_same_reason(
        self, shell: Shell, options: tuple[str, ...], script: str, reason: str
    ) -> None:
        name = f"reason-{len(options)}"
        failed = shell("submit", "--wait", *options, "--name", name, "--", "sh", "-c", script)
        assert (failed.code, failed.err.removeprefix(f"job {name} ").removeprefix("failed: ")) == (1, f"{reason}\n")
        until(lambda: reason in shell("queue", "-a").out)
        [row] = [line for line in shell("queue", "-a").out.splitlines() if line.startswith(f"{name} ")]
        assert row.endswith(f" {reason}")
        assert f"Finished: {reason}\n" in shell("explain", name).out
        assert reason in shell("wait", name).out

    def test_logs_of_parallel_pods_are_prefixed(self, shell: Shell) -> None:
        made = shell("submit", "-f", "--cpu", "100m", "--parallelism", "2", "--name", "pair", "--", "sh", "-c",
                     "echo $JOB_COMPLETION_INDEX")  # fmt: skip
        lines = sorted(made.out.splitlines()[1:])
        assert [(line.split("-")[1], line.split("] ")[1]) for line in lines] == [("0", "0"), ("1", "1")]

    def test_the_job_can_be_seen_before_it_is_submitted(self, shell: Shell) -> None:
        shown = shell("submit", "--dry-run", "-o", "json", "--gpus", "1", "-e", "A=1", "--", "x")
        tree = json.loads(shown.out)
        assert tree["kind"] == "Job"
        assert {"name": "A", "value": "1"} in tree["spec"]["template"]["spec"]["containers"][0]["env"]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("-q", "nope", "--", "x"), "LocalQueue nope not found in namespace default; available: default"),
            (("--cpu", "lots", "--", "x"), "--cpu lots: "),
            (("-n", "nowhere", "--", "x"), "name a LocalQueue of namespace nowhere"),
            (("--env", "NOT_SET_HERE", "--", "x"), "--env NOT_SET_HERE: is not set in the environment"),
            (("--name", "Not A Name", "--", "x"), "metadata.name"),
            (("--", ""), "the command is empty"),
            (("--priority-class", "nope", "--", "x"), "WorkloadPriorityClass nope not found; none exists"),
        ],
    )
    def test_what_is_wrong_is_one_sentence(self, shell: Shell, arguments: tuple[str, ...], words: str) -> None:
        refused = shell("submit", *arguments)
        assert refused.code == 2
        assert words in refused.err
        assert len(refused.err.splitlines()) == 1

    def test_dollar_signs_reach_the_command_unchanged(self, shell: Shell) -> None:
        script = 'test "$$" -gt 1 && echo "$X" "$(echo inner)"'
        arguments = ("-e", "X=$(HOME) $$", "--", "sh", "-c", script)
        made = shell("submit", "-f", "--name", "dollars", *arguments)
        assert made.out.splitlines()[1:] == ["$(HOME) $$ inner"], made.err
        shown = json.loads(shell("submit", "--dry-run", "-o", "json", *arguments).out)
        [main] = shown["spec"]["template"]["spec"]["containers"]
        assert main["command"][2] == script.replace("$", "$$")
        assert {"name": "X", "value": "$$(HOME) $$$$"} in main["env"]

    @pytest.mark.parametrize(
        ("option", "advice"),
        [
            ("--mem", ": use --memory"),
            ("--gpu", ": use --gpus"),
            ("-N", ": a job is a number of pods and not of nodes: use --parallelism"),
            ("--array", ": job arrays do not exist; --parallelism N runs N pods at once"),
            ("--dependency", ": dependencies between jobs do not exist; `pykueue wait NAME` before the next submit"),
            ("--paralelism", "; did you mean --parallelism?"),
            ("--banana", "; `pykueue submit --help` lists them"),
        ],
    )
    def test_unknown_options_are_refused(self, shell: Shell, option: str, advice: str) -> None:
        """Else the option would be the command, and every option after it an argument, --dry-run included."""
        for words in ((option, "4"), (f"{option}=4",)) if option.startswith("--") else ((option, "4"),):
            refused = shell("submit", "--name", "unknown-option", *words, "--dry-run", "--", "true")
            assert refused.code == 2
            assert refused.err.startswith(f"pykueue: submit has no option {option}{advice}")
            assert len(refused.err.splitlines()) == 1
        assert "unknown-option" not in shell("queue", "--all").out

    def test_options_after_the_first_word_are_the_commands_own(self, shell: Shell) -> None:
        made = shell("submit", "-f", "--name", "own-options", "echo", "--mem", "4", "-N", "--", "--dry-run")
        assert made.out.splitlines()[1:] == ["--mem 4 -N -- --dry-run"], made.err

    def test_a_workload_priority_class_is_found_by_its_name(self, shell: Shell) -> None:
        high = kueue.WorkloadPriorityClass(metadata=meta.ObjectMeta(name="high"), value=100)
        ConnectionFlags("", "", {}).run(
            lambda client, _: client.create(job_service.PRIORITY_CLASSES, codec.to_tree(high))
        )
        assert shell("submit", "--wait", "--priority-class", "high", "--name", "important", "--", "true").code == 0
        [row] = [line for line in shell("queue", "-a", "-o", "wide").out.splitlines() if line.startswith("important")]
        assert "100" in row.split()
        refused = shell("submit", "--priority-class", "x", "--", "true")
        assert refused == (2, "", "pykueue: WorkloadPriorityClass x not found; available: high\n")


class TestQueue:
    def test_shows_who_waits_where_and_why(self, shell: Shell) -> None:
        shell("submit", "--name", "exceeds-capacity", "--cpu", "9999", "--", "true")
        shell("submit", "--name", "runs", "--cpu", "100m", "--", "sleep", "600")

        def settled() -> CommandResult | None:
            """Both have their final state, and no earlier job is left."""
            listed = shell("queue")
            return (
                listed
                if listed.out.count("\n") == 3 and "Running" in listed.out and "maximum capacity" in listed.out
                else None
            )

        shown = until(settled)
        assert shown is not None
        assert shell("queue", "-A").out.splitlines()[1].split()[:2] == ["default", "runs"]
        by_job, by_kind = shell("explain", "exceeds-capacity").out, shell("explain", "job/exceeds-capacity").out
        assert by_job == by_kind
        assert "current podset request (9999)" in by_job
        assert shell("explain", "nope").err == (
            "pykueue: Workload or job nope not found in namespace default, or it has no queue label\n"
        )
        assert shell("whatif", "--delete", "cq/nope").err == "pykueue: --delete cq/nope: not found\n"
        head, first, second = shown.out.splitlines()
        assert head.split() == ["NAME", "KIND", "QUEUE", "STATE", "POSITION", "PODS", "REQUESTS", "AGE", "MESSAGE"]
        assert first.split()[:4] == ["runs", "Job", "default", "Running"]
        assert second.split()[:6] == ["exceeds-capacity", "Job", "default", "Waiting", "1", "1"]
        assert "current podset request (9999)" in second
        assert "\x1b" not in shown.out, "no colours in a pipe"
        assert shell("logs", "exceeds-capacity").err.startswith("job exceeds-capacity has no log: waiting, ")
        names = shell("queue", "-o", "name").out.splitlines()
        assert [name.split("-")[2] for name in names] == ["runs", "exceeds"]
        assert {item["kind"] for item in json.loads(shell("queue", "-o", "json").out)["items"]} == {"Workload"}
        assert "PRIORITY" in shell("queue", "-o", "wide").out
        assert shell("cancel", "runs", "job/exceeds-capacity") == (
            0,
            "job runs cancelled\njob exceeds-capacity cancelled\n",
            "",
        )
        until(lambda: not shell("queue").out)
        assert shell("queue") == (0, "", "no jobs are waiting or running; -a also shows finished jobs\n")

    def test_a_job_that_no_workload_can_be_made_for_is_there_with_the_reason(self, shell: Shell) -> None:
        options = job_request.JobRequest(
            command=["true"], queue="default", namespace="default", name="lost", priority_class="urgent"
        )
        ConnectionFlags("", "", {}).run(lambda client, _: client.create(JOBS, job_request.job(options, 0)))
        why = 'WorkloadPriorityClass "urgent" not found'
        until(lambda: why in shell("queue").out)
        [row] = [line.split() for line in shell("queue").out.splitlines() if why in line]
        assert row[:4] == ["lost", "Job", "default", "Unqueued"]
        assert "job.batch/lost\n" in shell("queue", "-o", "name").out
        expected = f"Job default/lost has no Workload and is not queued\n\nWhy\n  {why}\n"
        assert shell("explain", "lost") == shell("explain", "job/lost") == (0, expected, "")
        explained = json.loads(shell("explain", "lost", "-o", "json").out)
        assert explained == {"job": "default/lost", "state": "Unqueued", "localQueue": "default", "causes": [why]}
        assert shell("logs", "lost").err == f"job lost has no log: unqueued, {why}\n"
        shell("cancel", "lost")

    def test_a_queue_that_is_not_there_is_one_sentence(self, shell: Shell) -> None:
        refused = shell("queue", "-q", "nope")
        assert refused.code == 2
        assert refused.err == "pykueue: LocalQueue nope not found in namespace default; available: default\n"

    def test_what_is_over_is_shown_when_asked_for(self, shell: Shell) -> None:
        shell("submit", "--wait", "--name", "over", "--", "true")
        until(lambda: "over " not in shell("queue").out)
        assert "over " in shell("queue", "--all").out


class TestLater:
    def test_cancelled_job_whose_process_has_not_ended_has_its_log_so_far(self, shell: HomeShell) -> None:
        script = "trap 'until test -f go; do sleep 0.1; done; exit' TERM; echo started; while :; do sleep 0.1; done"
        shell("submit", "--name", "ending", "--", "sh", "-c", script)
        until(lambda: shell("logs", "ending").out == "started\n")
        assert shell("cancel", "ending").code == 0
        ending = shell("logs", "ending")
        assert (ending.code, ending.out) == (0, "started\n")
        assert ending.err == "job ending is deleted and its pods are ending; this is its log so far\n"
        (shell.home / "go").touch()
        until(lambda: shell("logs", "ending").err == "job ending is deleted; this is its last log\n")

    def test_no_job_is_in_trouble(self, shell: HomeShell) -> None:
        assert shell("queue", "--trouble") == (0, "", "no jobs are in trouble\n")
        refused = shell("queue", "--trouble", "--all")
        assert (refused.code, refused.out) == (2, "")
        assert "--trouble shows jobs that are not finished" in refused.err

    @pytest.mark.parametrize("verb", ["logs", "wait", "cancel"])
    def test_a_job_that_is_not_there_is_one_sentence(self, shell: Shell, verb: str) -> None:
        assert shell(verb, "nobody") == (2, "", "pykueue: job nobody not found in namespace default\n")

    def test_logs_of_another_type_are_not_those_of_a_job_with_this_name(self, shell: Shell) -> None:
        shell("submit", "--wait", "--name", "typed", "--", "echo", "here")
        assert shell("logs", "job/typed") == (0, "here\n", "")
        unknown = "foo is not a kind of job: TYPE/NAME is such as job/typed or pytorchjob/typed"
        assert shell("logs", "foo/typed") == (2, "", f"pykueue: {unknown}\n")
        expected = "pykueue: pytorchjob typed not found in namespace default\n"
        assert shell("logs", "pytorchjob/typed") == (2, "", expected)
        assert shell("cancel", "typed").code == 0
        until(lambda: shell("logs", "job/typed").out == "here\n")
        assert shell("logs", "pytorchjob/typed") == (2, "", expected)

    def test_explain_refuses_an_empty_name(self, shell: Shell) -> None:
        assert shell("explain", "job/") == (2, "", "pykueue: 'job/' names no Workload or job: the name is empty\n")

    def test_of_several_jobs_one_that_is_not_there_saves_the_others(self, shell: Shell) -> None:
        shell("submit", "--name", "kept", "--cpu", "100m", "--", "sleep", "600")
        assert shell("cancel", "kept", "nobody").code == 2
        until(lambda: "kept" in shell("queue").out)
        assert shell("wait", "kept", "--timeout", "1s").err == "job kept has not finished after 1 s\n"
        shell("cancel", "kept")

    def test_a_job_is_known_by_the_name_of_its_workload(self, shell: Shell) -> None:
        """Which is what `queue -o name` prints."""
        shell("submit", "--wait", "--name", "known", "--", "echo", "here")
        [workload] = [name for name in shell("queue", "--all", "-o", "name").out.splitlines() if "job-known-" in name]
        assert shell("logs", workload) == (0, "here\n", "")
        assert shell("wait", workload) == (0, "job known succeeded\n", "")
        assert shell("cancel", workload) == (0, "job known cancelled\n", "")

    def test_the_size_of_pages_is_kueuectls_variable(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", "many")
        refused = shell("list", "cq")
        assert (refused.code, refused.err) == (
            2,
            "pykueue: KUEUECTL_LIST_REQUEST_LIMIT=many: must be a whole number; 0 is no limit\n",
        )
        for limit in ("0", "1"):
            monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", limit)
            assert shell("list", "cq", "-o", "name").out == "clusterqueue.kueue.x-k8s.io/default\n"

    def test_a_container_that_is_not_there_is_one_sentence(self, shell: Shell) -> None:
        shell("submit", "--wait", "--name", "one-of-one", "--", "true")
        for more in ((), ("-f",)):
            refused = shell("logs", "one-of-one", "-c", "other", *more)
            assert refused.code == 2
            assert "container other is not valid for pod one-of-one-" in refused.err
            assert len(refused.err.splitlines()) == 1

    def test_waiting_ends_when_it_has_taken_too_long(self, shell: Shell) -> None:
        shell("submit", "--name", "endless", "--cpu", "100m", "--", "sleep", "600")
        late = shell("wait", "endless", "--timeout", "1s")
        followed = shell(
            "submit", "-f", "--timeout", "1s", "--name", "unfinished", "--cpu", "100m", "--", "sleep", "600"
        )
        shell("cancel", "endless", "unfinished")
        assert (late.code, late.err) == (1, "job endless has not finished after 1 s\n")
        assert (followed.code, followed.err) == (1, "job unfinished has not finished after 1 s\n")

    def test_a_workload_is_stopped_and_resumed_by_the_name_of_its_job(self, shell: Shell) -> None:
        shell("submit", "--name", "paused", "--cpu", "100m", "--", "sleep", "600")
        until(lambda: "Running" in shell("queue").out)
        stopped = shell("stop", "workload", "paused")
        assert (stopped.code, stopped.out.split("-")[:3]) == (0, ["workload.kueue.x", "k8s.io/job", "paused"])
        until(lambda: "deactivated" in shell("queue").out)
        assert shell("resume", "workload", "paused").code == 0
        until(lambda: "Running" in shell("queue").out)
        shell("cancel", "paused")
        assert "not found" in shell("stop", "workload", "nobody").err

    def test_without_a_name_the_last_job_is_meant(self, shell: Shell) -> None:
        shell("submit", "--name", "one-before", "--", "echo", "not me")
        shell("submit", "--wait", "--name", "last", "--", "echo", "here I am")
        assert shell("logs").out == "here I am\n"
        assert shell("logs", "--tail", "0").out == ""

    def test_a_server_elsewhere_is_found_by_the_word_that_it_left(
        self, home: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`pykueue up --data-dir D` writes its kubeconfig to D, and prints that where the default one would be."""
        monkeypatch.setenv("HOME", str(tmp_path))
        places.remember(home / ".pykueue" / "kubeconfig")
        assert shell("queue", "--all").code == 0

    def test_a_server_is_reached_without_a_kubeconfig_by_the_flags_of_kubectl(
        self, home: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = client_config.from_files([home / ".pykueue" / "kubeconfig"])
        token, server = str(target.user["token"]), target.server
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        Path("ca.crt").write_bytes(base64.b64decode(target.cluster["certificate-authority-data"]))
        reach = ("-s", server, "--certificate-authority", "ca.crt", "--request-timeout", "90s")
        assert shell("queue", "--all", *reach, "--token", token).code == 0
        assert shell("queue", *reach, "--token", "wrong").err == (
            f"pykueue: {server}: authentication failed (Unauthorized): "
            "the token or certificate is missing, invalid or expired\n"
        )
        assert "impersonation is not supported" in shell("queue", *reach, "--token", token, "--as", "ann").err
        assert "certificate" in shell("queue", "-s", server, "--token", token).err
        assert shell("queue", "--all", "-s", server, "--insecure-skip-tls-verify", "--token", token).code == 0

    @pytest.mark.parametrize("given", [("--token", "-Dsecret"), ("--token=-Dsecret",)])
    def test_a_token_may_begin_with_a_dash(self, shell: Shell, given: tuple[str, ...]) -> None:
        """One in 64 of those that `up` makes does."""
        assert "cannot be reached" in shell("queue", "-s", "https://127.0.0.1:1", *given).err

    def test_a_connection_flag_without_its_value_is_refused(self, shell: Shell) -> None:
        refused = shell("queue", "-s", "https://127.0.0.1:1", "--token")
        assert refused.code == 2
        assert "Option '--token' requires an argument." in refused.err

    def test_without_a_server_the_message_has_the_command_to_start_one(
        self, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        refused = shell("queue")
        assert refused.code == 2
        assert "start `pykueue up`" in refused.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--help",),
            ("submit", "--help"),
            ("options",),
            ("completion", "bash"),
            ("queue", "-a", "-o", "json"),
            ("explain", "loud"),
            ("logs", "loud"),
            ("logs", "-f", "loud"),
            ("list", "workload"),
            ("top", "--once"),
            ("wait", "loud"),
        ],
        ids=" ".join,
    )
    def test_a_command_whose_stdout_is_closed_ends_quietly(self, shell: HomeShell, arguments: tuple[str, ...]) -> None:
        """As SIGPIPE would end it: 141, and nothing on stderr."""
        if "loud" not in shell("queue", "-a").out:
            shell("submit", "--wait", "--name", "loud", "--", "sh", "-c", "yes | head -20000")
            until(lambda: "Succeeded" in shell("queue", "-a").out)
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "pykueue", *arguments]
        with open(writing, "wb") as closed:
            ended = subprocess.run(
                command, stdout=closed, stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False
            )
        assert (ended.returncode, ended.stderr) == (141, b"")


class TestCompletion:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Completion waits at most two seconds; a test waits until there is an answer."""
        monkeypatch.setattr(completion_candidates, "_PATIENCE", f"{PATIENCE_SECONDS:.0f}s")

    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            (("stop", "cq", ""), ["default"]),
            (("list", "workload", "-q", "def"), ["default"]),
            (("get", "localqueue", ""), ["default"]),
            (("submit", "-n", "kube-n"), ["kube-node-lease"]),
            (("submit", "-n", "kube-system", "-q", ""), []),
            (("queue", "--context", ""), ["embedded"]),
            (("queue", "--user", "e"), ["embedded"]),
        ],
    )
    def test_names_that_are_there_are_offered(self, shell: Shell, words: tuple[str, ...], offered: list[str]) -> None:
        assert completed(*words) == offered

    def test_name_that_is_given_already_is_not_completed_again(self, shell: Shell) -> None:
        shell("submit", "--wait", "--name", "named", "--", "true")
        assert "named" in completed("cancel", "")
        assert "named" not in completed("cancel", "named", "")

    def test_completion_offers_nothing_without_a_server(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        assert completed("stop", "cq", "") == completed("queue", "--context", "") == []
        assert completed("stop", "cq", "-s", "http://127.0.0.1:1", "") == []


def completed(*words: str) -> list[str]:
    """What a shell would offer for the last word."""
    *before, begun = words
    found = ShellComplete(cli.program, {}, "pykueue", "_PYKUEUE_COMPLETE").get_completions(before, begun)
    return [item.value for item in found]


def test_waiting_without_a_runner_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = up_in(tmp_path, "--runner", "none", "--durability", "memory")
    try:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        shell = Shell(capsys)
        shell("create", "resourceflavor", "any")
        shell("create", "clusterqueue", "all", "--nominal-quota", "any:cpu=4")
        shell("create", "localqueue", "default", "-c", "all")
        assert shell("submit", "--name", "idle", "--", "true").code == 0
        waited = shell("wait", "idle", "--timeout", "1s")
    finally:
        server.end()
    assert waited.code == 1
    assert waited.err.splitlines() == [
        "pods do not run here (`pykueue up --runner none`): a job ends when its status is written",
        "job idle has not finished after 1 s",
    ]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kubectl_shows_the_same_logs(shell: HomeShell, tmp_path: Path) -> None:
    later = tmp_path / "later"
    script = f"echo one; echo two; while [ ! -e {later} ]; do sleep 0.05; done; echo three"
    shell("submit", "--name", "kubectl", "--", "sh", "-c", script)
    until(lambda: shell("logs", "kubectl").out == "one\ntwo\n")
    second = int(time.time())
    until(lambda: time.time() >= second + 1)  # kubectl asks for whole seconds
    later.touch()
    shell("logs", "-f", "kubectl")
    kubeconfig = str(shell.home / ".pykueue" / "kubeconfig")

    def kubectl(*arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", kubeconfig, "logs", "job/kubectl", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout

    assert kubectl() == kubectl("-f") == kubectl("-c", "main") == "one\ntwo\nthree\n"
    assert kubectl("--tail", "2") == "two\nthree\n"
    times = [line.split()[0] for line in kubectl("--timestamps").splitlines()]
    assert kubectl("--since-time", times[2]) == "three\n"
    assert kubectl("--limit-bytes", "5") == "one\nt"


def test_beyond_this_machine_nothing_runs_unless_it_is_asked_for() -> None:
    assert up._usual_runner("127.0.0.1") == up._usual_runner("::1") == "process"
    assert up._usual_runner("0.0.0.0") == up._usual_runner("192.0.2.1") == "none"


def test_an_existing_kubeconfig_gets_a_hint_for_this_server(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | {"HOME": str(tmp_path)}
    kubeconfig = tmp_path / "kubeconfig"
    server = Up(kubeconfig, "--kubeconfig", os.path.relpath(kubeconfig), "--runner", "none", environment=environment)
    _, output = server.end()
    assert f"\nexport KUBECONFIG={kubeconfig.resolve()}\n" in output
    assert "\nwithout this KUBECONFIG, pykueue and kubectl use ~/.kube/config\n" in output


async def test_the_client_of_python_works_where_a_loop_runs_as_in_notebooks(home: Path, tmp_path: Path) -> None:
    """And what it submits starts where the program is, as with the command."""
    kubeconfig = str(home / ".pykueue" / "kubeconfig")
    with contextlib.chdir(tmp_path), pykueue.Client(kubeconfig=kubeconfig) as client:
        job = client.submit(["pwd"], name="from-python", time_limit_seconds=600)
        assert client.wait(job, timeout_seconds=PATIENCE_SECONDS).state == "Succeeded"
        assert client.logs(job).strip() == str(tmp_path)
        with pytest.raises(TypeError, match="unexpected keyword argument 'gpu'"):
            client.submit(["true"], gpu=1)  # type: ignore[call-arg]
        changes = client.watch()
        assert next(changes).type == "ADDED"
    client.close()  # once more does no harm
    changes.close()
    with pytest.raises(UsageError, match="the client is closed"):
        client.status(job)
    with pytest.raises(UsageError, match="No such file"):
        pykueue.Client(kubeconfig=str(tmp_path / "none"))


def test_a_client_that_is_left_open_closes_without_a_word(home: Path) -> None:
    kubeconfig = str(home / ".pykueue" / "kubeconfig")
    program = f"""
import gc, pykueue
client = pykueue.Client(kubeconfig={kubeconfig!r})
print(type(client.queue()).__name__)
client = pykueue.Client(kubeconfig={kubeconfig!r})
gc.collect()
client.queue(all=True)
"""
    left_open = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert (left_open.stdout, left_open.stderr) == ("list\n", "")
