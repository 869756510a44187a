"""The kinds that are stored for the suites of others (`apps/v1`, CronJob, Service, endpoints), beyond single writes:
what kubectl prints of them, how they are found, scaled, merged and deleted together."""

from __future__ import annotations

import random
from typing import Any

import pytest

from contracts import probing
from contracts.twin import Twin, differences, seeds

pytestmark = pytest.mark.cluster

Tree = dict[str, Any]

_APPS = "/apis/apps/v1/namespaces/default"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_KINDS = (
    "Deployment",
    "ReplicaSet",
    "DaemonSet",
    "StatefulSet",
    "ControllerRevision",
    "CronJob",
    "PersistentVolumeClaim",
    "Service",
    "Endpoints",
    "EndpointSlice",
)
_SCALED = ("deployments", "replicasets", "statefulsets")
_ROWS = {kind.name: kind for kind in probing.kinds() if kind.name in _KINDS}


def _created(twin: Twin, kind: str, name: str, **changes: Any) -> str:
    """An object of a kind in both servers; its path."""
    row = _ROWS[kind]
    body = probing.changed(row.base, {"metadata.name": name, **changes})
    for server in (twin.real, twin.ours):
        server.request("DELETE", f"{row.path}/{name}", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    for answer in twin.both("POST", f"{row.path}?fieldManager=probe", body):
        assert answer.code == 201, answer.body
    return f"{row.path}/{name}"


# --- what kubectl shows -----------------------------------------------------------------------------------------------

_STATUSES: dict[str, Tree] = {
    "Deployment": {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
    "ReplicaSet": {"replicas": 3, "readyReplicas": 2},
    "StatefulSet": {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1},
    "DaemonSet": {"desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberReady": 1, "numberMisscheduled": 0},
    "CronJob": {"active": [{"kind": "Job", "name": "a"}]},
    "Service": {},
}


def _shown(answer: Any) -> Any:
    """The columns without their descriptions, which are our own, and the cells without the age."""
    columns = [
        {key: one.get(key) for key in ("name", "type", "format", "priority")}
        for one in answer.body["columnDefinitions"]
    ]
    ages = {at for at, one in enumerate(columns) if one["name"] in ("Age", "Last Schedule")}
    cells = [[cell for at, cell in enumerate(row["cells"]) if at not in ages] for row in answer.body["rows"]]
    return {"columns": columns, "cells": cells}


@pytest.mark.parametrize("kind", _KINDS)
def test_tables_have_the_same_columns_and_cells(twin: Twin, kind: str) -> None:
    path = _created(twin, kind, "shown")
    if kind in _STATUSES:
        for answer in twin.both("PATCH", f"{path}/status", {"status": _STATUSES[kind]}, _MERGE):
            assert answer.code == 200, answer.body
    real, ours = twin.both("GET", path, Accept=_TABLE)
    assert not differences(_shown(real), _shown(ours))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Service", {"spec": {"type": "ExternalName", "externalName": "a.example.com"}}),
        ("Service", {"spec.ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}]}),
        ("Service", {"spec.clusterIP": "10.0.0.88", "spec.externalIPs": ["203.0.113.9"], "spec.selector": "<absent>"}),
        ("Endpoints", {"subsets": "<absent>"}),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": f"10.1.2.{at}"} for at in range(1, 6)]}]}),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": "2001:db8::1"}], "ports": [{"port": 7}]}]}),
        ("EndpointSlice", {"endpoints": [{"addresses": [f"10.1.2.{at}"]} for at in range(1, 6)], "ports": "<absent>"}),
        ("EndpointSlice", {"endpoints": "<absent>", "ports": [{"name": "web"}, {"name": "b", "port": 9}]}),
        ("DaemonSet", {"spec.template.spec.nodeSelector": {"disk": "fast", "a": "b"}}),
        ("CronJob", {"spec.timeZone": "Etc/UTC", "spec.suspend": True}),
        (
            "Deployment",
            {"spec.selector.matchExpressions": [{"key": "app", "operator": "In", "values": ["z", "probe"]}]},
        ),
    ],
)
def test_tables_of_unusual_objects_are_equal(twin: Twin, kind: str, changes: Tree) -> None:
    real, ours = twin.both("GET", _created(twin, kind, "unusual", **changes), Accept=_TABLE)
    assert not differences(_shown(real), _shown(ours))


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/apis/apps/v1", ("deployments", "statefulsets", "replicasets", "daemonsets", "controllerrevisions")),
        ("/apis/batch/v1", ("cronjobs", "jobs")),
        ("/apis/discovery.k8s.io/v1", ("endpointslices",)),
        ("/api/v1", ("services", "endpoints", "persistentvolumeclaims")),
    ],
)
def test_discovery_describes_them_alike(twin: Twin, path: str, names: tuple[str, ...]) -> None:
    keys = ("name", "singularName", "namespaced", "kind", "group", "version", "verbs", "shortNames", "categories")

    def described(answer: Any) -> dict[str, Any]:
        rows = [one for one in answer.body["resources"] if one["name"].partition("/")[0] in names]
        # What reaches into a cluster's network is not served; the limits of the server name it.
        return {one["name"]: {key: one.get(key) for key in keys} for one in rows if one["name"] != "services/proxy"}

    real, ours = twin.both("GET", path)
    assert not differences(described(real), described(ours))


# --- scale ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plural", _SCALED)
def test_scale_is_read_and_written_alike(twin: Twin, plural: str) -> None:
    kind = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}[plural]
    path = _created(twin, kind, "scaled", **{"spec.replicas": 2})
    scale: Tree = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "scaled"}}
    found: list[str] = []
    for what, method, body, media in (
        ("read", "GET", None, "application/json"),
        ("put", "PUT", {**scale, "spec": {"replicas": 5}}, "application/json"),
        ("put a negative number", "PUT", {**scale, "spec": {"replicas": -1}}, "application/json"),
        ("put another name", "PUT", {**scale, "metadata": {"name": "other"}}, "application/json"),
        ("put an old revision", "PUT", {**scale, "metadata": {"name": "scaled", "resourceVersion": "1"}}, ""),
        ("merge", "PATCH", {"spec": {"replicas": 7}}, _MERGE),
        ("merge a negative number", "PATCH", {"spec": {"replicas": -7}}, _MERGE),
        ("strategic", "PATCH", {"spec": {"replicas": 4}}, _STRATEGIC),
    ):
        answers = twin.both(
            method, f"{path}/scale?fieldManager=scaler" if method != "GET" else f"{path}/scale", body, media
        )
        found += twin.compare(f"{what} the {plural} scale", *answers)
    found += twin.compare(f"the {plural} after its scale", *twin.both("GET", path))
    # Then the manager owns nothing any more on the real server, and it never owns the number again: not compared.
    found += twin.compare(f"put no number to the {plural} scale", *twin.both("PUT", f"{path}/scale", scale))
    assert not found, "\n".join(found)


# --- merging ----------------------------------------------------------------------------------------------------------


def _random_deployment(name: str, rng: random.Random) -> Tree:
    """A partial configuration: few names, so that managers meet."""
    containers = []
    for container in rng.sample(("main", "side"), rng.randint(1, 2)):
        one: Tree = {"name": container, "image": f"busybox:{rng.randint(1, 2)}"}
        if rng.random() < 0.5:
            one["ports"] = [{"containerPort": port} for port in rng.sample((80, 81), rng.randint(0, 2))]
        if rng.random() < 0.5:
            one["env"] = [{"name": key, "value": rng.choice("xy")} for key in rng.sample("AB", 1)]
        containers.append(one)
    spec: Tree = {
        "selector": {"matchLabels": {"app": "probe"}},
        "template": {"metadata": {"labels": {"app": "probe"}}, "spec": {"containers": containers}},
    }
    if rng.random() < 0.5:
        spec["replicas"] = rng.randint(0, 3)
    if rng.random() < 0.3:
        spec["strategy"] = {"type": "Recreate"}
    metadata: Tree = {"name": name}
    if rng.random() < 0.5:
        metadata["annotations"] = {rng.choice("ab"): rng.choice("xy")}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _random_service(name: str, rng: random.Random) -> Tree:
    ports = [
        {"name": f"p{port}{protocol.lower()}", "port": port, "protocol": protocol}
        for port, protocol in rng.sample([(80, "TCP"), (80, "UDP"), (81, "TCP")], rng.randint(1, 3))
    ]
    spec: Tree = {"clusterIP": "None", "ports": ports}
    if rng.random() < 0.7:
        spec["selector"] = {key: rng.choice("xy") for key in rng.sample("ab", rng.randint(1, 2))}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("base", "made"),
    [(f"{_APPS}/deployments", _random_deployment), ("/api/v1/namespaces/default/services", _random_service)],
    ids=["Deployment", "Service"],
)
def test_applied_configurations_are_merged_alike(twin: Twin, base: str, made: Any) -> None:
    found: list[str] = []
    for seed in seeds(25):
        rng = random.Random(seed)
        path = f"{base}/applied-{seed}"
        for _ in range(5):
            body = made(f"applied-{seed}", rng)
            query = f"?fieldManager={rng.choice(('one', 'two'))}&force={rng.choice(('true', 'false'))}"
            # kube-apiserver tries a patch on the object of its watch cache first. If that is older than the last write,
            # it tries again, and the response has the warnings of both. After a list of the present it is current.
            assert twin.real.request("GET", base).code == 200
            answers = twin.both("PATCH", path + query, body, _APPLY)
            found += twin.compare(f"apply {path}{query}: {body}", *answers)
            if answers[0].code != answers[1].code:
                break
    assert not found, "\n".join(found[:60])


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("Deployment", {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "busybox:3"}]}}}}),
        ("Deployment", {"spec": {"template": {"spec": {"containers": [{"name": "more", "image": "busybox:3"}]}}}}),
        ("Deployment", {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        ("Deployment", {"spec": {"strategy": {"type": "Recreate"}}}),
        ("Deployment", {"spec": {"selector": {"matchLabels": {"app": "probe", "more": "x"}}}}),
        ("StatefulSet", {"spec": {"template": {"metadata": {"labels": {"more": "x"}}}}}),
        ("StatefulSet", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 3}}}}),
        ("DaemonSet", {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}),
        ("Service", {"spec": {"ports": [{"port": 80, "name": "web"}]}}),
        ("Service", {"spec": {"ports": [{"port": 81, "name": "more"}, {"port": 80, "name": "web"}]}}),
        ("Service", {"spec": {"ports": [{"port": 80, "$patch": "delete"}, {"port": 82}]}}),
        ("CronJob", {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "x"}]}}}}}}),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": "10.9.9.9"}]}]}),
        ("EndpointSlice", {"ports": [{"port": 9}]}),
    ],
)
def test_strategic_patches_are_merged_alike(twin: Twin, kind: str, patch: Tree) -> None:
    path = _created(twin, kind, "patched")
    answers = twin.both("PATCH", f"{path}?fieldManager=patcher", patch, _STRATEGIC)
    found = twin.compare(f"strategic patch of {kind}: {patch}", *answers)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_conditions_of_status_merge_by_type(twin: Twin, kind: str) -> None:
    path = _created(twin, kind, "conditions")
    head = {"apiVersion": _ROWS[kind].base["apiVersion"], "kind": kind, "metadata": {"name": "conditions"}}
    found: list[str] = []
    for manager, condition in (("one", "A"), ("two", "B"), ("one", "A")):
        conditions = [{"type": condition, "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}]
        body = {**head, "status": {"conditions": conditions}}
        answers = twin.both("PATCH", f"{path}/status?fieldManager={manager}", body, _APPLY)
        found += twin.compare(f"{manager} applies {condition} to {kind}/status", *answers)
    assert not found, "\n".join(found)


# --- deleting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", _KINDS)
def test_collections_are_deleted_by_selector(twin: Twin, kind: str) -> None:
    collection = _ROWS[kind].path
    for name, group in (("gone-1", "gone"), ("gone-2", "gone"), ("stays", "stays")):
        _created(twin, kind, name, **{"metadata.labels": {"group": group}})
    for answer in twin.both("DELETE", f"{collection}?labelSelector=group%3Dgone", {"propagationPolicy": "Background"}):
        assert answer.code == 200, answer.body
    for answer in twin.both("GET", f"{collection}?labelSelector=group"):
        assert [item["metadata"]["name"] for item in answer.body["items"]] == ["stays"]


# --- rules in CEL -----------------------------------------------------------------------------------------------------

_WORDS = (
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)


def _ruled(number: int, word: str, rule: str) -> Tree:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {word: {"type": "string"}},
                "x-kubernetes-validations": [{"rule": rule}],
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"words{number}.twin.example.com"},
        "spec": {
            "group": "twin.example.com",
            "scope": "Namespaced",
            "names": {"plural": f"words{number}", "singular": f"word{number}", "kind": f"Word{number}"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.mark.parametrize(
    "rule",
    [
        "self.{word} == 'a'",
        "self.__{word}__ == 'a'",
        "has(self.{word})",
        "!has(self.__{word}__) || self.{word}.startsWith('a')",
        "self.?{word}.orValue('') == 'a'",
        "{word} == 'a'",
        "[1].all({word}, {word} > 0)",
        "self.{word}() == 'a'",
    ],
)
def test_reserved_words_are_accepted_as_fields_alike(twin: Twin, rule: str) -> None:
    """A CRD whose schema has such a property, and whose rule names it: accepted or refused."""
    found: list[str] = []
    for number, word in enumerate(_WORDS):
        crd = _ruled(number, word, rule.format(word=word))
        query = "?dryRun=All&fieldManager=probe"
        real, ours = twin.both("POST", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions{query}", crd)
        if real.code != ours.code:
            found.append(f"{rule.format(word=word)}: real {real.code} {real.body.get('message', '')}, ours {ours.code}")
    assert not found, "\n".join(found)
