"""Counts are kept between requests and updated by what changed; they must always equal fresh counts."""

from __future__ import annotations

from core.topology.cluster_text import FLAVOR, place_one, request, topology_cache, usage
from pykueue.core.topology import place

TWELVE = "\n".join(f"b{n // 6} r{n // 3} h{n:02} 4" for n in range(12))


def test_request_of_a_kept_measure_sees_later_changes() -> None:
    world = topology_cache(TWELVE)
    assert place_one(world, "required rack", 12) == "h00:4 h01:4 h02:4"
    world.book([usage("h01:1")])
    assert place_one(world, "required rack", 12) == "h03:4 h04:4 h05:4"
    world.release([usage("h01:1")])
    assert place_one(world, "required rack", 12) == "h00:4 h01:4 h02:4"


def test_only_changed_leaves_are_counted_again() -> None:
    """A count changed by the test survives a request, unless its leaf changed."""
    world = topology_cache(TWELVE)
    assert place_one(world, "required host", 4) == "h00:4"
    domains = world.domains(FLAVOR)
    assert domains is not None
    (counted,) = domains.counts_cache().kept.values()
    counted.level(2).pods[0] = 0
    assert place_one(world, "required host", 4) == "h01:4"
    world.book([usage("h00:1")])
    world.release([usage("h00:1")])
    assert place_one(world, "required host", 4) == "h00:4"


def test_long_journal_is_dropped_and_all_leaves_are_counted_again() -> None:
    world = topology_cache("b1 r1 h1 4")
    for _ in range(500):
        assert place_one(world, "required host", 4) == "h1:4"
        world.book([usage("h1:1")])
        assert place_one(world, "required host", 4).startswith("no:")
        world.release([usage("h1:1")])
    domains = world.domains(FLAVOR)
    assert domains is not None
    assert len(domains.remaining.journal) <= domains.remaining.journal_max


def test_number_of_cached_counts_is_bounded() -> None:
    world = topology_cache("b1 r1 h1 4")
    for millis in range(1, 200):
        place(world, [request("required host", 1, cpu=millis / 1000)])
    domains = world.domains(FLAVOR)
    assert domains is not None
    assert len(domains.counts_cache().kept) == 64


def test_only_needed_levels_are_summed() -> None:
    world = topology_cache(TWELVE)
    place_one(world, "unconstrained", 3)
    domains = world.domains(FLAVOR)
    assert domains is not None
    (counted,) = domains.counts_cache().kept.values()
    assert [counts is not None for counts in counted._levels] == [False, False, True]
    place_one(world, "required rack", 3)
    assert [counts is not None for counts in counted._levels] == [False, True, True]


def test_overused_leaf_holds_no_pods_after_catching_up() -> None:
    world = topology_cache(TWELVE)
    assert place_one(world, "required rack", 9) == "h00:4 h01:4 h02:1"
    world.book([usage("h00:6")])
    assert place_one(world, "required rack", 9) == "h03:4 h04:4 h05:1"
    assert place_one(world, "required block", 21) == "h06:4 h07:4 h08:4 h09:4 h10:4 h11:1"
