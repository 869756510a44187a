"""The resources that are served: built-in, defined by CRDs, and extensions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from kubemachinery.serving.discovery import version_rank
from kubeserver import apply
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.watch import WatchStream

# Gives an object in another version of its group; the argument is the whole `group/version`.
Convert: TypeAlias = Callable[[Tree, str], Tree]


def swap_version(tree: Tree, api_version: str) -> Tree:
    """Convert between versions that differ in apiVersion alone."""
    return {**tree, "apiVersion": api_version}


def _is_stored(resource: Resource) -> bool:
    return resource.version == resource.storage and not resource.shares and not resource.virtual


class Registry:
    """The resources by group, version and plural. Read on every request; changed with CRDs."""

    def __init__(self, builtin: Iterable[Resource] = ()) -> None:
        self._builtin = tuple(builtin)
        self._custom: dict[str, tuple[Resource, ...]] = {}
        self._extensions: list[Resource] = []
        self._conversions: dict[str, Convert] = {}
        self._by_address: dict[tuple[str, str, str], Resource] = {}
        self._stored: dict[str, Resource] = {}
        self._targets: dict[tuple[Resource, str], apply.ApplyTarget] = {}
        self._streams: dict[str, dict[WatchStream, None]] = {}
        self._listeners: list[Callable[[], None]] = []
        self.etag = ""
        self._rebuild()

    def _rebuild(self) -> None:
        self._by_address = {(r.group, r.version, r.plural): r for r in self.all()}
        self._stored = {r.group_resource: r for r in self.all() if _is_stored(r)}
        self._targets.clear()
        described = repr(
            [
                (r.group, r.version, r.plural, r.kind, sorted((*r.subresources, *r.views)), r.verbs, r.schema_revision)
                for r in self.all()
            ]
        )
        self.etag = hashlib.sha256(described.encode()).hexdigest()[:32].upper()
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    # --- Queries ------------------------------------------------------------------------------------------------------

    def all(self) -> list[Resource]:
        custom = (resource for name in sorted(self._custom) for resource in self._custom[name])
        return [*self._builtin, *custom, *self._extensions]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_address.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        return next((r for r in self.all() if r.group == group and r.version == version and r.kind == kind), None)

    def stored_as(self, group_resource: str) -> Resource | None:
        """Return the resource in its storage version."""
        return self._stored.get(group_resource)

    def stored(self) -> list[Resource]:
        """Return each resource once, in its storage version."""
        return list(self._stored.values())

    def groups(self) -> dict[str, list[str]]:
        """Return every group with its versions, the preferred one first; the core group is ""."""
        versions: dict[str, set[str]] = {}
        for resource in self.all():
            versions.setdefault(resource.group, set()).add(resource.version)
        return {group: sorted(versions[group], key=version_rank) for group in versions}

    def in_version(self, group: str, version: str) -> list[Resource]:
        return sorted((r for r in self.all() if (r.group, r.version) == (group, version)), key=lambda r: r.plural)

    def served_versions(self, resource: Resource) -> Sequence[Resource]:
        return [r for r in self.all() if r.group_resource == resource.group_resource]

    def convert(self, resource: Resource) -> Convert:
        return resource.convert or self._conversions.get(resource.group_resource, swap_version)

    def target(self, resource: Resource, subresource: str) -> apply.ApplyTarget:
        """Return the ownership rules of writes through this resource or subresource."""
        key = (resource, subresource)
        found = self._targets.get(key)
        if found is None:
            versions = self.served_versions(resource)
            found = self._targets[key] = apply.ApplyTarget(
                api_version=resource.api_version,
                shapes={one.api_version: one.shape() for one in versions},
                subresource=subresource,
                has_status=resource.has_status,
                status_keeps=resource.status_keeps,
                convert=self.convert(resource) if len(versions) > 1 else None,
                custom=resource.custom,
            )
        return found

    # --- CRDs ---------------------------------------------------------------------------------------------------------

    def serve(self, crd: str, resources: Sequence[Resource], convert: Convert) -> None:
        """Serve the resources of a CRD, in place of its earlier ones."""
        for resource in resources:
            self._conversions[resource.group_resource] = convert
        self._custom[crd] = tuple(resources)
        self._rebuild()

    def withdraw(self, crd: str) -> None:
        for resource in self._custom.pop(crd, ()):
            self._conversions.pop(resource.group_resource, None)
        self._rebuild()

    # --- Extensions ---------------------------------------------------------------------------------------------------

    @contextmanager
    def extended(self, resources: Sequence[Resource]) -> Iterator[None]:
        """Serve resources that are not stored while inside."""
        for resource in resources:
            if not resource.virtual:
                raise ValueError(f"{resource.group_resource} is stored, so it is no extension")
        self._extensions += resources
        self._rebuild()
        try:
            yield
        finally:
            self._extensions = [one for one in self._extensions if one not in resources]
            self._rebuild()

    # --- Watches in progress ------------------------------------------------------------------------------------------

    def opened(self, group_resource: str, stream: WatchStream) -> None:
        self._streams.setdefault(group_resource, {})[stream] = None

    def ended(self, group_resource: str, stream: WatchStream) -> None:
        self._streams.get(group_resource, {}).pop(stream, None)

    def stop_watches(self, group_resource: str | None = None) -> None:
        """End the watches of one resource (or all), so that clients list again."""
        for name, streams in self._streams.items():
            if group_resource is None or name == group_resource:
                for stream in list(streams):
                    stream.stop()

    @property
    def watches(self) -> int:
        return sum(len(streams) for streams in self._streams.values())
