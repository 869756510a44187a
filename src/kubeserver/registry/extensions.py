"""Virtual resources as rows of the registry: views that a program in the server's process computes."""

from __future__ import annotations

from collections.abc import Iterable

from kubemachinery.serving.views import VirtualResource
from kubeserver.registry.strategy import Resource


def resources(rows: Iterable[VirtualResource]) -> tuple[Resource, ...]:
    """Return rows for `Registry.extended`."""
    return tuple(
        Resource(
            group=row.group,
            version=row.version,
            kind=row.kind,
            plural=row.plural,
            namespaced=row.namespaced,
            verbs=row.verbs,
            virtual=True,
            views=row.views,
            collection=row.collection,
        )
        for row in rows
    )
