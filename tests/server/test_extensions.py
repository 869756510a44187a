"""Documents that a server computes for each request, in an API group of their own; nothing is stored."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import status
from kubemachinery.http_messages import Handler, Request, Response, body_of
from kubemachinery.serving import aggregated_api, discovery
from kubemachinery.serving.paths import ResourcePath
from kubemachinery.serving.views import QueryParameter, SubresourceView, VirtualResource
from kubeserver.assembly import Embedded
from kubeserver.http.discovery_documents import DiscoveryEndpoints
from kubeserver.protocol import authentication
from kubeserver.registry import extensions
from kubeserver.registry.openapi import OpenApi
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from server.conftest import Running, parts

Tree = dict[str, Any]

GROUP = "/apis/sea.example.com/v1"
TIDES = f"{GROUP}/namespaces/north/harbours/leith/tides"
HEIGHTS = {"leith": [5, 1, 4, 2]}


def tides(namespace: str, name: str, asked: Mapping[str, int]) -> Tree:
    if name not in HEIGHTS:
        raise status.not_found("sea.example.com", "harbours", name)
    return {"metadata": {}, "place": f"{namespace}/{name}", "heights": HEIGHTS[name][: asked["days"]]}


def rows() -> tuple[VirtualResource, ...]:
    schema = {"type": "object", "properties": {"heights": {"type": "array", "items": {"type": "integer"}}}}
    days = QueryParameter("For how many days.", default=3, maximum=1000)
    view = SubresourceView(kind="TideTable", read=tides, schema=lambda: schema, parameters={"days": days})
    return (
        VirtualResource(
            group="sea.example.com", version="v1", kind="Harbour", plural="harbours", views={"tides": view}
        ),
        VirtualResource(
            group="sea.example.com",
            version="v1",
            kind="Ocean",
            plural="oceans",
            views={"tides": view},
            namespaced=False,
        ),
    )


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    settings = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(settings, parts()) as serving:
        with serving.embedded.registry.extended(extensions.resources(rows())):
            yield serving.embedded


def extended(embedded: Embedded) -> AbstractContextManager[None]:
    return embedded.registry.extended(extensions.resources(rows()))


async def ask(embedded: Embedded, path: str, method: str = "GET", accept: str = "", **query: str) -> Response:
    request = Request(method, path, list(query.items()), {"accept": accept}, body_of(b"{}"))
    return await embedded.server.handle_as(authentication.ADMIN, request)


async def read(embedded: Embedded, path: str, **more: str) -> Any:
    response = await ask(embedded, path, **more)
    assert response.status == 200, response.body
    return json.loads(response.body)


class TestReading:
    async def test_a_view_shows_its_document(self, embedded: Embedded) -> None:
        assert await read(embedded, TIDES) == {
            "kind": "TideTable",
            "apiVersion": "sea.example.com/v1",
            "metadata": {},
            "place": "north/leith",
            "heights": [5, 1, 4],
        }

    async def test_yaml_is_supported(self, embedded: Embedded) -> None:
        answer = await ask(embedded, TIDES, accept="application/yaml")
        assert answer.content_type == "application/yaml"
        assert b"kind: TideTable" in answer.body

    @pytest.mark.parametrize(("days", "shown"), [("1", 1), ("0", 0), ("-7", 0), ("9", 4), ("9" * 18, 4), ("+2", 2)])
    async def test_parameters_are_bounded(self, embedded: Embedded, days: str, shown: int) -> None:
        assert len((await read(embedded, TIDES, days=days))["heights"]) == shown

    @pytest.mark.parametrize(
        "days", ["", "many", "1.5", "--1", "-", "0x1", "9" * 19, "\N{ARABIC-INDIC DIGIT ONE}", "9" * 20, " 1"]
    )
    async def test_a_parameter_that_is_no_number_is_a_bad_request(self, embedded: Embedded, days: str) -> None:
        refused = await ask(embedded, TIDES, days=days)
        failure = json.loads(refused.body)
        assert (refused.status, failure["reason"]) == (400, "BadRequest")
        assert failure["message"].startswith("days: ")

    async def test_what_is_not_there_is_not_found(self, embedded: Embedded) -> None:
        refused = await ask(embedded, TIDES.replace("leith", "atlantis"))
        failure = json.loads(refused.body)
        assert (refused.status, failure["reason"]) == (404, "NotFound")
        assert failure["details"] == {"name": "atlantis", "group": "sea.example.com", "kind": "harbours"}

    @pytest.mark.parametrize(
        "path",
        [
            f"{GROUP}/harbours/leith/tides",
            f"{GROUP}/namespaces/north/oceans/leith/tides",
            f"{GROUP}/namespaces/north/harbours/leith/winds",
            f"{GROUP}/namespaces/north/harbours/leith/tides/more",
            f"{GROUP}/watch/namespaces/north/harbours/leith/tides",
            TIDES.replace("/v1/", "/v2/"),
        ],
    )
    async def test_only_its_own_path_leads_to_it(self, embedded: Embedded, path: str) -> None:
        assert (await ask(embedded, path)).status == 404

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    async def test_a_view_is_only_for_reading(self, embedded: Embedded, method: str) -> None:
        assert (await ask(embedded, TIDES, method)).status == 405

    @pytest.mark.parametrize("path", ["harbours", "namespaces/north/harbours", "namespaces/north/harbours/leith"])
    async def test_there_are_no_objects_behind_it(self, embedded: Embedded, path: str) -> None:
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert (await ask(embedded, f"{GROUP}/{path}", method)).status in (404, 405), method
        assert not any("harbours" in one.group_resource for one in embedded.registry.stored())

    async def test_a_viewer_may_look(self, embedded: Embedded) -> None:
        answer = await embedded.server.handle_as(authentication.VIEWER, Request("GET", TIDES))
        assert answer.status == 200


class TestBeingShown:
    async def test_discovery_lists_views_and_no_verbs_for_what_they_are_of(self, embedded: Embedded) -> None:
        found = {row["name"]: row for row in (await read(embedded, GROUP))["resources"]}
        assert found["harbours"]["verbs"] == []
        assert (found["harbours/tides"]["kind"], found["harbours/tides"]["verbs"]) == ("TideTable", ["get"])
        assert found["harbours/tides"]["namespaced"]
        assert not found["oceans/tides"]["namespaced"]

    async def test_the_aggregated_form_lists_them_too(self, embedded: Embedded) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        groups = {group["metadata"]["name"]: group for group in (await read(embedded, "/apis", accept=accept))["items"]}
        harbour, _ = groups["sea.example.com"]["versions"][0]["resources"]
        kind = {"group": "sea.example.com", "version": "v1", "kind": "TideTable"}
        assert harbour["subresources"] == [{"subresource": "tides", "responseKind": kind, "verbs": ["get"]}]

    async def test_open_api_has_path_parameters_and_schema(self, embedded: Embedded) -> None:
        document = await read(embedded, "/openapi/v3/apis/sea.example.com/v1")
        path = document["paths"][f"{GROUP}/namespaces/{{namespace}}/harbours/{{name}}/tides"]
        assert set(path) == {"get", "parameters"}
        assert [one["name"] for one in path["parameters"]] == ["namespace", "name"]
        assert [(one["name"], one["description"]) for one in path["get"]["parameters"]] == [
            ("days", "For how many days.")
        ]
        shown = path["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert "heights" in document["components"]["schemas"][shown]["properties"]
        assert not any(path.endswith("harbours") for path in document["paths"])

    async def test_it_is_served_while_the_context_is_open(self, tmp_path: Path) -> None:
        settings = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
        async with api_server(settings, parts()) as serving:
            before = serving.embedded.registry.etag
            with extended(serving.embedded):
                assert (await ask(serving.embedded, TIDES)).status == 200
                assert serving.embedded.registry.etag != before
            assert (await ask(serving.embedded, TIDES)).status == 404
            assert (await ask(serving.embedded, GROUP)).status == 404
            assert serving.embedded.registry.etag == before

    async def test_what_is_stored_is_no_extension(self, embedded: Embedded) -> None:
        stored = Resource(group="sea.example.com", version="v1", kind="Boat", plural="boats")
        with (
            pytest.raises(ValueError, match=r"boats\.sea\.example\.com is stored"),
            embedded.registry.extended([stored]),
        ):
            pass


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kubectl_reads_it(running: Running, tmp_path: Path) -> None:
    async def serve() -> AbstractContextManager[None]:
        context = extended(running.serving.embedded)
        context.__enter__()
        return context

    async def end(context: AbstractContextManager[None]) -> None:
        context.__exit__(None, None, None)

    def kubectl(*arguments: str) -> str:
        where = ("--kubeconfig", str(running.serving.kubeconfig), "--cache-dir", str(tmp_path))
        return subprocess.run(["kubectl", *where, *arguments], capture_output=True, text=True, check=True).stdout

    context = running.call(serve())
    try:
        assert json.loads(kubectl("get", "--raw", f"{TIDES}?days=2"))["heights"] == [5, 1]
        assert "harbours" not in kubectl("api-resources"), "there is nothing to get under that name"
    finally:
        running.call(end(context))


class TestBehindAnotherServer:
    """The same rows served alone, as an aggregated API."""

    @staticmethod
    def served(seen: list[ResourcePath | None]) -> Handler:
        async def admit(request: Request, address: ResourcePath | None) -> None:
            if request.headers.get("x-remote-user") != "ann":
                raise status.unauthorized()
            seen.append(address)

        return aggregated_api.handler(rows(), admit)

    @staticmethod
    async def ask(handler: Handler, path: str, user: str = "ann", method: str = "GET") -> tuple[int, Any]:
        answer = await handler(Request(method, path, headers={"x-remote-user": user}))
        return answer.status, json.loads(answer.body)

    async def test_it_shows_views_and_itself(self) -> None:
        seen: list[ResourcePath | None] = []
        handler = self.served(seen)
        code, table = await self.ask(handler, TIDES)
        assert (code, table["heights"]) == (200, [5, 1, 4])
        assert seen == [ResourcePath("sea.example.com", "v1", "harbours", "north", "leith", "tides")]
        for path, kind in (
            ("/apis", "APIGroupList"),
            ("/apis/sea.example.com", "APIGroup"),
            (GROUP, "APIResourceList"),
        ):
            assert (await self.ask(handler, path))[1]["kind"] == kind
        document = "/openapi/v3/apis/sea.example.com/v1"
        assert document.removeprefix("/openapi/v3/") in (await self.ask(handler, "/openapi/v3"))[1]["paths"]
        assert (await self.ask(handler, document))[1]["openapi"] == "3.0.0"

    @pytest.mark.parametrize("path", [TIDES, "/apis", GROUP, "/openapi/v3", "/elsewhere"])
    async def test_every_path_needs_admission(self, path: str) -> None:
        assert (await self.ask(self.served([]), path, "bob"))[0] == 401

    @pytest.mark.parametrize("path", ["/apis", "/apis/sea.example.com", GROUP, "/openapi/v3/apis/sea.example.com/v1"])
    async def test_its_documents_equal_those_of_the_api_server(self, path: str) -> None:
        registry = Registry(extensions.resources(rows()))
        pages = DiscoveryEndpoints(registry, OpenApi(registry))
        for accept in ("", discovery.AGGREGATED) if path == "/apis" else ("",):
            request = Request("GET", path, headers={"accept": accept, "x-remote-user": "ann"})
            expected = pages.answer(request, path.strip("/").split("/"), ())
            found = await self.served([])(request)
            assert expected is not None
            assert (found.body, found.content_type) == (expected.body, expected.content_type)

    async def test_its_open_api_index_equals_that_of_the_api_server(self) -> None:
        index = OpenApi(Registry(extensions.resources(rows()))).index()
        assert (await self.ask(self.served([]), "/openapi/v3"))[1] == index

    async def test_it_has_nothing_else(self) -> None:
        handler = self.served([])
        assert (await self.ask(handler, "/api/v1/namespaces/north/pods"))[0] == 404
        assert (await self.ask(handler, GROUP, method="POST"))[0] == 405
        assert (await self.ask(handler, TIDES, method="DELETE"))[0] == 405


async def test_a_shown_page_needs_authentication(running: Running) -> None:
    async def almanac(request: Request) -> Response:
        return Response(body=b"full moon", content_type="text/plain")

    client, stranger = running.client(), running.client(token="")
    assert client.get("/almanac").code == 404
    with running.serving.embedded.server.showing({"/almanac": almanac}):
        answer = client.get("/almanac")
        assert (answer.code, answer.body, answer.headers["content-type"]) == (200, b"full moon", "text/plain")
        assert "/almanac" in client.get("/").ok()["paths"]
        assert client.post("/almanac", {}).code == 405
        assert stranger.get("/almanac").code == 401
    assert client.get("/almanac").code == 404


async def test_a_hosted_path_is_served_without_authentication(running: Running) -> None:
    async def guest(request: Request) -> Response:
        return Response(body=request.path.encode(), content_type="text/plain")

    stranger = running.client(token="")
    with running.serving.embedded.server.hosting({"/harbour/": guest}):
        for path in ("/harbour", "/harbour/", "/harbour/boats/1"):
            assert (stranger.get(path).code, stranger.get(path).body) == (200, path.encode())
        assert stranger.get("/harbourmaster").code == 401
        # A request under another host name is refused all the same.
        assert stranger.get("/harbour/", headers={"Host": "evil.example"}).code == 403
    assert stranger.get("/harbour/").code == 401
