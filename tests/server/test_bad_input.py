"""Whatever is sent, the server answers with a sentence and goes on: never a 500, never a hang, never a growing heap.

`APISERVER_FUZZ` asks for more requests, `APISERVER_SEED` for others.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from kubemachinery.status import StatusError
from kubeserver.protocol import bodies
from kubeserver.serve import ServerSettings
from server.conftest import CONFIG_MAPS, WIDGETS, Client, Running, config_map, parts, widget
from waiting import PATIENCE_SECONDS

REQUESTS = int(os.environ.get("APISERVER_FUZZ", "400"))
SEED = int(os.environ.get("APISERVER_SEED", "2024"))

NASTY: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    -(2**63) - 1,
    1e308,
    0.1,
    "",
    "x" * 1000,
    "\x00",
    "../../etc/passwd",
    "٣",
    "\u202e",
    [],
    [[]],
    [None],
    {},
    {"": ""},
    {"a": {"b": {"c": []}}},
    "2024-01-01",
    "9" * 400,
]
# Where objects are made, and one that could stand there; what is sent is one of these with something wrong in it.
PLACES: dict[str, Any] = {
    WIDGETS: widget("x", spec={"size": 1, "parts": [{"name": "first", "count": 2}]}),
    CONFIG_MAPS: config_map("x", {"a": "b"}, labels={"a": "b"}, annotations={"c": "d"}),
    "/api/v1/namespaces": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
    "/api/v1/nodes": {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "x"},
        "spec": {"taints": [{"key": "a"}]},
    },
    "/api/v1/namespaces/default/pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "finalizers": ["a/b"]},
        "spec": {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]},
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b", "uid": "c"}]},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}},
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "xs.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Cluster",
            "names": {"plural": "xs", "kind": "X"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}},
                }
            ],
        },
    },
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "x"},
        # No webhook in it: one that is called would be asked about everything that follows.
        "webhooks": [],
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "x"},
        "spec": {"leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"},
    },
    "/apis/events.k8s.io/v1/namespaces/default/events": {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "x"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "x"},
    },
    "/apis/scheduling.k8s.io/v1/priorityclasses": {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "x"},
        "value": 5,
    },
}
# Parts of a path that lead nowhere, or ought not to.
DETOURS = ["..", ".", "%2e%2e", "%2F", "%00", "%ff", "%E2%80%AE", "", "x" * 300, "status", "scale", "*", "-"]
TYPES = [
    "application/json",
    "application/yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "text/html; charset=x",
    "",
]
METHODS = ["OPTIONS", "HEAD", "TRACE"]
SELECTORS = ["a in (", "!", "a=b=c", "a notin", "a>1", ",", "a in (b),!c", "spec.color=red", "x" * 400, "é=ü", "=" * 50]
QUERY = [
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "propagationPolicy",
    "gracePeriodSeconds",
    "orphanDependents",
    "includeObject",
    "timeoutSeconds",
    "sendInitialEvents",
    "pretty",
    "hash",
]


def tree(rng: random.Random, depth: int = 0) -> Any:
    """Anything at all."""
    roll = rng.random()
    if depth > 4 or roll < 0.4:
        return rng.choice(NASTY)
    if roll < 0.55:
        return [tree(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(["a", "name", "metadata", "spec", ""]): tree(rng, depth + 1) for _ in range(3)}


def corrupted(rng: random.Random, value: Any) -> Any:
    """A copy with something else in one place: another value, one key more or less, a list twice as long."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return tree(rng, 2)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        return [*value, *value] if rng.random() < 0.2 else [*value[:at], corrupted(rng, value[at]), *value[at + 1 :]]
    key = rng.choice(list(value))
    match rng.randrange(6):
        case 0:
            return {name: inner for name, inner in value.items() if name != key}
        case 1:
            return {**value, rng.choice(["zzz", "", "a/b", "~", "x" * 300]): tree(rng, 2)}
    return {**value, key: corrupted(rng, value[key])}


def patch(rng: random.Random, place: str) -> Any:
    roll = rng.random()
    if roll < 0.4:
        return corrupted(rng, PLACES[place])
    if roll < 0.5:
        return {"spec": {"$patch": rng.choice(["delete", "replace", 7]), "containers": [{"$patch": "delete"}]}}
    path = rng.choice(["/spec", "", 3, "/a/b", "/metadata/labels/a~1b", "/spec/-", "/metadata/name", "/~2"])
    return [{"op": rng.choice(["add", "remove", "test", "copy", "move", 7]), "path": path, "from": path, "value": 1}]


def body(rng: random.Random, method: str, place: str) -> bytes:
    roll = rng.random()
    if roll < 0.04:
        return rng.randbytes(rng.randint(0, 200))
    if roll < 0.08:
        return b"k8s\x00" + rng.randbytes(rng.randint(0, 100))
    if roll < 0.09:
        return rng.choice([b"[", b'{"a":', b"- ", b"? ", b"a: {b: "]) * rng.randint(100, 50_000)
    if roll < 0.093:
        return json.dumps(config_map("x", {"a": "y" * rng.choice([10**6, 2 * 10**6, 4 * 10**6])})).encode()
    made = patch(rng, place) if method == "PATCH" else PLACES[place]
    text = json.dumps(corrupted(rng, made) if roll < 0.9 else made)
    if roll > 0.8:
        cut = rng.randint(0, len(text))
        text = text[:cut] + rng.choice(["", "}", "\x00", "é", '"', "\ud800"]) + text[cut + rng.randint(0, 3) :]
    return text.encode("utf-8", "surrogatepass")


def path(rng: random.Random, method: str, place: str) -> str:
    """Mostly where the method makes sense; sometimes nowhere."""
    roll = rng.random()
    if roll < 0.1:
        parts = place.split("/")
        parts.insert(rng.randint(1, len(parts)), rng.choice(DETOURS))
        return "/".join(parts)
    if roll < 0.12:
        return rng.choice(["/openapi/v3/apis/x", "/apis", "/", "//", "/nowhere", "/version/x", "/.well-known/"])
    if method == "POST" or (method == "GET" and roll < 0.5):
        return place
    return f"{place}/x" + rng.choice(["", "", "", "/status", "/scale", "/zzz"])


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Client]:
    """A server of its own: nonsense may well delete what the other tests of this module need."""
    with Running(ServerSettings(data_dir=tmp_path), parts()) as server:
        yield server.client()


def test_nothing_that_is_sent_breaks_the_server(alone: Client) -> None:
    client, rng = alone, random.Random(SEED)
    seen: dict[int, int] = {}
    slowest = 0.0
    connection = client.connection()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for turn in range(REQUESTS):
        method = rng.choice(["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", rng.choice(METHODS)])
        place = rng.choice(list(PLACES))
        target = path(rng, method, place)
        query = "&".join(
            f"{name}={quote(str(rng.choice(SELECTORS if 'Selector' in name else NASTY)))}"
            for name in rng.sample(QUERY, rng.choice([0, 0, 0, 1, 2]))
            # A revision of the future is waited for; that is no error, but it takes its time.
            if name != "resourceVersion" or turn % 50 == 0
        )
        sent = body(rng, method, place) if method not in ("GET", "HEAD", "OPTIONS") else None
        kinds = TYPES[:2] if rng.random() < 0.6 and method in ("POST", "PUT") else TYPES
        headers = {"Authorization": f"Bearer {client.token}", "Content-Type": rng.choice(kinds)}
        began = time.process_time()
        connection.request(method, f"{target}?{query}", sent, headers)
        response = connection.getresponse()
        text = response.read()
        worked = time.process_time() - began
        slowest = max(slowest, worked)
        seen[response.status] = seen.get(response.status, 0) + 1
        assert response.status < 500 or response.status == 504, (method, target, query, sent, text[:500])
        # The server is in this process. What counts is how long it works; a busy machine may let it wait.
        assert worked < 1, (method, target, query, sent)
        if response.status >= 400 and method != "HEAD":
            failure = json.loads(text)
            assert (failure["kind"], failure["code"]) == ("Status", response.status)
            assert failure["message"]
    connection.close()
    assert set(seen) >= {200, 400, 404, 405, 415, 422}, seen
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{REQUESTS} requests: {dict(sorted(seen.items()))}, {after - before >> 10} MiB, at most {slowest:.3f} s each"
    )
    assert after - before < 200 * 1024, f"the process grew by {(after - before) // 1024} MiB"
    client.post(CONFIG_MAPS, config_map("still-here")).ok()


class TestBodies:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (b"", "not valid JSON"),
            (b"{", "not valid JSON"),
            (b"[" * 5000, "nested deeper"),
            (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested deeper"),
            (b"\xef\xbb\xbf{}", "not valid JSON"),
            (b'{"a": "\xff"}', "not valid JSON"),
            (b'{"a": 1e400}', "not valid JSON"),
            (b'{"a": NaN}', "not valid JSON"),
            (b'{"a": "\\ud800"}', "not valid JSON"),
        ],
    )
    def test_json_that_is_none(self, text: bytes, why: str) -> None:
        with pytest.raises(StatusError, match=why) as refused:
            bodies.parse_json(text)
        assert refused.value.code == 400

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (b"a: &x [1]\nb: *x", "aliases"),
            (b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]", "aliases"),
            (b"!!python/object:os.system x", "not supported"),
            (b"a: !!binary aGk=", "not supported"),
            (b"a: .nan", "number"),
            (b"a: [", "not valid YAML"),
            (b"a: 1\n---\nb: 2", "single document"),
            (b"? [a]\n: b", "key"),
            (b"- " * 200 + b"a", "nested deeper"),
            # So deep that a recursive parser in C would crash the process.
            (b"- " * 500_000, "nested deeper"),
            (b"? " * 500_000, "nested deeper"),
            (b"- a\n" * 200_000, "too long"),
        ],
    )
    def test_yaml_that_json_cannot_express(self, text: bytes, why: str) -> None:
        with pytest.raises(StatusError, match=why) as refused:
            bodies.parse_yaml(text)
        assert refused.value.code == 400

    def test_yaml_reads_as_kubectl_reads_it(self) -> None:
        text = b"time: 2024-01-01\nflag: on\nnumber: 1e3\noctal: 0777\nkey: {1: a, true: b}\ntext: '1'"
        assert bodies.parse_yaml(text) == {
            "time": "2024-01-01",
            "flag": True,
            "number": 1000.0,
            "octal": 511,
            "key": {"1": "b"},
            "text": "1",
        }

    def test_repeated_keys_are_found_wherever_they_are(self) -> None:
        text = b'{"a": {"b": 1, "b": [{"c": 1, "c": 2}]}, "x": 1, "x": 1}'
        assert bodies.duplicates(text, bodies.parse_json(text)) == [
            f'duplicate field "{path}"' for path in ("a.b", "a.b[0].c", "x")
        ]
        clean = b'{"a": [1, 2.50, "\\u00e9"]}'
        assert bodies.duplicates(clean, bodies.parse_json(clean)) == []


class TestSizes:
    def test_a_body_has_a_limit(self, client: Client) -> None:
        refused = client.post(CONFIG_MAPS, config_map("big", {"x": "y" * (3 * 2**20)})).refused(413)
        assert refused["reason"] == "RequestEntityTooLarge"

    def test_an_object_has_a_smaller_one(self, client: Client) -> None:
        parts = [{"name": f"{index:04}" + "p" * 1000} for index in range(1600)]
        client.post(WIDGETS, widget("heavy", spec={"size": 1, "parts": parts})).refused(413)
        client.get(f"{WIDGETS}/heavy").refused(404)

    def test_annotations_have_one(self, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("noted", annotations={"a": "b" * (256 * 1024 + 1)})).refused(422)

    def test_numbers_that_no_json_of_ours_can_hold(self, client: Client) -> None:
        text = json.dumps(widget("huge")).replace('"size": 1', '"size": ' + "9" * 50)
        assert client.post(WIDGETS, text.encode()).code in (400, 422)


class TestConnections:
    @contextlib.contextmanager
    def connected(self, running: Running) -> Iterator[ssl.SSLSocket]:
        parts = urlsplit(running.serving.url)
        context = ssl.create_default_context(cadata=running.serving.credentials.ca.decode())
        with (
            socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            yield connection

    def raw(self, running: Running, *chunks: bytes) -> bytes:
        with self.connected(running) as connection:
            answer = b""
            # The server may close the connection while the client still sends.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                for chunk in chunks:
                    connection.sendall(chunk)
                while data := connection.recv(65536):
                    answer += data
                    if b"\r\n\r\n" in answer:
                        break
            return answer

    @pytest.mark.parametrize(
        "request_text",
        [
            b"GARBAGE\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"\x00\x01\x02\r\n\r\n",
        ],
    )
    def test_what_is_not_http_is_refused_and_forgotten(self, running: Running, request_text: bytes) -> None:
        answer = self.raw(running, request_text)
        assert answer == b"" or answer.split(b" ", 2)[1][:1] == b"4", answer[:200]
        assert running.client().get("/livez").body == b"ok"

    def test_an_idle_connection_without_a_request_is_closed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from kubemachinery import http_server

        limits = http_server.ConnectionLimits(header_seconds=0.4, sweep_seconds=0.1)
        monkeypatch.setattr(http_server, "ConnectionLimits", lambda: limits)
        with Running(ServerSettings(data_dir=tmp_path), parts()) as server:
            answer = self.raw(server, b"GET /livez HTTP/1.1\r\nHost: localho")
            assert answer == b"", "the server closes a connection that never completes a request"
            monkeypatch.undo()  # a client that does may be slow
            assert server.client().get("/livez").body == b"ok"

    def test_a_request_that_is_cut_off_changes_nothing(self, running: Running) -> None:
        token = running.serving.credentials.admin_token
        text = json.dumps(config_map("half")).encode()
        head = (
            f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Length: {len(text) + 10}\r\n\r\n"
        )
        with self.connected(running) as connection:
            connection.sendall(head.encode() + text)
        running.client().get(f"{CONFIG_MAPS}/half").refused(404)
