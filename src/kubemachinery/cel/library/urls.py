"""URLs: an absolute URI, or a path that begins with a slash."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

import msgspec

from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.values import Value, declare

_PARTS: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/?#]*))?"
    r"(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?"
)
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+(?:%25[^\]]+)?\]|[^\s\[\]<>\"`{}|\\^:]*)(?::(?P<port>[0-9]*))?")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Characters that need no escape in a path.
_PATH_SAFE: Final = "$&+,/:;=@-_.~!*'()%"


class URL(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


declare(URL, types.URL)


def parse(text: str) -> URL:
    match = _PARTS.fullmatch(text)
    if not text or match is None or any(char < " " or char == "\x7f" for char in text):
        raise CelError(f"cannot read {text!r} as a URL")
    if not match["scheme"] and not text.startswith("/"):
        raise CelError(f"{text!r} is neither an absolute URI nor an absolute path")
    host = _HOST.fullmatch((match["authority"] or "").rpartition("@")[2])
    if host is None or _BAD_ESCAPE.search(match["path"]):
        raise CelError(f"cannot read {text!r} as a URL")
    return URL(
        (match["scheme"] or "").lower(),
        host[0],
        unquote(host["name"].strip("[]")),
        host["port"] or "",
        quote(match["path"], safe=_PATH_SAFE),
        match["query"] or "",
    )


def is_url(text: str) -> bool:
    try:
        parse(text)
    except CelError:
        return False
    return True


def _query(url: URL) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        key, _, value = pair.partition("=")
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "url(string) -> URL": parse,
    "isURL(string) -> bool": is_url,
    "URL.getScheme() -> string": lambda url: url.scheme,
    "URL.getHost() -> string": lambda url: url.host,
    "URL.getHostname() -> string": lambda url: url.hostname,
    "URL.getPort() -> string": lambda url: url.port,
    "URL.getEscapedPath() -> string": lambda url: url.path,
    "URL.getQuery() -> map<string, list<string>>": _query,
}
