"""Tables for people: coloured on a terminal, plain elsewhere, and a cell cannot speak to the terminal."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from pykueue.cli import printing
from pykueue.cli.printing import Column
from pykueue.errors import UsageError

COLUMNS = [
    Column[str]("NAME", lambda row: row),
    Column[str]("STATE", lambda row: "Failed"),
    Column[str]("MORE", lambda row: "x", wide=True),
]


def shown(rows: list[str], form: str | None = None, *, color: bool = False) -> str:
    @click.command()
    def command() -> None:
        printing.show(
            rows,
            COLUMNS,
            form,
            name=lambda row: f"row/{row}",
            tree=lambda row: {"kind": "Row", "name": row},
            nothing="no rows",
        )

    return CliRunner().invoke(command, color=color).output


def test_columns_line_up_and_nothing_trails() -> None:
    assert shown(["a", "longer"]) == "NAME     STATE\na        Failed\nlonger   Failed\n"


def test_wide_shows_more() -> None:
    assert shown(["a"], "wide").splitlines()[0].split() == ["NAME", "STATE", "MORE"]


def test_states_have_colours_unless_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31mFailed\x1b[0m" in shown(["a"], color=True)
    assert "\x1b" not in shown(["a"])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(["a"], color=True)


def test_a_hostile_name_stays_in_its_cell() -> None:
    assert shown(["a\x1b[2Jb\nc"]).splitlines()[1] == "a [2Jb c   Failed"


def test_programs_get_names_json_and_yaml() -> None:
    assert shown(["a", "b"], "name") == "row/a\nrow/b\n"
    assert '"name": "a"' in shown(["a"], "json")
    assert shown([], "yaml") == "apiVersion: v1\nkind: List\nmetadata: {}\nitems: []\n"


def test_nothing_is_said_to_people_only() -> None:
    assert shown([]) == "no rows\n"
    assert shown([], "name") == ""


def test_a_template_prints_what_it_finds_in_the_list() -> None:
    assert shown(["a", "b"], "jsonpath={.items[*].name}") == "a b"
    assert shown(["a", "b"], "jsonpath-as-json={.items[*].name}") == '[\n    "a",\n    "b"\n]\n'


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ("go-template={{.x}}", "templates of Go are not offered"),
        ("jsonpath", "needs a template"),
        ("jsonpath={.x", "a brace is not closed"),
        ("jsonpath-file=missing", "missing: No such file or directory"),
        ("xml", "'xml' is not one of json, name"),
    ],
)
def test_a_form_that_is_not_offered_is_one_sentence(
    form: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((UsageError, click.UsageError)) as refused:
        printing.Form("json", "name").convert(form, None, None)
    assert sentence in str(refused.value)
