"""Kinds that are stored for the suites and controllers of others: what clients rely on, without a real server to ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeserver.builtin import cronjobs
from kubeserver.registry import unsupported
from server.conftest import Client, Tree

APPS = "/apis/apps/v1/namespaces/default"
SERVICES = "/api/v1/namespaces/default/services"
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}}
SCALED = ["deployments", "statefulsets", "replicasets"]
KINDS = {"deployments": "Deployment", "statefulsets": "StatefulSet", "replicasets": "ReplicaSet"}


def workload(kind: str, name: str, **spec: object) -> Tree:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE, **spec},
    }


def service(name: str, **spec: object) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}], **spec},
    }


@pytest.fixture(autouse=True)
def cleared(client: Client) -> Iterator[None]:
    yield
    for plural in (*SCALED, "daemonsets", "controllerrevisions"):
        client.delete(f"{APPS}/{plural}").ok()
    client.delete(SERVICES).ok()


@pytest.mark.parametrize("plural", SCALED)
def test_scale_writes_replicas_and_shows_the_selector(client: Client, plural: str) -> None:
    path = f"{APPS}/{plural}/web"
    client.post(f"{APPS}/{plural}", workload(KINDS[plural], "web", replicas=2)).ok()
    shown = client.get(f"{path}/scale").ok()
    assert (shown["kind"], shown["spec"], shown["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 0, "selector": "app=a"},
    )
    client.merge(f"{path}/scale", {"spec": {"replicas": 5}}).ok()
    stored = client.get(path).ok()
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)
    refused = client.merge(f"{path}/scale", {"spec": {"replicas": -1}}).refused(422)
    assert (refused["details"]["kind"], refused["details"]["causes"][0]["field"]) == ("Scale", "spec.replicas")


def test_annotations_of_a_deployment_make_another_generation(client: Client) -> None:
    """They are copied to its ReplicaSets; those of other kinds count for nothing, nor does a label."""
    for plural, bumped in (("deployments", 2), ("statefulsets", 1)):
        client.post(f"{APPS}/{plural}", workload(KINDS[plural], "noted")).ok()
        client.merge(f"{APPS}/{plural}/noted", {"metadata": {"labels": {"a": "b"}}}).ok()
        noted = client.merge(f"{APPS}/{plural}/noted", {"metadata": {"annotations": {"a": "b"}}}).ok()
        assert noted["metadata"]["generation"] == bumped


def test_status_of_a_deployment_keeps_its_labels_and_generation(client: Client) -> None:
    path = f"{APPS}/deployments/watched"
    client.post(f"{APPS}/deployments", workload("Deployment", "watched")).ok()
    body = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "status": {"replicas": 1}}
    changed = client.merge(f"{path}/status", body).ok()
    assert "labels" not in changed["metadata"]
    assert (changed["metadata"]["annotations"], changed["metadata"]["generation"]) == ({"a": "b"}, 1)
    assert changed["status"]["replicas"] == 1


def test_template_of_a_daemon_set_is_counted(client: Client) -> None:
    annotation = "deprecated.daemonset.template.generation"
    made = client.post(f"{APPS}/daemonsets", workload("DaemonSet", "agents")).ok()
    assert made["metadata"]["annotations"][annotation] == "1"
    changed = client.merge(f"{APPS}/daemonsets/agents", {"spec": {"template": {"spec": {"priority": 1}}}}).ok()
    assert changed["metadata"]["annotations"][annotation] == "2"
    same = client.merge(f"{APPS}/daemonsets/agents", {"metadata": {"annotations": {annotation: "9"}}}).ok()
    assert same["metadata"]["annotations"][annotation] == "2"


def test_selector_of_a_workload_is_immutable(client: Client) -> None:
    client.post(f"{APPS}/deployments", workload("Deployment", "fixed")).ok()
    labels = {"app": "b"}
    body = {"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}
    causes = client.merge(f"{APPS}/deployments/fixed", body).refused(422)["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["spec.selector"]


def test_collection_is_deleted_by_label(client: Client) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        made = workload("StatefulSet", name)
        made["metadata"]["labels"] = {"group": label}
        client.post(f"{APPS}/statefulsets", made).ok()
    client.delete(f"{APPS}/statefulsets?labelSelector=group%3Dx").ok()
    assert [one["metadata"]["name"] for one in client.get(f"{APPS}/statefulsets").ok()["items"]] == ["c"]


def test_service_gets_no_address_and_a_warning(client: Client) -> None:
    answer = client.post(SERVICES, service("plain"))
    assert "clusterIP" not in answer.ok()["spec"]
    assert unsupported.words("service-addresses") in answer.headers["warning"]
    headless = client.post(SERVICES, service("headless", clusterIP="None"))
    assert headless.ok()["spec"]["clusterIPs"] == ["None"]
    assert "warning" not in headless.headers
    given = client.post(SERVICES, service("given", clusterIP="10.0.0.9")).ok()
    assert given["spec"]["clusterIPs"] == ["10.0.0.9"]
    moved = client.merge(f"{SERVICES}/given", {"spec": {"clusterIP": "10.0.0.10"}}).refused(422)
    assert [cause["field"] for cause in moved["details"]["causes"]] == ["spec.clusterIPs[0]"]


@pytest.mark.parametrize(
    "schedule",
    [
        "*/5 * * * *",
        "0 0 1,15 jan-mar mon",
        "@hourly",
        "@every 90s",
        "? ? ? ? ?",
        "3/20 0-6/2 * * SUN",
        "TZ=UTC 0 0 * * *",
    ],
)
def test_schedules_that_are_read(schedule: str) -> None:
    assert cronjobs.complaint(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("60 * * * *", "above maximum (59) of minute"),
        ("* * 0 * *", "below minimum (1) of day of month"),
        ("* * * * 7", "above maximum (6) of day of week"),
        ("9-2 * * * *", "beyond end of range"),
        ("*/0 * * * *", "positive number"),
        ("1/2/3 * * * *", "too many slashes"),
        ("1-2-3 * * * *", "too many hyphens"),
        ("* * * dez *", "failed to parse"),
        ("@sometimes", "unrecognized descriptor"),
        ("@every while", "failed to parse duration"),
        ("", "found 0"),
    ],
)
def test_schedules_that_are_not_read(schedule: str, why: str) -> None:
    assert why in cronjobs.complaint(schedule)


def test_controller_revision_is_stored_shows_its_controller_and_keeps_its_data(client: Client) -> None:
    made = client.post(f"{APPS}/statefulsets", workload("StatefulSet", "web")).ok()
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "web",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    data = {"spec": {"template": {"$patch": "replace", "spec": {"containers": []}}}}
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "web-1", "ownerReferences": [owner]},
        "revision": 1,
        "data": data,
    }
    path = f"{APPS}/controllerrevisions/web-1"
    assert client.post(f"{APPS}/controllerrevisions", revision).ok()["data"] == data
    table = client.get(path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).ok()
    assert table["rows"][0]["cells"][:3] == ["web-1", "statefulset.apps/web", 1]
    assert client.merge(path, {"revision": 2}).ok()["revision"] == 2
    refused = client.merge(path, {"data": {"spec": None}}).refused(422)
    assert refused["details"]["causes"][0]["field"] == "data"
