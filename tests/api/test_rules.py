"""Every CEL rule of the schemas, shown at work: an object it refuses, and the sentence people read."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kubemachinery import structural
from pykueue.api import registry, schema

TIME = "2025-01-31T09:30:00Z"


def _condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": TIME}


def _workload(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    pod_sets = [{"name": "main", "count": 2, "template": {}}]
    return {"spec": {"podSets": pod_sets, "queueName": "q", **(spec or {})}, "status": status}


def _reserved(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main"}]}
    return _workload(spec, conditions=[_condition("QuotaReserved")], admission=admission, **status)


def _admitted(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return _workload(spec, conditions=[_condition("Admitted")])


def _class(name: str = "high", group: str = "kueue.x-k8s.io", kind: str = "WorkloadPriorityClass") -> dict[str, Any]:
    return {"priority": 1, "priorityClassRef": {"group": group, "kind": kind, "name": name}}


def _old_class(name: str = "high", source: str = "scheduling.k8s.io/priorityclass") -> dict[str, Any]:
    return {"priority": 1, "priorityClassName": name, "priorityClassSource": source}


def _placed(**changes: Any) -> dict[str, Any]:
    """A Workload with a placement of two domains on one level."""
    values: dict[str, Any] = {"individual": {"roots": ["a", "b"]}}
    part: dict[str, Any] = {"domainCount": 2, "valuesPerLevel": [values], "podCounts": {"individual": [1, 1]}}
    topology = {"levels": ["kubernetes.io/hostname"], "slices": [{**part, **changes}]}
    return _workload(admission={"clusterQueue": "cq", "podSetAssignments": [{"topologyAssignment": topology}]})


def _quota(**limits: Any) -> dict[str, Any]:
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1, **limits}]}]
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}


def _tolerations(**toleration: Any) -> dict[str, Any]:
    return {"spec": {"tolerations": [toleration]}}


def _levels(*labels: str) -> dict[str, Any]:
    return {"spec": {"levels": [{"nodeLabel": label} for label in labels]}}


HOST = "kubernetes.io/hostname"
POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass"}

# kind -> (what is refused, the object before the update if it takes one, where, the sentence)
REFUSED: dict[str, list[tuple[dict[str, Any], dict[str, Any] | None, str, str]]] = {
    "ClusterQueue": [
        ({"spec": _quota(borrowingLimit=1)}, None, "spec", "borrowingLimit needs a cohortName"),
        (
            {"spec": {"resourceGroups": [{**_quota()["resourceGroups"][0], "coveredResources": ["cpu", "gpu"]}]}},
            None,
            "spec.resourceGroups[0]",
            "every flavor must give a quota for each of the covered resources, and for nothing else",
        ),
        (
            {"spec": {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}}},
            None,
            "spec.flavorFungibility",
            "preference needs both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
        (
            {"spec": {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}},
            None,
            "spec.preemption",
            "borrowWithinCohort must be Never while reclaimWithinCohort is Never",
        ),
    ],
    "Cohort": [
        (
            {"spec": {"resourceGroups": [{**_quota()["resourceGroups"][0], "coveredResources": ["cpu", "gpu"]}]}},
            None,
            "spec.resourceGroups[0]",
            "every flavor must give a quota for each of the covered resources, and for nothing else",
        ),
    ],
    "LocalQueue": [
        (
            {"spec": {"clusterQueue": "a"}},
            {"spec": {"clusterQueue": "b"}},
            "spec.clusterQueue",
            "cannot be changed once set",
        ),
    ],
    "ResourceFlavor": [
        (
            {"spec": {"topologyName": "t"}},
            None,
            "spec",
            "a flavor with a topologyName needs at least one of nodeLabels",
        ),
        (
            {"spec": {"nodeLabels": {"a": "b"}}},
            {"spec": {"nodeLabels": {"a": "b"}, "topologyName": "t"}},
            "spec",
            "topologyName cannot be changed once set",
        ),
        (
            {"spec": {"nodeTaints": [{"key": "k", "effect": "NoWay"}]}},
            None,
            "spec.nodeTaints",
            "a taint's effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
        (_tolerations(value="v"), None, "spec.tolerations", "a toleration without a key needs the operator Exists"),
        (
            _tolerations(key="k", effect="NoSchedule", tolerationSeconds=1),
            None,
            "spec.tolerations",
            "tolerationSeconds needs the effect NoExecute",
        ),
        (
            _tolerations(key="k", operator="Like"),
            None,
            "spec.tolerations",
            "a toleration's operator must be Equal or Exists",
        ),
        (
            _tolerations(key="k", operator="Exists", value="v"),
            None,
            "spec.tolerations",
            "a toleration with the operator Exists takes no value",
        ),
        (
            _tolerations(key="k", effect="NoWay"),
            None,
            "spec.tolerations",
            "a toleration's effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
    ],
    "Topology": [
        (
            _levels("rack", "block"),
            _levels("block", "rack"),
            "spec.levels",
            "the levels can be changed only while kubernetes.io/hostname is the last of them",
        ),
        (_levels("rack", "rack"), None, "spec.levels", "the entries must differ from each other"),
        (_levels(HOST, "rack"), None, "spec.levels", "kubernetes.io/hostname can only be the last level"),
    ],
    "AdmissionCheck": [
        (
            {"spec": {"controllerName": "a"}},
            {"spec": {"controllerName": "b"}},
            "spec.controllerName",
            "cannot be changed once set",
        ),
    ],
    "MultiKueueConfig": [
        ({"spec": {"clusters": ["a", "b", "a"]}}, None, "spec.clusters", "the entries must differ from each other"),
    ],
    "MultiKueueCluster": [
        (
            {"spec": {"clusterSource": {}}},
            None,
            "spec.clusterSource",
            "exactly one of kubeConfig and clusterProfileRef must be set",
        ),
    ],
    "Workload": [
        (
            _workload({"podSets": [{"count": 1, "minCount": 2, "template": {}}]}),
            None,
            "spec.podSets[0]",
            "minCount must not be greater than count",
        ),
        (
            _workload({"priorityClassRef": _class()["priorityClassRef"]}),
            None,
            "spec",
            "priority must be set when priorityClassRef is",
        ),
        (
            _workload(_class(group="scheduling.k8s.io")),
            None,
            "spec.priorityClassRef",
            "in the group scheduling.k8s.io the kind must be PriorityClass",
        ),
        (
            _workload(_class(kind="PriorityClass")),
            None,
            "spec.priorityClassRef",
            "in the group kueue.x-k8s.io the kind must be WorkloadPriorityClass",
        ),
        (
            _placed(valuesPerLevel=[{}]),
            None,
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0].valuesPerLevel[0]",
            "exactly one of universal and individual must be set",
        ),
        (
            _placed(podCounts={"individual": [1]}),
            None,
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0]",
            "podCounts.individual must have one entry for each domain",
        ),
        (
            _placed(valuesPerLevel=[{"individual": {"roots": ["a"]}}]),
            None,
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0]",
            "valuesPerLevel[].individual.roots must have one entry for each domain",
        ),
        (
            _placed(valuesPerLevel=[{"universal": "a"}, {"universal": "b"}]),
            None,
            "status.admission.podSetAssignments[0].topologyAssignment",
            "every slice must have one entry of valuesPerLevel for each level",
        ),
        (
            _workload(clusterName="a"),
            _workload(clusterName="b"),
            "status",
            "clusterName cannot be changed once set",
        ),
        (
            _workload(clusterName="a", nominatedClusterNames=["a"]),
            None,
            "status",
            "clusterName and nominatedClusterNames exclude each other",
        ),
        (
            _workload(
                conditions=[_condition("QuotaReserved")], admission={"clusterQueue": "q", "podSetAssignments": []}
            ),
            None,
            "",
            "while quota is reserved, status.admission must have one assignment for each pod set",
        ),
        (
            _reserved(),
            _reserved(_class()),
            "",
            "spec.priorityClassRef can be neither added nor removed while quota is reserved",
        ),
        (
            _reserved(_class()),
            _reserved(_class(**POD_CLASS)),
            "",
            "spec.priorityClassRef.group cannot be changed while quota is reserved",
        ),
        (
            _reserved(_class()),
            _reserved(_class(**POD_CLASS)),
            "",
            "spec.priorityClassRef.kind cannot be changed while quota is reserved",
        ),
        (
            _reserved(_class("low", **POD_CLASS)),
            _reserved(_class("high", **POD_CLASS)),
            "",
            "the name of a PriorityClass of pods cannot be changed in spec.priorityClassRef while quota is reserved",
        ),
        (
            _reserved({"queueName": "other"}),
            _reserved(),
            "",
            "spec.queueName cannot be changed while quota is reserved",
        ),
        (
            _admitted({"maximumExecutionTimeSeconds": 5}),
            _admitted(),
            "",
            "spec.maximumExecutionTimeSeconds cannot be changed while the Workload is admitted",
        ),
    ],
}

# The rules that only the old version has.
REFUSED_OLD: dict[str, list[tuple[dict[str, Any], dict[str, Any] | None, str, str]]] = {
    "ClusterQueue": [({"spec": _quota(borrowingLimit=1)}, None, "spec", "borrowingLimit needs a cohort")],
    "Topology": [
        (
            _levels("rack", "x", HOST),
            _levels("rack", HOST),
            "spec.levels",
            "the levels cannot be changed; use v1beta2 where the last one is the host name",
        ),
    ],
    "Workload": [
        (_workload({"priorityClassName": "high"}), None, "spec", "priority must be set when its class is"),
        (
            _reserved(_old_class(source="kueue.x-k8s.io/workloadpriorityclass")),
            _reserved(_old_class()),
            "",
            "spec.priorityClassSource cannot be changed while quota is reserved",
        ),
        (
            _reserved(_old_class("low")),
            _reserved(_old_class("high")),
            "",
            "spec.priorityClassName cannot be changed while quota is reserved, unless it is a WorkloadPriorityClass",
        ),
    ],
}

# What the same rules let pass.
ACCEPTED: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("ClusterQueue", {"spec": {**_quota(borrowingLimit=1), "cohortName": "c"}}, None),
    ("Topology", _levels("rack", "x", HOST), _levels("rack", HOST)),
    ("ResourceFlavor", _tolerations(operator="Exists"), None),
    ("Workload", _placed(), None),
    # Without quota everything may change; with it, a WorkloadPriorityClass may still be exchanged for another.
    ("Workload", _workload(_class()), _workload({"queueName": "other"})),
    ("Workload", _reserved(_class("low")), _reserved(_class("high"))),
    # Losing the quota and leaving the queue may happen in one step.
    ("Workload", _workload({"queueName": "other"}), _reserved()),
]


@cache
def _compiled(kind: str, version: str) -> structural.Structural:
    row = registry.KUEUE.named(kind)
    assert row is not None
    return structural.compile(schema.of(row, version))


def _refusals(kind: str, version: str, new: dict[str, Any], old: dict[str, Any] | None) -> list[tuple[str, str]]:
    compiled = _compiled(kind, version)
    stored = None if old is None else compiled.default(copy.deepcopy(old))
    errors = compiled.validate(compiled.default(copy.deepcopy(new)), stored)
    return [(error.path, error.message) for error in errors]


def _cases(table: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(kind, *case, id=f"{kind}: {case[3]}") for kind, cases in table.items() for case in cases]


@pytest.mark.parametrize(("kind", "new", "old", "place", "sentence"), _cases(REFUSED))
def test_a_rule_of_v1beta2_refuses(
    kind: str, new: dict[str, Any], old: dict[str, Any] | None, place: str, sentence: str
) -> None:
    assert (place, sentence) in _refusals(kind, "v1beta2", new, old)


@pytest.mark.parametrize(("kind", "new", "old", "place", "sentence"), _cases(REFUSED_OLD))
def test_a_rule_of_v1beta1_refuses(
    kind: str, new: dict[str, Any], old: dict[str, Any] | None, place: str, sentence: str
) -> None:
    assert (place, sentence) in _refusals(kind, "v1beta1", new, old)


@pytest.mark.parametrize(("kind", "new", "old"), ACCEPTED)
def test_what_keeps_to_the_rules_passes(kind: str, new: dict[str, Any], old: dict[str, Any] | None) -> None:
    assert _refusals(kind, "v1beta2", new, old) == []


@pytest.mark.parametrize(("kind", "new", "old", "place", "sentence"), [c for c in _cases(REFUSED) if c.values[2]])
def test_it_is_the_change_that_is_refused(
    kind: str, new: dict[str, Any], old: dict[str, Any], place: str, sentence: str
) -> None:
    """Both the object before the update and the one after it could be created as they are."""
    assert _refusals(kind, "v1beta2", old, None) == []
    assert _refusals(kind, "v1beta2", new, None) == []


def _sentences(version: str) -> set[tuple[str, str]]:
    def below(tree: dict[str, Any]) -> set[str]:
        inner = [
            *tree.get("properties", {}).values(),
            *(tree[key] for key in ("items", "additionalProperties") if key in tree),
        ]
        return {rule["message"] for rule in tree.get("x-kubernetes-validations", ())}.union(*map(below, inner))

    return {(row.kind, sentence) for row in registry.KUEUE for sentence in below(schema.of(row, version))}


def test_every_rule_is_shown_here() -> None:
    shown = {(kind, case[3]) for kind, cases in REFUSED.items() for case in cases}
    shown_old = {(kind, case[3]) for kind, cases in REFUSED_OLD.items() for case in cases}
    # The rules for tolerations and taints are one and the same wherever they stand.
    everywhere = {sentence for kind, sentence in shown if kind == "ResourceFlavor"}
    assert {(kind, s) for kind, s in _sentences("v1beta2") if s not in everywhere} <= shown
    assert {(kind, s) for kind, s in _sentences("v1beta1") if s not in everywhere} <= shown | shown_old


# --- The same before a real API server --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A real API server that serves our CRDs. That it takes them shows that they are valid and their rules affordable."""
    from cluster import real

    with real.started() as client:
        client.install(*map(schema.crd, registry.KUEUE))
        yield client


class _Refused(Exception):
    """What the server answered, as (place, sentence) pairs."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.causes = [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]
        super().__init__(body["message"])


def _write(server: Any, kind: str, version: str, tree: dict[str, Any], stored: dict[str, Any] | None) -> dict[str, Any]:
    """Create an object, or bring the stored one to `tree`: first the specification, then the status."""
    row = registry.KUEUE.named(kind)
    assert row is not None
    base = {"apiVersion": f"{row.group}/{version}", "kind": kind}
    if stored is None:
        path = row.path("default", version=version)
        body = {**base, "metadata": {"generateName": "case-"}, **{k: v for k, v in tree.items() if k != "status"}}
        answer = server.request("POST", path, body)
    else:
        path = row.path("default", stored["metadata"]["name"], version=version)
        answer = server.request("PUT", path, {**stored, "spec": tree["spec"]})
    if answer.code == 422:
        raise _Refused(answer.body)
    assert answer.code < 300, answer.body
    if tree.get("status") and tree["status"] != answer.body.get("status"):
        path = row.path("default", answer.body["metadata"]["name"], "status", version=version)
        answer = server.request("PUT", path, {**answer.body, "status": tree["status"]})
        if answer.code == 422:
            raise _Refused(answer.body)
        assert answer.code < 300, answer.body
    written: dict[str, Any] = answer.body
    return written


def _on_server(
    server: Any, kind: str, version: str, new: dict[str, Any], old: dict[str, Any] | None
) -> list[tuple[str, str]]:
    stored = None if old is None else _write(server, kind, version, old, None)
    try:
        _write(server, kind, version, new, stored)
    except _Refused as refusal:
        return refusal.causes
    return []


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("version", "kind", "new", "old", "place", "sentence"),
    [
        pytest.param(version, *case.values, id=f"{version} {case.id}")
        for version, table in (("v1beta2", REFUSED), ("v1beta1", REFUSED_OLD))
        for case in _cases(table)
        # No webhook converts here, so fields that only the old version has are gone once stored.
        if not (version == "v1beta1" and case.values[0] == "Workload" and case.values[2])
    ],
)
def test_a_real_api_server_refuses_the_same(
    server: Any,
    version: str,
    kind: str,
    new: dict[str, Any],
    old: dict[str, Any] | None,
    place: str,
    sentence: str,
) -> None:
    causes = _on_server(server, kind, version, new, old)
    assert [found for found, message in causes if message.endswith(sentence)] == [place or "<nil>"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "new", "old"),
    # Specification and status are two writes; what changes both at once cannot be sent.
    [case for case in ACCEPTED if case[2] is None or case[1].get("status") == case[2].get("status")],
)
def test_a_real_api_server_lets_the_same_pass(
    server: Any, kind: str, new: dict[str, Any], old: dict[str, Any] | None
) -> None:
    assert _on_server(server, kind, "v1beta2", new, old) == []
