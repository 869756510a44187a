"""Words in a query, read as kube-apiserver reads them: the first of several counts."""

from __future__ import annotations

import re
from typing import Final

from kubemachinery.http_server import Request
from kubeserver.protocol import status

_NO: Final = frozenset({"false", "0"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INTEGERS: Final = range(-(2**63), 2**63)


def has(request: Request, name: str) -> bool:
    return any(key == name for key, _ in request.query)


def flag(request: Request, name: str) -> bool:
    """A yes or no. Whatever does not say no says yes, as in `?watch`."""
    return request.first(name, "false").lower() not in _NO


def number(request: Request, name: str, default: int = 0) -> int:
    """A whole number, which may be below zero; `default` where there is none."""
    text = request.first(name, str(default))
    if not _INTEGER.fullmatch(text) or int(text) not in _INTEGERS:
        raise status.bad_request(f"{name}: {text[:100]!r} is not a whole number of 64 bits")
    return int(text)
