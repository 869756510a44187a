"""KYAML, as kubectl prints it: YAML whose braces and quotes leave nothing to guess.

Values that are text are always in quotes, keys only where they could be taken for something else. A text of several
lines is folded, so that its lines can be seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from kubemachinery import kubectl_yaml

_STEP: Final = "  "
_PLAIN_KEY: Final = re.compile(r"\w(?:[\w./-]*\w)?")
# What some reader of YAML takes for a truth value or for nothing.
_WORDS: Final = frozenset({"y", "n", "t", "f", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES: Final[Mapping[str, str]] = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    "\0": "\\0",
    "\x1b": "\\e",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
}
# A tab is seen as one, except in a key.
_IN_VALUES: Final = {**_ESCAPES, "\t": "\t"}


def written(tree: Any) -> str:
    """A document."""
    return f"---\n{_node(tree, 0)}\n"


def _node(value: Any, depth: int) -> str:
    margin = _STEP * (depth + 1)
    match value:
        case dict() | list() if not value:
            return "{}" if isinstance(value, dict) else "[]"
        case dict():
            held = (f"{margin}{_key(key)}: {_node(each, depth + 1)},\n" for key, each in value.items())
            return f"{{\n{''.join(held)}{_STEP * depth}}}"
        case list() if all(isinstance(each, dict | list) for each in value):
            return f"[{', '.join(_node(each, depth) for each in value)}]"
        case list():
            held = (f"{margin}{_node(each, depth + 1)},\n" for each in value)
            return f"[\n{''.join(held)}{_STEP * depth}]"
        case str():
            return _folded(value, margin) if "\n" in value else f'"{_escaped(value, _IN_VALUES)}"'
    return json.dumps(value)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and not _is_ambiguous(key) else f'"{_escaped(key, _ESCAPES)}"'


def _is_ambiguous(key: str) -> bool:
    """Whether it could be read as something that is no text."""
    if (
        key.lower() in _WORDS
        or not isinstance(yaml.safe_load(key), str)
        or not isinstance(kubectl_yaml.scalar(key), str)
    ):
        return True
    try:
        float(key.replace("_", ""))
    except ValueError:
        return False
    return True


def _folded(text: str, margin: str) -> str:
    """A text line by line: a break that is in it is written, and a break that is only seen has a backslash before."""
    *lines, last = text.split("\n")
    shown = [f"{_line(line, margin)}\\n\\\n" for line in lines]
    if last:
        shown.append(f"{_line(last, margin)}\\\n")
    return f'"\\\n{"".join(shown)}{margin}"'


def _line(line: str, margin: str) -> str:
    """White space at its beginning is kept by a backslash; a space in its place keeps other lines in step."""
    keeper = "\\" if line[:1].isspace() else " "
    return f"{margin}{keeper}{_escaped(line, _IN_VALUES)}"


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(letter) or (letter if letter.isprintable() else _code(ord(letter))) for letter in text)


def _code(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
