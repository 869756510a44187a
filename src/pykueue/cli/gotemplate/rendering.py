"""Nodes and a tree -> text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pykueue.cli.gotemplate import nodes, verbs
from pykueue.cli.gotemplate.functions import FUNCTIONS
from pykueue.cli.gotemplate.nodes import Choice, Leap, Nodes, Operand, Page, Pipeline, Wrong


class _Missing:
    """What a key gives that is not there. Other than `None`, which is there, it has fields: all of them missing."""

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()


def render(page: Page, tree: Any, *, allow_missing: bool) -> str:
    written: list[str] = []
    _Run(page, allow_missing, written, [("$", tree)]).walk(page.nodes, tree)
    return "".join(written)


@dataclass(frozen=True, slots=True)
class _Run:
    """A page that is being filled in."""

    page: Page
    allow_missing: bool
    written: list[str]
    # The newest last; a block forgets its own when it ends.
    variables: list[tuple[str, Any]] = field(default_factory=list)

    def walk(self, found: Nodes, dot: Any) -> Leap | None:
        """Writes nodes; the answer is how a range goes on, where that was said."""
        for node in found:
            match node:
                case nodes.Text(text):
                    self.written.append(text)
                case nodes.Show(pipeline):
                    value = self._value(pipeline, dot)
                    if not pipeline.sets:
                        self.written.append("<no value>" if value is MISSING else verbs.plain(value))
                case nodes.Include():
                    self._include(node, dot)
                case nodes.Block():
                    known = len(self.variables)
                    leap = self._range(node, dot) if node.choice is Choice.RANGE else self._choose(node, dot)
                    del self.variables[known:]
                    if leap is not None:
                        return leap
                case Leap():
                    return node
        return None

    # --- Blocks -------------------------------------------------------------------------------------------------------

    def _choose(self, block: nodes.Block, dot: Any) -> Leap | None:
        value = self._value(block.pipeline, dot)
        if not value:
            return self.walk(block.otherwise, dot)
        return self.walk(block.body, value if block.choice is Choice.WITH else dot)

    def _range(self, block: nodes.Block, dot: Any) -> Leap | None:
        value, sets = self._value(block.pipeline, dot), block.pipeline.sets
        known, is_empty = len(self.variables), True
        for key, each in _pairs(value, block, len(sets)):
            is_empty = False
            given = (each,) if len(sets) == 1 else (key, each)
            for name, new in zip(sets, given, strict=False):
                self._set(name, new, declares=False)
            leap = self.walk(block.body, each)
            del self.variables[known:]
            if leap is Leap.BREAK:
                break
        return self.walk(block.otherwise, dot) if is_empty else None

    def _include(self, include: nodes.Include, dot: Any) -> None:
        body = self.page.defined.get(include.name)
        if body is None:
            raise Wrong(include.at, f"there is no template {include.name}")
        value = MISSING if include.pipeline is None else self._value(include.pipeline, dot)
        _Run(self.page, self.allow_missing, self.written, [("$", value)]).walk(body, value)

    # --- Values -------------------------------------------------------------------------------------------------------

    def _value(self, pipeline: Pipeline, dot: Any) -> Any:
        value = self._command(pipeline.commands[0], dot)
        for command in pipeline.commands[1:]:
            value = self._command(command, dot, value)
        for name in pipeline.sets:
            self._set(name, value, declares=pipeline.declares)
        return value

    def _command(self, command: nodes.Command, dot: Any, *last: Any) -> Any:
        """What a command gives; nothing that is there counts as missing from here on."""
        first, *rest = command.words
        if isinstance(first, nodes.Function):
            value = self._call(first, rest, dot, last)
        elif rest or last:
            raise Wrong(command.at, "only a function takes arguments")
        elif isinstance(first, nodes.Literal) and first.value is None:
            raise Wrong(command.at, "nil is no command")
        else:
            value = self._operand(first, dot)
        return MISSING if value is None else value

    def _operand(self, operand: Operand, dot: Any) -> Any:
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Literal(value):
                return value
            case nodes.Variable(name):
                return self._get(name)
            case nodes.Function():
                return self._call(operand, [], dot, ())
            case nodes.Pipeline():
                return self._value(operand, dot)
            case nodes.Fields():
                value = self._operand(operand.of, dot)
                for name in operand.names:
                    value = self._field(value, name, operand.at)
                return value

    def _field(self, value: Any, name: str, at: int) -> Any:
        if isinstance(value, dict) and name in value:
            return value[name]
        if isinstance(value, dict) or value is MISSING:
            if not self.allow_missing:
                raise Wrong(at, f"there is no key {name}")
            return MISSING
        raise Wrong(at, f"{verbs.type_name(value)} has no field {name}")

    def _call(self, word: nodes.Function, arguments: list[Operand], dot: Any, last: tuple[Any, ...]) -> Any:
        function, given = FUNCTIONS[word.name], len(arguments) + len(last)
        if given < function.least or (function.most is not None and given > function.most):
            wanted = f"{'' if function.most == function.least else 'at least '}{function.least}"
            raise Wrong(word.at, f"{word.name} takes {wanted}, and is given {given}")
        worked_out = itertools.chain((self._operand(argument, dot) for argument in arguments), last)
        values = (None if value is MISSING else value for value in worked_out)
        handed = [values] if function.is_lazy else list(values)
        if function.first_is_text and not isinstance(handed[0], str):
            raise Wrong(word.at, f"{word.name} takes a text first, and not {verbs.type_name(handed[0])}")
        try:
            return function.call(*handed)
        except ValueError as error:
            raise Wrong(word.at, f"{word.name}: {error}") from None

    # --- Variables ----------------------------------------------------------------------------------------------------

    def _get(self, name: str) -> Any:
        return self.variables[self._newest(name)][1]

    def _set(self, name: str, value: Any, *, declares: bool) -> None:
        if declares:
            self.variables.append((name, value))
        else:
            self.variables[self._newest(name)] = (name, value)

    def _newest(self, name: str) -> int:
        return next(place for place in reversed(range(len(self.variables))) if self.variables[place][0] == name)


def _pairs(value: Any, block: nodes.Block, variables: int) -> Iterable[tuple[Any, Any]]:
    """Keys and what they lead to, maps in the order of their keys; so many numbers, from 0."""
    match value:
        case list():
            return enumerate(value)
        case dict():
            return sorted(value.items())
        case _Missing():
            return ()
        case int() if not isinstance(value, bool) and variables < 2:
            return ((number, number) for number in range(value))
    raise Wrong(block.at, f"there is no range over {verbs.type_name(value)}")
