"""Topology-aware scheduling: on which domains (racks, hosts) the pods of a pod set are placed (rules TS).

* **Values** (`values`, `failures`): a `PlacementRequest` per pod set goes in, a `PlacementOutcome` comes out: a
  `TopologyPlacement` per pod set (levels, and pods per domain) or a `PlacementFailure` with what was missing.
* **`TopologyCache`** is the only mutable part: nodes, the flavors that select them, and their usage (TASCache).
  Permanent changes come from watched objects (`put_node`, `put_flavor`, `put_outside_usage`, `book`, `release`). Inside
  a cycle, `assume` and `remove` try changes out, and `mark` and `undo` restore exactly what was there before.
* **`place`** is the decision: deterministic, and it leaves the cache as it was.

How a cycle uses it::

    mark = cache.mark()
    outcome = topology.place(cache, requests)                 # on what is free now
    outcome = topology.place(cache, requests, emptied=True)   # as if no Workload with a placement existed
    cache.remove(usage_of_target)                             # a what-if: the target evicted
    cache.assume(usage_of_entry)                              # an entry uses its capacity for the rest of the cycle
    cache.fits(usage_of_entry)                                # does a placement found earlier still hold?
    cache.undo(mark)                                          # everything since `mark` is undone
    cache.book(usage)                                         # after the cycle: the reservation is permanent

The modules in the order of a decision: `tree` (domains as dense integers), `node_matching` (which nodes a pod may use),
`domain_counts` (how many pods each domain holds), `domain_selection` (the domains to start from), `leaf_distribution`
(down to the leaves), and the variations `balanced`, `node_replacement` and `elastic`.
"""

from pykueue.core.topology.assignment import place
from pykueue.core.topology.failures import Exclusions, LayerFit, PlacementFailure, PlacementOutcome
from pykueue.core.topology.nodes import TopologyCache
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
    "LayerFit",
    "NodeReplacement",
    "NodeTerms",
    "PlacedPods",
    "PlacementFailure",
    "PlacementOptions",
    "PlacementOutcome",
    "PlacementRequest",
    "SliceLayer",
    "TopologyCache",
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
