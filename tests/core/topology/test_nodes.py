"""What is free on the nodes: reservations, pods outside, nodes that come and go, what-ifs and flavors that overlap."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.topology.cluster_text import FLAVOR, LEVELS, as_text, place_one, request, topology_cache, usage
from pykueue.core.topology import (
    HOSTNAME,
    PlacementOptions,
    TopologyCache,
    TopologyFlavor,
    TopologyNode,
    TopologyRequest,
    place,
)

TWO_HOSTS = "b1 r1 h1 4 \n b1 r1 h2 4"
LEVEL_KEYS = (LEVELS["block"], LEVELS["rack"], HOSTNAME)


def node(name: str, cores: int, **labels: str) -> TopologyNode:
    path = {LEVELS["block"]: "b1", LEVELS["rack"]: "r1", HOSTNAME: name}
    return TopologyNode(name, path | {"pool": "all"} | labels, {"cpu": cores * 1000, "pods": 100})


def test_a_booked_placement_is_in_use_until_it_is_released() -> None:
    world = topology_cache(TWO_HOSTS)
    world.book([usage("h1:3")])
    assert place_one(world, "required host", 2) == "h2:2"
    world.release([usage("h1:3")])
    assert place_one(world, "required host", 2) == "h1:2"


def test_emptied_cluster_ignores_placements_but_not_pods_without_one() -> None:
    world = topology_cache(TWO_HOSTS)
    world.book([usage("h1:4 h2:4")])
    world.put_outside_usage("h1", {"cpu": 2000, "pods": 1})
    assert place_one(world, "required host", 3).startswith("no:")
    assert place_one(world, "required host", 3, emptied=True) == "h2:3"


def test_outside_usage_replaces_the_previous_value() -> None:
    world = topology_cache("b1 r1 h1 4")
    assert place_one(world, "required host", 4) == "h1:4"
    world.put_outside_usage("h1", {"cpu": 2000, "pods": 1})
    assert place_one(world, "required host", 4).startswith("no:")
    world.put_outside_usage("h1", {})
    assert place_one(world, "required host", 4) == "h1:4"


def test_overused_node_holds_no_pods() -> None:
    world = topology_cache(TWO_HOSTS)
    world.book([usage("h1:6")])
    assert place_one(world, "required rack", 4) == "h2:4"
    assert place_one(world, "required rack", 5).startswith('no: topology "tree" allows to fit only 4 out of 5 pod(s)')


def test_usage_on_a_deleted_node_counts_again_when_it_returns() -> None:
    world = topology_cache(TWO_HOSTS)
    world.book([usage("h1:3")])
    world.drop_node("h1")
    assert place_one(world, "required rack", 4) == "h2:4"
    world.put_node(node("h1", 4))
    assert place_one(world, "required rack", 5) == "h1:1 h2:4"


def test_a_node_belongs_to_a_flavor_only_with_all_its_labels_and_levels() -> None:
    world = topology_cache("", node_labels=(("pool", "all"),))
    stray = node("h2", 9)
    world.put_node(node("h1", 1))
    world.put_node(replace(stray, labels=dict(stray.labels) | {"pool": "other"}))
    world.put_node(replace(stray, name="h3", labels={HOSTNAME: "h3", "pool": "all"}))
    assert place_one(world, "unconstrained", 2).startswith('no: topology "tree" allows to fit only 1 out of 2 pod(s)')


def test_a_changed_node_is_seen_with_its_new_capacity() -> None:
    world = topology_cache("b1 r1 h1 1")
    assert place_one(world, "required host", 2).startswith("no:")
    world.put_node(node("h1", 2))
    assert place_one(world, "required host", 2) == "h1:2"


def test_a_what_if_is_seen_and_then_undone() -> None:
    world = topology_cache(TWO_HOSTS)
    world.book([usage("h1:4")])
    outer = world.mark()
    world.remove([usage("h1:4")])
    assert place_one(world, "required rack", 8) == "h1:4 h2:4"
    inner = world.mark()
    world.assume([usage("h2:4")])
    assert place_one(world, "required host", 4) == "h1:4"
    world.undo(inner)
    assert place_one(world, "required rack", 8) == "h1:4 h2:4"
    world.undo(outer)
    assert place_one(world, "required rack", 4) == "h2:4"


def test_permanent_change_during_a_what_if_is_refused() -> None:
    world = topology_cache(TWO_HOSTS)
    mark = world.mark()
    world.assume([usage("h1:1")])
    with pytest.raises(RuntimeError, match="while a what-if is open"):
        world.book([usage("h2:1")])
    world.undo(mark)
    world.book([usage("h2:1")])


def test_earlier_placement_fits_while_each_host_has_capacity() -> None:
    world = topology_cache(TWO_HOSTS)
    assert world.fits([usage("h1:4 h2:1")])
    world.assume([usage("h1:1")])
    assert not world.fits([usage("h1:4")])
    assert world.fits([usage("h1:3")])
    assert not world.fits([usage("h9:1")]), "its node is gone"
    assert not world.fits([replace(usage("h1:1"), pod=())]), "pods that place_one for nothing are not known to fit"
    assert not world.fits([usage("h1:1", cpu=0, flavor="unknown")]), "its flavor is gone"


def test_flavors_on_the_same_hosts_see_each_others_reservations() -> None:
    world = _overlapping(PlacementOptions())
    world.book([usage("h1:3", flavor="other")])
    assert place_one(world, "required host", 2) == "no: " + _fits_only(1)


def test_without_the_gate_for_overlapping_flavors_each_sees_its_own_only() -> None:
    world = _overlapping(PlacementOptions(overlapping_flavors=False))
    world.book([usage("h1:3", flavor="other")])
    assert place_one(world, "required host", 2) == "h1:2"


def test_a_what_if_is_seen_by_the_flavor_it_names_only() -> None:
    """As recorded of the reference: within a cycle, a booking on one flavor is not seen by another on the same node."""
    world = _overlapping(PlacementOptions())
    world.assume([usage("h1:3", flavor="other")])
    assert place_one(world, "required host", 2) == "h1:2"


def test_pod_sets_of_one_workload_do_not_share_capacity_across_flavors() -> None:
    world = _overlapping(PlacementOptions())
    pair = [
        request("required host", 3, pod_set="a"),
        replace(request("required host", 2, pod_set="b"), flavor="other"),
    ]
    outcome = place(world, pair)
    assert outcome.failure is not None
    assert outcome.failure.pod_set == "b"
    assert list(outcome.placements) == ["a"]
    assert place_one(world, "required host", 4) == "h1:4", "and nothing of it stays in use"


def test_where_leaves_are_racks_only_the_flavors_own_reservations_count() -> None:
    world = TopologyCache()
    for name in ("one", "two"):
        world.put_flavor(TopologyFlavor(name, "racks", LEVEL_KEYS[:2]))
    world.put_node(node("h1", 4))
    world.book([usage("b1/r1:3", flavor="two", levels=("block", "rack"))])
    wanted = replace(request("required rack", 4), flavor="one")
    assert as_text(place(world, [wanted])) == "b1/r1:4"
    assert not place(world, [replace(wanted, flavor="two")]).fits


def test_a_flavor_is_known_with_its_levels_until_it_is_dropped() -> None:
    world = topology_cache(TWO_HOSTS)
    assert world.has_flavor(FLAVOR)
    assert world.has_levels(FLAVOR, TopologyRequest(level=LEVELS["rack"]))
    assert not world.has_levels(FLAVOR, TopologyRequest(level=LEVELS["zone"]))
    world.drop_flavor(FLAVOR)
    assert not world.has_flavor(FLAVOR)
    assert place_one(world, "unconstrained", 1) == 'no: Flavor "fast" information missing in TAS cache'


def test_remaining_capacity_is_listed_by_leaf_and_may_be_negative() -> None:
    world = topology_cache("b1 r1 h1 4 \n b1 r1 h2 1")
    world.book([usage("h1:3 h2:2")])
    assert world.left(FLAVOR) == {("h1",): {"cpu": 1000, "pods": 97}, ("h2",): {"cpu": -1000, "pods": 98}}
    assert world.left("unknown") == {}


def test_topology_without_levels_counts_as_unknown() -> None:
    world = topology_cache(TWO_HOSTS)
    world.put_flavor(TopologyFlavor(FLAVOR, "tree", ()))
    assert not world.has_flavor(FLAVOR)


def test_two_nodes_that_claim_one_hostname_are_one_leaf() -> None:
    """Capacities add up where the first of them, by name, stands."""
    world = topology_cache("b1 r1 h1 2 name=n1 \n b2 r2 h1 3 name=n2")
    assert place_one(world, "required host", 5) == "h1:5"
    assert place_one(world, "required block", 5) == "h1:5"


def test_a_flavor_without_nodes_has_no_domains() -> None:
    assert place_one(topology_cache(""), "required rack", 1) == "no: no topology domains at level: example.com/rack"


def _overlapping(profile: PlacementOptions) -> TopologyCache:
    world = topology_cache("b1 r1 h1 4", profile=profile)
    world.put_flavor(TopologyFlavor("other", "hosts", (HOSTNAME,)))
    return world


def _fits_only(fitting: int) -> str:
    return f'topology "tree" allows to fit only {fitting} out of 2 pod(s)'
