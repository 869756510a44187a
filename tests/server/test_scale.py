"""The scale subresource: a kind that a CRD brought, scaled as users and autoscalers do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from server.conftest import Client, Running, Tree
from server.test_kubectl import Kubectl

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FLEETS = "/apis/example.com/v1/namespaces/default/fleets"


def crd(**scale: Any) -> Tree:
    numbers = {"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0, "maximum": 9}}}
    status = {"type": "object", "properties": {"ships": {"type": "integer"}, "selector": {"type": "string"}}}
    paths = {
        "specReplicasPath": ".spec.size.replicas",
        "statusReplicasPath": ".status.ships",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": {**paths, **scale}},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": {"size": numbers, "name": {"type": "string"}}},
                    "status": status,
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "fleets", "kind": "Fleet"},
            "versions": [version],
        },
    }


def fleet(name: str, replicas: int | None = 3) -> Tree:
    spec = {"name": "armada"} | ({"size": {"replicas": replicas}} if replicas is not None else {})
    return {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": name}, "spec": spec}


def scale(name: str, replicas: Any, **metadata: str) -> Tree:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, **metadata},
        "spec": {"replicas": replicas},
    }


@pytest.fixture(scope="module")
def fleets(running: Running) -> Client:
    client = running.client()
    client.post(CRDS, crd()).ok()
    return client


def test_a_scale_has_the_numbers_at_the_paths_of_the_crd(fleets: Client) -> None:
    made = fleets.post(FLEETS, fleet("shown")).ok()
    shown = fleets.get(f"{FLEETS}/shown/scale").ok()
    assert shown == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            key: made["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        },
        "spec": {"replicas": 3},
        "status": {"replicas": 0},
    }
    fleets.merge(f"{FLEETS}/shown/status", {"status": {"ships": 2, "selector": "sea=black"}}).ok()
    assert fleets.get(f"{FLEETS}/shown/scale").ok()["status"] == {"replicas": 2, "selector": "sea=black"}


def test_writing_a_scale_writes_one_field_and_owns_it(fleets: Client) -> None:
    fleets.post(FLEETS, fleet("written"), fieldManager="owner").ok()
    answer = fleets.put(f"{FLEETS}/written/scale", scale("written", 5), fieldManager="autoscaler").ok()
    assert answer["spec"] == {"replicas": 5}
    stored = fleets.get(f"{FLEETS}/written").ok()
    assert stored["spec"] == {"name": "armada", "size": {"replicas": 5}}
    assert stored["metadata"]["generation"] == 2
    mine = [entry for entry in stored["metadata"]["managedFields"] if entry["manager"] == "autoscaler"]
    assert [(entry["subresource"], entry["apiVersion"], entry["fieldsV1"]) for entry in mine] == [
        ("scale", "example.com/v1", {"f:spec": {"f:size": {"f:replicas": {}}}})
    ]


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"replicas": 7}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 7}]),
        ("application/apply-patch+yaml", scale("patched", 7)),
    ],
)
def test_every_patch_scales(fleets: Client, kind: str, patch: Any) -> None:
    fleets.post(FLEETS, fleet("patched"))
    query = {"fieldManager": "tester", "force": "true"} if "apply" in kind else {}
    answer = fleets.ask("PATCH", f"{FLEETS}/patched/scale", patch, headers={"Content-Type": kind}, **query).ok()
    assert (answer["kind"], answer["spec"]) == ("Scale", {"replicas": 7})
    assert fleets.get(f"{FLEETS}/patched").ok()["spec"]["size"] == {"replicas": 7}
    fleets.delete(f"{FLEETS}/patched").ok()


def test_applying_a_scale_conflicts_with_the_owner_of_the_field(fleets: Client) -> None:
    fleets.apply(f"{FLEETS}/owned", fleet("owned"), manager="owner").ok()
    refused = fleets.apply(f"{FLEETS}/owned/scale", scale("owned", 4), manager="autoscaler").refused(409)
    assert [cause["field"] for cause in refused["details"]["causes"]] == [".spec.size.replicas"]


def test_a_revision_in_a_scale_is_a_condition(fleets: Client) -> None:
    made = fleets.post(FLEETS, fleet("raced")).ok()
    revision = made["metadata"]["resourceVersion"]
    fleets.put(f"{FLEETS}/raced/scale", scale("raced", 4, resourceVersion=revision)).ok()
    fleets.put(f"{FLEETS}/raced/scale", scale("raced", 5, resourceVersion=revision)).refused(409)


def test_a_dry_run_shows_and_keeps_nothing(fleets: Client) -> None:
    fleets.post(FLEETS, fleet("dry")).ok()
    assert fleets.put(f"{FLEETS}/dry/scale", scale("dry", 8), dryRun="All").ok()["spec"] == {"replicas": 8}
    assert fleets.get(f"{FLEETS}/dry/scale").ok()["spec"] == {"replicas": 3}


@pytest.mark.parametrize(
    ("replicas", "code", "fields"),
    [
        (-1, 422, ["spec.size.replicas", ".spec.size.replicas"]),
        (10, 422, ["spec.size.replicas"]),
        ("three", 400, []),
        (2**40, 400, []),
    ],
)
def test_a_scale_that_cannot_be_is_refused(fleets: Client, replicas: Any, code: int, fields: list[str]) -> None:
    """By the schema of the kind, and because there is no negative number of anything."""
    fleets.post(FLEETS, fleet("strict"))
    refused = fleets.put(f"{FLEETS}/strict/scale", scale("strict", replicas)).refused(code)
    assert [cause["field"] for cause in refused.get("details", {}).get("causes", ())] == fields
    assert fleets.get(f"{FLEETS}/strict/scale").ok()["spec"] == {"replicas": 3}


def test_an_object_without_replicas_has_no_scale(fleets: Client) -> None:
    fleets.post(FLEETS, fleet("silent", None)).ok()
    refused = fleets.get(f"{FLEETS}/silent/scale").refused(500)
    assert 'the spec replicas field ".spec.size.replicas" does not exist' in refused["message"]
    fleets.get(f"{FLEETS}/absent/scale").refused(404)
    assert fleets.merge(f"{FLEETS}/silent/scale", {"spec": {"replicas": 2}}).ok()["spec"] == {"replicas": 2}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (scale("other", 4), 400),
        ({**scale("place", 4), "kind": "Fleet"}, 400),
        (scale("place", 4, uid="another"), 409),
        ([], 400),
    ],
)
def test_a_scale_must_be_one_of_this_object(fleets: Client, body: Any, code: int) -> None:
    fleets.post(FLEETS, fleet("place"))
    fleets.put(f"{FLEETS}/place/scale", body).refused(code)


def test_a_kind_without_it_has_none(fleets: Client) -> None:
    fleets.get("/apis/example.com/v1/namespaces/default/widgets/any/scale").refused(404)


@pytest.mark.parametrize(
    ("paths", "field"),
    [
        ({"specReplicasPath": ".status.replicas"}, "specReplicasPath"),
        ({"specReplicasPath": ""}, "specReplicasPath"),
        ({"statusReplicasPath": ".spec.ships"}, "statusReplicasPath"),
        ({"labelSelectorPath": ".metadata.labels"}, "labelSelectorPath"),
    ],
)
def test_a_crd_must_name_the_paths_of_the_numbers(fleets: Client, paths: Tree, field: str) -> None:
    wrong = crd(**paths)
    wrong["metadata"]["name"] = "navies.example.com"
    wrong["spec"]["names"] = {"plural": "navies", "kind": "Navy"}
    refused = fleets.post(CRDS, wrong).refused(422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == [
        f"spec.versions[0].subresources.scale.{field}"
    ]


def test_discovery_and_openapi_describe_scale(fleets: Client) -> None:
    """That it is a Scale of another group is how kubectl learns what it can scale."""
    rows = {row["name"]: row for row in fleets.get("/apis/example.com/v1").ok()["resources"]}
    shown = {key: rows["fleets/scale"][key] for key in ("group", "version", "kind", "verbs")}
    assert shown == {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]}
    document = fleets.get("/openapi/v3/apis/example.com/v1").ok()
    read = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/fleets/{name}/scale"]["get"]
    reference = read["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert document["components"]["schemas"][reference.rpartition("/")[2]]["x-kubernetes-group-version-kind"] == [
        {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    ]
    assert not any(group["name"] == "autoscaling" for group in fleets.get("/apis").ok()["groups"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kubectl_scales_and_shows_it(running: Running, fleets: Client, tmp_path: Path) -> None:
    kubectl = Kubectl(running, tmp_path)
    fleets.post(FLEETS, fleet("royal")).ok()
    assert kubectl("scale", "fleet/royal", "--replicas=6") == "fleet.example.com/royal scaled\n"
    assert kubectl("scale", "fleet/royal", "--replicas=7", "--current-replicas=6") == "fleet.example.com/royal scaled\n"
    refused = kubectl.run("scale", "fleet/royal", "--replicas=8", "--current-replicas=1", code=1)
    assert "Expected replicas to be 1, was 7" in refused.stderr
    printed = kubectl("get", "fleets/royal", "--subresource=scale")
    assert re.search(r"NAME +DESIRED +AVAILABLE +AGE\nroyal +7 +0", printed)
