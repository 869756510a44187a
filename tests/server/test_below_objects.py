"""What stands below an object: a pod is bound to a node by a POST, and parts that others answer for come and go."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from kubemachinery.http_messages import Request, Response, body_of
from kubeserver.assembly import Embedded
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability, LoadedState
from pykueue.app.bare_server import bare_parts

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    settings = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(settings, bare_parts()) as serving:
        yield serving.embedded


async def ask(
    embedded: Embedded,
    method: str,
    path: str,
    body: Any = None,
    user: authentication.RequestUser = authentication.ADMIN,
) -> Any:
    request = Request(method, path, [], {}, body_of(b"" if body is None else msgspec.json.encode(body)))
    answer = await embedded.server.handle_as(user, request)
    return answer.status, msgspec.json.decode(answer.body)


def pod(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def to(node: str) -> Any:
    return {"target": {"kind": "Node", "name": node}}


class TestBinding:
    async def test_binding_can_be_set_once(self, embedded: Embedded) -> None:
        await ask(embedded, "POST", PODS, pod("a"))
        code, tree = await ask(embedded, "POST", f"{PODS}/a/binding", to("n1"))
        assert (code, tree["status"]) == (201, "Success")
        _, found = await ask(embedded, "GET", f"{PODS}/a")
        assert found["spec"]["nodeName"] == "n1"
        code, tree = await ask(embedded, "POST", f"{PODS}/a/binding", to("n2"))
        assert (code, tree["reason"]) == (409, "Conflict")
        assert "n1 already" in tree["message"]

    async def test_pod_is_scheduled_and_gets_the_metadata_of_the_binding(self, embedded: Embedded) -> None:
        """As kube-apiserver 1.36 does it."""
        sent = pod("f")
        sent["metadata"]["annotations"] = {"a": "1", "b": "1"}
        await ask(embedded, "POST", PODS, sent)
        binding = {"metadata": {"name": "f", "annotations": {"b": "2"}, "labels": {"zone": "z"}}, **to("n1")}
        code, _ = await ask(embedded, "POST", f"{PODS}/f/binding", binding)
        assert code == 201
        _, found = await ask(embedded, "GET", f"{PODS}/f")
        assert found["metadata"]["annotations"] == {"a": "1", "b": "2"}
        assert found["metadata"]["labels"] == {"zone": "z"}
        [condition] = found["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        assert condition["lastTransitionTime"]

    @pytest.mark.parametrize("metadata", ["f", [], {"labels": 3}, {"labels": {"zone": 1}}])
    async def test_metadata_that_cannot_be_read_are_refused(self, embedded: Embedded, metadata: Any) -> None:
        await ask(embedded, "POST", PODS, pod("g"))
        code, tree = await ask(embedded, "POST", f"{PODS}/g/binding", {"metadata": metadata, **to("n1")})
        assert (code, tree["reason"]) == (400, "BadRequest")
        assert "metadata" in tree["message"]
        _, found = await ask(embedded, "GET", f"{PODS}/g")
        assert "nodeName" not in found["spec"]

    async def test_waits_for_scheduling_gates(self, embedded: Embedded) -> None:
        await ask(embedded, "POST", PODS, pod("b", schedulingGates=[{"name": "example.com/wait"}]))
        code, tree = await ask(embedded, "POST", f"{PODS}/b/binding", to("n1"))
        assert code == 409
        assert "scheduling gates" in tree["message"]

    @pytest.mark.parametrize("body", [{}, {"target": "n1"}, {"target": {"name": 3}}, {"target": {"name": ""}}])
    async def test_needs_a_node(self, embedded: Embedded, body: Any) -> None:
        await ask(embedded, "POST", PODS, pod("c"))
        code, tree = await ask(embedded, "POST", f"{PODS}/c/binding", body)
        assert code == 422
        assert tree["details"]["causes"][0]["field"] == "target.name"

    async def test_is_no_way_around_the_rules_for_updates(self, embedded: Embedded) -> None:
        await ask(embedded, "POST", PODS, pod("d"))
        _, found = await ask(embedded, "GET", f"{PODS}/d")
        found["spec"]["nodeName"] = "n1"
        code, _ = await ask(embedded, "PUT", f"{PODS}/d", found)
        assert code == 422

    async def test_is_nothing_for_those_who_only_look(self, embedded: Embedded) -> None:
        await ask(embedded, "POST", PODS, pod("e"))
        code, _ = await ask(embedded, "POST", f"{PODS}/e/binding", to("n1"), authentication.VIEWER)
        assert code == 403


class TestSubresources:
    async def test_logs_are_served_while_their_handler_is_registered(self, embedded: Embedded) -> None:
        await ask(embedded, "POST", PODS, pod("a"))

        async def log(found: Any, request: Request) -> Response:
            return Response(body=msgspec.json.encode({"log of": found["metadata"]["name"]}))

        assert (await ask(embedded, "GET", f"{PODS}/a/log"))[0] == 404
        with embedded.server.answering({"pods/log": log}):
            assert await ask(embedded, "GET", f"{PODS}/a/log") == (200, {"log of": "a"})
            assert (await ask(embedded, "GET", f"{PODS}/nobody/log"))[0] == 404
            assert (await ask(embedded, "POST", f"{PODS}/a/log", {}))[0] == 405
        code, tree = await ask(embedded, "GET", f"{PODS}/a/log")
        assert code == 404
        assert "keeps logs" in tree["message"]


async def test_a_server_has_its_first_objects_once(tmp_path: Path) -> None:
    """They are created once: what a user deletes stays deleted."""
    first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hello", "namespace": "default"}}
    path = "/api/v1/namespaces/default/configmaps/hello"
    settings = ServerSettings(data_dir=tmp_path)
    parts = structs.replace(bare_parts(), first=[first])
    async with api_server(settings, parts) as serving:
        assert (await ask(serving.embedded, "DELETE", path))[0] == 200
    async with api_server(settings, parts) as serving:
        assert (await ask(serving.embedded, "GET", path))[0] == 404


async def test_objects_of_a_new_server_share_commits(tmp_path: Path) -> None:
    """Each commit waits for the disk."""
    names = [f"things{number}.example.com" for number in range(5)]

    def crd(name: str) -> dict[str, Any]:
        plural = name.partition(".")[0]
        schema = {"openAPIV3Schema": {"type": "object"}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        kinds = {"plural": plural, "singular": plural[:-1], "kind": plural.title()}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": "example.com", "scope": "Cluster", "names": kinds, "versions": [version]},
        }

    parts = structs.replace(bare_parts(), initial=(), crds=[crd(name) for name in names])
    async with api_server(ServerSettings(data_dir=tmp_path), parts) as serving:
        # The namespaces, the CRDs, and their conditions.
        assert serving.embedded.objects.commits <= 3
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        _, found = await ask(serving.embedded, "GET", path)
        assert [each["metadata"]["name"] for each in found["items"]] == names


async def test_a_server_releases_the_state_that_it_has_read_from_disk(tmp_path: Path) -> None:
    """Otherwise every body of the history at its start would stay in memory until it ends."""
    settings = ServerSettings(data_dir=tmp_path)
    async with api_server(settings, bare_parts()) as serving:
        assert serving.database is not None
        assert serving.database.is_new
    async with api_server(settings, bare_parts()) as serving:
        identity = serving.database
        assert identity is not None
        assert not identity.is_new
        read = [each for each in gc.get_objects() if isinstance(each, LoadedState)]
        assert identity.cluster_id not in {each.cluster_id for each in read}
        assert (await ask(serving.embedded, "GET", "/api/v1/namespaces/default"))[0] == 200
