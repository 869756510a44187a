"""Balanced placement (gate TASBalancedPlacement): even shares on the fewest domains that suffice."""

from __future__ import annotations

import pytest

from core.topology.cluster_text import place_group, place_one, topology_cache
from pykueue.core.topology import PlacementOptions

BALANCED = PlacementOptions(balanced=True)


@pytest.mark.parametrize(
    ("nodes", "text", "count", "packed", "even"),
    [
        ("b1 r1 h1 4 \n b1 r1 h2 4", "preferred host", 6, "h1:4 h2:2", "h1:3 h2:3"),
        ("b1 r1 h1 4 \n b1 r1 h2 4 \n b1 r1 h3 1", "preferred rack", 6, "h1:4 h2:2", "h1:3 h2:3"),
        ("b1 r1 h1 4 \n b1 r2 h2 4 \n b1 r3 h3 1", "preferred block", 6, "h1:4 h2:2", "h1:3 h2:3"),
        ("b1 r1 h1 2 \n b1 r1 h2 5", "preferred host", 6, "h1:1 h2:5", "h1:2 h2:4"),
        ("b1 r1 h1 4 \n b1 r1 h2 4", "preferred host, 2 per host", 4, "h1:4", "h1:4"),
    ],
)
def test_even_shares(nodes: str, text: str, count: int, packed: str, even: str) -> None:
    assert place_one(topology_cache(nodes), text, count) == packed
    assert place_one(topology_cache(nodes, profile=BALANCED), text, count) == even


def test_only_preferred_requests_are_balanced() -> None:
    world = topology_cache("b1 r1 h1 4 \n b1 r1 h2 4", profile=BALANCED)
    assert place_one(world, "required rack", 6) == "h1:4 h2:2"
    assert place_one(world, "unconstrained", 6) == "h1:4 h2:2"


def test_where_nothing_can_be_balanced_best_fit_decides() -> None:
    """No single parent holds all: several blocks are taken, as always."""
    world = topology_cache("b1 r1 h1 4 \n b2 r2 h2 2", profile=BALANCED)
    assert place_one(world, "preferred host", 6) == "h1:4 h2:2"


def test_capacity_for_the_leader_counts_in_the_even_share() -> None:
    world = topology_cache("b1 r1 h1 4 \n b1 r1 h2 4", profile=BALANCED)
    assert place_group(world, "preferred host", 6, leader_cpu=1) == "h1:1 | h1:3 h2:3"


def test_of_blocks_with_equal_capacity_the_more_even_one_is_used() -> None:
    """b1 and b2 both hold 6, but b2 has its capacity spread over two racks."""
    world = topology_cache("b1 r1 h1 6 \n b2 r2 h2 2 \n b2 r3 h3 4", profile=BALANCED)
    assert place_one(world, "preferred block", 1) == "h2:1"


def test_a_host_too_small_for_the_leader_still_takes_workers() -> None:
    """h3 (3 cores) cannot host a leader of 4; its neighbour h1 can."""
    world = topology_cache("b1 r1 h1 5 \n b1 r1 h3 3 \n b2 r2 h2 5", profile=BALANCED)
    assert place_group(world, "preferred host", 1, leader_cpu=4) == "h1:1 | h1:1"


def test_a_rack_that_would_fall_below_the_share_with_the_leader_does_not_lead() -> None:
    """In b2 a leader of 3 cores leaves no rack a whole slice of 2 beside it; in b1 it does."""
    world = topology_cache("b1 r1 h1 6 \n b2 r2 h2 2 \n b2 r3 h3 3", profile=BALANCED)
    assert place_group(world, "preferred block, 2 per rack", 2, leader_cpu=3) == "h1:1 | h1:2"
