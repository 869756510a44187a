"""Going: preconditions, finalizers, propagation, owners, namespaces, CRDs, and collections."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import virtual
from kubeserver.admission.chain import DELETE, AdmissionAttributes, AdmissionHook, ValidationResult
from kubeserver.registry import crd_registration
from kubeserver.serve import ServerSettings
from kubeserver.storage.sqlite import JournalRecord, SqliteJournal, StoreKey, WriteOperation
from pykueue.api import kube, registry
from server.conftest import CONFIG_MAPS, WIDGETS, Client, Running, config_map, namespace, parts, widget, widget_crd
from virtual import virtual_time
from waiting import until

CONFIG_MAP = registry.KUBERNETES.of(kube.ConfigMap)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def owned_by(owner: Any, **more: Any) -> list[Any]:
    details = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": details["name"],
            "uid": details["uid"],
            **more,
        }
    ]


class TestOneObject:
    def test_an_object_without_finalizers_is_deleted_at_once(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("quick")).ok()
        gone = client.delete(f"{WIDGETS}/quick").ok()
        assert gone["status"] == "Success"
        assert gone["details"] == {
            "name": "quick",
            "group": "example.com",
            "kind": "widgets",
            "uid": made["metadata"]["uid"],
        }
        client.get(f"{WIDGETS}/quick").refused(404)
        client.delete(f"{WIDGETS}/quick").refused(404)

    def test_only_if_it_is_the_one_that_is_meant(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("meant")).ok()["metadata"]
        client.delete(f"{WIDGETS}/meant", {"preconditions": {"uid": "another"}}).refused(409)
        client.delete(f"{WIDGETS}/meant", {"preconditions": {"resourceVersion": "1"}}).refused(409)
        client.delete(f"{WIDGETS}/meant", {"preconditions": {"uid": made["uid"]}}).ok()

    def test_waits_for_its_finalizers(self, client: Client) -> None:
        path = f"{WIDGETS}/held"
        client.post(WIDGETS, widget("held", finalizers=["example.com/wait"])).ok()
        going = client.delete(path).ok()
        assert going["metadata"]["deletionTimestamp"]
        assert going["metadata"]["generation"] == 2
        again = client.delete(path).ok()
        assert again["metadata"]["resourceVersion"] == going["metadata"]["resourceVersion"]
        client.merge(path, {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}).refused(422)
        stored = client.get(path).ok()["metadata"]["resourceVersion"]
        last = client.merge(path, {"metadata": {"finalizers": None}}).ok()
        assert "finalizers" not in last["metadata"]
        assert last["metadata"]["resourceVersion"] == stored
        client.get(path).refused(404)

    def test_a_dry_run_deletes_nothing(self, client: Client) -> None:
        client.post(WIDGETS, widget("spared")).ok()
        client.delete(f"{WIDGETS}/spared", dryRun="All").ok()
        client.delete(f"{WIDGETS}/spared", {"dryRun": ["All"]}).ok()
        client.get(f"{WIDGETS}/spared").ok()

    def test_options_that_make_no_sense_are_refused(self, client: Client) -> None:
        client.post(WIDGETS, widget("sense")).ok()
        client.delete(f"{WIDGETS}/sense", {"propagationPolicy": "Sideways"}).refused(422)
        client.delete(f"{WIDGETS}/sense", {"propagationPolicy": "Orphan", "orphanDependents": True}).refused(422)
        client.delete(f"{WIDGETS}/sense", {"gracePeriodSeconds": "soon"}).refused(422)

    def test_a_pod_on_a_node_has_time_to_wind_up(self, client: Client) -> None:
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "somewhere"}
        client.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow"}, "spec": spec}).ok()
        going = client.delete(f"{pods}/slow").ok()["metadata"]
        assert going["deletionGracePeriodSeconds"] == 30
        client.get(f"{pods}/slow").ok()
        sooner = client.delete(f"{pods}/slow", {"gracePeriodSeconds": -1}).ok()["metadata"]
        assert sooner["deletionGracePeriodSeconds"] == 1, "what is below zero is taken for one"
        client.delete(f"{pods}/slow", {"gracePeriodSeconds": 0}).ok()
        client.get(f"{pods}/slow").refused(404)

    def test_a_second_deletion_of_a_pod_changes_nothing_unless_it_is_sooner(self, client: Client) -> None:
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "somewhere"}
        client.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "twice"}, "spec": spec}).ok()
        first = client.delete(f"{pods}/twice").ok()
        for later in ({"propagationPolicy": "Orphan"}, {"propagationPolicy": "Foreground", "gracePeriodSeconds": 30}):
            assert client.delete(f"{pods}/twice", later).ok() == first
        sooner = client.delete(f"{pods}/twice", {"propagationPolicy": "Foreground", "gracePeriodSeconds": 7}).ok()
        assert sooner["metadata"]["deletionGracePeriodSeconds"] == 7
        client.delete(f"{pods}/twice", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).ok()
        client.get(f"{pods}/twice").refused(404)

    @pytest.mark.parametrize("options", [{}, {"gracePeriodSeconds": 2**63 - 1}])
    def test_grace_period_without_limit_ends_with_the_last_timestamp(
        self, client: Client, options: dict[str, Any]
    ) -> None:
        spec = {
            "nodeName": "n",
            "terminationGracePeriodSeconds": 2**63 - 1,
            "containers": [{"name": "c", "image": "i"}],
        }
        pods = "/api/v1/namespaces/default/pods"
        client.post(pods, {"metadata": {"name": "endless"}, "spec": spec}).ok()
        going = client.delete(f"{pods}/endless", options).ok()["metadata"]
        assert going["deletionTimestamp"] == "9999-12-31T23:59:59Z"
        assert going["deletionGracePeriodSeconds"] == 2**63 - 1
        client.delete(f"{pods}/endless", {"gracePeriodSeconds": 0}).ok()
        client.get(f"{pods}/endless").refused(404)

    def test_a_pod_without_a_node_is_deleted_at_once(self, client: Client) -> None:
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "c", "image": "i"}]}
        client.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "idle"}, "spec": spec}).ok()
        client.delete(f"{pods}/idle").ok()
        client.get(f"{pods}/idle").refused(404)


class TestOwners:
    def test_dependents_follow_in_the_background(self, client: Client) -> None:
        owner = client.post(WIDGETS, widget("owner")).ok()
        client.post(CONFIG_MAPS, config_map("child", ownerReferences=owned_by(owner))).ok()
        client.delete(f"{WIDGETS}/owner", {"propagationPolicy": "Background"}).ok()
        until(lambda: client.get(f"{CONFIG_MAPS}/child").code == 404)

    def test_an_error_of_a_hook_keeps_no_other_dependent(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(review: AdmissionAttributes) -> ValidationResult:
            if review.name == "broken":
                raise RuntimeError("a defect of the hook")
            return ValidationResult()

        hook = AdmissionHook(
            name="failing", group="", plural="configmaps", version="v1", operations=frozenset({DELETE}), validate=fail
        )
        with Running(ServerSettings(data_dir=tmp_path / "data"), replace(parts(), hooks=(hook,))) as server:
            client = server.client()
            owner = client.post(WIDGETS, widget("owner")).ok()
            for name in ("broken", "child"):
                client.post(CONFIG_MAPS, config_map(name, ownerReferences=owned_by(owner))).ok()
            client.delete(f"{WIDGETS}/owner", {"propagationPolicy": "Background"}).ok()
            until(lambda: client.get(f"{CONFIG_MAPS}/child").code == 404)
            later = client.post(WIDGETS, widget("later")).ok()
            client.post(CONFIG_MAPS, config_map("child", ownerReferences=owned_by(later))).ok()
            client.delete(f"{WIDGETS}/later", {"propagationPolicy": "Background"}).ok()
            until(lambda: client.get(f"{CONFIG_MAPS}/child").code == 404)
            client.get(f"{CONFIG_MAPS}/broken").ok()
        assert "a defect of the hook" in caplog.text

    @pytest.mark.parametrize(("options", "stays"), [({}, False), ({"propagationPolicy": "Orphan"}, True)])
    def test_pods_of_a_job_stay_only_if_that_is_asked_for(
        self, client: Client, options: dict[str, Any], stays: bool
    ) -> None:
        """kube-apiserver leaves them also where nothing is asked for, as the table of limits has it."""
        jobs, pods = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        job = client.post(jobs, {"metadata": {"name": "owner"}, "spec": {"template": {"spec": spec}}}).ok()
        client.post(pods, {"metadata": {"name": "owned", "ownerReferences": owned_by(job)}, "spec": spec}).ok()
        client.delete(f"{jobs}/owner", options).ok()
        until(lambda: client.get(f"{jobs}/owner").code == 404)
        if stays:
            assert "ownerReferences" not in client.get(f"{pods}/owned").ok()["metadata"]
            client.delete(f"{pods}/owned").ok()
        until(lambda: client.get(f"{pods}/owned").code == 404)

    def test_with_another_owner_left_a_dependent_stays(self, client: Client) -> None:
        one, two = (client.post(WIDGETS, widget(name)).ok() for name in ("parent-1", "parent-2"))
        owners = owned_by(one) + owned_by(two)
        client.post(CONFIG_MAPS, config_map("shared", ownerReferences=owners)).ok()
        client.delete(f"{WIDGETS}/parent-1").ok()

        def left() -> list[str]:
            details = client.get(f"{CONFIG_MAPS}/shared").ok()["metadata"]
            return [owner["name"] for owner in details["ownerReferences"]]

        until(lambda: left() == ["parent-2"])

    def test_orphans_stay_and_forget_their_owner(self, client: Client) -> None:
        owner = client.post(WIDGETS, widget("leaver")).ok()
        client.post(CONFIG_MAPS, config_map("orphan", ownerReferences=owned_by(owner))).ok()
        client.delete(f"{WIDGETS}/leaver", {"propagationPolicy": "Orphan"}).ok()
        until(lambda: client.get(f"{WIDGETS}/leaver").code == 404)
        assert "ownerReferences" not in client.get(f"{CONFIG_MAPS}/orphan").ok()["metadata"]

    def test_in_the_foreground_the_owner_is_deleted_last(self, client: Client) -> None:
        owner = client.post(WIDGETS, widget("patient")).ok()
        owners = owned_by(owner, blockOwnerDeletion=True)
        client.post(CONFIG_MAPS, config_map("blocking", ownerReferences=owners, finalizers=["example.com/w"])).ok()
        going = client.delete(f"{WIDGETS}/patient", {"propagationPolicy": "Foreground"}).ok()
        assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
        until(lambda: client.get(f"{CONFIG_MAPS}/blocking").ok()["metadata"].get("deletionTimestamp"))
        client.get(f"{WIDGETS}/patient").ok()
        client.merge(f"{CONFIG_MAPS}/blocking", {"metadata": {"finalizers": None}}).ok()
        until(lambda: client.get(f"{WIDGETS}/patient").code == 404)

    def test_an_owner_of_the_same_name_is_not_the_owner(self, client: Client) -> None:
        owner = client.post(WIDGETS, widget("same-name")).ok()
        client.delete(f"{WIDGETS}/same-name").ok()
        client.post(WIDGETS, widget("same-name")).ok()
        client.post(CONFIG_MAPS, config_map("misled", ownerReferences=owned_by(owner))).ok()
        until(lambda: client.get(f"{CONFIG_MAPS}/misled").code == 404)

    def test_an_owner_in_another_namespace_is_ignored_with_an_event(self, client: Client) -> None:
        namespace(client, "elsewhere")
        owner = client.post(WIDGETS.replace("default", "elsewhere"), widget("far")).ok()
        client.post(CONFIG_MAPS, config_map("confused", ownerReferences=owned_by(owner))).ok()
        events = "/api/v1/namespaces/default/events"
        found = until(lambda: client.get(events, fieldSelector="involvedObject.name=confused").ok()["items"])
        assert [event["reason"] for event in found] == ["OwnerRefInvalidNamespace"]
        client.get(f"{CONFIG_MAPS}/confused").ok()

    def test_an_owner_of_an_unserved_kind_is_ignored(self, client: Client) -> None:
        owners = [{"apiVersion": "far.example/v1", "kind": "Alien", "name": "x", "uid": "u"}]
        client.post(CONFIG_MAPS, config_map("foreign", ownerReferences=owners)).ok()
        time.sleep(0.3)
        client.get(f"{CONFIG_MAPS}/foreign").ok()


class TestNamespaces:
    def test_a_namespace_takes_its_content_with_it(self, client: Client) -> None:
        namespace(client, "doomed")
        for index in range(30):
            client.post(CONFIG_MAPS.replace("default", "doomed"), config_map(f"c{index}")).ok()
        client.post(WIDGETS.replace("default", "doomed"), widget("w", finalizers=["example.com/wait"])).ok()
        client.delete("/api/v1/namespaces/doomed").ok()
        until(lambda: client.get(CONFIG_MAPS.replace("default", "doomed")).ok()["items"] == [])
        waiting = client.get("/api/v1/namespaces/doomed").ok()
        assert waiting["status"]["phase"] == "Terminating"
        refused = client.post(CONFIG_MAPS.replace("default", "doomed"), config_map("late")).refused(403)
        assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        client.merge(WIDGETS.replace("default", "doomed") + "/w", {"metadata": {"finalizers": None}}).ok()
        until(lambda: client.get("/api/v1/namespaces/doomed").code == 404)

    def test_three_of_them_stay(self, client: Client) -> None:
        for name in ("default", "kube-system", "kube-public"):
            client.delete(f"/api/v1/namespaces/{name}").refused(403)


class TestCollections:
    def test_selected_objects_are_deleted(self, client: Client) -> None:
        namespace(client, "many")
        path = CONFIG_MAPS.replace("default", "many")
        for index in range(20):
            client.post(path, config_map(f"c{index}", labels={"even": str(index % 2 == 0).lower()})).ok()
        shown = client.delete(path, labelSelector="even=true").ok()
        assert len(shown["items"]) == 10
        assert len(client.get(path).ok()["items"]) == 10


class TestCustomResourceDefinitions:
    def test_a_crd_takes_its_objects_with_it(self, client: Client) -> None:
        crd = widget_crd()
        crd["metadata"]["name"] = "gadgets.example.com"
        crd["spec"]["names"] = {"plural": "gadgets", "kind": "Gadget"}
        made = client.post(CRDS, crd).ok()
        assert {c["type"]: c["status"] for c in made["status"]["conditions"]} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        path = WIDGETS.replace("widgets", "gadgets")
        # Served at once: there is no moment in which the CRD is there and its path is not.
        client.post(path, {**widget("g", finalizers=["example.com/wait"]), "kind": "Gadget"}).ok()
        client.delete(f"{CRDS}/gadgets.example.com").ok()
        until(lambda: client.get(f"{path}/g").ok()["metadata"].get("deletionTimestamp"))
        client.post(path, {**widget("h"), "kind": "Gadget"}).refused(405)
        client.merge(f"{path}/g", {"metadata": {"finalizers": None}}).ok()
        until(lambda: client.get(f"{CRDS}/gadgets.example.com").code == 404)
        client.get(path).refused(404)
        groups = client.get("/apis/example.com/v1").ok()["resources"]
        assert "gadgets" not in [row["name"] for row in groups]

    def test_a_crd_that_cannot_be_served_is_refused_by_field(self, client: Client) -> None:
        crd = widget_crd()
        crd["metadata"]["name"] = "gizmos.example.com"
        crd["spec"]["names"] = {"plural": "gizmos", "kind": "Gizmo"}
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = "thing"
        refused = client.post(CRDS, crd).refused(422)
        assert any("spec.versions[0].schema" in cause["field"] for cause in refused["details"]["causes"])
        two = widget_crd()
        two["metadata"]["name"] = "gizmos.example.com"
        two["spec"]["names"] = {"plural": "gizmos", "kind": "Gizmo"}
        two["spec"]["versions"][1]["storage"] = True
        assert "exactly one version" in client.post(CRDS, two).refused(422)["message"]

    def test_two_crds_cannot_share_a_name(self, client: Client) -> None:
        crd = widget_crd()
        crd["metadata"]["name"] = "widgetoids.example.com"
        crd["spec"]["names"] = {"plural": "widgetoids", "kind": "Widget"}
        made = client.post(CRDS, crd).ok()
        assert {c["type"]: c["status"] for c in made["status"]["conditions"]}["NamesAccepted"] == "False"
        client.get(WIDGETS.replace("widgets", "widgetoids")).refused(404)
        client.delete(f"{CRDS}/widgetoids.example.com").ok()

    def test_a_foreign_conversion_webhook_is_refused_in_words(self, client: Client) -> None:
        crd = widget_crd()
        crd["metadata"]["name"] = "gears.other.example"
        crd["spec"]["group"] = "other.example"
        crd["spec"]["names"] = {"plural": "gears", "kind": "Gear"}
        crd["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1/convert"}},
        }
        assert "are not converted by webhooks" in client.post(CRDS, crd).refused(422)["message"]


def test_a_stored_crd_that_makes_no_sense_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    body = b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x.y.z","uid":"u"},'
    body += b'"spec":{"nothing":1},"status":{"conditions":[{"type":"Established","status":"True"}]}}'
    journal = SqliteJournal(tmp_path)
    journal.commit(
        [
            JournalRecord(
                StoreKey(crd_registration.RESOURCE, "", "x.y.z"), WriteOperation.ADDED, 1001, 0, 1001, "u", body, 0
            )
        ]
    )
    journal.close()
    with Running(ServerSettings(data_dir=tmp_path), parts()) as server:
        server.client().get(WIDGETS).ok()
        server.client().get(f"{CRDS}/x.y.z").ok()


@virtual_time
async def test_what_lost_its_owner_may_be_given_a_little_time() -> None:
    """A watch of both sees the owner deleted first, and can report how the dependent ended."""
    async with virtual.server(orphan_seconds=1.0) as client:
        owner = await client.create(CONFIG_MAP, in_default("owner"))
        await client.create(CONFIG_MAP, in_default("child", ownerReferences=owned_by(owner)))
        await client.delete(CONFIG_MAP, "owner", "default")
        await asyncio.sleep(0.9)
        assert await client.find(CONFIG_MAP, "child", "default") is not None
        await asyncio.sleep(0.2)
        assert await client.find(CONFIG_MAP, "child", "default") is None


@virtual_time
async def test_a_reference_to_one_of_several_owners_may_outlast_it() -> None:
    """Watches can read its last state; with other owners the removal of the reference is not urgent."""
    async with virtual.server(orphan_seconds=1.0) as client:
        first, second = [await client.create(CONFIG_MAP, in_default(name)) for name in ("first", "second")]
        owners = [*owned_by(first), *owned_by(second)]
        await client.create(CONFIG_MAP, in_default("child", ownerReferences=owners))
        await client.delete(CONFIG_MAP, "first", "default")
        left = []
        for seconds in (9, 2):
            await asyncio.sleep(seconds)
            child = await client.get(CONFIG_MAP, "child", "default")
            left.append(len(child["metadata"]["ownerReferences"]))
        assert left == [2, 1]


def in_default(name: str, **metadata: Any) -> Any:
    return config_map(name, namespace="default", **metadata)
