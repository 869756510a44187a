"""What placement reads from API objects, and what it leaves out."""

from __future__ import annotations

import pytest

from core.topology.cluster_text import LEVELS
from kubemachinery.meta import ObjectMeta
from pykueue.api.kube import (
    Affinity,
    Node,
    NodeAffinity,
    NodeCondition,
    NodeSelector,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Toleration,
)
from pykueue.api.kueue import (
    PodsetSliceRequiredTopologyConstraint,
    PodSetTopologyRequest,
    PodSetUpdate,
    ResourceFlavor,
    ResourceFlavorSpec,
    Topology,
    TopologyLevel,
    TopologySpec,
)
from pykueue.core.topology import (
    HOSTNAME,
    SliceLayer,
    TopologyRequest,
    TopologyRequestMode,
    counts_outside,
    figure,
    terms_of,
    topology_flavor_of,
    topology_node_of,
    topology_request_of,
)

BLOCK, RACK = LEVELS["block"], LEVELS["rack"]
PLACED = ObjectMeta(annotations={"kueue.x-k8s.io/podset-unconstrained-topology": "true"})
READY = (NodeCondition(type="Ready", status="True"),)


def test_a_ready_node_offers_its_allocatable_in_request_units() -> None:
    status = NodeStatus(
        allocatable={"cpu": "1500m", "memory": "1Ki", "pods": 10, "odd": "1.2", "bad": "x"}, conditions=READY
    )
    read = topology_node_of(Node(metadata=ObjectMeta(name="n1", labels={"a": "b"}), status=status))
    assert read is not None
    assert (read.name, read.labels) == ("n1", {"a": "b"})
    assert read.allocatable == {"cpu": 1500, "memory": 1024, "pods": 10, "odd": 2}


@pytest.mark.parametrize(
    ("spec", "conditions"),
    [
        (NodeSpec(unschedulable=True), READY),
        (NodeSpec(), ()),
        (NodeSpec(), (NodeCondition(type="Ready", status="Unknown"),)),
    ],
)
def test_a_node_that_is_cordoned_or_not_ready_does_not_exist(
    spec: NodeSpec, conditions: tuple[NodeCondition, ...]
) -> None:
    assert (
        topology_node_of(Node(metadata=ObjectMeta(name="n1"), spec=spec, status=NodeStatus(conditions=conditions)))
        is None
    )


def test_a_flavor_takes_its_levels_from_the_topology() -> None:
    levels = (TopologyLevel(node_label=RACK), TopologyLevel(node_label=HOSTNAME))
    topology = Topology(metadata=ObjectMeta(name="t"), spec=TopologySpec(levels=levels))
    spec = ResourceFlavorSpec(node_labels={"b": "2", "a": "1"}, topology_name="t")
    read = topology_flavor_of(ResourceFlavor(metadata=ObjectMeta(name="f"), spec=spec), topology)
    assert (read.name, read.topology, read.levels) == ("f", "t", (RACK, HOSTNAME))
    assert read.node_labels == (("a", "1"), ("b", "2"))
    assert read.is_host_topology


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (Pod(spec=PodSpec(node_name="n1")), True),
        (Pod(), False),
        (Pod(spec=PodSpec(node_name="n1"), status=PodStatus(phase="Succeeded")), False),
        (Pod(spec=PodSpec(node_name="n1"), status=PodStatus(phase="Failed")), False),
        (Pod(metadata=PLACED, spec=PodSpec(node_name="n1")), False),
    ],
    ids=["bound", "not bound", "succeeded", "failed", "with a placement"],
)
def test_pods_that_use_a_node_without_a_placement(pod: Pod, counts: bool) -> None:
    assert counts_outside(pod) is counts


@pytest.mark.parametrize(
    ("request_", "topology_request"),
    [
        (None, TopologyRequest()),
        (PodSetTopologyRequest(pod_set_group_name="g"), TopologyRequest()),
        (PodSetTopologyRequest(unconstrained=True), TopologyRequest()),
        (PodSetTopologyRequest(required=RACK), TopologyRequest(TopologyRequestMode.REQUIRED, RACK)),
        (PodSetTopologyRequest(preferred=RACK), TopologyRequest(TopologyRequestMode.PREFERRED, RACK)),
        (
            PodSetTopologyRequest(required=BLOCK, pod_set_slice_required_topology=RACK, pod_set_slice_size=4),
            TopologyRequest(TopologyRequestMode.REQUIRED, BLOCK, (SliceLayer(RACK, 4),)),
        ),
        (
            PodSetTopologyRequest(pod_set_slice_required_topology=RACK, pod_set_slice_size=4),
            TopologyRequest(TopologyRequestMode.UNCONSTRAINED, None, (SliceLayer(RACK, 4),)),
        ),
        (
            PodSetTopologyRequest(
                preferred=BLOCK,
                podset_slice_required_topology_constraints=(
                    PodsetSliceRequiredTopologyConstraint(topology=RACK, size=4),
                    PodsetSliceRequiredTopologyConstraint(topology=HOSTNAME, size=2),
                ),
            ),
            TopologyRequest(TopologyRequestMode.PREFERRED, BLOCK, (SliceLayer(RACK, 4), SliceLayer(HOSTNAME, 2))),
        ),
    ],
)
def test_topology_request_is_parsed(request_: PodSetTopologyRequest | None, topology_request: TopologyRequest) -> None:
    assert topology_request_of(request_) == topology_request


def test_a_slice_size_without_a_level_names_a_level_that_no_topology_has() -> None:
    assert topology_request_of(PodSetTopologyRequest(pod_set_slice_size=2)).levels() == ("",)


def test_terms_are_the_pods_own_and_what_ready_checks_added() -> None:
    selector = NodeSelector()
    spec = PodSpec(
        node_selector={"a": "1"},
        tolerations=(Toleration(key="x"),),
        affinity=Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)),
    )
    update = PodSetUpdate(name="main", node_selector={"b": "2"}, tolerations=(Toleration(key="x"), Toleration(key="y")))
    read = terms_of(spec, [update])
    assert read.node_selector == (("a", "1"), ("b", "2"))
    assert [toleration.key for toleration in read.tolerations] == ["x", "y"]
    assert read.required_affinity == selector
    assert hash(read) == hash(terms_of(spec, [update])), "equal terms share one cached answer"


def test_an_update_that_contradicts_the_pod_leaves_no_node() -> None:
    spec = PodSpec(node_selector={"a": "1"})
    assert terms_of(spec, [PodSetUpdate(name="main", node_selector={"a": "2"})]).node_selector == (
        ("a", "1"),
        ("a", "2"),
    )


def test_a_figure_is_sorted_and_leaves_pods_to_placement() -> None:
    assert figure({"memory": 1, "cpu": 0, "pods": 3}) == (("cpu", 0), ("memory", 1))
