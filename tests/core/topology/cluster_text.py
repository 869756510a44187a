"""Small clusters and topology requests as text, so that placement rules are readable.

A cluster is a line per node, its domains from coarse to fine and then its free cpu in whole cores::

    b1 r1 h1  3
    b1 r1 h2  2  disk=ssd  taint=spot:NoSchedule  pods=4  used=1

A topology request is a phrase: `required rack`, `preferred block`, `unconstrained`, `required block, 4 per rack, 2 per
host`. A placement is written as `h3:4 h4:3`, in the order of the assignment.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.kube import Taint
from pykueue.core.topology import (
    HOSTNAME,
    DomainPods,
    NodeTerms,
    PlacedPods,
    PlacementOptions,
    PlacementOutcome,
    PlacementRequest,
    SliceLayer,
    TopologyCache,
    TopologyFlavor,
    TopologyNode,
    TopologyPlacement,
    TopologyRequest,
    TopologyRequestMode,
    figure,
    place,
)

LEVELS = {"zone": "example.com/zone", "block": "example.com/block", "rack": "example.com/rack", "host": HOSTNAME}
BLOCKS_RACKS_HOSTS = ("block", "rack", "host")
FLAVOR = "fast"


def topology_cache(
    text: str,
    *,
    levels: tuple[str, ...] = BLOCKS_RACKS_HOSTS,
    profile: PlacementOptions | None = None,
    **of_flavor: object,
) -> TopologyCache:
    """A topology cache of the nodes in the text, all of them of one flavor."""
    made = TopologyCache(profile or PlacementOptions())
    keys = tuple(LEVELS[level] for level in levels)
    made.put_flavor(TopologyFlavor(FLAVOR, "tree", keys, **of_flavor))  # type: ignore[arg-type]
    for line in filter(None, map(str.strip, text.splitlines())):
        node, used = _node(line.split(), keys)
        made.put_node(node)
        if used:
            made.book([usage(f"{node.name}:{used}")])
    return made


def _node(words: list[str], keys: tuple[str, ...]) -> tuple[TopologyNode, int]:
    path, cores, rest = words[: len(keys)], words[len(keys)], dict(word.split("=") for word in words[len(keys) + 1 :])
    taint, _, effect = rest.pop("taint", "").partition(":")
    amounts = {"cpu": int(cores) * 1000, "pods": int(rest.pop("pods", "100"))}
    used = int(rest.pop("used", "0"))
    labels = dict(zip(keys, path, strict=True)) | {"pool": "all"} | rest
    name = rest.pop("name", path[-1])
    return TopologyNode(name, labels, amounts, (Taint(key=taint, effect=effect),) if taint else ()), used


def topology_request(text: str) -> TopologyRequest:
    first, *slices = text.split(", ")
    layers = tuple(SliceLayer(LEVELS[level], int(size)) for size, _, level in (phrase.split() for phrase in slices))
    kind, *level = first.split()
    return TopologyRequest(TopologyRequestMode(kind), LEVELS[level[0]] if level else None, layers)


def request(text: str, count: int, *, cpu: float = 1, pod_set: str = "main", **more: object) -> PlacementRequest:
    pod = figure({"cpu": round(cpu * 1000)})
    return PlacementRequest(pod_set, FLAVOR, count, pod, topology_request(text), **more)  # type: ignore[arg-type]


def place_one(
    world: TopologyCache, text: str, count: int, *, cpu: float = 1, emptied: bool = False, **more: Any
) -> str:
    """The placement of a single pod set, or why there is none."""
    return as_text(place(world, [request(text, count, cpu=cpu, **more)], emptied=emptied))


def place_group(world: TopologyCache, text: str, workers: int, *, leader_cpu: float, cpu: float = 1) -> str:
    """The placement of a group: the leader first, then the workers."""
    pair = [
        request(text, 1, cpu=leader_cpu, pod_set="leader", group="g"),
        request(text, workers, cpu=cpu, pod_set="workers", group="g"),
    ]
    return as_text(place(world, pair), "leader", "workers")


def as_text(outcome: PlacementOutcome, *pod_sets: str) -> str:
    if outcome.failure is not None:
        return f"no: {outcome.failure}"
    return " | ".join(placement_text(outcome.placements[name]) for name in pod_sets or ("main",))


def placement_text(placement: TopologyPlacement) -> str:
    return " ".join(f"{'/'.join(domain.values)}:{domain.count}" for domain in placement.domains)


def placement(text: str, levels: tuple[str, ...] = ("host",)) -> TopologyPlacement:
    """The placement that a text describes."""
    domains = (word.split(":") for word in text.split())
    return TopologyPlacement(
        tuple(LEVELS[level] for level in levels),
        tuple(DomainPods(tuple(path.split("/")), int(count)) for path, count in domains),
    )


def usage(text: str, *, cpu: float = 1, flavor: str = FLAVOR, levels: tuple[str, ...] = ("host",)) -> PlacedPods:
    """The usage of pods placed as the text describes."""
    return PlacedPods(flavor, figure({"cpu": round(cpu * 1000)}), placement(text, levels))


def terms(**wanted: str) -> NodeTerms:
    """A node selector for labels."""
    return NodeTerms(node_selector=tuple(sorted(wanted.items())))
