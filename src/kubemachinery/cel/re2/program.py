"""A pattern as a program of four instructions: consume a character, go on if, go both ways, matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from kubemachinery.cel.re2.chars import Chars
from kubemachinery.cel.re2.errors import PatternError
from kubemachinery.cel.re2.syntax import Boundary, Choice, OneOf, Repeat, Sequence, Shape

PROGRAM_MAX: Final = 5_000


class Consume(msgspec.Struct, frozen=True):
    chars: Chars
    then: int


class When(msgspec.Struct, frozen=True):
    kind: str
    then: int


@dataclass
class Split:
    """A fork, with `first` preferred; its targets are set later where a loop leads back to it."""

    first: int = -1
    second: int = -1


Instruction = Consume | When | Split | None  # None: matched


def assemble(shape: Shape) -> tuple[list[Instruction], int]:
    """Builds the program from its end, so that each instruction is created with its successor."""
    program: list[Instruction] = [None]
    visits = 0

    def add(instruction: Instruction) -> int:
        if len(program) >= PROGRAM_MAX:
            raise PatternError("the pattern is too large")
        program.append(instruction)
        return len(program) - 1

    def loop(body: Shape, greedy: bool, then: int) -> int:
        split = Split()
        at = add(split)
        again = emit(body, at)
        split.first, split.second = (again, then) if greedy else (then, again)
        return at

    def emit(shape: Shape, then: int) -> int:
        nonlocal visits
        visits += 1
        if visits > 10 * PROGRAM_MAX:  # `((){1000}){1000}` adds no instruction, but takes time
            raise PatternError("the pattern is too large")
        match shape:
            case OneOf(chars):
                return add(Consume(chars, then))
            case Boundary(kind):
                return add(When(kind, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = emit(part, then)
                return then
            case Choice(options):
                entry = emit(options[-1], then)
                for option in reversed(options[:-1]):
                    entry = add(Split(emit(option, then), entry))
                return entry
            case Repeat(body, least, most, greedy):
                entry = loop(body, greedy, then) if most is None else then
                for _ in range((most or 0) - least):
                    inner = emit(body, entry)
                    entry = add(Split(inner, then) if greedy else Split(then, inner))
                for _ in range(least):
                    entry = emit(body, entry)
                return entry

    start = emit(shape, 0)
    return program, start
