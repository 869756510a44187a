"""Conversion for any object: what comes back, what is lost once and never again, and that nothing ever raises."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from laws.json_trees import json_objects, json_values, replaced, routes
from pykueue.api import conversion, own_schemas, topology_encoding
from pykueue.api.conversion import DIFFERENCES, HUB, OLD, convert
from pykueue.api.labels import HOSTNAME
from pykueue.api.topology_encoding import EncodedDomain

Tree = dict[str, Any]

names = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
hostnames = st.from_regex(r"(pool|gke-a|gke-b|x)(-[a-z0-9]{1,3}){0,3}", fullmatch=True)
counts = st.integers(1, 2**31 - 1)
labels = st.dictionaries(names, names, min_size=1, max_size=3)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries({}, optional=fields)


# --- Topology assignments ---------------------------------------------------------------------------------------------


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[str], list[EncodedDomain]]:
    levels = [*draw(st.lists(names, max_size=2, unique=True)), draw(st.sampled_from([HOSTNAME, "rack"]))]
    values = st.tuples(*(names for _ in levels[1:]), hostnames)
    return levels, draw(st.lists(st.builds(EncodedDomain, values, counts), max_size=12))


@given(placements(), st.booleans())
@example((["rack"], [EncodedDomain(("aba",), 1), EncodedDomain(("ababa",), 1)]), True)
def test_a_placement_reads_as_it_was_written(placement: tuple[list[str], list[EncodedDomain]], by_prefix: bool) -> None:
    levels, domains = placement
    written = topology_encoding.encode(levels, domains, by_hostname_prefix=by_prefix)
    assert topology_encoding.decode(written) == domains


@given(placements())
def test_grouping_host_names_never_makes_an_assignment_longer(placement: tuple[list[str], list[EncodedDomain]]) -> None:
    levels, domains = placement
    grouped, whole = (topology_encoding.encode(levels, domains, by_hostname_prefix=by) for by in (True, False))
    assert len(str(grouped)) <= len(str(whole))


# --- Objects ----------------------------------------------------------------------------------------------------------


@st.composite
def topology_assignments(draw: st.DrawFn) -> Tree:
    levels, domains = draw(placements())
    return topology_encoding.encode(levels, domains)


topology_requests = optional(
    required=names,
    podsetSliceRequiredTopologyConstraints=st.lists(
        st.fixed_dictionaries({"topology": names, "size": counts}), min_size=1, max_size=3
    ),
)


def by_name(fields: st.SearchStrategy[Tree]) -> st.SearchStrategy[list[Tree]]:
    """A list of named things, no name twice."""
    return st.dictionaries(names, fields, max_size=3).map(lambda found: [{**v, "name": k} for k, v in found.items()])


gates = by_name(st.just({}))
SPECS: dict[str, tuple[st.SearchStrategy[Tree], st.SearchStrategy[Tree]]] = {
    "ClusterQueue": (
        optional(
            cohortName=names,
            concurrentAdmissionPolicy=st.just({"migration": {"mode": "TryPreferredFlavors"}}),
            defaultLocalQueue=optional(name=names),
            flavorFungibility=optional(whenCanBorrow=st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
            admissionChecksStrategy=by_name(optional(onFlavors=st.lists(names))).map(
                lambda rules: {"admissionChecks": rules}
            ),
        ),
        optional(pendingWorkloads=counts, fairSharing=optional(weightedShare=counts)),
    ),
    "Cohort": (optional(parentName=names), optional(fairSharing=optional(weightedShare=counts))),
    "LocalQueue": (optional(clusterQueue=names), optional(flavorsUsage=by_name(st.just({})), pendingWorkloads=counts)),
    "MultiKueueConfig": (optional(clusters=st.lists(names), quotaManagement=names), st.just({})),
    "MultiKueueCluster": (
        st.one_of(
            st.fixed_dictionaries({"kubeConfig": st.fixed_dictionaries({"location": names, "locationType": names})}),
            st.fixed_dictionaries({"clusterProfileRef": st.fixed_dictionaries({"name": names})}),
        ).map(lambda source: {"clusterSource": source}),
        st.just({}),
    ),
    "Workload": (
        optional(
            queueName=names,
            preemptionGates=gates,
            priorityClassRef=st.sampled_from(
                [
                    {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"},
                    {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "b"},
                ]
            ),
            podSets=by_name(optional(count=counts, topologyRequest=topology_requests)),
        ),
        optional(
            preemptionGates=gates,
            accumulatedPastExecutionTimeSeconds=counts,
            admission=optional(podSetAssignments=by_name(optional(topologyAssignment=topology_assignments()))),
        ),
    ),
}


@st.composite
def objects(draw: st.DrawFn) -> Tree:
    """Objects of v1beta2 that are rich where the versions differ."""
    kind = draw(st.sampled_from(sorted(DIFFERENCES)))
    spec, status = SPECS.get(kind, (st.just({}), st.just({})))
    metadata = {"name": draw(names), **draw(optional(labels=labels, annotations=labels))}
    tree = {"apiVersion": f"{conversion.GROUP}/{HUB}", "kind": kind, "metadata": metadata}
    return {**tree, **draw(st.fixed_dictionaries({}, optional={"spec": spec, "status": status, "unknown": labels}))}


@given(objects())
def test_down_and_up_again_loses_nothing(tree: Tree) -> None:
    assert convert(convert(tree, OLD), HUB) == tree


@given(objects())
def test_up_and_down_again_shows_a_client_of_v1beta1_what_it_wrote(tree: Tree) -> None:
    old = convert(tree, OLD)
    assert convert(convert(old, HUB), OLD) == old


# The schemas are compiled by the first who asks, which takes its time.
@given(objects())
def test_what_v1beta1_shows_is_v1beta1(tree: Tree) -> None:
    """Nothing is left over that the schema of v1beta1 would drop, except what v1beta2 does not know either."""
    shown = convert(tree, OLD)
    before, after = own_schemas.find(tree), own_schemas.find(shown)
    assert before is not None
    assert after is not None
    assert set(after.unknown_fields(shown)) <= set(before.unknown_fields(tree))


# --- Any JSON ---------------------------------------------------------------------------------------------------------


@st.composite
def corrupted(draw: st.DrawFn) -> Tree:
    """An object of either version with something wrong somewhere inside."""
    tree = convert(draw(objects()), draw(st.sampled_from([OLD, HUB])))
    part = draw(st.sampled_from(["metadata", "spec", "status"]))
    return {**tree, part: replaced(tree.get(part, {}), draw(routes), draw(json_values))}


@given(corrupted(), st.sampled_from([OLD, HUB, "v1", ""]))
def test_converting_a_spoilt_object_never_raises_and_settles(tree: Tree, to: str) -> None:
    once = convert(tree, to)
    assert convert(once, to) == once
    up = convert(once, HUB)
    assert convert(convert(up, OLD), HUB)["kind"] == tree["kind"]


@given(json_objects, json_values)
def test_any_json_is_left_alone_or_converted(tree: Tree, value: Any) -> None:
    assert convert(tree, HUB) == tree
    assert topology_encoding.decode(value) is None or isinstance(value, dict)
    for kind in DIFFERENCES:
        wild = {
            "apiVersion": f"{conversion.GROUP}/{OLD}",
            "kind": kind,
            "metadata": value,
            "spec": value,
            "status": value,
        }
        assert convert(convert(wild, HUB), OLD)["kind"] == kind
