"""Go's quoted texts, read and written."""

from __future__ import annotations

import re
from typing import Final

_SHORT: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_LONG: Final = {letter: f"\\{short}" for short, letter in _SHORT.items()}
_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<small>[0-9a-fA-F]{4})|U(?P<large>[0-9a-fA-F]{8})|(?P<other>.?))",
    re.DOTALL,
)
# Where Python keeps the bytes that are no UTF-8.
_LONE_BYTES: Final = range(0xDC80, 0xDD00)


def unquoted(text: str) -> str:
    """What a text says that is between quotes of either kind. Raises ValueError for an escape that is none."""
    quote = text[0]

    def said(found: re.Match[str]) -> str:
        if byte := found["byte"] or found["octal"]:
            return _byte(int(byte, 16 if found["byte"] else 8))
        if code := found["small"] or found["large"]:
            return _letter(int(code, 16), found[0])
        if found["other"] == quote:
            return quote
        if found["other"] not in _SHORT:
            raise ValueError(f"{found[0]} is no escape")
        return _SHORT[found["other"]]

    # Bytes that stand side by side may be a letter together.
    return _ESCAPE.sub(said, text[1:-1]).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _byte(value: int) -> str:
    if value > 0xFF:
        raise ValueError(f"\\{value:o} is more than a byte")
    return bytes([value]).decode("utf-8", "surrogateescape")


def _letter(code: int, escape: str) -> str:
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"{escape} is no character")
    return chr(code)


def quoted(text: str, quote: str = '"', *, only_ascii: bool = False) -> str:
    """A text in quotes; what cannot be seen is escaped."""
    return quote + "".join(_shown(letter, quote, only_ascii) for letter in text) + quote


def _shown(letter: str, quote: str, only_ascii: bool) -> str:
    code = ord(letter)
    if letter == quote:
        return f"\\{quote}"
    if letter in _LONG:
        return _LONG[letter]
    if letter.isprintable() and (code < 0x80 or not only_ascii):
        return letter
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if code in _LONE_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
