"""The message where pods cannot be placed: how many would fit, and why which nodes are excluded."""

from __future__ import annotations

from core.topology.cluster_text import LEVELS, place_one, request, terms, topology_cache
from pykueue.core.topology import Exclusions, LayerFit, PlacementFailure, place

MIXED = """
    b1 r1 h1  1
    b1 r1 h2  0
    b1 r1 h3  4  pods=0
    b1 r2 h4  4  taint=spot:NoSchedule
    b1 r2 h5  4  disk=tape
"""


def test_every_excluded_node_is_counted_once_under_its_cause() -> None:
    world = topology_cache(MIXED)
    failure = place(world, [request("required rack", 5, terms=terms(pool="all"))]).failure
    assert failure == PlacementFailure(
        pod_set="main",
        flavor="fast",
        topology="tree",
        fitting=4,
        needed=5,
        exclusions=Exclusions(nodes=5, taints=(("spot:NoSchedule", 1),), resources=(("cpu", 1), ("pods", 1))),
    )


def test_causes_are_left_out_without_explain() -> None:
    failure = place(topology_cache(MIXED), [request("required rack", 5)], explain=False).failure
    assert failure is not None
    assert (failure.fitting, failure.needed, failure.exclusions) == (4, 5, Exclusions())


def test_preferred_request_counts_several_domains_together() -> None:
    assert (
        place_one(topology_cache("b1 r1 h1 2 \n b2 r2 h2 3"), "preferred rack", 9)
        == 'no: topology "tree" allows to fit only 5 out of 9 pod(s)'
    )


def test_slices_are_counted_as_slices() -> None:
    answer = place_one(topology_cache("b1 r1 h1 5 \n b1 r2 h2 3"), "required block, 2 per rack", 8)
    assert answer == 'no: topology "tree" allows to fit only 3 out of 4 slice(s)'


def test_with_layers_each_layer_is_counted_in_the_best_domain() -> None:
    world = topology_cache("b1 r1 h1 3 \n b1 r1 h2 3 \n b2 r2 h3 1")
    failure = place(world, [request("required block, 4 per rack, 2 per host", 8)]).failure
    assert failure is not None
    assert failure.layers == (LayerFit(LEVELS["rack"], 1, 2), LayerFit(LEVELS["host"], 2, 4))
    assert str(failure) == (
        'topology "tree" doesn\'t allow to fit; 1/2 slice(s) fit on level example.com/rack; '
        "2/4 slice(s) fit on level kubernetes.io/hostname"
    )


def test_first_failing_pod_set_of_the_spec_is_reported() -> None:
    pods = [request("required rack", 9, pod_set="a"), request("required rack", 9, pod_set="b")]
    failure = place(topology_cache(MIXED), pods).failure
    assert failure is not None
    assert failure.pod_set == "a"
