"""`pykueue whatif --trace`: files, a history, bad input, exit codes, and Ctrl-C."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from history.lives import START, Life
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, format_time
from pykueue.cli import whatif
from pykueue.history import records
from pykueue.history.records import WorkloadRecord
from pykueue.history.store import HistoryStore

HEAD = "; Version: 2.2\n; MaxJobs: 4\n; MaxProcs: 4\n"
LINES = "".join(f"{n} {n} -1 100 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n" for n in range(1, 5))
TWICE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: queue-1}
spec:
  cohortName: trace
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 8}]}]}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "four.swf").write_text(HEAD + LINES)
    (tmp_path / "twice.yaml").write_text(TWICE)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(whatif.command, arguments, catch_exceptions=False)


def refused(*arguments: str) -> str:
    with pytest.raises(UsageError) as caught:
        run(*arguments)
    return str(caught.value)


def test_a_file_is_compared_with_its_own_queues(folder: Path) -> None:
    shown = run("--trace", "four.swf", "-f", "twice.yaml", "--report", "report.html")
    assert shown.exit_code == 0
    words = [line.split() for line in shown.output.splitlines()]
    assert words[0][:4] == ["4", "jobs", "of", "four.swf;"]
    assert ["jobs", "that", "started", "4", "4", "0", "%"] in words
    assert ["waiting,", "longest", "1m38s", "0s", "-100", "%"] in words
    assert (folder / "report.html").read_text().count("<svg") == 3


def test_a_document_for_programs(folder: Path) -> None:
    tree = json.loads(run("--trace", "four.swf", "-f", "twice.yaml", "-o", "json").output)
    assert tree["columns"]["replayed"]["figures"]["waiting.longest"] == 98
    assert tree["columns"]["changed"]["figures"]["waiting.longest"] == 0
    assert tree["trace"] == {"source": "four.swf", "jobs": 4}


def test_the_base_that_a_file_implies_can_be_written_and_given_back(folder: Path) -> None:
    assert run("--trace", "four.swf", "--write-base", "base.yaml").output == "wrote 4 objects to base.yaml\n"
    own = run("--trace", "four.swf", "-f", "twice.yaml", "-o", "json").output
    given = run("--trace", "four.swf", "--in", "base.yaml", "-f", "twice.yaml", "-o", "json").output
    assert json.loads(given)["columns"] == json.loads(own)["columns"]


def test_a_packed_file_with_names_beside_it(folder: Path) -> None:
    import gzip

    (folder / "four.swf.gz").write_bytes(gzip.compress((HEAD + LINES).encode()))
    (folder / "four.swf.gz.names.json").write_text('{"queue": ["queue-1"], "user": ["ana"]}')
    assert run("--trace", "four.swf.gz", "-f", "twice.yaml").exit_code == 0


def test_a_bad_line_is_refused_with_its_number_or_left_out(folder: Path) -> None:
    (folder / "bad.swf").write_text(HEAD + LINES + "5 9 -1 -700 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n")
    assert refused("--trace", "bad.swf", "-f", "twice.yaml") == "bad.swf, line 8: the run time is negative"
    shown = run("--trace", "bad.swf", "-f", "twice.yaml", "--ignore-bad-lines")
    assert shown.exit_code == 0
    assert "Left out line 8: the run time is negative." in shown.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--trace", "none.swf", "-f", "twice.yaml"], "--trace none.swf: No such file or directory"),
        (["--trace", "four.swf"], "nothing would change: give objects with -f, or names with --delete"),
        (["--report", "a.html", "-f", "twice.yaml"], "--report belongs to --trace"),
        (["--repeat", "3", "-f", "twice.yaml"], "--repeat belongs to --trace"),
        (
            ["--trace", "monday..", "--map", "cpu=1", "-f", "twice.yaml"],
            "--map belongs to a trace file, and monday.. is a time range",
        ),
        (
            ["--trace", "four.swf", "--history", "twice.yaml", "-f", "twice.yaml"],
            "--history belongs to a time range, and four.swf is a file",
        ),
        (["--trace", "four.swf", "--map", "cpu=none", "-f", "twice.yaml"], "--map cpu=none:"),
        (["--trace", "four.swf", "--map", "a b=1", "-f", "twice.yaml"], "--map a b=1: 'a b' is no resource: "),
        (
            ["--trace", "four.swf", "--map", "cpu=1", "--map", "cpu=2", "-f", "twice.yaml"],
            "--map cpu=2: the resource is given twice",
        ),
        (["--trace", "", "-f", "twice.yaml"], "--trace: is empty; name a file, or a time range"),
        (
            ["--trace", "four.swf", "-f", "twice.yaml", "--now", "2026-11-18T00:00:00Z"],
            "--now cannot be combined with --trace: the times are those of the trace",
        ),
        (
            ["--eta", "--in", "twice.yaml", "-f", "twice.yaml", "--now", "9999-12-31T23:59:59Z"],
            "--now: a forecast reaches 7 days ahead, and times have years of four digits",
        ),
        (["--trace", "four.swf", "--delete", "clusterqueue/none"], "--delete clusterqueue/none: not found"),
        (["--trace", "four.swf", "--in", "twice.yaml", "--delete", "cq/none"], "--delete cq/none: not found"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_bad_calls_are_refused_with_a_sentence(arguments: list[str], sentence: str) -> None:
    assert refused(*arguments).startswith(sentence)


# --- A history --------------------------------------------------------------------------------------------------------


def recorded(number: int, at: int, start: int) -> WorkloadRecord:
    life = Life(2, uid=f"uid-{number}", name=f"job-{number}", at=at)
    record = records.observe(None, life.workload, START + at)
    for state in (life.reserved(start, flavor="default"), life.admitted(start)):
        record = records.observe(record, state, START + start)
    return records.observe(record, life.finished(start + 100), START + start + 100)


BASE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: research, namespace: ns}
spec: {clusterQueue: physics}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns}
---
""" + TWICE.replace("queue-1", "physics").replace("nominalQuota: 8", "nominalQuota: 2")


@pytest.fixture
def history(folder: Path) -> Path:
    path = folder / "history.db"
    store = HistoryStore(path)
    store.save([recorded(0, 0, 0), *(recorded(n, 100 + n, 100 * n + 1) for n in range(1, 5))])
    store.close()
    (folder / "base.yaml").write_text(BASE)
    (folder / "more.yaml").write_text(TWICE.replace("queue-1", "physics"))
    return path


def at(seconds: int) -> str:
    return format_time((START + seconds) * SECOND)


def test_a_range_of_the_history_has_three_columns(history: Path) -> None:
    shown = run(
        "--trace", f"{at(0)}..{at(700)}", "--history", str(history), "--in", "base.yaml", "-f", "more.yaml", "-o", "json"
    )  # fmt: skip
    tree = json.loads(shown.output)
    longest = {name: column["figures"]["waiting.longest"] for name, column in tree["columns"].items()}
    assert longest == {"recorded": 297, "replayed": 297, "changed": 0}
    assert tree["distance"] == 0.0


@pytest.mark.parametrize(
    ("range_", "sentence"),
    [
        (f"{at(-100)}..{at(700)}", f"the history begins at {at(0)}"),
        (f"{at(700)}..{at(0)}", "the time range is empty"),
        (f"{at(1000)}..{at(2000)}", f"the history has no job from {at(1000)} to {at(2000)}"),
        ("never..", "must be a date such as 2026-11-01"),
    ],
)
def test_a_range_without_history_is_refused(history: Path, range_: str, sentence: str) -> None:
    found = refused("--trace", range_, "--history", str(history), "--in", "base.yaml", "-f", "more.yaml")
    assert found.startswith("--trace ")
    assert sentence in found


def test_an_empty_history_is_refused(folder: Path) -> None:
    HistoryStore(folder / "empty.db").close()
    found = refused("--trace", "yesterday..", "--history", "empty.db", "--in", "twice.yaml", "-f", "twice.yaml")
    assert found == "--trace yesterday..: the history is empty"


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_prints_the_partial_result(folder: Path) -> None:
    """The signal is sent once the first jobs were submitted; the trace would take minutes. On one core the second
    replay has not begun then."""
    many = "".join(f"{n} {n // 3} -1 900 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n" for n in range(1, 60_001))
    (folder / "many.swf").write_text("; MaxProcs: 40\n" + many)
    program = (
        "import os, signal; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from pykueue.analysis import trace_replay; usual = trace_replay._arrivals\n"
        "def stopping(trace, report):\n"
        "    for number, arrival in enumerate(usual(trace, report)):\n"
        "        if number == 2000: os.kill(os.getpid(), signal.SIGINT)\n"
        "        yield arrival\n"
        "trace_replay._arrivals = stopping\n"
        "from pykueue.cli import main; main(['whatif', '--trace', 'many.swf', '-f', 'twice.yaml'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert done.stdout.startswith("Interrupted: the figures are those of what was replayed so far.")
    assert "REPLAYED" in done.stdout
    assert "WITH THE CHANGE" not in done.stdout
    assert done.stderr.endswith("interrupted\n")


def test_a_configuration_alone_is_a_change(folder: Path) -> None:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    (folder / "fair.yaml").write_text(f"{head}fairSharing: {{preemptionStrategies: [LessThanInitialShare]}}\n")
    assert "jobs that started" in run("--trace", "four.swf", "-f", "fair.yaml").output


@pytest.mark.parametrize("text", ["[]", "null", '{"queue": 3}', '{"queue": [1]}', "{bad"])
def test_names_that_cannot_be_read_are_refused_with_their_file(folder: Path, text: str) -> None:
    (folder / "four.swf.names.json").write_text(text)
    sentence = refused("--trace", "four.swf", "-f", "twice.yaml")
    assert sentence.startswith("four.swf.names.json: is not an object of lists of names: ")


@pytest.mark.parametrize("name", ["four.swf", "four.swf.gz"])
def test_a_file_is_read_by_its_bytes_and_not_by_its_name(folder: Path, name: str) -> None:
    text = (HEAD + LINES).replace("\n", "\r\n")
    (folder / name).write_bytes(text.encode("utf-8-sig"))
    (folder / f"{name}.names.json").write_text('{"queue": ["queue-1"]}', encoding="utf-8-sig")
    expected = run("--trace", name, "-f", "twice.yaml").output
    assert expected.startswith(f"4 jobs of {name};")
    (folder / name).write_bytes(gzip.compress(text.encode()))
    assert run("--trace", name, "-f", "twice.yaml").output == expected


def test_a_compressed_file_that_is_damaged_is_refused(folder: Path) -> None:
    packed = bytearray(gzip.compress(LINES.encode()))
    packed[12:20] = b"\xff" * 8
    (folder / "bad.swf.gz").write_bytes(packed)
    assert refused("--trace", "bad.swf.gz", "-f", "twice.yaml").startswith("--trace bad.swf.gz: ")
