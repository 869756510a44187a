"""Figures are kept between requests and catch up with what changed; they must never differ from counting anew."""

from __future__ import annotations

from core.topology.worlds import FLAVOR, ask, fleet, request, usage
from pykueue.core.topology import place

TWELVE = "\n".join(f"b{n // 6} r{n // 3} h{n:02} 4" for n in range(12))


def test_a_request_of_a_known_sort_sees_what_changed_since() -> None:
    world = fleet(TWELVE)
    assert ask(world, "required rack", 12) == "h00:4 h01:4 h02:4"
    world.book([usage("h01:1")])
    assert ask(world, "required rack", 12) == "h03:4 h04:4 h05:4"
    world.release([usage("h01:1")])
    assert ask(world, "required rack", 12) == "h00:4 h01:4 h02:4"


def test_only_leaves_that_changed_are_looked_at_again() -> None:
    """A figure put in by hand survives a request, unless its leaf changed."""
    world = fleet(TWELVE)
    assert ask(world, "required host", 4) == "h00:4"
    domains = world.domains(FLAVOR)
    assert domains is not None
    (tally,) = domains.tallies().kept.values()
    tally.level(2).pods[0] = 0
    assert ask(world, "required host", 4) == "h01:4"
    world.book([usage("h00:1")])
    world.release([usage("h00:1")])
    assert ask(world, "required host", 4) == "h00:4"


def test_a_journal_that_grew_long_is_dropped_together_with_what_depends_on_it() -> None:
    world = fleet("b1 r1 h1 4")
    for _ in range(500):
        assert ask(world, "required host", 4) == "h1:4"
        world.book([usage("h1:1")])
        assert ask(world, "required host", 4).startswith("no:")
        world.release([usage("h1:1")])
    domains = world.domains(FLAVOR)
    assert domains is not None
    assert len(domains.remaining.journal) <= domains.remaining.journal_max


def test_many_sorts_of_requests_do_not_pile_up() -> None:
    world = fleet("b1 r1 h1 4")
    for millis in range(1, 200):
        place(world, [request("required host", 1, cpu=millis / 1000)])
    domains = world.domains(FLAVOR)
    assert domains is not None
    assert len(domains.tallies().kept) == 64


def test_only_the_levels_asked_for_are_summed() -> None:
    world = fleet(TWELVE)
    ask(world, "unconstrained", 3)
    domains = world.domains(FLAVOR)
    assert domains is not None
    (tally,) = domains.tallies().kept.values()
    assert [counts is not None for counts in tally._levels] == [False, False, True]
    ask(world, "required rack", 3)
    assert [counts is not None for counts in tally._levels] == [False, True, True]


def test_a_leaf_that_came_to_be_overused_holds_nothing_when_figures_catch_up() -> None:
    world = fleet(TWELVE)
    assert ask(world, "required rack", 9) == "h00:4 h01:4 h02:1"
    world.book([usage("h00:6")])
    assert ask(world, "required rack", 9) == "h03:4 h04:4 h05:1"
    assert ask(world, "required block", 21) == "h06:4 h07:4 h08:4 h09:4 h10:4 h11:1"
