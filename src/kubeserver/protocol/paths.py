"""Paths into addresses: `/apis/G/V/namespaces/NS/PLURAL/NAME/SUBRESOURCE`, and its shorter forms."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote

# A namespace is an object itself: what follows its name is its own subresource, or a resource inside of it.
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


class Address(NamedTuple):
    """What a path points at. `name` is "" for a collection; `namespace` is "" across all, or where there is none."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False


def segments(path: str) -> list[str]:
    """The parts of a path, decoded one by one so that `%2F` cannot move a border. One trailing slash is nothing."""
    if path.endswith("/"):
        path = path[:-1]
    parts = path.lstrip("/").split("/")
    return [unquote(part) for part in parts] if "%" in path else parts


def parse(parts: list[str]) -> Address | None:
    """The address below `/api/V` or `/apis/G/V`; None where the path is too short or too long to be one."""
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    if any(part == "" for part in rest):
        return None
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    match rest:
        case [plural]:
            return Address(group, version, plural, namespace, watch=watch)
        case [plural, name]:
            return Address(group, version, plural, namespace, name, watch=watch)
        case [plural, name, subresource]:
            return Address(group, version, plural, namespace, name, subresource, watch=watch)
    return None
