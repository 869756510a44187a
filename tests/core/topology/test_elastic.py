"""An elastic workload grows or shrinks: pods that run stay where they are (gate
ElasticJobsViaWorkloadSlicesWithTAS)."""

from __future__ import annotations

from core.topology.cluster_text import as_text, place_one, placement, request, topology_cache
from pykueue.core.topology import PlacementOptions, place

ELASTIC = PlacementOptions(elastic=True)
THREE_HOSTS = "b1 r1 h1 4 \n b1 r1 h2 2 \n b1 r2 h3 4"


def resize(before: str, count: int, *, profile: PlacementOptions = ELASTIC) -> str:
    return place_one(topology_cache(THREE_HOSTS, profile=profile), "unconstrained", count, previous=placement(before))


def test_growing_keeps_the_old_pods_and_places_the_difference() -> None:
    """Two more: h2 holds exactly two, so that it is used up first."""
    assert resize("h1:3", 5) == "h1:3 h2:2"


def test_old_pods_count_while_the_difference_is_placed() -> None:
    assert resize("h1:3", 10) == "h1:4 h2:2 h3:4"
    assert resize("h1:3", 11).startswith('no: topology "tree" allows to fit only 7 out of 8 pod(s)')


def test_scaling_down_releases_from_the_end() -> None:
    assert resize("h1:3 h2:2 h3:1", 4) == "h1:3 h2:1"


def test_the_same_size_changes_nothing() -> None:
    assert resize("h1:1 h3:1", 2) == "h1:1 h3:1"


def test_all_pods_are_placed_again_after_a_host_was_deleted() -> None:
    assert resize("h1:1 gone:1", 2) == "h2:2"


def test_old_placement_is_ignored_without_the_gate() -> None:
    assert resize("h1:3", 5, profile=PlacementOptions()) == "h1:3 h2:2"
    assert resize("h3:1", 2, profile=PlacementOptions()) == "h2:2"


def test_the_leader_stays_too() -> None:
    pair = [
        request("unconstrained", 1, pod_set="leader", group="g", previous=placement("h3:1")),
        request("unconstrained", 6, pod_set="workers", group="g", previous=placement("h1:4")),
    ]
    assert as_text(place(topology_cache(THREE_HOSTS, profile=ELASTIC), pair), "leader", "workers") == "h3:1 | h1:4 h2:2"


def test_a_leader_that_was_not_there_before_is_placed_with_the_difference() -> None:
    pair = [
        request("unconstrained", 1, pod_set="leader", group="g"),
        request("unconstrained", 5, pod_set="workers", group="g", previous=placement("h1:4")),
    ]
    assert as_text(place(topology_cache(THREE_HOSTS, profile=ELASTIC), pair), "leader", "workers") == "h2:1 | h1:4 h2:1"
