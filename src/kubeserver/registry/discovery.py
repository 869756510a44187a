"""What discovery shows of the served resources; `kubemachinery.serving.discovery` makes the documents."""

from __future__ import annotations

from typing import Final

from kubemachinery.serving import discovery
from kubemachinery.serving.discovery import DiscoveredResource, DiscoveredSubresource
from kubeserver.registry import scale
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource

SUBRESOURCE_VERBS: Final = {
    "status": ("get", "patch", "update"),
    "finalize": ("update",),
    scale.NAME: ("get", "patch", "update"),
}


def groups(registry: Registry) -> discovery.Groups:
    return discovery.grouped(_discovered(resource) for resource in registry.all())


def _discovered(resource: Resource) -> DiscoveredResource:
    own = [_subresource(resource, name) for name in sorted(resource.subresources)]
    views = [DiscoveredSubresource(name, view.kind) for name, view in sorted(resource.views.items())]
    actions = [
        DiscoveredSubresource(name, action.kind, ("create",)) for name, action in sorted(resource.actions.items())
    ]
    return DiscoveredResource(
        group=resource.group,
        version=resource.version,
        plural=resource.plural,
        kind=resource.kind,
        namespaced=resource.namespaced,
        singular=resource.singular,
        verbs=resource.verbs,
        short_names=resource.short_names,
        categories=resource.categories,
        subresources=own + views + actions,
    )


def _subresource(resource: Resource, name: str) -> DiscoveredSubresource:
    verbs = SUBRESOURCE_VERBS.get(name, ("get",))
    if name == scale.NAME:
        return DiscoveredSubresource(name, scale.KIND.kind, verbs, scale.KIND.group, scale.KIND.version)
    return DiscoveredSubresource(name, resource.kind, verbs)
