"""Request paths: `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE`, and its shorter forms."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote

# A Namespace is an object itself: what follows its name is one of its subresources, or a resource in it.
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


class ResourcePath(NamedTuple):
    """What a path names. `name` is "" for a collection; `namespace` is "" for all namespaces and cluster scope."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def segments(path: str) -> list[str]:
    """Split a path, then decode each part, so that `%2F` does not separate. One trailing slash is ignored."""
    if path.endswith("/"):
        path = path[:-1]
    parts = path.lstrip("/").split("/")
    return [unquote(part) for part in parts] if "%" in path else parts


def parse(parts: list[str]) -> ResourcePath | None:
    """Return what is named below `/api/V` or `/apis/G/V`; None where the path is too short or too long."""
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
            return ResourcePath(group, version, plural, namespace, watch=watch)
        case [plural, name]:
            return ResourcePath(group, version, plural, namespace, name, watch=watch)
        case [plural, name, subresource]:
            return ResourcePath(group, version, plural, namespace, name, subresource, watch=watch)
    return None
