"""The values of placement: requests and results, all frozen.

Amounts are plain integers per resource name: ``cpu`` in thousandths of a core, everything else in whole units
(rounded up where a request is read). A *figure* is what one pod requests, without the ``pods`` resource: placement adds
the one ``pods`` that every pod uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Self, TypeAlias

import msgspec

from pykueue.api import labels
from pykueue.api.kube import NodeSelector, PreferredSchedulingTerm, Taint, Toleration

HOSTNAME = labels.HOSTNAME
PODS = "pods"

Figure: TypeAlias = tuple[tuple[str, int], ...]
"""What one pod requests: (resource, amount) pairs in ascending order of the resource; hashable, so it keys caches."""


def figure(amounts: Mapping[str, int]) -> Figure:
    """The figure of a pod from its amounts; `pods` is left out because placement counts it on its own."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if resource != PODS))


class TopologyNode(msgspec.Struct, frozen=True):
    """A Ready, schedulable node. A node that is not both does not exist for placement."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()


class TopologyFlavor(msgspec.Struct, frozen=True):
    """A ResourceFlavor with a topology: the labels of its nodes, and the levels of its topology (coarse to fine)."""

    name: str
    topology: str
    levels: tuple[str, ...]
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def is_host_topology(self) -> bool:
        """Whether a leaf is one node, identified by its hostname alone."""
        return self.levels[-1:] == (HOSTNAME,)


class PlacementOptions(msgspec.Struct, frozen=True):
    """The options of placement; each is one feature gate."""

    mixed: bool = True  # least free capacity for unconstrained requests, else best fit everywhere
    balanced: bool = False
    preferred_affinity: bool = False
    overlapping_flavors: bool = True
    elastic: bool = False

    @classmethod
    def of(cls, gates: Mapping[str, bool]) -> Self:
        return cls(
            mixed=gates["TASProfileMixed"],
            balanced=gates["TASBalancedPlacement"],
            preferred_affinity=gates["TASRespectNodeAffinityPreferred"],
            overlapping_flavors=gates["TASHandleOverlappingFlavors"],
            elastic=gates["ElasticJobsViaWorkloadSlicesWithTAS"],
        )


DEFAULT = PlacementOptions()


class TopologyRequestMode(Enum):
    """How strictly a pod set requires the level it names."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    UNCONSTRAINED = "unconstrained"


class SliceLayer(msgspec.Struct, frozen=True):
    """`size` pods stay together in one domain of `level`."""

    level: str
    size: int


class TopologyRequest(msgspec.Struct, frozen=True):
    """The topology request of a pod set. `level` None is the finest level, or the coarsest where slices are given.

    `slices` runs from the outermost layer inwards; none means that single pods are placed.
    """

    mode: TopologyRequestMode = TopologyRequestMode.UNCONSTRAINED
    level: str | None = None
    slices: tuple[SliceLayer, ...] = ()

    def levels(self) -> tuple[str, ...]:
        """Every level named; a flavor is eligible only if its topology has them all."""
        named = () if self.level is None else (self.level,)
        return named + tuple(layer.level for layer in self.slices)


class NodeTerms(msgspec.Struct, frozen=True):
    """What a pod requires of its node; equal terms share one cached result of which nodes match."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required_affinity: NodeSelector | None = None
    preferred_affinity: tuple[PreferredSchedulingTerm, ...] = ()


class DomainPods(msgspec.Struct, frozen=True):
    """Pods on one leaf: the level values that `Placement.levels` names, and how many pods."""

    values: tuple[str, ...]
    count: int


class TopologyPlacement(msgspec.Struct, frozen=True):
    """A topology assignment: the levels recorded and the pods per domain, in ascending order of the full path."""

    levels: tuple[str, ...]
    domains: tuple[DomainPods, ...]

    @property
    def count(self) -> int:
        return sum(domain.count for domain in self.domains)


class NodeReplacement(msgspec.Struct, frozen=True):
    """A placement held by a running pod set, and the node of it that is lost."""

    held: TopologyPlacement
    lost: str


class PlacementRequest(msgspec.Struct, frozen=True):
    """One pod set to be placed on the nodes of one flavor.

    Two requests of one `group` are placed together as leader and workers. With `node_replacement` only the pods of a
    lost node are placed; `previous` is the placement of the slice that an elastic Workload replaces. With `weighed_as`,
    the UID of the Workload, preferred weights count in the first search of a cycle only, as in Kueue (W10).
    """

    pod_set: str
    flavor: str
    count: int
    pod: Figure
    topology_request: TopologyRequest = TopologyRequest()
    terms: NodeTerms = NodeTerms()
    group: str | None = None
    node_replacement: NodeReplacement | None = None
    previous: TopologyPlacement | None = None
    weighed_as: str = ""


class PlacedPods(msgspec.Struct, frozen=True):
    """Usage of one pod set on one flavor: what is booked, assumed, removed, or tested whether it still fits."""

    flavor: str
    pod: Figure
    placement: TopologyPlacement
