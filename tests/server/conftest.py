"""A real server for these tests: its own thread and loop, a real socket with TLS, SQLite in a temporary directory.

It serves the built-in kinds and the CRD of a Widget, which has all that a CRD can have. One server is shared by all tests
of a module, so every test makes objects under names or namespaces of its own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from kubeserver.admission.chain import AdmissionAttributes, AdmissionHook, ValidationResult
from kubeserver.assembly import Parts
from kubeserver.builtin import admission
from kubeserver.builtin.kinds import RESOURCES
from kubeserver.serve import ServerSettings, api_server
from waiting import PATIENCE_SECONDS

Tree = dict[str, Any]

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
OLD_WIDGETS = "/apis/example.com/v1beta1/namespaces/default/widgets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def widget_crd() -> Tree:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 0, "description": "How large the widget is."},
            "color": {"type": "string", "default": "grey", "enum": ["grey", "red", "blue"]},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "self.size >= oldSelf.size", "message": "a widget does not shrink"},
        ],
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "ready": {"type": "boolean"}}}
    schema = {
        "type": "object",
        "description": "A thing.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    old = json.loads(json.dumps(schema))
    old["properties"]["spec"]["properties"]["length"] = old["properties"]["spec"]["properties"].pop("size")
    old["properties"]["spec"]["required"] = ["length"]
    old["properties"]["spec"]["properties"]["unit"] = {"type": "string", "default": "inch"}
    del old["properties"]["spec"]["x-kubernetes-validations"]
    version = {
        "served": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "First", "type": "integer", "jsonPath": '.spec.parts[?(@.name=="first")].count'},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    **version,
                    "name": "v1",
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                },
                {
                    **version,
                    "name": "v1beta1",
                    "storage": False,
                    "deprecated": True,
                    "deprecationWarning": "example.com/v1beta1 is old",
                    "schema": {"openAPIV3Schema": old},
                },
            ],
        },
    }


def convert_widget(tree: Tree, api_version: str) -> Tree:
    """What v1 calls size, v1beta1 calls length."""
    old, new = ("size", "length") if api_version.endswith("v1beta1") else ("length", "size")
    spec = {(new if key == old else key): value for key, value in (tree.get("spec") or {}).items()}
    return {**tree, "apiVersion": api_version, "spec": spec}


def _stamp(review: AdmissionAttributes) -> Tree | None:
    if review.object is None or review.object["metadata"].get("labels", {}).get("stamp") != "please":
        return None
    review.object["metadata"].setdefault("annotations", {})["stamped"] = review.operation
    return review.object


def _refuse(review: AdmissionAttributes) -> ValidationResult:
    wanted = (review.object or {}).get("metadata", {}).get("labels", {}).get("refuse", "")
    return ValidationResult(denied=wanted, warnings=("looked at it",) if wanted else ())


HOOKS = (
    AdmissionHook(
        name="widgets.hook",
        group="example.com",
        plural="widgets",
        version="v1",
        mutate=_stamp,
        validate=_refuse,
    ),
)


def parts(**more: Any) -> Parts:
    return Parts(
        builtin=RESOURCES,
        plugins=admission.hooks,
        hooks=HOOKS,
        crds=[widget_crd()],
        conversions={"example.com": convert_widget},
        **more,
    )


@dataclass
class Answer:
    code: int
    tree: Any
    headers: dict[str, str]
    body: bytes

    def ok(self) -> Any:
        assert self.code < 300, self.tree
        return self.tree

    def refused(self, code: int) -> Any:
        assert self.code == code, (self.code, self.tree)
        assert self.tree["kind"] == "Status"
        assert self.tree["status"] == "Failure"
        return self.tree


@dataclass
class Client:
    """An HTTP client with one connection per request, as curl."""

    url: str
    ca: bytes
    token: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    certificate: Path | None = None

    def connection(self) -> HTTPConnection:
        context = ssl.create_default_context(cadata=self.ca.decode())
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        parts = urlsplit(self.url)
        assert parts.hostname
        return HTTPSConnection(parts.hostname, parts.port, context=context, timeout=PATIENCE_SECONDS)

    def send(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any
    ) -> HTTPResponse:
        given = {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers, **(headers or {})}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if query:
            path = f"{path}?{urlencode({key.rstrip('_'): value for key, value in query.items()}, doseq=True)}"
        connection = self.connection()
        try:
            connection.request(method, path, data, given)
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            connection.sock.close()  # for good once the response is read to its end, or closed
        return response

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        with closing(self.send(method, path, body, **more)) as response:
            text = response.read()
        try:
            tree = json.loads(text) if text else None
        except ValueError:
            tree = text.decode(errors="replace")
        return Answer(response.status, tree, {key.lower(): value for key, value in response.getheaders()}, text)

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def put(self, path: str, body: Any, **more: Any) -> Answer:
        return self.ask("PUT", path, body, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("DELETE", path, body, **more)

    def merge(self, path: str, body: Any, **more: Any) -> Answer:
        return self.ask("PATCH", path, body, headers={"Content-Type": "application/merge-patch+json"}, **more)

    def apply(self, path: str, body: Any, manager: str = "tester", **more: Any) -> Answer:
        kind = {"Content-Type": "application/apply-patch+yaml"}
        return self.ask("PATCH", path, body, headers=kind, fieldManager=manager, **more)

    def watch(self, path: str, **query: Any) -> Iterator[Tree]:
        """The events of a watch, until the server ends it."""
        with closing(self.send("GET", path, watch="true", **query)) as response:
            assert response.status == 200, response.read()
            while line := response.readline():
                yield json.loads(line)


class Running:
    """A server in a thread of its own."""

    def __init__(self, settings: ServerSettings, made_of: Parts) -> None:
        self._settings = settings
        self._parts = made_of
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="server")
        self.serving: Any = None
        self.loop: Any = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        ended = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self._stop = lambda: self.loop.call_soon_threadsafe(ended.set)
        async with api_server(self._settings, self._parts) as serving:
            self.serving = serving
            self._started.set()
            await ended.wait()

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS), "the server does not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_SECONDS)

    def client(self, **more: Any) -> Client:
        credentials = self.serving.credentials
        return Client(self.serving.url, credentials.ca, **{"token": credentials.admin_token, **more})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(ServerSettings(data_dir=tmp_path_factory.mktemp("data")), parts()) as server:
        yield server


@pytest.fixture
def client(running: Running) -> Client:
    return running.client()


def widget(name: str = "", **more: Any) -> Tree:
    spec = more.pop("spec", {"size": 1})
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {**({"name": name} if name else {}), **more},
        "spec": spec,
    }


def config_map(name: str, data: Tree | None = None, **more: Any) -> Tree:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}, "data": data or {}}


def namespace(client: Client, name: str) -> str:
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).ok()
    return name
