"""A running system as a case: all objects that decisions depend on, read from its API server.

The Configuration comes from an embedded server itself, or from the ConfigMap of the manager in a cluster, in the
namespace in which it is installed. If it cannot be read, the case has a notice. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubemachinery import yaml_documents
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.yaml_documents import Document
from pykueue.analysis import planner
from pykueue.analysis.planner import Case
from pykueue.api import config, kube, kueue, registry
from pykueue.install import names
from pykueue.observe.health import CONFIGURATION_PATH

# Pods are read only if a topology is used: there may be very many.
_FOR_TOPOLOGIES: Final = frozenset({kube.Node, kube.Pod})


async def case(
    client: ApiClient,
    *,
    nodes: bool = False,
    classes: bool = False,
    unscheduled: str = "",
    report: Callable[[str], None],
) -> Case:
    """The objects of the server. `nodes` includes the nodes even without a topology, `classes` the priority classes,
    `unscheduled` the pods of a namespace without a node; `report` is called with progress. Nodes and pods that the
    user may not list are left out, unless a topology needs them."""
    configuration = await configuration_of(client)
    found = [Document("the configuration", configuration.tree)]
    has_topologies = False
    for kind in (*planner.KINDS, *(planner.CLASSES if classes else ())):
        if kind in _FOR_TOPOLOGIES and not has_topologies and not (nodes and kind is kube.Node):
            continue
        row = registry.ALL.of(kind)
        report(f"reading {row.plural}")
        try:
            listing = await client.list(row)
        except errors.ApiError:
            if kind in _FOR_TOPOLOGIES and not has_topologies:
                continue
            raise
        has_topologies = has_topologies or (kind is kueue.Topology and bool(listing.items))
        head = {"apiVersion": row.api_version, "kind": row.kind}
        for raw in listing.items:
            tree = msgspec.json.decode(raw)
            found.append(Document(f"{row.kind} {tree['metadata']['name']}", {**tree, **head}))
    found += await _own_kinds(client)
    if unscheduled and not has_topologies:
        found += await _unscheduled(client, unscheduled)
    read = planner.read(found, is_stored=True, is_effective=configuration.is_effective)
    return replace(read, notices=configuration.notices)


async def _own_kinds(client: ApiClient) -> list[Document]:
    """The QuotaSchedules and Budgets; none where the server does not serve a kind, or the user may not list it."""
    found = []
    for row in registry.EXTENSIONS:
        try:
            listing = await client.list(row)
        except errors.ApiError:
            continue
        head = {"apiVersion": row.api_version, "kind": row.kind}
        trees = map(msgspec.json.decode, listing.items)
        found += [Document(f"{row.kind} {tree['metadata']['name']}", {**tree, **head}) for tree in trees]
    return found


async def _unscheduled(client: ApiClient, namespace: str) -> list[Document]:
    """The pods of a namespace that have no node."""
    row = registry.ALL.of(kube.Pod)
    try:
        listing = await client.list(row, namespace, fields="spec.nodeName=")
    except errors.ApiError:
        return []
    head = {"apiVersion": row.api_version, "kind": row.kind}
    trees = map(msgspec.json.decode, listing.items)
    return [Document(f"{row.kind} {tree['metadata']['name']}", {**tree, **head}) for tree in trees]


class ServerConfiguration(NamedTuple):
    """A Configuration, and notices about its origin."""

    tree: dict[str, Any]
    notices: tuple[str, ...] = ()
    # Whether it is what the manager runs with, complete and valid, and not a file.
    is_effective: bool = False


async def configuration_of(client: ApiClient) -> ServerConfiguration:
    """The Configuration that the manager runs with. Where it cannot be read, the default one with a notice."""
    try:
        answer = await client.request(ApiRequest("GET", CONFIGURATION_PATH))
        return ServerConfiguration(dict(msgspec.json.decode(answer.body)), is_effective=True)
    except (errors.ApiError, msgspec.DecodeError):
        pass
    kept, why = await _kept(client)
    trees = [document.tree for document in yaml_documents.parse(kept, "the manager's configuration")] if kept else []
    if trees:
        return ServerConfiguration(trees[0], (why,) if why else ())
    return ServerConfiguration({"apiVersion": config.V1BETA2, "kind": config.KIND}, (f"{why}; {_DEFAULTS}",))


_DEFAULTS: Final = "the result assumes the default Configuration (no fair sharing, default gates, no exclusions)"


async def _kept(client: ApiClient) -> tuple[str, str]:
    """The text of the Configuration in a cluster, and a notice: which of several installations was used, or why there
    is none."""
    kind = registry.ALL.of(kube.ConfigMap)
    try:
        found = await client.find(kind, names.CONFIG_MAP, config.DEFAULT_NAMESPACE)
        if found is not None:
            return _text(found), ""
        listing = await client.list(kind, fields=f"metadata.name={names.CONFIG_MAP}")
    except errors.ApiError as error:
        return "", f"the Configuration of the manager (ConfigMap {names.CONFIG_MAP}) cannot be read: {error}"
    others = [msgspec.json.decode(item, type=dict[str, Any]) for item in listing.items]
    places = sorted(str(other["metadata"]["namespace"]) for other in others)
    if not others:
        return "", f"no ConfigMap {names.CONFIG_MAP} with the Configuration of a manager exists"
    first = min(others, key=lambda other: str(other["metadata"]["namespace"]))
    several = f"several managers have a Configuration ({', '.join(places)}); that of {places[0]} is used"
    return _text(first), several if len(places) > 1 else ""


def _text(found: dict[str, Any]) -> str:
    return str((found.get("data") or {}).get(names.CONFIG_FILE, ""))
