"""The shape of a name: what is common to the names of jobs that are created again and again."""

from __future__ import annotations

from typing import Final

# The letters of suffixes that the API server generates.
_GENERATED: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")
_SUFFIX_LENGTH: Final = 5


def name_shape(name: str) -> str:
    """A name with the parts that differ from run to run replaced: `train-llm-20261115-x7k2p` is `train-llm-#-#` [RT5].

    Replaced are parts with a digit, and a last part that looks like a generated suffix."""
    parts: list[str] = []
    for dotted in name.split("."):
        words = dotted.split("-")
        parts.append("-".join("#" if _differs(word, is_last=word is words[-1]) else word for word in words))
    return ".".join(parts)


def _differs(word: str, *, is_last: bool) -> bool:
    has_digit = any(letter.isdigit() for letter in word)
    return has_digit or (is_last and len(word) == _SUFFIX_LENGTH and _GENERATED.issuperset(word))
