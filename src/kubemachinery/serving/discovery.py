"""Discovery documents in both forms: aggregated (`APIGroupDiscoveryList`), and one list per group and version.

A resource that is not served is not listed: clients conclude from its absence that it is not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

Tree: TypeAlias = dict[str, Any]

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_VERSION: Final = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES: Final = {None: 2, "beta": 1, "alpha": 0}


class DiscoveredSubresource(NamedTuple):
    """A subresource; `group` and `version` are those of its kind where they are not its resource's."""

    name: str
    kind: str
    verbs: Sequence[str] = ("get",)
    group: str = ""
    version: str = ""


class DiscoveredResource(msgspec.Struct, frozen=True, kw_only=True):
    """What discovery shows of one resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    verbs: Sequence[str] = ()
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[DiscoveredSubresource] = ()


# Group -> version -> resources; versions with the preferred one first, resources by name.
Groups: TypeAlias = Mapping[str, Mapping[str, Sequence[DiscoveredResource]]]


def version_rank(version: str) -> tuple[int, int, int, int, str]:
    """Sort key of versions: stable before beta before alpha, higher before lower, names of other forms last."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (1, 0, 0, 0, version)
    major, stage, minor = found.groups()
    return (0, -_STAGES[stage], -int(major), -int(minor or 0), version)


def grouped(resources: Iterable[DiscoveredResource]) -> Groups:
    found: dict[str, dict[str, list[DiscoveredResource]]] = {}
    for resource in resources:
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return {
        group: {
            version: sorted(versions[version], key=lambda one: one.plural)
            for version in sorted(versions, key=version_rank)
        }
        for group, versions in found.items()
    }


def wants_aggregated(accept: str) -> bool:
    """Whether the first supported form in an Accept header is the aggregated one."""
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


def aggregated(groups: Groups, *, core: bool) -> Tree:
    """Everything below `/api` (core) or `/apis`."""
    names = [""] if core else sorted(group for group in groups if group)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_group_discovery(name, groups.get(name, {})) for name in names],
    }


def _group_discovery(group: str, versions: Mapping[str, Sequence[DiscoveredResource]]) -> Tree:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_resource_discovery(one) for one in resources],
                "freshness": "Current",
            }
            for version, resources in versions.items()
        ],
    }


def _resource_discovery(resource: DiscoveredResource) -> Tree:
    found: Tree = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    if resource.subresources:
        found["subresources"] = [
            {
                "subresource": one.name,
                "responseKind": {
                    "group": one.group or resource.group,
                    "version": one.version or resource.version,
                    "kind": one.kind,
                },
                "verbs": list(one.verbs),
            }
            for one in resource.subresources
        ]
    return found


# --- One list per group and version -----------------------------------------------------------------------------------


def versions(address: str) -> Tree:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(groups: Groups) -> Tree:
    """`/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, groups[name]) for name in sorted(groups) if name],
    }


def group(groups: Groups, name: str) -> Tree | None:
    """`/apis/G`."""
    found = groups.get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found)} if found else None


def _group(name: str, served: Iterable[str]) -> Tree:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in served]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(groups: Groups, group: str, version: str) -> Tree | None:
    """`/api/v1` and `/apis/G/V`."""
    resources = groups.get(group, {}).get(version)
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [row for resource in resources for row in _rows(resource)],
    }


def _rows(resource: DiscoveredResource) -> Iterable[Tree]:
    row: Tree = {
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
    yield row
    for one in resource.subresources:
        yield {
            "name": f"{resource.plural}/{one.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            # Only a kind of another group names its group: that is how kubectl finds out what it can scale.
            **({"group": one.group, "version": one.version} if one.group else {}),
            "kind": one.kind,
            "verbs": list(one.verbs),
        }
