"""Answers on a terminal and in a pipe: tables that people read, and forms that programs do.

On a terminal a table has a bold head and coloured words; in a pipe it is plain, and stays the same from call to call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click

T = TypeVar("T")

# Forms that take a template after an equals sign, and what is made of what its paths find.
_TEMPLATES: Final = ("jsonpath", "jsonpath-as-json", "jsonpath-file")
_GO_TEMPLATES: Final = ("go-template", "go-template-file", "template", "templatefile")


class Form(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """How to print: one of some words, or `jsonpath=TEMPLATE` as kubectl has it."""

    name = "form"

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join((*self.words, 'jsonpath=TEMPLATE'))}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        form, equals, template = str(value).partition("=")
        if form in _TEMPLATES:
            if not equals or not template:
                self.fail(f"{form} needs a template, such as {form}='{{.items[*].metadata.name}}'.", param, ctx)
            _filled(str(value), {})  # so that what is wrong with it is said before anything is done
        elif form in _GO_TEMPLATES:
            self.fail("templates of Go are not offered; jsonpath=TEMPLATE is, and json for other programs.", param, ctx)
        elif value not in self.words:
            self.fail(f"{value!r} is not one of {', '.join((*self.words, *_TEMPLATES))}.", param, ctx)
        return str(value)


output = click.option(
    "-o",
    "--output",
    type=Form("wide", "name", "json", "yaml"),
    default=None,
    help="How to print it; a table by default.",
)

_COLOURS: Final = {
    "Waiting": "yellow",
    "Starting": "cyan",
    "Running": "cyan",
    "Stopping": "magenta",
    "Succeeded": "green",
    "Failed": "red",
}


class Column(NamedTuple, Generic[T]):
    """One column; a wide one is shown with -o wide only."""

    title: str
    cell: Callable[[T], str]
    wide: bool = False


def show(
    rows: Sequence[T],
    columns: Sequence[Column[T]],
    form: str | None,
    *,
    name: Callable[[T], str],
    tree: Callable[[T], Mapping[str, Any]],
    nothing: str,
) -> None:
    """Print rows as they are wanted. `nothing` is said to people where there are none."""
    match form:
        case "name":
            for row in rows:
                click.echo(name(row))
        case str() if form != "wide":
            document(listed([tree(row) for row in rows]), form)
        case _ if not rows:
            click.echo(nothing, err=True)
        case _:
            chosen = [column for column in columns if form == "wide" or not column.wide]
            table([column.title for column in chosen], ([column.cell(row) for column in chosen] for row in rows))


def listed(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(items)}


def document(tree: Any, form: str) -> None:
    """One document, for programs."""
    if form == "json":
        click.echo(json.dumps(tree, indent=2, ensure_ascii=False))
    elif form == "yaml":
        import yaml

        click.echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(_filled(form, tree), nl=False)


def _filled(form: str, tree: Any) -> str:
    from pykueue import documents
    from pykueue.cli.jsonpath import Template

    sort, _, text = form.partition("=")
    template = Template(documents.text(Path(text)) if sort == "jsonpath-file" else text)
    if sort == "jsonpath-as-json":
        return json.dumps(template.values(tree), indent=4, ensure_ascii=False) + "\n"
    return template.fill(tree)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Cells in columns, three spaces apart, as kubectl has them."""
    cells = [list(head), *([_clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for number, row in enumerate(cells):
        parts = [
            (click.style(cell, bold=True) if number == 0 else _coloured(cell)) + " " * (width - len(cell))
            for cell, width in zip(row, widths, strict=True)
        ]
        click.echo("   ".join(parts).rstrip(), color=False if "NO_COLOR" in os.environ else None)


def _coloured(cell: str) -> str:
    return click.style(cell, fg=_COLOURS[cell]) if cell in _COLOURS else cell


def _clean(text: str) -> str:
    """A cell is one line, and cannot speak to the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
