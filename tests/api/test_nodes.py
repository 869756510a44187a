"""Which nodes a pod may run on."""

from __future__ import annotations

import pytest

from pykueue.api import nodes
from pykueue.api.kube import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)

Demand = tuple[str, str, tuple[str, ...]]


def term(*labels: Demand, fields: tuple[Demand, ...] = ()) -> NodeSelectorTerm:
    def demands(given: tuple[Demand, ...]) -> tuple[NodeSelectorRequirement, ...]:
        return tuple(NodeSelectorRequirement(key=k, operator=o, values=v) for k, o, v in given)

    return NodeSelectorTerm(match_expressions=demands(labels), match_fields=demands(fields))


def required(*terms: NodeSelectorTerm, selector: dict[str, str] | None = None) -> nodes.RequiredNodeAffinity:
    affinity = NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=terms))
    return nodes.required(selector or {}, Affinity(node_affinity=affinity))


GPU = ("gpu", "In", ("a100",))
OLD = ("year", "Lt", ("2020",))


def test_a_pod_that_demands_nothing_runs_anywhere() -> None:
    assert nodes.required({}, None).matches({}, "n1")
    assert nodes.required({}, Affinity()).matches({}, "n1")


def test_one_term_must_match_and_in_it_every_demand() -> None:
    either = required(term(GPU, OLD), term(("zone", "Exists", ())))
    assert either.matches({"gpu": "a100", "year": "2019"}, "n1")
    assert not either.matches({"gpu": "a100", "year": "2021"}, "n1")
    assert either.matches({"zone": ""}, "n1")


def test_the_node_selector_and_the_affinity_must_both_match() -> None:
    both = required(term(GPU), selector={"zone": "z"})
    assert both.matches({"gpu": "a100", "zone": "z"}, "n1")
    assert not both.matches({"gpu": "a100"}, "n1")
    assert both.matches_affinity({"gpu": "a100"}, "n1")
    assert not both.matches_selector({"gpu": "a100"})


def test_a_term_without_demands_matches_no_node() -> None:
    assert not required(term()).matches({"gpu": "a100"}, "n1")
    assert not required().matches({"gpu": "a100"}, "n1")


def test_a_field_demand_looks_at_the_name_of_the_node() -> None:
    pinned = required(term(fields=(("metadata.name", "In", ("n1",)),)))
    assert pinned.matches({}, "n1")
    assert not pinned.matches({}, "n2")
    barred = required(term(fields=(("metadata.name", "NotIn", ("n1",)),)))
    assert not barred.matches({}, "n1")
    assert barred.matches({}, "n2")


@pytest.mark.parametrize(
    "malformed",
    [
        term(("a", "Resembles", ("x",))),
        term(("a", "In", ())),
        term(("a", "Gt", ("x",))),
        term(("a b", "Exists", ())),
        term(fields=(("metadata.name", "Exists", ()),)),
        term(fields=(("metadata.name", "In", ("a", "b")),)),
    ],
)
def test_malformed_term_has_messages_and_other_terms_still_match(malformed: NodeSelectorTerm) -> None:
    selector = required(malformed, term(GPU))
    assert len(selector.messages) == 1
    assert not required(malformed).matches({"a": "x"}, "a")
    assert selector.matches({"gpu": "a100"}, "n1")


def test_preferences_add_up_by_weight_and_empty_ones_have_no_effect() -> None:
    preferred = nodes.preferred(
        (
            PreferredSchedulingTerm(weight=10, preference=term(GPU)),
            PreferredSchedulingTerm(weight=3, preference=term(OLD)),
            PreferredSchedulingTerm(weight=50, preference=term()),
            PreferredSchedulingTerm(weight=0, preference=term(GPU)),
        )
    )
    assert preferred.score({"gpu": "a100", "year": "2000"}, "n") == 13
    assert preferred.score({"gpu": "a100"}, "n") == 10
    assert preferred.score({}, "n") == 0


def test_required_and_preferred_terms_are_found_in_an_affinity() -> None:
    weighted = PreferredSchedulingTerm(weight=1, preference=term(GPU))
    affinity = Affinity(node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=(weighted,)))
    assert nodes.preferred_terms(affinity) == (weighted,)
    assert nodes.required_terms(affinity) is None
    for nothing in (None, Affinity()):
        assert nodes.preferred_terms(nothing) == ()
        assert nodes.required_terms(nothing) is None


def test_the_part_of_a_selector_about_some_keys_is_nothing_when_one_term_is_silent_about_them() -> None:
    """Scheduling rule FL11: the affinity is judged by the flavor's own labels only."""
    spoken = NodeSelector(node_selector_terms=(term(GPU, OLD), term(("gpu", "Exists", ()))))
    kept = nodes.related(spoken, {"gpu"})
    assert kept is not None
    assert [[e.key for e in t.match_expressions] for t in kept.node_selector_terms] == [["gpu"], ["gpu"]]
    silent = NodeSelector(node_selector_terms=(term(GPU), term(OLD)))
    assert nodes.related(silent, {"gpu"}) is None
    assert nodes.related(NodeSelector(), {"gpu"}) is None


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="k", operator="Equal", value="5", effect="NoSchedule"), True),
        (Toleration(key="k", value="5"), True),
        (Toleration(key="k", value="6"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Lt", value="6"), True),
        (Toleration(key="k", operator="Lt", value="5"), False),
        (Toleration(key="k", operator="Gt", value="4"), True),
        (Toleration(key="k", operator="Gt", value="-4"), True),
        (Toleration(key="k", operator="Gt", value="04"), False),
        (Toleration(key="k", operator="Gt", value="x"), False),
        (Toleration(key="k", operator="Resembles", value="5"), False),
    ],
)
def test_each_operator_of_a_toleration(toleration: Toleration, tolerated: bool) -> None:
    assert nodes.tolerates(toleration, Taint(key="k", value="5", effect="NoSchedule")) is tolerated


def test_first_untolerated_taint_is_returned_and_prefer_no_schedule_is_ignored() -> None:
    taints = (
        Taint(key="soft", effect="PreferNoSchedule"),
        Taint(key="a", effect="NoSchedule"),
        Taint(key="b", effect="NoExecute"),
    )
    assert nodes.untolerated(taints, (Toleration(key="a", operator="Exists"),)) == taints[2]
    assert nodes.untolerated(taints, ()) == taints[1]
    assert nodes.untolerated(taints, (Toleration(operator="Exists"),)) is None
