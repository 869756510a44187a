"""Text to tokens."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kubemachinery.cel.errors import ExpressionError
from kubemachinery.cel.values import UInt

TEXT_MAX: Final = 100_000
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class Token(msgspec.Struct, frozen=True):
    """`kind` is "name", "literal", "end", or the operator itself; a name or literal has a value."""

    kind: str
    at: int
    value: object = None


KEYWORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
RESERVED: Final = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let"),
        *("loop", "package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)

_TOKEN: Final = re.compile(
    r"""
      (?P<skip> [ \t\r\n\f]+ | //[^\n]* )
    | (?P<string> (?:[rR][bB]?|[bB][rR]?)? (?: \"{3}|'{3}|\"|' ) )
    | (?P<double> [0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ | \.[0-9]+(?:[eE][+-]?[0-9]+)? )
    | (?P<int> (?: 0x[0-9a-fA-F]+ | [0-9]+ ) [uU]? )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<operator> \|\| | && | == | != | <= | >= | [-+*/%!<>?:.,()\[\]{}] )
    """,
    re.VERBOSE,
)
_SIMPLE_ESCAPES: Final = {
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
    **{char: char for char in "\\?\"'`"},
}
# How many digits follow the letter, and in which base.
_NUMBERED_ESCAPES: Final = {"x": (2, 16), "X": (2, 16), "u": (4, 16), "U": (8, 16)}


def tokens(text: str) -> list[Token]:
    """All tokens, the last of which is "end"; raises `ExpressionError`."""
    if len(text) > TEXT_MAX:
        raise ExpressionError(f"the expression is longer than {TEXT_MAX} characters", 0)
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"unexpected character {text[at]!r}", at)
        kind, lexeme = match.lastgroup, match[0]
        end = match.end()
        if kind == "string":
            value, end = _quoted(text, at, lexeme)
            found.append(Token("literal", at, value))
        elif kind == "double":
            found.append(Token("literal", at, float(lexeme)))
        elif kind == "int":
            found.append(Token("literal", at, _integer(lexeme, at)))
        elif kind == "name":
            if lexeme in KEYWORDS:
                found.append(Token("literal", at, KEYWORDS[lexeme]))
            else:
                found.append(Token("in" if lexeme == "in" else "name", at, lexeme))
        elif kind == "operator":
            found.append(Token(lexeme, at))
        at = end
    found.append(Token("end", at))
    return found


def _integer(lexeme: str, at: int) -> int:
    unsigned = lexeme[-1] in "uU"
    digits = lexeme.rstrip("uU")
    if len(digits) > 40:
        raise ExpressionError("the integer is too large", at)
    value = int(digits, 16 if digits.startswith("0x") else 10)
    # One more than the largest integer passes here: with a minus before it, it is the smallest.
    if value > (UINT_MAX if unsigned else -INT_MIN):
        raise ExpressionError("the integer is too large", at)
    return UInt(value) if unsigned else value


def _quoted(text: str, at: int, opening: str) -> tuple[str | bytes, int]:
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    start = position = at + len(opening)
    parts: list[str] = []
    is_bytes = "b" in prefix
    while not text.startswith(quote, position):
        if position >= len(text) or (len(quote) == 1 and text[position] in "\r\n"):
            raise ExpressionError("the string has no end", at)
        if text[position] == "\\" and "r" not in prefix:
            parts.append(text[start:position])
            piece, position = _escape(text, position, is_bytes)
            parts.append(piece)
            start = position
        else:
            position += 1
    parts.append(text[start:position])
    if not is_bytes:
        return "".join(parts), position + len(quote)
    # Escapes in bytes are single bytes, marked by `_escape`; all other characters are encoded.
    return b"".join(_encoded(part) for part in parts), position + len(quote)


_BYTE_MARK: Final = 0xDC00  # a lone surrogate cannot occur in text that was read properly


def _encoded(part: str) -> bytes:
    return b"".join(
        bytes([ord(char) - _BYTE_MARK])
        if _BYTE_MARK <= ord(char) < _BYTE_MARK + 256
        else char.encode("utf-8", "replace")
        for char in part
    )


def _escape(text: str, at: int, is_bytes: bool) -> tuple[str, int]:
    char = text[at + 1 : at + 2]
    if char in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[char], at + 2
    if char and char in "0123":
        length, base, start = 3, 8, at + 1
    elif char in _NUMBERED_ESCAPES and not (is_bytes and char in "uU"):
        (length, base), start = _NUMBERED_ESCAPES[char], at + 2
    else:
        raise ExpressionError("unknown escape in a string", at)
    digits = text[start : start + length]
    try:
        code = int(digits, base) if digits.isalnum() and len(digits) == length else -1
    except ValueError:
        code = -1
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ExpressionError("unknown escape in a string", at)
    return chr(_BYTE_MARK + code) if is_bytes else chr(code), start + length
