"""Output of commands: tables for people, documents for programs.

On a terminal a table has a bold head and coloured states; in a pipe it is plain.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import click
import msgspec

from kubemachinery.errors import UsageError
from pykueue.cli import flags, kubectl_process, progress
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.cli.kubectl_process import KubectlPrinter

T = TypeVar("T")
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


# --- Formats ----------------------------------------------------------------------------------------------------------


class OutputFormat(msgspec.Struct, frozen=True):
    """How objects are printed: as a table, as names, as JSON or YAML, or by kubectl."""

    word: str = ""  # of -o; empty: a table
    kubectl: KubectlPrinter | None = None
    shows_managed_fields: bool = False

    @property
    def is_document(self) -> bool:
        return self.kubectl is not None or self.word in ("json", "yaml")

    def document(self, tree: Mapping[str, Any]) -> None:
        """Print one object, or a List. Without --show-managed-fields, managedFields are left out."""
        if self.kubectl is None:
            document(tree if self.shows_managed_fields else _without_managed_fields(tree), self.word)
        elif "items" in tree:
            self.kubectl.print_list(tree["items"])
        else:
            self.kubectl.print_object(tree)


def prints(*words: str) -> Callable[[CommandFunction], CommandFunction]:
    """Add the output options; the command receives them as one `form`. `words` are the formats printed here."""

    def decorate(command: CommandFunction) -> CommandFunction:
        @functools.wraps(command)
        def parsed(
            *args: Any,
            output: str,
            template: str,
            allow_missing_template_keys: bool,
            show_managed_fields: bool,
            **kwargs: Any,
        ) -> Any:
            word = output.partition("=")[0] or ("go-template" if template else "")
            printer = None
            if word in kubectl_process.FORMATS:
                printer = kubectl_process.printer(
                    output or word,
                    template,
                    allow_missing_keys=allow_missing_template_keys,
                    show_managed_fields=show_managed_fields,
                    connection=ConnectionFlags.of(click.get_current_context().params).kubectl_arguments(),
                )
            elif output and output not in words:
                raise UsageError(f"-o {output}: must be one of {', '.join((*words, *kubectl_process.FORMATS))}")
            return command(*args, form=OutputFormat(word, printer, show_managed_fields), **kwargs)

        for option in reversed(_options(words)):
            parsed = option(parsed)
        return cast("CommandFunction", parsed)

    return decorate


def _options(words: Sequence[str]) -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "-o",
            "--output",
            default="",
            metavar=f"[{'|'.join((*words, 'jsonpath=TEMPLATE', 'go-template=TEMPLATE', 'kyaml'))}]",
            help="The output format. kubectl prints jsonpath, jsonpath-as-json, jsonpath-file, go-template, "
            "go-template-file and kyaml, and must be on the PATH for these.",
        ),
        click.option("--template", default="", help="The template or its file, when -o does not contain it."),
        click.option(
            "--allow-missing-template-keys",
            cls=flags.LooseOption,
            alone="true",
            type=click.BOOL,
            default=True,
            show_default=True,
            help="Print nothing for fields that a template names and the object does not have.",
        ),
        click.option(
            "--show-managed-fields",
            cls=flags.LooseOption,
            alone="true",
            type=click.BOOL,
            default=False,
            help="Keep metadata.managedFields in JSON and YAML.",
        ),
    )


# --- Printing ---------------------------------------------------------------------------------------------------------


_COLOURS: Final = {
    "Unqueued": "red",
    "Waiting": "yellow",
    "Starting": "cyan",
    "Running": "cyan",
    "Stopping": "magenta",
    "Succeeded": "green",
    "Failed": "red",
}


class TableColumn(NamedTuple, Generic[T]):
    """A column of a table; a wide one is shown with -o wide only."""

    title: str
    cell: Callable[[T], str]
    wide: bool = False


def show(
    rows: Sequence[T],
    columns: Sequence[TableColumn[T]],
    form: OutputFormat,
    *,
    name: Callable[[T], str],
    tree: Callable[[T], Mapping[str, Any]],
    nothing: str,
) -> None:
    """Print rows in a format. Without rows, a table is replaced by `nothing` on stderr."""
    if form.word == "name":
        for row in rows:
            write_exactly(f"{name(row)}\n")
    elif form.is_document:
        form.document(listed([tree(row) for row in rows]))
    elif not rows:
        click.echo(nothing, err=True)
    else:
        chosen = [column for column in columns if form.word == "wide" or not column.wide]
        table([column.title for column in chosen], ([column.cell(row) for column in chosen] for row in rows))


def listed(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(items)}


def document(tree: Any, word: str) -> None:
    """Print one JSON or YAML document."""
    if word == "json":
        write_exactly(f"{json.dumps(tree, indent=2, ensure_ascii=False)}\n")
    else:
        from kubemachinery import kubectl_yaml

        write_exactly(kubectl_yaml.dump(tree))


def write_exactly(text: str) -> None:
    """Write a machine format as it is. Otherwise escape sequences in names would be removed where no terminal is."""
    click.echo(text, nl=False, color=True)


def _without_managed_fields(tree: Mapping[str, Any]) -> dict[str, Any]:
    """An object, or a List of objects, without metadata.managedFields."""
    metadata = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    items = {"items": [_without_managed_fields(item) for item in tree["items"]]} if "items" in tree else {}
    return {**tree, "metadata": metadata, **items}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print cells in columns, three spaces apart, like kubectl."""
    for line in _lines(head, rows):
        click.echo(line, color=False if "NO_COLOR" in os.environ else None)


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same table as text, without colours: for a file."""
    return "".join(f"{click.unstyle(line)}\n" for line in _lines(head, rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    cells = [list(head), *([progress.cleaned(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for number, row in enumerate(cells):
        parts = [
            (click.style(cell, bold=True) if number == 0 else _coloured(cell)) + " " * (width - len(cell))
            for cell, width in zip(row, widths, strict=True)
        ]
        yield "   ".join(parts).rstrip()


def _coloured(cell: str) -> str:
    return click.style(cell, fg=_COLOURS[cell]) if cell in _COLOURS else cell
