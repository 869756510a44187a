"""What a template consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias


class Wrong(Exception):
    """What is wrong, and at which character of the template."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why


# --- Values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dot:
    """`.`: what the template looks at."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text, `true`, `false` or `nil`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """One that is called: with what follows it in its command, or as an argument with nothing."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Fields:
    """`.a.b`, `$x.a` or `(…).a`: from something down into it."""

    of: Operand
    names: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Command:
    """A value, or a function and its arguments."""

    words: tuple[Operand, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each of which gets the value of the one before as its last argument."""

    commands: tuple[Command, ...]
    # The variables that it sets, and whether they are new.
    sets: tuple[str, ...] = ()
    declares: bool = False


Operand: TypeAlias = Dot | Literal | Variable | Function | Fields | Pipeline


# --- The page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Show:
    """A pipeline; what it gives is printed, unless it sets a variable."""

    pipeline: Pipeline


class Choice(Enum):
    IF = "if"
    WITH = "with"
    RANGE = "range"


@dataclass(frozen=True, slots=True)
class Block:
    """`if`, `with` or `range`, and what comes where there is nothing."""

    choice: Choice
    pipeline: Pipeline
    body: Nodes
    otherwise: Nodes
    at: int


class Leap(Enum):
    """Out of a range, or to its next round."""

    BREAK = "break"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Include:
    """`template`: another page at this place, which looks at what the pipeline gives."""

    name: str
    pipeline: Pipeline | None
    at: int


Node: TypeAlias = Text | Show | Block | Leap | Include
Nodes: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Page:
    nodes: Nodes
    # By name: what `define` and `block` define.
    defined: Mapping[str, Nodes]
