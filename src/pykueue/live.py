"""A running system as a case: everything its decisions rest on, read from its API server.

The Configuration is asked of whoever has it: an embedded server tells its own, a cluster keeps the manager's in a
ConfigMap. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from pykueue import documents, planning
from pykueue.api import config, kube, kueue, registry
from pykueue.documents import Document
from pykueue.installing import names
from pykueue.kube import errors
from pykueue.kube.client import Client
from pykueue.kube.transport import Call
from pykueue.observe.health import CONFIGURATION_PATH
from pykueue.planning import Case

# Which nodes have room matters only where a topology is to be kept, and there may be very many pods.
_FOR_TOPOLOGIES: Final = frozenset({kube.Node, kube.Pod})


async def case(
    client: Client,
    *,
    nodes: bool = False,
    classes: bool = False,
    unscheduled: str = "",
    told: Callable[[str], None],
) -> Case:
    """What the server has now. `nodes` asks for the nodes although no topology needs them, `classes` for what jobs take
    their priority from, `unscheduled` for the pods of a namespace that have no node; `told` is called with progress.
    Nodes and pods that the caller may not list are left out, unless a topology needs them."""
    found = [Document("the configuration", await configuration_of(client))]
    has_topologies = False
    for kind in (*planning.KINDS, *(planning.CLASSES if classes else ())):
        if kind in _FOR_TOPOLOGIES and not has_topologies and not (nodes and kind is kube.Node):
            continue
        row = registry.ALL.of(kind)
        told(f"reading {row.plural}")
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
    if unscheduled and not has_topologies:
        found += await _unscheduled(client, unscheduled)
    return planning.read(found)


async def _unscheduled(client: Client, namespace: str) -> list[Document]:
    """The pods of a namespace that have no node."""
    row = registry.ALL.of(kube.Pod)
    try:
        listing = await client.list(row, namespace, fields="spec.nodeName=")
    except errors.ApiError:
        return []
    head = {"apiVersion": row.api_version, "kind": row.kind}
    trees = map(msgspec.json.decode, listing.items)
    return [Document(f"{row.kind} {tree['metadata']['name']}", {**tree, **head}) for tree in trees]


async def configuration_of(client: Client) -> dict[str, Any]:
    """The Configuration that the manager runs with; its defaults where nobody says."""
    try:
        answer = await client.ask(Call("GET", CONFIGURATION_PATH))
        return dict(msgspec.json.decode(answer.body))
    except (errors.ApiError, msgspec.DecodeError):
        pass
    kept = await _kept(client)
    trees = [document.tree for document in documents.parse(kept, "the manager's configuration")] if kept else []
    return trees[0] if trees else {"apiVersion": config.V1BETA2, "kind": config.KIND}


async def _kept(client: Client) -> str:
    try:
        found = await client.find(registry.ALL.of(kube.ConfigMap), names.CONFIG_MAP, config.DEFAULT_NAMESPACE)
    except errors.ApiError:  # whoever asks may not be allowed to look there
        return ""
    return str(((found or {}).get("data") or {}).get(names.CONFIG_FILE, ""))
