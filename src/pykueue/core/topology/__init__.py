"""Where in the tree of racks and hosts a pod set goes (topology-aware scheduling).

Three things to know:

* **Values** (`values`, `failure`): a `PlacementRequest` per pod set goes in, an `Outcome` comes out; it holds a
  `Placement` per pod set (levels, and pods per domain) or a `PlacementFailure` that says in words what was missing.
* **`Fleet`** is the one mutable thing: nodes, the flavors that select them, and what is in use. Lasting changes come
  from watched objects (`put_node`, `put_flavor`, `put_outside_usage`, `book`, `release`). Inside a cycle, `assume` and
  `remove` try things out, `mark` and `undo` take them back, and what was there before is there again exactly.
* **`place`** is the decision: pure, deterministic, it leaves the fleet as it found it.

How a cycle uses it::

    mark = fleet.mark()
    outcome = topology.place(fleet, requests)                 # on what is free now
    outcome = topology.place(fleet, requests, emptied=True)   # as if no workload with a placement were there
    fleet.remove(usage_of_victim)                             # a what-if: the victim gone
    fleet.assume(usage_of_entry)                              # an entry takes its room for the rest of the cycle
    fleet.fits(usage_of_entry)                                # does a placement found earlier still hold?
    fleet.undo(mark)                                          # everything since `mark` is taken back
    fleet.book(usage)                                         # after the cycle: the reservation stands

The modules, in the order a decision takes: `tree` (domains as dense integers), `matching` (which nodes a pod may use),
`counting` (how much each domain holds), `choosing` (where to start), `spreading` (down to the leaves), and the
variations `balanced`, `repair` and `elastic`.
"""

from pykueue.core.topology.assignment import place
from pykueue.core.topology.failures import Exclusions, LayerFit, PlacementFailure, PlacementOutcome
from pykueue.core.topology.nodes import Fleet
from pykueue.core.topology.parsing import (
    counts_outside,
    terms_of,
    topology_flavor_of,
    topology_node_of,
    topology_request_of,
)
from pykueue.core.topology.values import (
    HOSTNAME,
    PODS,
    DomainPods,
    Figure,
    NodeReplacement,
    NodeTerms,
    PlacedPods,
    PlacementOptions,
    PlacementRequest,
    SliceLayer,
    TopologyFlavor,
    TopologyNode,
    TopologyPlacement,
    TopologyRequest,
    TopologyRequestMode,
    figure,
)

__all__ = [
    "HOSTNAME",
    "PODS",
    "DomainPods",
    "Exclusions",
    "Figure",
    "Fleet",
    "LayerFit",
    "NodeReplacement",
    "NodeTerms",
    "PlacedPods",
    "PlacementFailure",
    "PlacementOptions",
    "PlacementOutcome",
    "PlacementRequest",
    "SliceLayer",
    "TopologyFlavor",
    "TopologyNode",
    "TopologyPlacement",
    "TopologyRequest",
    "TopologyRequestMode",
    "counts_outside",
    "figure",
    "place",
    "terms_of",
    "topology_flavor_of",
    "topology_node_of",
    "topology_request_of",
]
