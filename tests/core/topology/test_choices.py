"""Which domains a request is given: one test a rule, each on a tree that fits on a few lines."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.topology.cluster_text import as_text, place_group, place_one, request, terms, topology_cache
from pykueue.core.topology import PlacementOptions, place

FIVE_HOSTS = """
    b1 r1 h1  3
    b1 r1 h2  2
    b1 r2 h3  4
    b1 r2 h4  4
    b2 r3 h5  6
"""


@pytest.mark.parametrize(
    ("text", "count", "result", "why"),
    [
        ("preferred rack", 6, "h5:6", "racks hold 5, 8 and 6: the smallest that is enough"),
        ("preferred rack", 7, "h3:4 h4:3", "only r2; the first host by path is filled, the rest is a best fit"),
        ("preferred rack", 9, "h2:1 h3:4 h4:4", "no rack; in block b1 hosts 4, 4, and the last pod on the tightest"),
        ("preferred rack", 15, "h2:1 h3:4 h4:4 h5:6", "no block: b1, then b2"),
        ("unconstrained", 6, "h5:6", "the first host, emptiest last, that holds all"),
        ("unconstrained", 7, "h1:3 h2:2 h3:2", "none holds 7: small hosts are used up first"),
        ("required block, 4 per rack", 8, "h3:4 h4:4", "b1 holds 1 + 2 slices, r2 for both"),
        ("required block, 4 per rack", 12, "h1:2 h2:2 h3:4 h4:4", "in r1 below the slice level: h2 is smaller"),
        ("required block, 2 per host", 10, "h2:2 h3:4 h4:4", "the last slice fits h1 and h2; h2 has less to spare"),
        ("required block, 4 per rack, 2 per host", 12, "h1:2 h2:2 h3:4 h4:4", "h1 counts as 2 of its 3"),
    ],
)
def test_worked_examples(text: str, count: int, result: str, why: str) -> None:
    assert place_one(topology_cache(FIVE_HOSTS), text, count) == result, why


def test_required_level_is_one_domain_or_none() -> None:
    assert (
        place_one(topology_cache(FIVE_HOSTS), "required rack", 9)
        == 'no: topology "tree" allows to fit only 8 out of 9 pod(s)'
    )


def test_the_leader_costs_its_rack_some_workers() -> None:
    """r2 holds 8; with a leader of 2 cores, exactly the 6 workers are left."""
    assert place_group(topology_cache(FIVE_HOSTS), "required rack", 6, leader_cpu=2) == "h3:1 | h3:2 h4:4"


def test_leader_and_workers_take_the_tightest_rack_that_holds_both() -> None:
    assert place_group(topology_cache(FIVE_HOSTS), "required rack", 5, leader_cpu=1) == "h5:1 | h5:5"


def test_the_smaller_of_two_pod_sets_leads_whichever_comes_first() -> None:
    pair = [
        request("required rack", 5, pod_set="workers", group="g"),
        request("required rack", 1, pod_set="leader", group="g"),
    ]
    assert as_text(place(topology_cache(FIVE_HOSTS), pair), "leader", "workers") == "h5:1 | h5:5"


def test_a_leader_that_fits_no_host_of_a_rack_keeps_the_group_out_of_it() -> None:
    """r1 would be the tighter rack for 4 workers, but only r2 has hosts of 3 cores."""
    world = topology_cache("b1 r1 h1 2 \n b1 r1 h2 2 \n b1 r2 h3 4 \n b1 r2 h4 3")
    assert place_group(world, "required rack", 4, leader_cpu=3) == "h3:1 | h3:1 h4:3"


def test_without_the_mixed_profile_unconstrained_pods_are_packed_too() -> None:
    """Best fit everywhere: the largest host first, instead of using up small ones."""
    assert (
        place_one(topology_cache(FIVE_HOSTS, profile=PlacementOptions(mixed=False)), "unconstrained", 7) == "h2:1 h5:6"
    )


def test_slices_alone_start_from_the_top_and_use_up_small_domains() -> None:
    """b2 has one slice of 4 in a rack, b1 has three: 4 pods go where least is left over."""
    assert place_one(topology_cache(FIVE_HOSTS), "unconstrained, 4 per rack", 4) == "h5:4"
    assert place_one(topology_cache(FIVE_HOSTS), "unconstrained, 4 per rack", 16) == "h1:2 h2:2 h3:4 h4:4 h5:4"


def test_ties_go_to_the_smaller_path_not_to_the_smaller_host_name() -> None:
    assert place_one(topology_cache("b2 r1 a 2 \n b1 r9 z 2"), "unconstrained", 2) == "z:2"


def test_where_leaves_are_not_hosts_the_whole_path_is_recorded_and_nodes_add_up() -> None:
    world = topology_cache("b1 r1 2 name=n1 \n b1 r1 3 name=n2 \n b1 r2 4 name=n3", levels=("block", "rack"))
    assert place_one(world, "required rack", 5) == "b1/r1:5"
    assert place_one(world, "required block", 6) == "b1/r1:5 b1/r2:1"


def test_pods_of_a_node_are_a_resource_of_which_every_pod_takes_one() -> None:
    world = topology_cache("b1 r1 h1 9 pods=2 \n b1 r1 h2 3")
    assert place_one(world, "required host", 3) == "h2:3"


def test_pods_without_requests_are_limited_by_the_number_of_pods() -> None:
    assert place_one(topology_cache("b1 r1 h1 0 pods=2"), "required host", 2, cpu=0) == "h1:2"


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    on_gpu = replace(request("unconstrained", 1), pod=(("gpu", 1),))
    assert as_text(place(topology_cache(FIVE_HOSTS), [on_gpu])) == (
        'no: topology "tree" doesn\'t allow to fit any of 1 pod(s). Total nodes: 5; excluded: resource "gpu": 5'
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("required zone", "no requested topology level: example.com/zone"),
        ("required block, 2 per zone", "no requested topology level for slices: example.com/zone"),
        (
            "required rack, 2 per block",
            "podset slice topology example.com/block is above the podset topology example.com/rack",
        ),
        ("required block, 0 per rack", "slices are requested without a size"),
        (
            "required block, 4 per rack, 2 per rack",
            "additional slice layer topology example.com/rack must be at a lower level than example.com/rack",
        ),
        (
            "required block, 4 per rack, 3 per host",
            "additional slice layer size 3 must evenly divide parent layer size 4",
        ),
    ],
)
def test_topology_request_that_does_not_match_the_topology_has_a_problem(text: str, problem: str) -> None:
    assert place_one(topology_cache(FIVE_HOSTS), text, 4) == f"no: {problem}"


def test_leader_is_placed_where_it_breaks_no_slice() -> None:
    """Four slices of 2 are there, just enough; on h1 the leader takes the odd core, on h2 it would break a slice."""
    world = topology_cache("b1 r1 h2 6 \n b2 r2 h1 3")
    assert place_group(world, "preferred block, 2 per rack", 8, leader_cpu=1) == "h1:1 | h2:6 h1:2"


def test_beside_a_leader_a_host_still_counts_in_whole_units_of_its_layer() -> None:
    """5 cores are two pairs and one over; the one over is enough for the leader."""
    assert (
        place_group(topology_cache("b1 r1 h1 5"), "required block, 4 per rack, 2 per host", 4, leader_cpu=1)
        == "h1:1 | h1:4"
    )


def test_leader_uses_only_the_resources_that_it_requests() -> None:
    leader = replace(request("required host", 1, pod_set="leader", group="g"), pod=())
    workers = request("required host", 4, pod_set="workers", group="g")
    assert as_text(place(topology_cache("b1 r1 h1 4"), [leader, workers]), "leader", "workers") == "h1:1 | h1:4"


def test_levels_between_two_layers_are_filled_in_units_of_the_finer_one() -> None:
    """Each rack's 3 cores count as 2, so that the block holds one slice of 4 and not 6 pods."""
    levels = ("zone", "block", "rack", "host")
    world = topology_cache("z b1 r1 h1 3 \n z b1 r2 h2 3 \n z b2 r3 h3 9", levels=levels)
    assert place_one(world, "required block, 4 per block, 2 per host", 4) == "h1:2 h2:2"
    assert place_one(world, "required block, 6 per block, 2 per host", 6) == "h3:6"


def test_a_leader_that_fits_on_no_host_keeps_all_workers_out() -> None:
    world = topology_cache("b1 r1 h1 2 \n b1 r1 h2 2 \n b1 r1 h3 2")
    assert place_group(world, "required rack", 2, leader_cpu=3).startswith("no: ")
    assert place_group(world, "preferred rack", 2, leader_cpu=3).startswith(
        'no: topology "tree" doesn\'t allow to fit any of 2 pod(s)'
    )


def test_the_leader_is_a_pod_too() -> None:
    world = topology_cache("b1 r1 h1 9 pods=3")
    assert place_group(world, "required host", 2, leader_cpu=1) == "h1:1 | h1:2"
    assert place_group(world, "required host", 3, leader_cpu=1).startswith("no: ")


def test_the_leader_stays_off_hosts_that_the_workers_may_not_use() -> None:
    """The workers' terms govern both."""
    pair = [
        request("required rack", 1, cpu=3, pod_set="leader", group="g"),
        request("required rack", 2, pod_set="workers", group="g", terms=terms(disk="ssd")),
    ]
    world = topology_cache("b1 r1 h1 3 disk=hdd \n b1 r1 h2 2 disk=ssd \n b1 r2 h3 5 disk=ssd")
    assert as_text(place(world, pair), "leader", "workers") == "h3:1 | h3:2"


def test_a_slice_goes_down_in_units_of_the_inner_layer() -> None:
    """Two pairs of 2, never 3 and 1, and a leader beside them takes its core from the odd ones."""
    world = topology_cache("b1 r1 h1 3 \n b1 r1 h2 3")
    assert place_one(world, "required block, 4 per rack, 2 per host", 4) == "h1:2 h2:2"
    assert place_group(world, "required block, 4 per rack, 2 per host", 4, leader_cpu=1) == "h1:1 | h1:2 h2:2"
