"""Answers on a terminal and in a pipe: tables that people read, and forms that programs do.

On a terminal a table has a bold head and coloured words; in a pipe it is plain, and stays the same from call to call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click

T = TypeVar("T")

FORMS: Final = ("wide", "name", "json", "yaml")

output = click.option(
    "-o", "--output", type=click.Choice(FORMS), default=None, help="How to print it; a table by default."
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
        case "json" | "yaml":
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
    else:
        import yaml

        click.echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Cells in columns, three spaces apart, as kubectl has them."""
    cells = [list(head), *([_clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for number, row in enumerate(cells):
        parts = [
            click.style(cell, bold=True if number == 0 else None, fg=_COLOURS.get(cell)) + " " * (width - len(cell))
            for cell, width in zip(row, widths, strict=True)
        ]
        click.echo("   ".join(parts).rstrip(), color=False if "NO_COLOR" in os.environ else None)


def _clean(text: str) -> str:
    """A cell is one line, and cannot speak to the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
