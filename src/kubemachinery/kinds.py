"""The table of kinds: what a kind is called, where it lives, in which versions, what `kubectl get` shows of it.

This module holds the form of a row and how rows are found; it knows no particular kind. The rows of this program are in
`registry`, and rooms that know nothing of queueing are handed the table they work with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from kubemachinery.versions import VersionChange


class Scope(StrEnum):
    """Whether objects of a kind live in a namespace or belong to the whole cluster."""

    CLUSTER = "Cluster"
    NAMESPACED = "Namespaced"


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of `kubectl get`. With a priority above 0 it shows only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """One version in which a kind is served, and the type that its objects decode to, if it has one."""

    name: str
    type: type[msgspec.Struct] | None = None
    storage: bool = False
    served: bool = True
    # What clients that use this version are told; None for a version that is here to stay.
    deprecation: str | None = None
    columns: tuple[PrinterColumn, ...] = ()
    # Paths that field selectors may name beside the usual two.
    selectable: tuple[str, ...] = ()
    # What this version says differently from the type of the storage version.
    changes: tuple[VersionChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table."""

    group: str
    kind: str
    plural: str
    versions: tuple[Version, ...]
    scope: Scope = Scope.NAMESPACED
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    # Objects change shape from one version to another, so that somebody has to convert them.
    converts: bool = False

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def name(self) -> str:
        """The full name of the resource, which is also that of its CRD: `workloads.kueue.x-k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def namespaced(self) -> bool:
        return self.scope is Scope.NAMESPACED

    @property
    def storage(self) -> Version:
        """The version that objects are stored in and that this program speaks."""
        return next(version for version in self.versions if version.storage)

    @property
    def api_version(self) -> str:
        """`group/version` of the storage version, as objects carry it."""
        return self.api_version_of(self.storage)

    @property
    def type(self) -> type[msgspec.Struct]:
        """The type that objects of the storage version decode to."""
        if self.storage.type is None:
            raise LookupError(f"{self.name} has no type in this program")
        return self.storage.type

    def api_version_of(self, version: Version) -> str:
        return f"{self.group}/{version.name}" if self.group else version.name

    def version(self, name: str) -> Version | None:
        return next((version for version in self.versions if version.name == name), None)

    def path(self, namespace: str = "", name: str = "", subresource: str = "", *, version: str = "") -> str:
        """Where objects are served. Without a name it is the list, without a namespace the list over all of them."""
        chosen = self.version(version) if version else self.storage
        if chosen is None:
            raise LookupError(f"{self.name} has no version {version!r}")
        root = "/apis" if self.group else "/api"
        parts = [root, self.api_version_of(chosen)]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Kinds:
    """A table of kinds, with the ways in which people and programs name one."""

    def __init__(self, rows: Iterable[Kind]) -> None:
        self.rows: Final = tuple(rows)
        self._by_version_and_kind: Final[dict[tuple[str, str], tuple[Kind, Version]]] = {}
        self._by_type: Final[dict[type, Kind]] = {}
        self._by_word: Final[dict[str, Kind]] = {}
        for row in self.rows:
            for version in row.versions:
                self._by_version_and_kind[row.api_version_of(version), row.kind] = (row, version)
                if version.type is not None:
                    self._by_type[version.type] = row
            # As with kubectl, a word that two kinds share means the one that was there first.
            for word in (row.name, row.plural, row.singular, *row.short_names):
                self._by_word.setdefault(word, row)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, api_version: str, kind: str) -> tuple[Kind, Version] | None:
        """The row and version that an object's `apiVersion` and `kind` mean."""
        return self._by_version_and_kind.get((api_version, kind))

    def named(self, word: str) -> Kind | None:
        """The kind that somebody means who types `cq`, `clusterqueues` or `clusterqueues.kueue.x-k8s.io`."""
        return self._by_word.get(word.lower())

    def of(self, type_: type[Any]) -> Kind:
        """The row of a type."""
        return self._by_type[type_]
