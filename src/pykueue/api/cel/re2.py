"""Regular expressions in the RE2 syntax of Kubernetes, matched in time linear in the text.

Patterns come from strangers: a CRD's `pattern`, a rule's `matches()`. Python's `re` backtracks, so `(a+)+$` on forty
letters would stop the server; it also reads a few things differently (`$` before a final newline, `\\d` beyond ASCII).
So this is a small engine of its own: parse, compile to a program of four instructions, then

- `search` walks a deterministic automaton that is built lazily and remembered, one dictionary look-up per character;
- `find` runs the threads of the program side by side in order of preference (leftmost, then first alternative).

What RE2 refuses (back-references, look-around) is refused here, with the place. A pattern whose program would be too
large is refused, and a search that would take too many steps raises `TooCostly` instead of going on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

REPEAT_MAX: Final = 1000
PROGRAM_MAX: Final = 5_000
DEPTH_MAX: Final = 200
STEPS_MAX: Final = 1_000_000
_MOVES_MAX: Final = 20_000
_ANSWERS_MAX: Final = 512
_LAST_CODE_POINT: Final = 0x10FFFF


class PatternError(ValueError):
    """The text is not a regular expression that RE2 accepts; the message says what is wrong and where."""


class TooCostly(Exception):
    """The search took more steps than any honest pattern needs."""


# --- Sets of characters -------------------------------------------------------------------------------------------

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chars:
    """A set of characters: ranges of code points, Unicode categories, and smaller sets; perhaps all but those."""

    ranges: Ranges = ()
    categories: tuple[str, ...] = ()
    parts: tuple[Chars, ...] = ()
    negated: bool = False
    fold: bool = False

    def __contains__(self, char: str) -> bool:
        hit = self._has(char) or (self.fold and (self._has(char.lower()) or self._has(char.upper())))
        return hit is not self.negated

    def _has(self, char: str) -> bool:
        if len(char) != 1:  # 'ß'.upper() is two letters
            return False
        code = ord(char)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if self.categories and unicodedata.category(char).startswith(self.categories):
            return True
        return any(char in part for part in self.parts)


def _span(text: str) -> Ranges:
    return tuple((ord(text[i]), ord(text[i + 1])) for i in range(0, len(text), 2))


_DIGIT: Final = _span("09")
_SPACE: Final = _span("\t\n\f\r  ")
_WORD: Final = _span("09AZ__az")
_ANY: Final = Chars(((0, _LAST_CODE_POINT),))
_ANY_BUT_NEWLINE: Final = Chars(_span("\n\n"), negated=True)

_PERL_CLASSES: Final = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX_CLASSES: Final = {
    "alnum": _span("09AZaz"),
    "alpha": _span("AZaz"),
    "ascii": ((0, 0x7F),),
    "blank": _span("\t\t  "),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": _span("!~"),
    "lower": _span("az"),
    "print": _span(" ~"),
    "punct": _span("!/:@[`{~"),
    "space": _span("\t\r  "),
    "upper": _span("AZ"),
    "word": _WORD,
    "xdigit": _span("09AFaf"),
}
# The scripts that patterns in the wild name; the general categories come from `unicodedata`.
_SCRIPTS: Final[dict[str, Ranges]] = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2B8)),
    "Greek": ((0x370, 0x373), (0x375, 0x377), (0x37A, 0x37D), (0x37F, 0x3E1), (0x3F0, 0x3FF), (0x1F00, 0x1FFE)),
    "Cyrillic": ((0x400, 0x484), (0x487, 0x52F), (0x1C80, 0x1C88), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "Han": ((0x2E80, 0x2FD5), (0x3005, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF)),
}
# Each general category of Unicode: a letter for the family, perhaps one for the member.
_CATEGORY_FAMILIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES: Final = frozenset(
    family + member for family, members in _CATEGORY_FAMILIES.items() for member in ("", *members)
)
_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


# --- The shape of a pattern ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Char:
    chars: Chars


@dataclass(frozen=True)
class _Assert:
    """One of `A` (start of text), `z` (end of text), `^` and `$` (of a line), `b` and `B` (word boundary or not)."""

    kind: str


@dataclass(frozen=True)
class _Sequence:
    parts: tuple[_Shape, ...]


@dataclass(frozen=True)
class _Choice:
    options: tuple[_Shape, ...]


@dataclass(frozen=True)
class _Repeat:
    body: _Shape
    least: int
    most: int | None
    greedy: bool


_Shape = _Char | _Assert | _Sequence | _Choice | _Repeat
_NOTHING: Final = _Sequence(())


@dataclass(frozen=True)
class _Flags:
    fold: bool = False
    multiline: bool = False
    dot_all: bool = False
    ungreedy: bool = False


_FLAG_NAMES: Final = {"i": "fold", "m": "multiline", "s": "dot_all", "U": "ungreedy"}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags = _Flags()
        self.depth = 0

    def parse(self) -> _Shape:
        shape = self._choice()
        if self.at < len(self.text):
            raise self._error("unexpected )")
        return shape

    def _error(self, reason: str) -> PatternError:
        return PatternError(f"{reason} at position {self.at}")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, expected: str) -> bool:
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def _next(self, reason: str) -> str:
        char = self._peek()
        if not char:
            raise self._error(reason)
        self.at += 1
        return char

    def _choice(self) -> _Shape:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._error("groups are nested too deeply")
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Shape:
        parts: list[_Shape] = []
        while (char := self._peek()) and char not in "|)":
            if self._take("\\Q"):
                end = self.text.find("\\E", self.at)
                quoted = self.text[self.at : end if end >= 0 else len(self.text)]
                self.at += len(quoted) + (2 if end >= 0 else 0)
                parts += [self._literal(char) for char in quoted]
                if parts and quoted:
                    parts.append(self._repeats(parts.pop()))
                continue
            parts.append(self._repeats(self._atom()))
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _repeats(self, shape: _Shape) -> _Shape:
        repeated = False
        while True:
            bounds = self._bounds()
            if bounds is None:
                return shape
            if repeated:
                raise self._error("a repetition follows a repetition")
            repeated = True
            least, most = bounds
            lazy = self._take("?")
            shape = _Repeat(shape, least, most, greedy=lazy is self.flags.ungreedy)

    def _bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        if self._peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : end].partition(",") if end >= 0 else ("", "", "")
        if not _is_count(low) or (high and not _is_count(high)):
            return None  # RE2 reads such a brace as itself
        self.at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX:
            raise self._error(f"a repetition is bounded by {REPEAT_MAX}")
        if most is not None and most < least:
            raise self._error("a repetition ends before it starts")
        return least, most

    def _literal(self, char: str) -> _Char:
        code = ord(char)
        return _Char(Chars(((code, code),), fold=self.flags.fold))

    def _atom(self) -> _Shape:
        char = self._next("nothing to match")
        match char:
            case "(":
                return self._group()
            case "[":
                return _Char(self._class())
            case ".":
                return _Char(_ANY if self.flags.dot_all else _ANY_BUT_NEWLINE)
            case "^":
                return _Assert("^" if self.flags.multiline else "A")
            case "$":
                return _Assert("$" if self.flags.multiline else "z")
            case "*" | "+" | "?":
                raise self._error(f"nothing to repeat before {char}")
            case "\\":
                return self._escape()
            case _:
                return self._literal(char)

    def _group(self) -> _Shape:
        outer = self.flags
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                if self._peek() in "=!":
                    raise self._error("look-behind is not part of RE2")
                name = self.text[self.at : self.text.find(">", self.at)]
                if not name.isidentifier() or not name.isascii():
                    raise self._error("a group has no proper name")
                self.at += len(name) + 1
            elif self._flags_only():
                return _NOTHING
        shape = self._choice()
        if not self._take(")"):
            raise self._error("missing )")
        self.flags = outer
        return shape

    def _flags_only(self) -> bool:
        """Reads `i-s)` or `i-s:`; True where the group ends with its flags, which then hold to the end of the outer
        one.
        """
        value = True
        while (char := self._next("missing )")) not in ":)":
            if char == "-":
                value = False
            elif char in _FLAG_NAMES:
                self.flags = _Flags(**{**self.flags.__dict__, _FLAG_NAMES[char]: value})
            elif char in "=!":
                raise self._error("look-ahead is not part of RE2")
            else:
                raise self._error(f"unknown flag {char}")
        return char == ")"

    def _escape(self) -> _Shape:
        char = self._next("a lone backslash")
        if char in "AzbB":
            return _Assert(char)
        if char == "C":
            return _Char(_ANY)
        named = self._named_class(char)
        if named is not None:
            return _Char(named)
        return self._literal(self._escaped_char(char))

    def _named_class(self, char: str) -> Chars | None:
        """`\\d`, `\\W`, `\\pL`, `\\P{Greek}`; None where the escape stands for one character."""
        if char.lower() in _PERL_CLASSES:
            return Chars(_PERL_CLASSES[char.lower()], negated=char.isupper())
        if char not in "pP":
            return None
        negated = char == "P"
        name = self._next("a Unicode class has no name")
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise self._error("missing }")
            name = self.text[self.at : end]
            self.at = end + 1
            if name.startswith("^"):
                name, negated = name[1:], not negated
        if name == "Any":
            return Chars(_ANY.ranges, negated=negated)
        if name in _SCRIPTS:
            return Chars(_SCRIPTS[name], negated=negated, fold=self.flags.fold)
        if name in _CATEGORIES:
            return Chars(categories=(name,), negated=negated, fold=self.flags.fold)
        raise self._error(f"unknown Unicode class {name}")

    def _escaped_char(self, char: str) -> str:
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            return self._hexadecimal()
        if char in "01234567":
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next("")
            if char != "0" and len(digits) == 1:
                raise self._error("back-references are not part of RE2")
            return chr(int(digits, 8))
        if char.isascii() and not char.isalnum():
            return char
        raise self._error(f"unknown escape \\{char}")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at : end] if end >= 0 else ""
            self.at += len(digits) + 1
        else:
            digits = self.text[self.at : self.at + 2]
            self.at += 2
            if len(digits) != 2:
                digits = ""
        if not digits or any(d not in "0123456789abcdefABCDEF" for d in digits) or int(digits, 16) > _LAST_CODE_POINT:
            raise self._error("not a hexadecimal code point")
        return chr(int(digits, 16))

    def _class(self) -> Chars:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        parts: list[Chars] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._take("[:"):
                parts.append(self._posix_class())
                continue
            low = self._class_char()
            if isinstance(low, Chars):
                parts.append(low)
                continue
            high: str | Chars = low
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._class_char()
            if isinstance(high, Chars) or high < low:
                raise self._error("a range in [] ends before it starts")
            ranges.append((ord(low), ord(high)))
        self.at += 1
        return Chars(tuple(ranges), parts=tuple(parts), negated=negated, fold=self.flags.fold)

    def _class_char(self) -> str | Chars:
        char = self._next("missing ]")
        if char != "\\":
            return char
        char = self._next("a lone backslash")
        return self._named_class(char) or self._escaped_char(char)

    def _posix_class(self) -> Chars:
        end = self.text.find(":]", self.at)
        name = self.text[self.at : end] if end >= 0 else ""
        negated = name.startswith("^")
        ranges = _POSIX_CLASSES.get(name.removeprefix("^"))
        if ranges is None:
            raise self._error("unknown POSIX class")
        self.at = end + 2
        return Chars(ranges, negated=negated, fold=self.flags.fold)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


# --- The program --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Consume:
    chars: Chars
    then: int


@dataclass(frozen=True)
class _When:
    kind: str
    then: int


@dataclass
class _Split:
    """Goes both ways, `first` being preferred; filled in late where a loop leads back to it."""

    first: int = -1
    second: int = -1


_Instruction = _Consume | _When | _Split | None  # None: matched


def _assemble(shape: _Shape) -> tuple[list[_Instruction], int]:
    """Builds the program from its end, so that each instruction knows what follows it."""
    program: list[_Instruction] = [None]
    visits = 0

    def add(instruction: _Instruction) -> int:
        if len(program) >= PROGRAM_MAX:
            raise PatternError("the pattern is too large")
        program.append(instruction)
        return len(program) - 1

    def loop(body: _Shape, greedy: bool, then: int) -> int:
        split = _Split()
        at = add(split)
        again = emit(body, at)
        split.first, split.second = (again, then) if greedy else (then, again)
        return at

    def emit(shape: _Shape, then: int) -> int:
        nonlocal visits
        visits += 1
        if visits > 10 * PROGRAM_MAX:  # `((){1000}){1000}` adds no instruction, but takes its time
            raise PatternError("the pattern is too large")
        match shape:
            case _Char(chars):
                return add(_Consume(chars, then))
            case _Assert(kind):
                return add(_When(kind, then))
            case _Sequence(parts):
                for part in reversed(parts):
                    then = emit(part, then)
                return then
            case _Choice(options):
                entry = emit(options[-1], then)
                for option in reversed(options[:-1]):
                    entry = add(_Split(emit(option, then), entry))
                return entry
            case _Repeat(body, least, most, greedy):
                entry = loop(body, greedy, then) if most is None else then
                for _ in range((most or 0) - least):
                    inner = emit(body, entry)
                    entry = add(_Split(inner, then) if greedy else _Split(then, inner))
                for _ in range(least):
                    entry = emit(body, entry)
                return entry

    start = emit(shape, 0)
    return program, start


# --- Matching -----------------------------------------------------------------------------------------------------


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
    """What later assertions can tell of the character before them; keeps the automaton small."""
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
        shape = _Parser(text).parse()
        self._program, self._start = _assemble(shape)
        opening = shape.parts[0] if isinstance(shape, _Sequence) and shape.parts else shape
        self._anchored = opening == _Assert("A")
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
        """Where a character (or the end, None) leads: to a state, or to an answer that no further text can change."""
        kernel: set[int] = set() if self._anchored else {self._start}
        move: _State | bool | None = None
        for at in self._closure(state.kernel, state.before, char):
            instruction = self._program[at]
            if instruction is None:
                move = True
                break
            if isinstance(instruction, _Consume) and char is not None and char in instruction.chars:
                kernel.add(instruction.then)
        if move is None:
            move = self._state(frozenset(kernel), _context(char)) if kernel and char is not None else False
        self._moves += 1
        if self._moves <= 2 * _MOVES_MAX:
            state.moves[char] = move
        return move

    def _closure(self, kernel: frozenset[int], before: str | None, after: str | None) -> Iterator[int]:
        seen: set[int] = set()
        waiting = list(kernel)
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            self._count()
            instruction = self._program[at]
            if isinstance(instruction, _Split):
                waiting += (instruction.second, instruction.first)
            elif isinstance(instruction, _When):
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
            for instruction, begin in self._threads(threads, before, after):
                if instruction is None:
                    best = (begin, at)
                    break  # whatever comes later in the list is less preferred
                if after is not None and after in instruction.chars:
                    following.append((instruction.then, begin))
            threads = following
        return best

    def _threads(
        self, threads: list[tuple[int, int]], before: str | None, after: str | None
    ) -> Iterator[tuple[_Consume | None, int]]:
        seen: set[int] = set()
        for entry, begin in threads:
            waiting = [entry]
            while waiting:
                at = waiting.pop()
                if at in seen:
                    continue
                seen.add(at)
                self._count()
                instruction = self._program[at]
                if isinstance(instruction, _Split):
                    waiting += (instruction.second, instruction.first)
                elif isinstance(instruction, _When):
                    if _holds(instruction.kind, before, after):
                        waiting.append(instruction.then)
                else:
                    yield instruction, begin


@lru_cache(maxsize=1024)
def compile(pattern: str) -> Pattern:
    """The pattern ready to use; raises `PatternError`."""
    return Pattern(pattern)
