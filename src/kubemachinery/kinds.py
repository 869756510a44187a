"""Kinds: names, scope, versions, and the columns that `kubectl get` prints.

This module defines the type of a row and the look-ups; it contains no particular kind. The kinds of pykueue are in
`pykueue.api.registry`; generic packages get the table as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from kubemachinery.versions import VersionChange


class Scope(StrEnum):
    """Whether objects of a kind are namespaced or cluster-scoped."""

    CLUSTER = "Cluster"
    NAMESPACED = "Namespaced"


class PrinterColumn(msgspec.Struct, frozen=True):
    """One column of `kubectl get`. With a priority above 0 it is shown only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


class Version(msgspec.Struct, frozen=True):
    """One version in which a kind is served, and the type that its objects decode to, if it has one."""

    name: str
    type: type[msgspec.Struct] | None = None
    storage: bool = False
    served: bool = True
    # The warning for clients that use this version; None for a version that is not deprecated.
    deprecation: str | None = None
    columns: tuple[PrinterColumn, ...] = ()
    # Paths for field selectors, in addition to the usual two.
    selectable: tuple[str, ...] = ()
    # The differences of this version from the type of the storage version.
    changes: tuple[VersionChange, ...] = ()


class Kind(msgspec.Struct, frozen=True):
    """A kind of the API: group, names, scope and versions."""

    group: str
    kind: str
    plural: str
    versions: tuple[Version, ...]
    scope: Scope = Scope.NAMESPACED
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    # Whether the versions differ in their fields, so that a webhook has to convert objects.
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
        """The version in which objects are stored, and which this program uses."""
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
        """The request path of an object; of the list without a name; of the list over all namespaces without both."""
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
    """A table of kinds, with look-ups by type, by apiVersion and kind, and by resource name."""

    def __init__(self, rows: Iterable[Kind]) -> None:
        self.rows: Final = tuple(rows)
        self._by_version_and_kind: Final[dict[tuple[str, str], tuple[Kind, Version]]] = {}
        self._by_type: Final[dict[type, Kind]] = {}
        self._by_resource: Final[dict[str, Kind]] = {}
        for row in self.rows:
            for version in row.versions:
                self._by_version_and_kind[row.api_version_of(version), row.kind] = (row, version)
                if version.type is not None:
                    self._by_type[version.type] = row
            # As with kubectl, a name that two kinds share means the first of them.
            for resource in (row.name, row.plural, row.singular, *row.short_names):
                self._by_resource.setdefault(resource, row)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, api_version: str, kind: str) -> tuple[Kind, Version] | None:
        """The kind and version of an object's `apiVersion` and `kind`."""
        return self._by_version_and_kind.get((api_version, kind))

    def named(self, resource: str) -> Kind | None:
        """The kind for a resource name such as `cq`, `clusterqueues` or `clusterqueues.kueue.x-k8s.io`."""
        return self._by_resource.get(resource.lower())

    def of(self, type_: type[Any]) -> Kind:
        """The kind of a type."""
        return self._by_type[type_]
