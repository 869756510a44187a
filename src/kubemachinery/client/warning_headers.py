"""Warnings of an API server: the texts of the header `Warning` of a response."""

from __future__ import annotations

import re
from typing import Final

# Code, agent and text in quotes, as in `299 - "text"`, and possibly a date. A server sends several in one header line,
# or one in each; lines are joined by commas.
_WARNING: Final = re.compile(
    r'\s*(?P<code>\d{3})\s+\S+\s+"(?P<text>(?:[^"\\]|\\.)*)"(?:\s+"[^"]*")?\s*(?:,|$)', re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
# The code of a warning that is about the request, and no note of a cache.
_MISCELLANEOUS: Final = "299"


def texts(header: str) -> list[str]:
    """The texts of a header, in its order. What cannot be read ends the list: a warning is never an error."""
    found: list[str] = []
    place = 0
    while match := _WARNING.match(header, place):
        if match["code"] == _MISCELLANEOUS:
            found.append(_decoded(_ESCAPED.sub(r"\1", match["text"])))
        place = match.end()
    return found


def _decoded(text: str) -> str:
    """Servers send UTF-8; headers are read as Latin-1."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
