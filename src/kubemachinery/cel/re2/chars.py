"""Sets of characters: those of a class, of an escape, of a Unicode category."""

from __future__ import annotations

import unicodedata
from typing import Final

import msgspec

LAST_CODE_POINT: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]


class Chars(msgspec.Struct, frozen=True):
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
ANY: Final = Chars(((0, LAST_CODE_POINT),))
ANY_BUT_NEWLINE: Final = Chars(_span("\n\n"), negated=True)

PERL_CLASSES: Final = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
POSIX_CLASSES: Final = {
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
# The scripts that patterns commonly name; the general categories are those of `unicodedata`.
SCRIPTS: Final[dict[str, Ranges]] = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2B8)),
    "Greek": ((0x370, 0x373), (0x375, 0x377), (0x37A, 0x37D), (0x37F, 0x3E1), (0x3F0, 0x3FF), (0x1F00, 0x1FFE)),
    "Cyrillic": ((0x400, 0x484), (0x487, 0x52F), (0x1C80, 0x1C88), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "Han": ((0x2E80, 0x2FD5), (0x3005, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF)),
}
# Each general category of Unicode: a letter for the family, perhaps one for the member.
_CATEGORY_FAMILIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
CATEGORIES: Final = frozenset(
    family + member for family, members in _CATEGORY_FAMILIES.items() for member in ("", *members)
)
