"""The shape of a pattern, and how it is read."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery.cel.re2.chars import (
    ANY,
    ANY_BUT_NEWLINE,
    CATEGORIES,
    LAST_CODE_POINT,
    PERL_CLASSES,
    POSIX_CLASSES,
    SCRIPTS,
    Chars,
)
from kubemachinery.cel.re2.errors import PatternError

REPEAT_MAX: Final = 1000
DEPTH_MAX: Final = 200

_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class OneOf(msgspec.Struct, frozen=True):
    chars: Chars


class Boundary(msgspec.Struct, frozen=True):
    """One of `A` (start of text), `z` (end of text), `^` and `$` (of a line), `b` and `B` (word boundary or not)."""

    kind: str


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple[Shape, ...]


class Choice(msgspec.Struct, frozen=True):
    options: tuple[Shape, ...]


class Repeat(msgspec.Struct, frozen=True):
    body: Shape
    least: int
    most: int | None
    greedy: bool


Shape = OneOf | Boundary | Sequence | Choice | Repeat
_NOTHING: Final = Sequence(())


class _Flags(msgspec.Struct, frozen=True):
    fold: bool = False
    multiline: bool = False
    dot_all: bool = False
    ungreedy: bool = False


_FLAG_NAMES: Final = {"i": "fold", "m": "multiline", "s": "dot_all", "U": "ungreedy"}


def parse(text: str) -> Shape:
    """Parse the text; raises `PatternError`."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags = _Flags()
        self.depth = 0

    def parse(self) -> Shape:
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

    def _choice(self) -> Shape:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._error("groups are nested too deeply")
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Shape:
        parts: list[Shape] = []
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
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeats(self, shape: Shape) -> Shape:
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
            shape = Repeat(shape, least, most, greedy=lazy is self.flags.ungreedy)

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

    def _literal(self, char: str) -> OneOf:
        code = ord(char)
        return OneOf(Chars(((code, code),), fold=self.flags.fold))

    def _atom(self) -> Shape:
        char = self._next("nothing to match")
        match char:
            case "(":
                return self._group()
            case "[":
                return OneOf(self._class())
            case ".":
                return OneOf(ANY if self.flags.dot_all else ANY_BUT_NEWLINE)
            case "^":
                return Boundary("^" if self.flags.multiline else "A")
            case "$":
                return Boundary("$" if self.flags.multiline else "z")
            case "*" | "+" | "?":
                raise self._error(f"nothing to repeat before {char}")
            case "\\":
                return self._escape()
            case _:
                return self._literal(char)

    def _group(self) -> Shape:
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
                self.flags = replace(self.flags, **{_FLAG_NAMES[char]: value})
            elif char in "=!":
                raise self._error("look-ahead is not part of RE2")
            else:
                raise self._error(f"unknown flag {char}")
        return char == ")"

    def _escape(self) -> Shape:
        char = self._next("a lone backslash")
        if char in "AzbB":
            return Boundary(char)
        if char == "C":
            return OneOf(ANY)
        named = self._named_class(char)
        if named is not None:
            return OneOf(named)
        return self._literal(self._escaped_char(char))

    def _named_class(self, char: str) -> Chars | None:
        """`\\d`, `\\W`, `\\pL`, `\\P{Greek}`; None when the escape is a single character."""
        if char.lower() in PERL_CLASSES:
            return Chars(PERL_CLASSES[char.lower()], negated=char.isupper())
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
            return Chars(ANY.ranges, negated=negated)
        if name in SCRIPTS:
            return Chars(SCRIPTS[name], negated=negated, fold=self.flags.fold)
        if name in CATEGORIES:
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
        if not digits or any(d not in "0123456789abcdefABCDEF" for d in digits) or int(digits, 16) > LAST_CODE_POINT:
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
        ranges = POSIX_CLASSES.get(name.removeprefix("^"))
        if ranges is None:
            raise self._error("unknown POSIX class")
        self.at = end + 2
        return Chars(ranges, negated=negated, fold=self.flags.fold)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6
