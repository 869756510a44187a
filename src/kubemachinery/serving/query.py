"""Query parameters, read as kube-apiserver reads them: of several with one name, the first counts."""

from __future__ import annotations

import re
from typing import Final

from kubemachinery import status
from kubemachinery.http_messages import Request

_FALSE: Final = frozenset({"false", "0"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INTEGERS: Final = range(-(2**63), 2**63)


def has(request: Request, name: str) -> bool:
    return any(key == name for key, _ in request.query)


def flag(request: Request, name: str) -> bool:
    """Return a boolean. Every value but `false` and `0` is true, also the empty one of `?watch`."""
    return request.first(name, "false").lower() not in _FALSE


def number(request: Request, name: str, default: int = 0) -> int:
    """Return a signed integer of 64 bits, or `default` where the parameter is absent; raise 400 for anything else."""
    text = request.first(name, str(default))
    if not _INTEGER.fullmatch(text) or int(text) not in _INTEGERS:
        raise status.bad_request(f"{name}: {text[:100]!r} is not a whole number of 64 bits")
    return int(text)
