"""Tables for people: coloured on a terminal, plain elsewhere, and a cell cannot speak to the terminal; and the forms
that kubectl has for programs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kubemachinery.errors import UsageError
from pykueue.cli import flags, printing
from pykueue.cli.printing import OutputFormat, TableColumn

COLUMNS = [
    TableColumn[str]("NAME", lambda row: row),
    TableColumn[str]("STATE", lambda row: "Failed"),
    TableColumn[str]("MORE", lambda row: "x", wide=True),
]


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
            tree=lambda row: {"kind": "Row", "metadata": {"name": row, "managedFields": []}},
            nothing="no rows",
        )

    return CliRunner().invoke(command, words, color=color, catch_exceptions=False).output


def printed(*words: str) -> str:
    """One object, as a command prints it that takes its name, too."""

    @click.command(cls=flags.Command)
    @click.argument("name")
    @printing.prints("json", "yaml", "kyaml", "name")
    def command(name: str, form: OutputFormat) -> None:
        assert name == "x"
        form.document(THING)

    return CliRunner().invoke(command, words, catch_exceptions=False).output


def test_columns_line_up_and_nothing_trails() -> None:
    assert shown(["a", "longer"]) == "NAME     STATE\na        Failed\nlonger   Failed\n"


def test_wide_shows_more() -> None:
    assert shown(["a"], "-o", "wide").splitlines()[0].split() == ["NAME", "STATE", "MORE"]


def test_states_have_colours_unless_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31mFailed\x1b[0m" in shown(["a"], color=True)
    assert "\x1b" not in shown(["a"])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(["a"], color=True)


def test_a_hostile_name_stays_in_its_cell() -> None:
    assert shown(["a\x1b[2Jb\nc"]).splitlines()[1] == "a [2Jb c   Failed"


def test_programs_get_names_json_and_yaml() -> None:
    assert shown(["a", "b"], "-o", "name") == "row/a\nrow/b\n"
    assert '"name": "a"' in shown(["a"], "-o", "json")
    assert shown([], "-o", "yaml") == "apiVersion: v1\nkind: List\nmetadata: {}\nitems: []\n"
    assert printed("x", "-o", "kyaml").splitlines()[:3] == ["---", "{", '  kind: "Thing",']


def test_nothing_is_said_to_people_only() -> None:
    assert shown([]) == "no rows\n"
    assert shown([], "-o", "name") == ""


def test_a_template_prints_what_it_finds_in_the_list() -> None:
    assert shown(["a", "b"], "-o", "jsonpath={.items[*].metadata.name}") == "a b"
    assert shown(["a", "b"], "-o", "jsonpath-as-json={.items[*].metadata.name}") == '[\n    "a",\n    "b"\n]\n'
    assert shown(["a", "b"], "-o", "go-template={{range .items}}{{.metadata.name}};{{end}}") == "a;b;"


def test_a_template_is_said_with_its_form_or_beside_it_or_in_a_file(tmp_path: Path) -> None:
    go, jsonpath = tmp_path / "go", tmp_path / "jsonpath"
    go.write_text("{{.metadata.name}}!")
    jsonpath.write_text("{.metadata.name}?")
    for words in (
        ("-o", "go-template={{.metadata.name}}!"),
        ("-o", "template={{.metadata.name}}!"),
        ("-o", "go-template", "--template", "{{.metadata.name}}!"),
        ("--template", "{{.metadata.name}}!"),
        ("-o", f"go-template-file={go}"),
        ("-o", f"templatefile={go}"),
        ("-o", "go-template-file", "--template", str(go)),
    ):
        assert printed("x", *words) == "x!"
    assert printed("x", "-o", f"jsonpath-file={jsonpath}") == "x?"
    assert printed("x", "-o", "jsonpath", "--template", "{.metadata.name}?") == "x?"


@pytest.mark.parametrize("form", ["go-template={{.spec.m}}", "jsonpath={.spec.m}"])
def test_a_template_may_name_what_is_missing_unless_somebody_says_otherwise(form: str) -> None:
    assert printed("x", "-o", form) in ("<no value>", "")
    with pytest.raises(UsageError, match="there is no"):
        printed("x", "-o", form, "--allow-missing-template-keys=false")


def test_who_manages_fields_is_shown_to_those_who_ask() -> None:
    assert "managedFields" not in printed("x", "-o", "yaml") + shown(["a"], "-o", "json")
    assert "manager: me" in printed("x", "-o", "yaml", "--show-managed-fields")
    assert "managedFields" in shown(["a"], "-o", "json", "--show-managed-fields=true")
    assert printed("x", "-o", "jsonpath={.metadata.managedFields[0].manager}") == "me", "templates see all there is"


def test_a_flag_that_may_stand_alone_leaves_the_next_word_to_others() -> None:
    assert "manager: me" in printed("--show-managed-fields", "x", "-o", "yaml")
    assert "managedFields" not in printed("-o", "yaml", "--show-managed-fields=false", "--", "x")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "jsonpath"), "-o jsonpath: needs a template, such as jsonpath='{.items[*].metadata.name}'"),
        (("-o", "go-template="), "-o go-template: needs a template, such as go-template='{{.metadata.name}}'"),
        (("-o", "go-template={{.x}}", "--template", "y"), "one template is enough"),
        (("-o", "go-template={{.x"), "go-template: line 1, column 1: the braces are not closed"),
        (("-o", "jsonpath={.x"), "a brace is not closed"),
        (("-o", "jsonpath-file=missing"), "missing: No such file or directory"),
        (("-o", "xml"), "-o xml: must be one of wide, name, json, yaml, jsonpath, "),
    ],
)
def test_a_form_that_is_not_offered_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        shown([], *words)
    assert sentence in str(refused.value)
