"""The shape of a name: what is common to the names of jobs that are created again and again."""

from __future__ import annotations

from typing import Final

# The letters of suffixes that the API server generates.
_GENERATED: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")
_SUFFIX_LENGTH: Final = 5


def name_shape(name: str) -> str:
    """A name with the parts that differ from run to run replaced: `train-llm-20261115-x7k2p` is `train-llm-#-#` [RT5].

    Replaced are parts with a digit, and a last part that looks like a generated suffix."""
    return ".".join(map(_shape, name.split("."))) if "." in name else _shape(name)


def _shape(name: str) -> str:
    words = ["#" if _has_digit(word) else word for word in name.split("-")]
    last = words[-1]
    if len(last) == _SUFFIX_LENGTH and _GENERATED.issuperset(last):
        words[-1] = "#"
    return "-".join(words)


def _has_digit(word: str) -> bool:
    return not word.isalpha() and any(map(str.isdigit, word))
