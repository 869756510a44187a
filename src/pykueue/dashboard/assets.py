"""The files of the page, read once. A path is looked up in a table, so that no other file can be requested."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

import msgspec

INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    content_type: str
    etag: str


@cache
def files() -> dict[str, Asset]:
    """Return every file by name."""
    found = {}
    for file in (resources.files(__package__) / "static").iterdir():
        if content_type := _TYPES.get(PurePosixPath(file.name).suffix):
            body = file.read_bytes()
            found[file.name] = Asset(body, content_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found
