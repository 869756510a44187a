"""Why a pod set could not be placed: the facts first, then the message made from them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pykueue.core.topology.values import TopologyPlacement


class Exclusions(msgspec.Struct, frozen=True):
    """How many nodes could not take a single pod, by cause."""

    nodes: int = 0
    node_selector: int = 0
    affinity: int = 0
    outside_domain: int = 0
    taints: tuple[tuple[str, int], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        causes = [
            ("nodeSelector", self.node_selector),
            ("affinity", self.affinity),
            ("topologyDomain", self.outside_domain),
            *((f'taint "{taint}"', count) for taint, count in self.taints),
            *((f'resource "{resource}"', count) for resource, count in self.resources),
        ]
        return ", ".join(sorted(f"{cause}: {count}" for cause, count in causes if count))


class LayerFit(msgspec.Struct, frozen=True):
    """How many slices of one layer fit in the best domain."""

    level: str
    fitting: int
    needed: int


class PlacementFailure(msgspec.Struct, frozen=True):
    """A pod set that could not be placed: how much of it fits in the best domain, and why nodes are excluded.

    `problem` is set instead of the figures when the topology has no such level, or the slices do not nest.
    """

    pod_set: str
    flavor: str
    topology: str
    problem: str = ""
    fitting: int = 0
    needed: int = 0
    slice_size: int = 1
    layers: tuple[LayerFit, ...] = ()
    exclusions: Exclusions = Exclusions()

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        excluded = str(self.exclusions)
        nodes = f". Total nodes: {self.exclusions.nodes}; excluded: {excluded}" if excluded else ""
        return f'topology "{self.topology}" {self._shortage()}{nodes}'

    def _shortage(self) -> str:
        if self.layers:
            fits = (f"; {layer.fitting}/{layer.needed} slice(s) fit on level {layer.level}" for layer in self.layers)
            return f"doesn't allow to fit{''.join(fits)}"
        unit = "pod(s)" if self.slice_size == 1 else "slice(s)"
        if not self.fitting:
            return f"doesn't allow to fit any of {self.needed} {unit}"
        return f"allows to fit only {self.fitting} out of {self.needed} {unit}"


class PlacementOutcome(msgspec.Struct, frozen=True):
    """The result for all pod sets of a Workload: a placement each, or the first failure in their order.

    With a failure, `placements` still holds the pod sets that could be placed.
    """

    placements: Mapping[str, TopologyPlacement] = msgspec.field(default_factory=dict)
    failure: PlacementFailure | None = None

    @property
    def fits(self) -> bool:
        return self.failure is None
