"""While one user sends a hostile request, the ordinary requests of another user are answered in time.

Each attack runs against a real `pykueue up` process, beside a client that reads and writes a small object all the time. Its
slowest request may take one second, or ten times as long as the slowest one of the same client right before the attack,
where the machine is so slow that this is more.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from started import Up
from waiting import PATIENCE_SECONDS, until

Tree = dict[str, Any]

ANSWER_SECONDS = 1.0
TIMES_AS_LONG = 10
ATTEMPTS = 3
MADE = (201, 409)  # it is there already at a later attempt
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
YAML = {"Content-Type": "application/yaml"}


@dataclass
class User:
    """A client with the credentials of a kubeconfig; without a token, an anonymous one."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str = ""
    sent: int = 0
    _held: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, kubeconfig: Path) -> User:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        address = urlsplit(cluster["server"])
        assert address.hostname
        assert address.port
        return cls(address.hostname, address.port, tls, user["token"])

    def anonymous(self) -> User:
        return User(self.host, self.port, self.tls)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        connection = HTTPSConnection(self.host, self.port, context=self.tls, timeout=PATIENCE_SECONDS)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            known = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            connection.request(method, path, data, {"Content-Type": "application/json", **known, **(headers or {})})
            response = connection.getresponse()
            self.sent += 1
            return response.status, response.read()
        finally:
            connection.close()

    def stay(self, path: str) -> int:
        """Send a request and leave its connection open without reading the answer; the status."""
        connection = HTTPSConnection(self.host, self.port, context=self.tls, timeout=PATIENCE_SECONDS)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        self._held.append((connection, response))
        return response.status

    def connect(self, data: bytes, *, tls: bool) -> None:
        """Open a connection, send data, and leave it open."""
        opened = socket.create_connection((self.host, self.port), timeout=PATIENCE_SECONDS)
        with contextlib.suppress(OSError):
            if tls:
                opened = self.tls.wrap_socket(opened, server_hostname=self.host)
            if data:
                opened.sendall(data)
            self.sent += 1
        self._held.append((opened,))

    def leave(self) -> None:
        for held in self._held:
            for one in held:
                with contextlib.suppress(OSError):
                    one.close()
        self._held.clear()


class Ordinary:
    """Reads and writes one small object, one request after the other, and measures how long each takes."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ordinary")
        self.took: list[float] = []
        self.failures: list[str] = []

    def _run(self) -> None:
        while not self._ends.is_set():
            for method, path, body in (
                ("GET", f"{CONFIG_MAPS}/ordinary", None),
                ("PUT", f"{CONFIG_MAPS}/ordinary", _config_map("ordinary", {"n": str(len(self.took))})),
            ):
                began = time.monotonic()
                try:
                    code, answer = self._user.ask(method, path, body)
                    if code != 200:
                        self.failures.append(f"{method}: {code} {answer[:200]!r}")
                except (OSError, HTTPException) as error:
                    self.failures.append(f"{method}: {error!r}")
                self.took.append(time.monotonic() - began)
            self._ends.wait(0.01)

    def __enter__(self) -> Ordinary:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


def _config_map(name: str, data: Tree) -> Tree:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@dataclass
class Place:
    up: Up
    admin: User
    viewer: User
    attempt: int = 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("attacked")
    view = folder / "view"
    kubeconfig = folder / "kubeconfig"
    arguments = ["--data-dir", str(folder / "data"), "--kubeconfig", str(kubeconfig), "--view-kubeconfig", str(view)]
    # As in a shell with a hard limit: the server cannot raise it.
    up = Up(kubeconfig, *arguments, "--runner", "none", open_files_max=1024)
    admin = User.of(kubeconfig)
    until(lambda: admin.ask("GET", "/readyz")[0] == 200)
    assert admin.ask("POST", CONFIG_MAPS, _config_map("ordinary", {}))[0] == 201
    yield Place(up, admin, User.of(view))
    assert up.process.poll() is None, "an attack ended the server"
    up.end()


# --- The attacks ------------------------------------------------------------------------------------------------------


def _review(value: bytes) -> bytes:
    return b"apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {a: " + value + b"}\n"


def _crd(plural: str, schema: Tree, columns: list[Tree] | None = None) -> Tree:
    version: Tree = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if columns:
        version["additionalPrinterColumns"] = columns
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.attack.example"},
        "spec": {
            "group": "attack.example",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.title()},
            "versions": [version],
        },
    }


def _object(plural: str, name: str, spec: Any) -> Tree:
    return {"apiVersion": "attack.example/v1", "kind": plural.title(), "metadata": {"name": name}, "spec": spec}


def _schema(spec: Tree) -> Tree:
    return {"type": "object", "properties": {"spec": spec}}


def base_60_number(place: Place) -> None:
    for parts in (200_000, 1_000_000):
        place.viewer.ask("POST", REVIEWS, _review(b":".join([b"59"] * parts)), YAML)


def many_yaml_values(place: Place) -> None:
    place.viewer.ask("POST", REVIEWS, _review(b"[" + b"1," * 49_000 + b"]"), YAML)
    place.viewer.ask("POST", REVIEWS, b"\n".join(b"k%d: 1" % n for n in range(33_000)), YAML)
    place.viewer.ask("POST", REVIEWS, _review(b"9" * 3_000_000), YAML)


def columns_with_deep_paths(place: Place) -> None:
    loose = _schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    columns = [{"name": f"c{n}", "type": "string", "jsonPath": ".." + "a..a" * 6} for n in range(5)]
    place.admin.ask("POST", CRDS, _crd("deeps", loose, columns))
    deep: Any = {}
    for _ in range(40):
        deep = {"a": deep}
    for n in range(20):
        assert place.admin.ask("POST", "/apis/attack.example/v1/deeps", _object("deeps", f"d{n}", deep))[0] in MADE
    assert place.viewer.ask("GET", "/apis/attack.example/v1/deeps", headers=TABLE)[0] == 200


def slow_patterns(place: Place) -> None:
    schema = _schema({"type": "object", "properties": {"x": {"type": "string", "pattern": "^(x?){1000}x{1000}$"}}})
    place.admin.ask("POST", CRDS, _crd("patterns", schema))
    for n in range(2):
        body = _object("patterns", f"p{n}-{place.attempt}", {"x": "x" * 1000})
        place.admin.ask("POST", "/apis/attack.example/v1/patterns", body)


def many_properties(place: Place) -> None:
    properties = {f"p{n}": {"type": "string", "description": "x" * 50} for n in range(15_000)}
    assert (
        place.admin.ask("POST", CRDS, _crd("wides", _schema({"type": "object", "properties": properties})))[0] in MADE
    )
    assert place.admin.ask("POST", "/apis/attack.example/v1/wides", _object("wides", "w", {"p1": "x"}))[0] in MADE


def many_rules(place: Place) -> None:
    rules = [{"rule": f"self.size() != {n}", "message": "m"} for n in range(5_000)]
    schema = _schema({"type": "string", "maxLength": 10, "x-kubernetes-validations": rules})
    place.admin.ask("POST", CRDS, _crd("ruleds", schema))
    place.admin.ask("POST", "/apis/attack.example/v1/ruleds", _object("ruleds", "r", "x"))


def long_rule(place: Place) -> None:
    items: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
    rule = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"
    items["x-kubernetes-validations"] = [{"rule": rule}]
    place.admin.ask("POST", CRDS, _crd("loops", _schema(items)))
    place.admin.ask("POST", "/apis/attack.example/v1/loops", _object("loops", "l", list(range(500))))


@cache
def _of_many_keys(count: int) -> bytes:
    return json.dumps(_config_map("keys", {f"k{n:06}": "" for n in range(count)})).encode()


def many_keys(place: Place) -> None:
    place.admin.ask("POST", CONFIG_MAPS, _of_many_keys(180_000))
    assert place.admin.ask("POST", CONFIG_MAPS, _of_many_keys(40_000))[0] in MADE
    merge = {"Content-Type": "application/merge-patch+json"}
    assert place.admin.ask("PATCH", f"{CONFIG_MAPS}/keys", {"data": {"more": "x"}}, merge)[0] == 200
    assert place.viewer.ask("GET", CONFIG_MAPS, headers=TABLE)[0] == 200


def many_patch_operations(place: Place) -> None:
    operations = [{"op": "add", "path": f"/data/k{n}", "value": "x"} for n in range(30_000)]
    patch = {"Content-Type": "application/json-patch+json"}
    place.admin.ask("POST", CONFIG_MAPS, _config_map("patched", {"a": "b"}))
    place.admin.ask("PATCH", f"{CONFIG_MAPS}/patched", operations, patch)
    doubling: list[Tree] = [{"op": "copy", "from": "/data", "path": f"/data/c{n}"} for n in range(40)]
    place.admin.ask("PATCH", f"{CONFIG_MAPS}/patched", doubling, patch)


def malformed_requests(place: Place) -> None:
    anonymous = place.viewer.anonymous()
    for _ in range(200):
        anonymous.connect(b"GET / HTTP/1.1\r\nAuthorization : Bearer x\r\n\r\n", tls=True)
    anonymous.leave()


def silent_connections(place: Place) -> None:
    anonymous = place.viewer.anonymous()
    for _ in range(1_500):
        anonymous.connect(b"", tls=False)
    time.sleep(1)
    anonymous.leave()


def half_requests(place: Place) -> None:
    anonymous = place.viewer.anonymous()
    for _ in range(1_100):
        anonymous.connect(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HT", tls=True)
    time.sleep(1)
    anonymous.leave()


def watches_that_read_nothing(place: Place) -> None:
    codes = [place.viewer.stay(f"{CONFIG_MAPS}?watch=true&timeoutSeconds=600") for _ in range(210)]
    assert codes.count(429) == 10, "a viewer takes as many watches as it likes"
    assert place.admin.stay(f"{CONFIG_MAPS}?watch=true&timeoutSeconds=60") == 200, "viewers took all watches"
    time.sleep(2)
    place.viewer.leave()
    place.admin.leave()


ATTACKS: list[Callable[[Place], None]] = [
    base_60_number,
    many_yaml_values,
    columns_with_deep_paths,
    slow_patterns,
    many_properties,
    many_rules,
    long_rule,
    many_keys,
    many_patch_operations,
    malformed_requests,
    silent_connections,
    half_requests,
    watches_that_read_nothing,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_ordinary_requests_are_answered_in_time_during(place: Place, attack: Callable[[Place], None]) -> None:
    """Up to three times: a machine that stands still for a second once is no failure, a server that does it is."""
    for count in (180_000, 40_000):
        _of_many_keys(count)  # not while this process measures
    for place.attempt in range(ATTEMPTS):
        with Ordinary(place.admin) as before:
            time.sleep(0.5)
        with Ordinary(place.admin) as during:
            attack(place)
        assert during.failures == []
        allowed = max(ANSWER_SECONDS, TIMES_AS_LONG * max(before.took))
        if max(during.took) <= allowed:
            return
    pytest.fail(
        f"the slowest request took {max(during.took):.2f} s of {allowed:.2f} s in the last of {ATTEMPTS} attempts"
    )


def test_no_log_holds_a_token_after_malformed_requests(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    up = Up(kubeconfig, "--data-dir", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig), "--runner", "none")
    admin = User.of(kubeconfig)
    token = admin.token
    anonymous = admin.anonymous()
    for text in (
        f"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer {token}\r\n\r\n",
        f"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\x01\r\n\r\n",
        f"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: \x00Bearer {token}\r\n\r\n",
        f"GET /api?token={token} HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        f"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer x\r\n\r\n",
        f"{token} / HTTP/1.1\r\n\r\n",
    ):
        for _ in range(3):
            anonymous.connect(text.encode("latin-1"), tls=True)
    admin.ask("GET", f"/api/v1/{token}")
    admin.ask("POST", CONFIG_MAPS, token.encode())
    anonymous.leave()
    _, output = up.end()
    assert "refused a malformed request from 127.0.0.1" in output
    assert token not in output
    assert len(output.splitlines()) < 60, output
    logs = [path for path in tmp_path.rglob("*.log") if path.is_file()]
    assert not any(token.encode() in path.read_bytes() for path in logs)
