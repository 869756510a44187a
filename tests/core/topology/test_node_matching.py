"""Which nodes a pod may use, and why the others are excluded."""

from __future__ import annotations

from core.topology.cluster_text import place_one, terms, topology_cache
from pykueue.api.kube import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Toleration,
)
from pykueue.core.topology import NodeTerms, PlacementOptions

SPOT = Toleration(key="spot", operator="Exists")


def likes(weight: int, key: str, value: str) -> PreferredSchedulingTerm:
    return PreferredSchedulingTerm(weight=weight, preference=_term(key, value))


def _term(key: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator="In", values=values),))


def test_a_tainted_host_is_used_only_by_pods_that_tolerate_the_taint() -> None:
    world = topology_cache("b1 r1 h1 4 taint=spot:NoSchedule \n b1 r1 h2 2")
    assert place_one(world, "required host", 3) == (
        'no: topology "tree" allows to fit only 2 out of 3 pod(s). Total nodes: 2; excluded: taint "spot:NoSchedule": 1'
    )
    assert place_one(world, "required host", 3, terms=NodeTerms(tolerations=(SPOT,))) == "h1:3"


def test_tolerations_of_the_flavor_apply_to_its_pods() -> None:
    assert (
        place_one(topology_cache("b1 r1 h1 4 taint=spot:NoExecute", tolerations=(SPOT,)), "required host", 3) == "h1:3"
    )


def test_prefer_no_schedule_taint_excludes_no_node() -> None:
    assert place_one(topology_cache("b1 r1 h1 4 taint=spot:PreferNoSchedule"), "required host", 3) == "h1:3"


def test_a_node_selector_must_match_the_host() -> None:
    world = topology_cache("b1 r1 h1 4 disk=hdd \n b1 r1 h2 4 disk=ssd")
    assert place_one(world, "unconstrained", 2, terms=terms(disk="ssd")) == "h2:2"
    assert place_one(world, "unconstrained", 1, terms=terms(disk="tape")) == (
        'no: topology "tree" doesn\'t allow to fit any of 1 pod(s). Total nodes: 2; excluded: nodeSelector: 2'
    )


def test_required_affinity_must_match_the_host_by_label_or_by_name() -> None:
    world = topology_cache("b1 r1 h1 4 disk=hdd \n b1 r1 h2 4 disk=ssd")
    by_label = NodeTerms(required_affinity=NodeSelector(node_selector_terms=(_term("disk", "ssd"),)))
    name = NodeSelectorRequirement(key="metadata.name", operator="In", values=("h1",))
    by_name = NodeTerms(required_affinity=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),)))
    assert place_one(world, "unconstrained", 2, terms=by_label) == "h2:2"
    assert place_one(world, "unconstrained", 2, terms=by_name) == "h1:2"
    assert place_one(world, "unconstrained", 5, terms=by_label) == (
        'no: topology "tree" allows to fit only 4 out of 5 pod(s). Total nodes: 2; excluded: affinity: 1'
    )


def test_malformed_affinity_is_reported() -> None:
    wrong = NodeSelectorRequirement(key="disk", operator="Roughly", values=("ssd",))
    malformed = NodeTerms(
        required_affinity=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wrong,)),))
    )
    answer = place_one(topology_cache("b1 r1 h1 4"), "unconstrained", 1, terms=malformed)
    assert answer.startswith("no: node affinity is malformed: ")


def test_taints_and_labels_are_ignored_where_leaves_are_not_hosts() -> None:
    world = topology_cache("b1 r1 4 name=n1 taint=spot:NoSchedule", levels=("block", "rack"))
    assert place_one(world, "required rack", 4, terms=terms(disk="ssd")) == "b1/r1:4"


def test_preferences_of_pods_count_only_under_their_gate() -> None:
    picky = NodeTerms(preferred_affinity=(likes(10, "disk", "ssd"),))
    text = "b1 r1 h1 2 disk=hdd \n b1 r1 h2 4 disk=ssd"
    assert place_one(topology_cache(text), "required host", 2, terms=picky) == "h1:2"
    gated = topology_cache(text, profile=PlacementOptions(preferred_affinity=True))
    assert place_one(gated, "required host", 2, terms=picky) == "h2:2"


def test_preferred_hosts_are_used_first_and_exclude_no_others() -> None:
    picky = NodeTerms(preferred_affinity=(likes(10, "disk", "ssd"), likes(1, "disk", "hdd")))
    world = topology_cache(
        "b1 r1 h1 9 disk=tape \n b1 r1 h2 2 disk=ssd \n b1 r1 h3 2 disk=hdd",
        profile=PlacementOptions(preferred_affinity=True),
    )
    assert place_one(world, "unconstrained", 5, terms=picky) == "h1:5", "one host that holds all comes first"
    assert place_one(world, "preferred host", 10, terms=picky) == "h1:6 h2:2 h3:2"
    assert place_one(world, "required host", 5, terms=picky) == "h1:5", "an ill-liked host is better than none"


def test_preferred_hosts_come_first_within_a_chosen_rack() -> None:
    picky = NodeTerms(preferred_affinity=(likes(10, "disk", "ssd"),))
    text = "b1 r1 h1 4 disk=hdd \n b1 r1 h2 4 disk=ssd"
    world = topology_cache(text, profile=PlacementOptions(preferred_affinity=True))
    assert place_one(world, "required rack", 5, terms=picky) == "h1:1 h2:4"
    assert place_one(topology_cache(text), "required rack", 5, terms=picky) == "h1:4 h2:1"
