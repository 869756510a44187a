"""Output of commands: tables, documents, and the formats that kubectl prints."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kubemachinery.errors import UsageError
from pykueue import wording
from pykueue.cli import flags, history, printing, report
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat, TableColumn
from pykueue.history import columns, documents
from pykueue.history.documents import UsageItem
from pykueue.history.records import WorkloadRecord

COLUMNS = [
    TableColumn[str]("NAME", lambda row: row),
    TableColumn[str]("STATE", lambda row: "Failed"),
    TableColumn[str]("MORE", lambda row: "x", wide=True),
]


ROW = {"apiVersion": "v1", "kind": "Row"}
THING = {"kind": "Thing", "metadata": {"name": "x", "managedFields": [{"manager": "me"}]}, "spec": {"n": 1}}


def shown(rows: list[str], *words: str, color: bool = False) -> str:
    @click.command()
    @printing.prints("wide", "name", "json", "yaml")
    def command(form: OutputFormat) -> None:
        printing.show(
            rows,
            COLUMNS,
            form,
            name=lambda row: f"row/{row}",
            tree=lambda row: {**ROW, "metadata": {"name": row, "namespace": "ns", "managedFields": []}},
            nothing="no rows",
        )

    return CliRunner().invoke(command, words, color=color, catch_exceptions=False).output


def printed(*words: str) -> str:
    """One object, as a command prints it that takes its name, too."""

    @click.command(cls=flags.Command)
    @click.argument("name")
    @printing.prints("json", "yaml", "name")
    def command(name: str, form: OutputFormat) -> None:
        assert name == "x"
        form.document(THING)

    return CliRunner().invoke(command, words, catch_exceptions=False).output


def test_table_columns_are_aligned_without_trailing_spaces() -> None:
    assert shown(["a", "longer"]) == "NAME     STATE\na        Failed\nlonger   Failed\n"


def test_wide_format_shows_wide_columns() -> None:
    assert shown(["a"], "-o", "wide").splitlines()[0].split() == ["NAME", "STATE", "MORE"]


def test_states_are_coloured_on_a_terminal_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31mFailed\x1b[0m" in shown(["a"], color=True)
    assert "\x1b" not in shown(["a"])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(["a"], color=True)


def test_control_characters_are_removed_from_cells() -> None:
    assert shown(["a\x1b[2Jb\nc"]).splitlines()[1] == "a [2Jb c   Failed"


def test_names_json_and_yaml_formats() -> None:
    assert shown(["a", "b"], "-o", "name") == "row/a\nrow/b\n"
    assert '"name": "a"' in shown(["a"], "-o", "json")
    assert shown([], "-o", "yaml") == "apiVersion: v1\nkind: List\nmetadata: {}\nitems: []\n"


def test_empty_table_prints_a_notice_and_other_formats_do_not() -> None:
    assert shown([]) == "no rows\n"
    assert shown([], "-o", "name") == ""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl on the PATH, and nothing else, that records its arguments and its input."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        f"calls = open({str(tmp_path / 'calls')!r}, 'a')\n"
        "print(json.dumps({'arguments': sys.argv[1:], 'input': json.load(sys.stdin)}), file=calls)\n"
        "print('from kubectl')\n"
        "sys.exit('error: wrong template' if '{wrong' in ' '.join(sys.argv) else 0)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return tmp_path / "calls"


def calls(recorded: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recorded.read_text().splitlines()]


PATCH = ["patch", "--local", "--filename=-", "--type=merge", "--patch={}"]


def test_kubectl_prints_one_object_with_a_template(kubectl: Path) -> None:
    assert printed("x", "-o", "jsonpath={.metadata.name}") == "from kubectl\n"
    [call] = calls(kubectl)
    assert call["input"] == THING, "managedFields included: a template may name them"
    assert call["arguments"] == [*PATCH, "--output=jsonpath={.metadata.name}", "--allow-missing-template-keys=true"]


def test_kubectl_prints_the_selected_objects_as_a_list(kubectl: Path) -> None:
    assert shown(["a", "b"], "-o", "go-template={{len .items}}") == "from kubectl\n"
    [call] = calls(kubectl)
    items = [{**ROW, "metadata": {"name": name, "namespace": "ns"}} for name in ("a", "b")]
    assert call["input"] == {"apiVersion": "v1", "kind": "List", "items": items}
    output = ["--output=go-template={{len .items}}", "--allow-missing-template-keys=true"]
    assert call["arguments"] == ["get", "--filename=-", *output]


def test_kubectl_is_not_called_for_an_empty_list(kubectl: Path) -> None:
    assert shown([], "-o", "jsonpath={.items}") == "No resources found\n"
    assert not kubectl.exists()


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("-o", "go-template", "--template", "t"), ["--output=go-template", "--template=t"]),
        (("--template", "t"), ["--output=go-template", "--template=t"]),
        (("-o", "template=t"), ["--output=template=t"]),
        (("-o", "templatefile=f"), ["--output=templatefile=f"]),
        (("-o", "go-template-file=f"), ["--output=go-template-file=f"]),
        (("-o", "jsonpath-file=f"), ["--output=jsonpath-file=f"]),
        (("-o", "jsonpath-as-json={.a}"), ["--output=jsonpath-as-json={.a}"]),
        (("-o", "jsonpath", "--template", "{.a}"), ["--output=jsonpath", "--template={.a}"]),
    ],
)
def test_template_formats_are_passed_to_kubectl(kubectl: Path, words: tuple[str, ...], output: list[str]) -> None:
    printed("x", *words, "--allow-missing-template-keys=false")
    assert calls(kubectl)[0]["arguments"] == [*PATCH, *output, "--allow-missing-template-keys=false"]


def test_kyaml_is_passed_to_kubectl(kubectl: Path) -> None:
    printed("x", "-o", "kyaml", "--show-managed-fields")
    assert calls(kubectl)[0]["arguments"] == [*PATCH, "--output=kyaml", "--show-managed-fields"]


def test_connection_flags_are_passed_to_kubectl(kubectl: Path) -> None:
    @click.command()
    @printing.prints("json")
    @connects
    def command(connection: Connection, form: OutputFormat) -> None:
        form.document(printing.listed([{**THING, "apiVersion": "v1"}]))

    words = ["-o", "kyaml", "--context", "c", "--token", "t", "--as-group", "g", "--as-group", "h"]
    words += ["--as-user-extra", "k=v", "--insecure-skip-tls-verify"]
    CliRunner().invoke(command, words, catch_exceptions=False)
    passed = ["--context=c", "--insecure-skip-tls-verify=true", "--token=t", "--as-group=g", "--as-group=h"]
    arguments = calls(kubectl)[0]["arguments"]
    assert arguments == ["get", "--filename=-", "--output=kyaml", *passed, "--as-user-extra=k=v"]


def test_an_error_of_kubectl_is_reported(kubectl: Path) -> None:
    with pytest.raises(UsageError, match="kubectl: error: wrong template"):
        printed("x", "-o", "jsonpath={wrong")


@pytest.mark.parametrize("form", ["go-template={{.spec.m}}", "jsonpath={.spec.m}", "kyaml", "templatefile=f"])
def test_without_kubectl_its_formats_are_refused(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError) as refused:
        printed("x", "-o", form)
    word = form.partition("=")[0]
    reason = "kubectl prints this format and is not on the PATH; install it, or use -o json"
    assert str(refused.value) == f"-o {word}: {reason}"


def test_managed_fields_are_printed_on_request_only() -> None:
    assert "managedFields" not in printed("x", "-o", "yaml") + shown(["a"], "-o", "json")
    assert "manager: me" in printed("x", "-o", "yaml", "--show-managed-fields")
    assert "managedFields" in shown(["a"], "-o", "json", "--show-managed-fields=true")


def test_flag_with_optional_value_does_not_take_the_next_word() -> None:
    assert "manager: me" in printed("--show-managed-fields", "x", "-o", "yaml")
    assert "managedFields" not in printed("-o", "yaml", "--show-managed-fields=false", "--", "x")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "jsonpath"), "-o jsonpath: needs a template, such as jsonpath='{.items[*].metadata.name}'"),
        (("-o", "go-template="), "-o go-template: needs a template, such as go-template='{{.metadata.name}}'"),
        (("-o", "go-template={{.x}}", "--template", "y"), "give the template once"),
        (("-o", "xml"), "-o xml: must be one of wide, name, json, yaml, jsonpath, "),
    ],
)
def test_unknown_output_format_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        shown([], *words)
    assert sentence in str(refused.value)


def test_a_table_for_a_file_has_no_colours_and_no_control_characters() -> None:
    text = printing.plain_table(["JOB", "STATE"], [["train", "Failed"], ["a\x1b[2J\nb", "Succeeded"]])
    assert text == "JOB       STATE\ntrain     Failed\na [2J b   Succeeded\n"


def test_jobs_of_the_history_are_written_into_a_file_as_a_table(tmp_path: Path) -> None:
    shown = documents.record_document(WorkloadRecord(uid="u", namespace="ns", name="train", queue="q"), 0)
    history._print([shown], columns.chosen("job,queue", wide=False), "table", tmp_path / "jobs.txt", "")
    assert (tmp_path / "jobs.txt").read_text() == "JOB     QUEUE\ntrain   q\n"


@pytest.mark.parametrize(("output", "hours"), [("table", "0.01"), ("csv", "0.007778"), ("json", "0.007778")])
def test_usage_for_programs_is_not_rounded_to_two_decimals(output: str, hours: str) -> None:
    usage = UsageItem({"queue": "q"}, "cpu", "28")
    assert str(report._usage_rows([usage], is_table=output == "table")[0]["hours"]) == hours


@pytest.mark.parametrize(("output", "hours"), [("table", "1.50Gi"), ("csv", str(1.5 * 2**30))])
def test_usage_of_memory_is_in_gi_in_a_table(output: str, hours: str) -> None:
    usage = documents.UsageItem({"queue": "q"}, "memory", str(3600 * 3 * 2**29))
    assert str(report._usage_rows([usage], is_table=output == "table")[0]["hours"]) == hours


@pytest.mark.parametrize("output", ["csv", "json"])
def test_machine_formats_are_written_as_they_are(output: str, capfd: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[31mred\x1b[0m"
    report._print(["user"], [{"user": name}], output, "nothing")
    written = capfd.readouterr().out
    assert written == (f"user\n{name}\n" if output == "csv" else json.dumps([{"user": name}], indent=2) + "\n")


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 jobs wait"), (1, "1 job waits"), (2, "2 jobs wait"), (1204, "1,204 jobs wait")]
)
def test_noun_and_verb_agree_with_their_number(number: int, text: str) -> None:
    assert wording.counted(number, "job waits", "jobs wait") == text
    assert wording.counted(number, "job") == text.rpartition(" ")[0]


@pytest.mark.parametrize("name", ["=1+1", "+user", "-2+3", "@SUM(A1)", "\t=1"])
def test_a_text_that_spreadsheets_would_compute_has_an_apostrophe_in_csv(name: str) -> None:
    assert list(csv.reader(io.StringIO(history.csv_text(["user"], [{"user": name}])))) == [["user"], [f"'{name}"]]


@pytest.mark.parametrize("value", ["a=b", "-1.5", "+3", "-", 'o\'brien, "bob"', "two\nlines", "größe", -2])
def test_other_values_are_as_they_are_in_csv(value: str | int) -> None:
    assert list(csv.reader(io.StringIO(history.csv_text(["user"], [{"user": value}])))) == [["user"], [str(value)]]
