"""Answers on a terminal and in a pipe: tables that people read, and forms that programs do.

On a terminal a table has a bold head and coloured words; in a pipe it is plain, and stays the same from call to call.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import click

from kubemachinery.errors import UsageError
from pykueue.cli import flags

T = TypeVar("T")
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])
# Makes text of a tree.
Fill: TypeAlias = Callable[[Any], str]
# (a template, or the name of its file; whether keys may be missing) -> what fills it in.
Read: TypeAlias = Callable[[str, bool], Fill]


# --- How to print -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How something is to be printed: by a word (none is a table for people), or as a template fills it in."""

    word: str = ""
    fill: Fill | None = None
    shows_managed_fields: bool = False

    @property
    def is_document(self) -> bool:
        return self.fill is not None or self.word in ("json", "yaml", "kyaml")

    def document(self, tree: Mapping[str, Any]) -> None:
        """Print an object, or a list of them. Who manages its fields is for those who ask, or whose template does."""
        if self.fill is not None:
            click.echo(self.fill(tree).encode("utf-8", "surrogateescape"), nl=False)
        else:
            document(tree if self.shows_managed_fields else _without_managed_fields(tree), self.word)


def prints(*words: str) -> Callable[[CommandFunction], CommandFunction]:
    """Options that say how to print: the words, or a template, as kubectl has it; the command takes them as one
    `form`."""

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
            word, fill = _read(output, template, words, allow_missing=allow_missing_template_keys)
            return command(*args, form=OutputFormat(word, fill, show_managed_fields), **kwargs)

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
            metavar=f"[{'|'.join((*words, 'jsonpath=TEMPLATE', 'go-template=TEMPLATE'))}]",
            help="How to print it; also jsonpath-as-json, and jsonpath-file and go-template-file with a file's name.",
        ),
        click.option("--template", default="", help="The template, or the file's name, where -o does not say it."),
        click.option(
            "--allow-missing-template-keys",
            cls=flags.LooseOption,
            alone="true",
            type=click.BOOL,
            default=True,
            show_default=True,
            help="Whether a template may name what is not there.",
        ),
        click.option(
            "--show-managed-fields",
            cls=flags.LooseOption,
            alone="true",
            type=click.BOOL,
            default=False,
            help="Print metadata.managedFields, too, in JSON and YAML.",
        ),
    )


def _read(output: str, template: str, words: Sequence[str], *, allow_missing: bool) -> tuple[str, Fill | None]:
    """The word, or what makes text of a tree. What is wrong with a template is said before anything is done."""
    sort, equals, text = output.partition("=")
    if not output and template:
        sort = "go-template"
    if sort not in _TEMPLATES:
        if output and output not in words:
            raise UsageError(f"-o {output}: must be one of {', '.join((*words, *_TEMPLATES))}")
        return output, None
    if equals and template:
        raise UsageError(f"-o {sort}= and --template: one template is enough")
    if not (text or template):
        raise UsageError(f"-o {sort}: needs a template, such as {sort}={_EXAMPLES[sort]}")
    return sort, _TEMPLATES[sort](text or template, allow_missing)


def _jsonpath(template: str, allow_missing: bool, *, as_json: bool = False) -> Fill:
    from pykueue.cli.jsonpath import Template

    read = Template(template)
    return functools.partial(read.fill_as_json if as_json else read.fill, allow_missing=allow_missing)


def _go_template(template: str, allow_missing: bool) -> Fill:
    from pykueue.cli.gotemplate import Template

    return functools.partial(Template(template).fill, allow_missing=allow_missing)


def _from_file(read: Read) -> Read:
    def read_file(name: str, allow_missing: bool) -> Fill:
        from kubemachinery import yaml_documents

        return read(yaml_documents.text(Path(name)), allow_missing)

    return read_file


# The forms that take a template; kubectl has two names for Go's.
_TEMPLATES: Final[Mapping[str, Read]] = {
    "jsonpath": _jsonpath,
    "jsonpath-as-json": functools.partial(_jsonpath, as_json=True),
    "jsonpath-file": _from_file(_jsonpath),
    "go-template": _go_template,
    "go-template-file": _from_file(_go_template),
    "template": _go_template,
    "templatefile": _from_file(_go_template),
}
_EXAMPLES: Final = {
    **dict.fromkeys(("jsonpath", "jsonpath-as-json"), "'{.items[*].metadata.name}'"),
    **dict.fromkeys(("go-template", "template"), "'{{.metadata.name}}'"),
    **dict.fromkeys(("jsonpath-file", "go-template-file", "templatefile"), "FILE"),
}


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
    """One column; a wide one is shown with -o wide only."""

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
    """Print rows as they are wanted. `nothing` is said to people where there are none."""
    if form.word == "name":
        for row in rows:
            click.echo(name(row))
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
    """One document, for programs."""
    if word == "json":
        click.echo(json.dumps(tree, indent=2, ensure_ascii=False))
    elif word == "kyaml":
        from pykueue.cli import kyaml

        click.echo(kyaml.written(tree), nl=False)
    else:
        from kubemachinery import kubectl_yaml

        click.echo(kubectl_yaml.dump(tree), nl=False)


def _without_managed_fields(tree: Mapping[str, Any]) -> dict[str, Any]:
    """An object without them, or a list of objects."""
    metadata = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    items = {"items": [_without_managed_fields(item) for item in tree["items"]]} if "items" in tree else {}
    return {**tree, "metadata": metadata, **items}


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
