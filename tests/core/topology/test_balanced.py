"""Balanced placement (gate TASBalancedPlacement): even shares on the fewest domains that suffice."""

from __future__ import annotations

import pytest

from core.topology.worlds import ask, ask_led, fleet
from pykueue.core.topology import Profile

BALANCED = Profile(balanced=True)


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
    assert ask(fleet(nodes), text, count) == packed
    assert ask(fleet(nodes, profile=BALANCED), text, count) == even


def test_only_preferred_requests_are_balanced() -> None:
    world = fleet("b1 r1 h1 4 \n b1 r1 h2 4", profile=BALANCED)
    assert ask(world, "required rack", 6) == "h1:4 h2:2"
    assert ask(world, "unconstrained", 6) == "h1:4 h2:2"


def test_where_nothing_can_be_balanced_best_fit_decides() -> None:
    """No single parent holds all: several blocks are taken, as always."""
    world = fleet("b1 r1 h1 4 \n b2 r2 h2 2", profile=BALANCED)
    assert ask(world, "preferred host", 6) == "h1:4 h2:2"


def test_the_leaders_room_counts_in_the_even_share() -> None:
    world = fleet("b1 r1 h1 4 \n b1 r1 h2 4", profile=BALANCED)
    assert ask_led(world, "preferred host", 6, leader_cpu=1) == "h1:1 | h1:3 h2:3"
