"""The order in which the resources of a request are visited."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykueue.core.workload import Requests

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


@cache
def visiting_order(resource: str) -> tuple[int, str]:
    """The key by which resources are visited: the FNV-1a hash of their names, as in Kueue. The order decides only which
    of several failures is reported first ([FL31])."""
    value = _FNV_OFFSET
    for byte in resource.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value, resource


def in_visiting_order(requests: Mapping[str, int]) -> Requests:
    """The requests as pairs, in the order in which their resources are visited."""
    return tuple(sorted(requests.items(), key=lambda item: visiting_order(item[0])))
