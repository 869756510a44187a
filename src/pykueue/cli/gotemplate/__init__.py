"""Templates as Go's text/template has them: `{{range .items}}{{.metadata.name}}{{"\\n"}}{{end}}`.

reading.py     text -> nodes
nodes.py       what a template consists of
rendering.py   nodes and a tree -> text
functions.py   the functions that templates may call
verbs.py       values as Go prints them: %v, %-10s, %05d
quoting.py     Go's quoted texts, read and written

A tree is what JSON decodes to. Text stands for bytes, as Go has it: what is no UTF-8 is kept as Python keeps it
(`surrogateescape`), and lengths and slices count bytes.
"""

from __future__ import annotations

from typing import Any

from kubemachinery.errors import UsageError
from pykueue.cli.gotemplate import reading, rendering
from pykueue.cli.gotemplate.nodes import Wrong


class Template:
    """A template, ready to be filled in. What is wrong with it is a `UsageError` that says where."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._page = reading.read(text)
        except Wrong as wrong:
            raise self._refused(wrong.at, wrong.why) from None
        except RecursionError:
            raise self._refused(0, "nests too deeply") from None

    def fill(self, tree: Any, *, allow_missing: bool = True) -> str:
        """The text that the template makes of a tree."""
        try:
            return rendering.render(self._page, tree, allow_missing=allow_missing)
        except Wrong as wrong:
            raise self._refused(wrong.at, wrong.why) from None
        except RecursionError:
            raise self._refused(0, "calls itself without an end, or the tree nests too deeply") from None

    def _refused(self, at: int, why: str) -> UsageError:
        before = self._text[:at]
        line, column = before.count("\n") + 1, at - before.rfind("\n")
        return UsageError(f"go-template: line {line}, column {column}: {why}")
