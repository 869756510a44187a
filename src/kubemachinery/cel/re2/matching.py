"""Running a program: as a lazy automaton to search, as threads in order of preference to find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kubemachinery.cel.re2.errors import TooCostly
from kubemachinery.cel.re2.program import Consume, Split, When, assemble
from kubemachinery.cel.re2.syntax import Boundary, Sequence, parse

STEPS_MAX: Final = 1_000_000
_MOVES_MAX: Final = 20_000
_ANSWERS_MAX: Final = 512


def _is_word(char: str | None) -> bool:
    return char is not None and char.isascii() and (char.isalnum() or char == "_")


def _holds(kind: str, before: str | None, after: str | None) -> bool:
    match kind:
        case "A":
            return before is None
        case "z":
            return after is None
        case "^":
            return before is None or before == "\n"
        case "$":
            return after is None or after == "\n"
        case "b":
            return _is_word(before) is not _is_word(after)
        case _:
            return _is_word(before) is _is_word(after)


def _context(char: str) -> str:
    """The class of the previous character that later assertions depend on; few classes keep the automaton small."""
    return "\n" if char == "\n" else "w" if _is_word(char) else " "


@dataclass(eq=False)
class _State:
    kernel: frozenset[int]
    before: str | None
    moves: dict[str | None, _State | bool] = field(default_factory=dict)


class Pattern:
    """A compiled pattern. Searching is linear in the text; what was learnt about the pattern is kept within bounds."""

    def __init__(self, text: str) -> None:
        self.text = text
        shape = parse(text)
        self._program, self._start = assemble(shape)
        opening = shape.parts[0] if isinstance(shape, Sequence) and shape.parts else shape
        self._anchored = opening == Boundary("A")
        self._answers: dict[str, bool] = {}
        self._forget()

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[int], str | None], _State] = {}
        self._moves = 0
        self._initial = self._state(frozenset((self._start,)), None)

    def _state(self, kernel: frozenset[int], before: str | None) -> _State:
        key = (kernel, before)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(kernel, before)
        return state

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        answer = self._answers.get(text)
        if answer is None:
            answer = self._search(text)
            if len(text) <= 256:
                if len(self._answers) >= _ANSWERS_MAX:
                    self._answers.clear()
                self._answers[text] = answer
        return answer

    def _search(self, text: str) -> bool:
        if self._moves > _MOVES_MAX:
            self._forget()
        self._steps = 0
        state = self._initial
        for char in text:
            move = state.moves.get(char)
            if move is None:
                move = self._move(state, char)
            if move is True or move is False:
                return move
            state = move
        last = state.moves.get(None)
        return (self._move(state, None) if last is None else last) is True

    def _move(self, state: _State, char: str | None) -> _State | bool:
        """The transition for a character (or the end, None): a state, or a result that further text cannot change."""
        kernel: set[int] = set() if self._anchored else {self._start}
        move: _State | bool | None = None
        for at in self._closure(state.kernel, state.before, char):
            instruction = self._program[at]
            if instruction is None:
                move = True
                break
            if isinstance(instruction, Consume) and char is not None and char in instruction.chars:
                kernel.add(instruction.then)
        if move is None:
            move = self._state(frozenset(kernel), _context(char)) if kernel and char is not None else False
        self._moves += 1
        if self._moves <= 2 * _MOVES_MAX:
            state.moves[char] = move
        return move

    def _closure(self, kernel: frozenset[int], before: str | None, after: str | None) -> Iterator[int]:
        seen: set[int] = set()
        for entry in kernel:
            yield from self._reached(entry, seen, before, after)

    def _reached(self, entry: int, seen: set[int], before: str | None, after: str | None) -> Iterator[int]:
        """The instructions that consume a character, or accept, reachable without input: the preferred ones first."""
        waiting = [entry]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            self._count()
            instruction = self._program[at]
            if isinstance(instruction, Split):
                waiting += (instruction.second, instruction.first)
            elif isinstance(instruction, When):
                if _holds(instruction.kind, before, after):
                    waiting.append(instruction.then)
            else:
                yield at

    def _count(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise TooCostly(f"matching {self.text!r} takes too many steps")

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the leftmost match at or after `start` begins and ends; alternatives are preferred in their order."""
        self._steps = 0
        return self._find(text, start)

    def find_all(self, text: str, limit: int = -1) -> Iterator[tuple[int, int]]:
        """Matches from left to right that do not overlap; an empty one right behind another does not count."""
        self._steps = 0
        at, last_end, found = 0, -1, 0
        while at <= len(text) and (limit < 0 or found < limit):
            span = self._find(text, at)
            if span is None:
                return
            begin, end = span
            if end > begin or begin != last_end:
                yield span
                found += 1
            last_end = end
            at = end if end > begin else end + 1

    def _find(self, text: str, start: int) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []  # instruction and where the match began, best first
        for at in range(start, len(text) + 1):
            before = text[at - 1] if at else None
            after = text[at] if at < len(text) else None
            if best is None:
                threads.append((self._start, at))
            elif not threads:
                break
            following: list[tuple[int, int]] = []
            for reached, begin in self._threads(threads, before, after):
                instruction = self._program[reached]
                if instruction is None:
                    best = (begin, at)
                    break  # all later threads are less preferred
                if isinstance(instruction, Consume) and after is not None and after in instruction.chars:
                    following.append((instruction.then, begin))
            threads = following
        return best

    def _threads(
        self, threads: list[tuple[int, int]], before: str | None, after: str | None
    ) -> Iterator[tuple[int, int]]:
        seen: set[int] = set()
        for entry, begin in threads:
            for reached in self._reached(entry, seen, before, after):
                yield reached, begin
