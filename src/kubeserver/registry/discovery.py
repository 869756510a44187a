"""What is served, told in both forms: one document with everything, or the older tree of lists.

A resource that is not served is not listed: clients learn from its absence that something is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubeserver.registry import scale
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SUBRESOURCE_VERBS: Final = {
    "status": ("get", "patch", "update"),
    "finalize": ("update",),
    scale.NAME: ("get", "patch", "update"),
}


_KIND_OF_SCALE: Final = {"group": scale.KIND.group, "version": scale.KIND.version, "kind": scale.KIND.kind}


def wants_aggregated(accept: str) -> bool:
    """Whether the first form in an Accept header that is spoken here is the aggregated one."""
    for offer in accept.split(","):
        kind, *rest = (part.strip() for part in offer.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        if kind not in ("application/json", "*/*", "application/*"):
            continue
        if "as" not in parameters:
            return False
        if (parameters.get("g"), parameters.get("v"), parameters["as"]) == (
            "apidiscovery.k8s.io",
            "v2",
            "APIGroupDiscoveryList",
        ):
            return True
    return False


# --- The aggregated form ----------------------------------------------------------------------------------------------


def aggregated(registry: Registry, *, core: bool) -> Tree:
    """Everything below `/api` (core) or `/apis`."""
    groups = registry.groups()
    names = [""] if core else sorted(group for group in groups if group)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_group_discovery(registry, name, groups.get(name, [])) for name in names],
    }


def _group_discovery(registry: Registry, group: str, versions: Sequence[str]) -> Tree:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_resource_discovery(one) for one in registry.in_version(group, version)],
                "freshness": "Current",
            }
            for version in versions
        ],
    }


def _resource_discovery(resource: Resource) -> Tree:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    found: Tree = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": _KIND_OF_SCALE if name == scale.NAME else kind,
            "verbs": list(SUBRESOURCE_VERBS.get(name, ("get",))),
        }
        for name in sorted(resource.subresources)
    ] + [
        {"subresource": name, "responseKind": {**kind, "kind": view.kind}, "verbs": ["get"]}
        for name, view in sorted(resource.views.items())
    ]
    subresources += [
        {"subresource": name, "responseKind": {**kind, "kind": action.kind}, "verbs": ["create"]}
        for name, action in sorted(resource.actions.items())
    ]
    if subresources:
        found["subresources"] = subresources
    return found


# --- The older form ---------------------------------------------------------------------------------------------------


def versions(address: str) -> Tree:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> Tree:
    """`/apis`."""
    groups = registry.groups()
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, groups[name]) for name in sorted(groups) if name],
    }


def group(registry: Registry, name: str) -> Tree | None:
    """`/apis/G`."""
    found = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found)} if found else None


def _group(name: str, served: Sequence[str]) -> Tree:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in served]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(registry: Registry, group: str, version: str) -> Tree | None:
    """`/api/v1` and `/apis/G/V`."""
    resources = registry.in_version(group, version)
    if not resources:
        return None
    rows: list[Tree] = []
    for resource in resources:
        rows.append(_row(resource))
        rows += [_subresource_row(resource, name) for name in sorted(resource.subresources)]
        rows += [
            {**_subresource_row(resource, name), "kind": view.kind} for name, view in sorted(resource.views.items())
        ]
        rows += [
            {**_subresource_row(resource, name), "kind": action.kind, "verbs": ["create"]}
            for name, action in sorted(resource.actions.items())
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": rows,
    }


def _row(resource: Resource) -> Tree:
    row: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    return row


def _subresource_row(resource: Resource, name: str) -> Tree:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        # Only what is of another group says of which: that is how kubectl learns what it can scale.
        **(_KIND_OF_SCALE if name == scale.NAME else {"kind": resource.kind}),
        "verbs": list(SUBRESOURCE_VERBS.get(name, ("get",))),
    }
