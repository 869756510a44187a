"""Situations and the decisions that Kueue took for them in one scheduling cycle, recorded from the real scheduler.

Each file holds one family of cases, named for what it varies; together the families define what "the same decisions"
means. Where a recorded case and a text disagree, the case is right.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import meta, quantity
from kubemachinery.yaml_documents import Document
from pykueue import features
from pykueue.analysis import planner
from pykueue.api import topology_encoding
from pykueue.core import invariants

FAMILIES = sorted((Path(__file__).parent / "plan").glob("*.jsonl.gz"))
DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
DEPARTING = dict(
    line.split("\t")
    for line in (Path(__file__).parent / "departures.tsv").read_text().splitlines()
    if not line.startswith("#")
)
SECTIONS = (
    "assignments",
    "reserved",
    "admitted",
    "preempted",
    "evicted",
    "replaced",
    "active",
    "inadmissible",
    "events",
)


def cases(family: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(family, "rt") as lines:
        yield from map(json.loads, lines)


def read(case: dict[str, Any]) -> planner.Case:
    return planner.read([Document(case["id"], case["case"])])


def decide(case: dict[str, Any]) -> dict[str, Any]:
    return planner.as_tree(planner.plan(read(case), meta.parse_time(case["now"])))


def normal(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan in the form in which two of them are compared: quantities by value, lists as sets, nothing for empty."""
    return {
        **{section: plan.get(section) or {} for section in ("preempted", "evicted", "replaced")},
        **{section: set(plan.get(section) or ()) for section in ("reserved", "admitted")},
        **{
            section: {q: set(w) for q, w in (plan.get(section) or {}).items() if w}
            for section in ("active", "inadmissible")
        },
        "assignments": {key: admission(value) for key, value in (plan.get("assignments") or {}).items()},
        "events": Counter(tuple(event) for event in {tuple(event[:3]) for event in plan.get("events") or ()}),
    }


def admission(tree: dict[str, Any]) -> dict[str, Any]:
    return {
        "clusterQueue": tree["clusterQueue"],
        **{assigned.get("name", "main"): pod_set(assigned) for assigned in tree.get("podSetAssignments", ())},
    }


def pod_set(tree: dict[str, Any]) -> dict[str, Any]:
    usage = {name: quantity.parse(amount) for name, amount in (tree.get("resourceUsage") or {}).items()}
    placement = tree.get("topologyAssignment")
    return {
        "count": tree.get("count"),
        "flavors": tree.get("flavors") or {},
        "usage": {name: amount for name, amount in usage.items() if amount},
        "delayed": tree.get("delayedTopologyRequest"),
        "placement": placement and (placement["levels"], dict(topology_encoding.decode(placement) or ())),
    }


def same(section: str, wanted: Any, got: Any) -> bool:
    if section != "events":
        return bool(wanted == got)
    # An event recorded without a reason stands for any: there the reason hung on the order of a hash map.
    open_ended = [event for event in wanted if not event[2]]
    exact = wanted - Counter(open_ended)
    rest = got - exact
    return not exact - got and Counter(e[:2] for e in rest) == Counter(e[:2] for e in open_ended)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_every_recorded_case_is_decided_as_recorded(family: Path) -> None:
    """With the departures of this program exactly those cases come out otherwise that are listed for one of them. With
    the gates of time on and unused, every byte is the same."""
    wrong: list[str] = []
    departing: list[str] = []
    changed: list[str] = []
    for case in cases(family):
        wanted, case_read, now = normal(case["expected"]), read(case), meta.parse_time(case["now"])
        plain = {on: planner.as_tree(planner.plan(case_read, now, departures=on)) for on in (False, True)}
        got = {on: normal(tree) for on, tree in plain.items()}
        changed += [case["id"]] if json.dumps(decide(with_limits(case))) != json.dumps(plain[False]) else []
        wrong += [f"{case['id']}: {s}" for s in SECTIONS if not same(s, wanted[s], got[False][s])]
        departing += [case["id"]] if not all(same(s, wanted[s], got[True][s]) for s in SECTIONS) else []
    assert not wrong, "\n".join(wrong)
    assert changed == []
    assert departing == [id for id in DEPARTING if id.rpartition("-s")[0] == family.name.removesuffix(".jsonl.gz")]


def test_every_departure_that_a_case_is_listed_for_has_its_page() -> None:
    titles = "".join(page.read_text().partition("\n")[0] for page in DECISIONS.glob("0*.md"))
    assert {name for name in DEPARTING.values() if f"({name})" not in titles} == set()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_several_cycles_keep_the_invariants(family: Path) -> None:
    """Sums along the tree, usage as recorded, and nothing beyond what the tree allows that was not so before."""
    for case in list(cases(family))[:3]:
        read, now = planner.read([Document(case["id"], case["case"])]), meta.parse_time(case["now"])
        world = planner.world_of(read, now, departures=True)
        world.settle(now)
        before = invariants.over_quota(world.snapshot())
        for _ in range(4):
            world.decide(now)
            assert invariants.broken(world.snapshot()) == [], case["id"]
            assert invariants.over_quota(world.snapshot()) <= before, case["id"]


def test_order_of_the_objects_does_not_matter() -> None:
    family = next(path for path in FAMILIES if path.name.startswith("mixed"))
    for case in list(cases(family))[:10]:
        backwards = {**case, "case": {**case["case"], "items": case["case"]["items"][::-1]}}
        assert json.dumps(decide(case)) == json.dumps(decide(backwards)), case["id"]


# Gates that change recorded decisions when they are turned on, and why.
NOT_UNUSED = {
    "PriorityBoost": "a recorded Workload has its annotation",
    "TASBalancedPlacement": "every preferred placement is another one",
}
# All others that are off by default change a decision only where their API is used, or in a cycle after a preemption.
# A gate that is new in the table is among them.
OFF_BY_DEFAULT = tuple(
    gate.name
    for gate in features.GATES.values()
    if gate.implemented and not gate.default and gate.name not in NOT_UNUSED
)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_gates_that_are_on_and_unused_change_no_decision(family: Path) -> None:
    for case in list(cases(family))[:3]:
        assert json.dumps(decide(with_gates(case, OFF_BY_DEFAULT))) == json.dumps(decide(case)), case["id"]


def test_gates_of_this_project_are_among_those_that_are_unused() -> None:
    """Those that are on by default are on in all recorded decisions."""
    own = {"ClusterQueueExcludeResourcePrefixes", "DefaultLocalQueue", "LoopGuard", "QuotaCheck", "WorkloadHints"}
    assert {*own, *OF_TIME} <= set(OFF_BY_DEFAULT)
    assert {"FairSharingPreemptionProgress", "History", "LoopDetection", "StartForecast"} <= {
        gate.name for gate in features.GATES.values() if gate.default
    }


# Gates of features of time that decide: without their annotations and objects they change nothing.
OF_TIME = tuple(
    name
    for name in ("PlannedBackfill", "QuotaCalendar", "DynamicQuotaOrchestration", "Budgets")
    if name in features.GATES and features.GATES[name].implemented
)


def with_limits(case: dict[str, Any]) -> dict[str, Any]:
    """The same case with the gates of time on, and with a limit on every Workload, so that hard ends are read."""
    items = [
        {**item, "spec": {**item["spec"], "maximumExecutionTimeSeconds": 600 + 60 * index}}
        if item["kind"] == "Workload" and not (item.get("status") or {}).get("accumulatedPastExecutionTimeSeconds")
        else item
        for index, item in enumerate(case["case"]["items"])
    ]
    return with_gates({**case, "case": {**case["case"], "items": items}}, OF_TIME)


def with_gates(case: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The same case with these gates turned on in its Configuration, as far as it does not turn off what they need."""
    items = case["case"]["items"]
    [configuration] = [item for item in items if item["kind"] == "Configuration"] or [
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    ]
    given = configuration.get("featureGates") or {}
    possible = [name for name in names if all(given.get(parent, True) for parent in features.GATES[name].needs)]
    gates = {**given, **dict.fromkeys(possible, True)}
    others = [item for item in items if item["kind"] != "Configuration"]
    return {**case, "case": {**case["case"], "items": [*others, {**configuration, "featureGates": gates}]}}
