"""A node is lost: its pods, and only its pods, go elsewhere, within what the topology_request of the pod set allows."""

from __future__ import annotations

import pytest

from core.topology.cluster_text import place_one, placement, terms, topology_cache, usage
from pykueue.core.topology import NodeReplacement

SIX_HOSTS = """
    b1 r1 h1  4
    b1 r1 h2  4
    b1 r2 h3  4
    b1 r2 h4  4
    b2 r3 h5  4
    b2 r3 h6  4
"""


def mend(text: str, held: str, lost: str, *, gone: str = "", world_text: str = SIX_HOSTS) -> str:
    """The placement after the replacement; the lost node still exists unless it is `gone`."""
    world = topology_cache(world_text)
    world.book([usage(held)])
    for name in gone.split():
        world.drop_node(name)
    count = placement(held).count
    return place_one(world, text, count, node_replacement=NodeReplacement(placement(held), lost))


@pytest.mark.parametrize(
    ("text", "held", "expected", "why"),
    [
        ("required rack", "h1:3 h2:1", "h2:4", "inside the rack of the pods that stay"),
        ("required block", "h1:4 h2:4", "h2:4 h3:4", "h2 is full: another rack of the same block"),
        ("preferred rack", "h1:3 h2:4", "h2:4 h3:3", "anywhere; a new search, in which r2 is one that fits"),
        ("unconstrained", "h1:4 h2:1", "h2:1 h3:4", "anywhere; the first host that holds all"),
        ("required rack", "h1:3", "h2:3", "nothing stays, so nothing ties it to a rack"),
        ("required block, 4 per rack", "h1:2 h2:2 h3:4", "h2:4 h3:4", "r1 has a broken slice, so it goes to r1"),
        ("required block, 4 per rack, 2 per host", "h1:4 h2:4", "h2:4 h3:4", "a whole slice: a rack that holds one"),
    ],
)
def test_where_the_pods_of_a_lost_node_go(text: str, held: str, expected: str, why: str) -> None:
    assert mend(text, held, "h1", gone="h1") == expected, why


def test_no_capacity_in_the_required_rack_means_no_replacement() -> None:
    assert mend("required rack", "h1:4 h2:4", "h1", gone="h1") == (
        'no: topology "tree" doesn\'t allow to fit any of 4 pod(s)'
        '. Total nodes: 5; excluded: resource "cpu": 1, topologyDomain: 4'
    )


def test_second_deleted_node_makes_replacement_impossible() -> None:
    assert mend("unconstrained", "h1:2 h2:2", "h1", gone="h1 h2") == (
        "no: Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain [h2]"
    )


def test_remaining_pods_keep_their_capacity() -> None:
    """h2 has 4 cores of which 3 are the pod set's own: only one more fits beside them."""
    assert mend("required rack", "h1:1 h2:3", "h1", gone="h1") == "h2:4"
    assert mend("required rack", "h1:2 h2:3", "h1", gone="h1").startswith("no: ")


def test_slices_without_size_are_refused_in_node_replacement() -> None:
    assert mend("required block, 0 per rack", "h1:2 h2:2", "h1") == ("no: slices are requested without a size")


def test_innermost_incomplete_layer_decides_where_pods_go() -> None:
    """The pairs per host are whole, the four of the rack is not: the lost pair stays in the rack, as a pair."""
    world = """
        b1 r1 h1  4
        b1 r1 h2  9
        b1 r2 h3  9
    """
    assert mend("required block, 4 per rack, 2 per host", "h1:2 h2:2", "h1", gone="h1", world_text=world) == "h2:4"


def test_the_replacement_must_suit_the_pods_as_well() -> None:
    world = topology_cache("b1 r1 h1 4 disk=ssd \n b1 r1 h2 4 disk=hdd \n b1 r1 h3 4 disk=ssd \n b1 r2 h4 9 disk=ssd")
    held = placement("h1:2 h3:1")
    world.book([usage("h1:2 h3:1")])
    assert (
        place_one(world, "required rack", 3, node_replacement=NodeReplacement(held, "h1"), terms=terms(disk="ssd"))
        == "h1:2 h3:1"
    ), "a node that is lost to the workload but still there may be chosen again"
    world.drop_node("h1")
    assert (
        place_one(world, "required rack", 3, node_replacement=NodeReplacement(held, "h1"), terms=terms(disk="ssd"))
        == "h3:3"
    )
