"""The rows of `probes/`, read: objects with changes to them, and single requests."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

Tree = dict[str, Any]

_HERE: Final = Path(__file__).parent / "probes"
_ABSENT: Final = "<absent>"
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Kind:
    """One kind: where it is, an object of it, and what is done to it."""

    name: str
    path: str
    base: Tree
    create: tuple[Tree, ...] = ()
    update: tuple[Tree, ...] = ()
    status: tuple[Tree, ...] = ()
    merge: tuple[Tree, ...] = ()
    # Objects of this kind cannot be taken away again: creations are only tried, and each update has its own.
    stays: bool = False

    @property
    def rows(self) -> int:
        return len(self.create) + len(self.update) + len(self.status) + len(self.merge)


@dataclass(frozen=True)
class Exchange:
    """One request, after others that prepare it."""

    name: str
    request: Tree
    before: tuple[Tree, ...] = ()
    after: tuple[Tree, ...] = field(default=())

    @property
    def leaves_no_trace(self) -> bool:
        """Whether it changes nothing, so that it can be repeated."""
        return self.request.get("method", "GET") == "GET" or "dryRun=All" in self.request["path"]


def kinds() -> list[Kind]:
    return [
        Kind(
            name=row["kind"],
            path=row["path"],
            base=row["base"],
            stays=row.get("stays", False),
            **{key: tuple(row.get(key) or ()) for key in ("create", "update", "status", "merge")},
        )
        for row in yaml.safe_load((_HERE / "objects.yaml").read_text())
    ]


def exchanges() -> list[Exchange]:
    return [
        Exchange(
            name=row["name"],
            request=row["request"],
            before=tuple(row.get("before") or ()),
            after=tuple(row.get("after") or ()),
        )
        for row in yaml.safe_load((_HERE / "requests.yaml").read_text())
    ]


def changed(tree: Tree, row: Tree) -> Tree:
    """The tree with the values of a row at their paths."""
    out = copy.deepcopy(tree)
    for path, value in row.items():
        *way, last = list(_steps(path))
        at: Any = out
        for step in way:
            if isinstance(at, dict) and not isinstance(at.get(step), (dict, list)):
                at[step] = {}
            at = at[step]
        if value == _ABSENT:
            at.pop(last, None)
        else:
            at[last] = copy.deepcopy(value)
    return out


def _steps(path: str) -> Iterator[str | int]:
    for name, index in _STEP.findall(path):
        yield int(index) if index else name
