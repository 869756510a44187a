"""Webhooks on this machine: asked over TLS, in their own version, within their time; and never anywhere else."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubeserver.admission.webhooks import WebhookPolicy
from kubeserver.protocol import server_credentials
from kubeserver.serve import ServerSettings
from server.conftest import CONFIG_MAPS, OLD_WIDGETS, WIDGETS, Client, Running, Tree, config_map, parts, widget

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
Answer = Callable[[Tree], Tree]


class Webhook:
    """An external webhook server: it responds with what a test sets, and records the requests."""

    def __init__(self, directory: Path, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> None:
        now = datetime.datetime.now(datetime.UTC)
        made = server_credentials.prepare(directory, list(hosts), now)
        self.ca = base64.b64encode(made.ca).decode()
        # The serving certificate without its key, as envtest registers it.
        self.leaf = base64.b64encode(made.server.read_bytes().partition(b"-----BEGIN PRIVATE KEY")[0]).decode()
        self.asked: list[Tree] = []
        self.paths: list[str] = []
        self.answer: Answer = lambda request: {"allowed": True}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.server)
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                webhook.asked.append(review["request"])
                webhook.paths.append(self.path)
                response = {"uid": review["request"]["uid"], **webhook.answer(review["request"])}
                body = json.dumps({**review, "response": response}).encode()
                self.send_response(response.pop("http", 200))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[Webhook]:
    server = Webhook(tmp_path)
    yield server
    server.close()


@pytest.fixture
def configure(client: Client, webhook: Webhook) -> Iterator[Callable[..., Any]]:
    """Configure the webhook for widgets; it is taken away after the test."""
    made: list[str] = []

    def configure(kind: str = "Validating", **more: Any) -> Any:
        row = {
            "name": "test.example.com",
            "clientConfig": {"url": webhook.url, "caBundle": webhook.ca},
            "rules": [
                {
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "apiGroups": ["example.com"],
                    "apiVersions": ["v1"],
                    "resources": ["widgets"],
                }
            ],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
            **more,
        }
        path = f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations"
        answer = client.post(
            path,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": "test"},
                "webhooks": [row],
            },
        )
        if answer.code < 300:
            made.append(f"{path}/test")
        return answer

    yield configure
    for path in made:
        client.delete(path).ok()


def patch(*operations: Any) -> Tree:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


class TestAsking:
    def test_a_mutating_webhook_patches_what_is_stored(self, client: Client, webhook: Webhook, configure: Any) -> None:
        webhook.answer = lambda request: patch({"op": "add", "path": "/spec/color", "value": "blue"})
        configure("Mutating").ok()
        assert client.post(WIDGETS, widget("painted")).ok()["spec"]["color"] == "blue"
        asked = webhook.asked[0]
        assert (asked["operation"], asked["resource"]["resource"]) == ("CREATE", "widgets")
        assert asked["userInfo"]["username"] == "admin"
        assert asked["object"]["spec"]["size"] == 1

    def test_a_validating_webhook_refuses_with_its_own_code(
        self, client: Client, webhook: Webhook, configure: Any
    ) -> None:
        configure().ok()
        webhook.answer = lambda request: {
            "allowed": False,
            "status": {"code": 422, "reason": "Invalid", "message": "no"},
            "warnings": ["think again"],
        }
        answer = client.post(WIDGETS, widget("refused"))
        refused = answer.refused(422)
        assert refused["message"] == 'admission webhook "test.example.com" denied the request: no'
        client.get(f"{WIDGETS}/refused").refused(404)
        webhook.answer = lambda request: {"allowed": False}
        client.post(WIDGETS, widget("refused")).refused(403)

    def test_it_sees_old_and_new_and_deletions(self, client: Client, webhook: Webhook, configure: Any) -> None:
        client.post(WIDGETS, widget("seen")).ok()
        configure().ok()
        client.merge(f"{WIDGETS}/seen", {"spec": {"size": 2}}).ok()
        client.delete(f"{WIDGETS}/seen").ok()
        update, delete = webhook.asked
        assert (update["oldObject"]["spec"]["size"], update["object"]["spec"]["size"]) == (1, 2)
        assert (delete["object"], delete["oldObject"]["spec"]["size"]) == (None, 2)

    def test_another_version_is_converted_for_it(self, client: Client, webhook: Webhook, configure: Any) -> None:
        configure("Mutating").ok()
        webhook.answer = lambda request: patch({"op": "replace", "path": "/spec/size", "value": 9})
        old = {**widget("old", spec={"length": 4}), "apiVersion": "example.com/v1beta1"}
        assert client.post(OLD_WIDGETS, old).ok()["spec"]["length"] == 9
        assert webhook.asked[0]["object"]["apiVersion"] == "example.com/v1"
        assert webhook.asked[0]["requestKind"]["version"] == "v1beta1"

    def test_selectors_and_conditions_select_requests(self, client: Client, webhook: Webhook, configure: Any) -> None:
        configure(
            objectSelector={"matchLabels": {"ask": "yes"}},
            matchConditions=[{"name": "large", "expression": "object.spec.size > 5"}],
        ).ok()
        client.post(WIDGETS, widget("unlabelled", spec={"size": 9})).ok()
        client.post(WIDGETS, widget("small", labels={"ask": "yes"})).ok()
        assert webhook.asked == []
        client.post(WIDGETS, widget("both", labels={"ask": "yes"}, spec={"size": 9})).ok()
        assert len(webhook.asked) == 1

    def test_a_write_that_was_overtaken_starts_over(self, client: Client, webhook: Webhook, configure: Any) -> None:
        """Another client writes while the webhook is called: nothing of either write is lost."""
        client.post(WIDGETS, widget("overtaken")).ok()
        configure().ok()
        meddled: list[int] = []

        def meddle(request: Tree) -> Tree:
            if not meddled:
                meddled.append(1)
                client.merge(f"{WIDGETS}/overtaken", {"metadata": {"labels": {"fast": "yes"}}}).ok()
            return {"allowed": True}

        webhook.answer = meddle
        made = client.merge(f"{WIDGETS}/overtaken", {"spec": {"size": 5}}).ok()
        assert made["metadata"]["labels"] == {"fast": "yes"}
        assert made["spec"]["size"] == 5


class TestFailing:
    def test_a_failing_webhook_with_policy_fail_refuses_the_write(
        self, client: Client, webhook: Webhook, configure: Any
    ) -> None:
        webhook.answer = lambda request: {"http": 500}
        configure(failurePolicy="Fail").ok()
        answer = client.post(WIDGETS, widget("shut"))
        assert answer.code == 500
        assert 'failed calling webhook "test.example.com"' in answer.tree["message"]

    def test_or_is_ignored(self, client: Client, webhook: Webhook, configure: Any) -> None:
        webhook.answer = lambda request: {"http": 500}
        configure(failurePolicy="Ignore").ok()
        client.post(WIDGETS, widget("open")).ok()

    @pytest.mark.parametrize(
        "answer",
        [
            {"uid": "another", "allowed": True},
            {"allowed": True, "patchType": "JSONPatch", "patch": "!!!"},
            {"allowed": True, "patchType": "Diff", "patch": "W10="},
            {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(b"[{}]").decode()},
        ],
    )
    def test_an_answer_that_makes_no_sense_is_a_failure(
        self, client: Client, webhook: Webhook, configure: Any, answer: Tree
    ) -> None:
        webhook.answer = lambda request: dict(answer)
        configure("Mutating").ok()
        assert client.post(WIDGETS, widget("nonsense")).code == 500

    @pytest.mark.parametrize("kind", ["Mutating", "Validating"])
    def test_leaf_certificate_in_ca_bundle_is_trusted(
        self, client: Client, webhook: Webhook, configure: Any, kind: str
    ) -> None:
        configure(kind, clientConfig={"url": webhook.url, "caBundle": webhook.leaf}).ok()
        client.post(WIDGETS, widget(f"leaf-{kind.lower()}")).ok()
        assert webhook.asked

    def test_leaf_certificate_of_another_server_is_refused(
        self, client: Client, webhook: Webhook, configure: Any, tmp_path: Path
    ) -> None:
        now = datetime.datetime.now(datetime.UTC)
        other = server_credentials.prepare(tmp_path / "other", ["127.0.0.1"], now)
        leaf = other.server.read_bytes().partition(b"-----BEGIN PRIVATE KEY")[0]
        configure(clientConfig={"url": webhook.url, "caBundle": base64.b64encode(leaf).decode()}).ok()
        message = client.post(WIDGETS, widget("foreign-leaf")).refused(500)["message"]
        assert 'failed calling webhook "test.example.com": ' in message
        assert "its certificate is not trusted" in message
        assert not webhook.asked

    def test_trusted_leaf_certificate_for_another_host_is_refused(
        self, client: Client, configure: Any, tmp_path: Path
    ) -> None:
        server = Webhook(tmp_path / "elsewhere", ["elsewhere.example"])
        try:
            configure(clientConfig={"url": server.url, "caBundle": server.leaf}).ok()
            assert "127.0.0.1" in client.post(WIDGETS, widget("other-host")).refused(500)["message"]
            assert not server.asked
        finally:
            server.close()

    def test_ca_bundle_without_certificate_fails_the_call(
        self, client: Client, webhook: Webhook, configure: Any
    ) -> None:
        bundle = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()
        configure(clientConfig={"url": webhook.url, "caBundle": bundle}).ok()
        message = client.post(WIDGETS, widget("no-bundle")).refused(500)["message"]
        assert "unable to load root certificates" in message

    def test_another_authority_is_not_trusted(self, client: Client, configure: Any, tmp_path: Path) -> None:
        other = server_credentials.prepare(tmp_path / "other", ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
        bundle = base64.b64encode(other.ca).decode()
        configure(clientConfig={"url": "https://127.0.0.1:1/", "caBundle": bundle}).ok()
        assert client.post(WIDGETS, widget("untrusted")).code == 500


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "https://10.0.0.1/",
            "https://169.254.169.254/latest",
            "https://example.com/",
            "https://[fe80::1]/",
            "https://0.0.0.0/",
            "https://127.0.0.1.example.com/",
        ],
    )
    def test_only_this_machine_is_called(self, configure: Any, url: str) -> None:
        refused = configure(clientConfig={"url": url}).refused(422)
        assert refused["details"]["causes"][0]["field"] == "webhooks[0].clientConfig.url"

    @pytest.mark.parametrize(
        ("path", "called"),
        [
            ("//mutate-example-com", "/mutate-example-com"),
            ("///a//b///c", "/a/b/c"),
            ("/a/./b/../c", "/a/c"),
            ("/trailing/", "/trailing"),
            ("/a%20b", "/a%20b"),
            ("", "/"),
        ],
    )
    def test_url_path_is_cleaned_before_the_call(
        self, client: Client, webhook: Webhook, configure: Any, path: str, called: str
    ) -> None:
        url = webhook.url.removesuffix("/") + path
        configure(clientConfig={"url": url, "caBundle": webhook.ca}).ok()
        client.post(f"{WIDGETS}?dryRun=All", widget("cleaned")).ok()
        assert webhook.paths == [called]

    def test_what_was_stored_under_another_policy_is_not_called(self, tmp_path: Path) -> None:
        settings = ServerSettings(data_dir=tmp_path)
        path = f"{CONFIGURATIONS}/validatingwebhookconfigurations"
        hook = {
            "name": "far.example.com",
            "clientConfig": {"url": "https://192.0.2.1/"},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "far"},
            "webhooks": [hook],
        }
        with Running(settings, parts(webhooks=WebhookPolicy(loopback_only=False))) as server:
            server.client().post(path, body).ok()
        with Running(settings, parts()) as server:
            answer = server.client().post(CONFIG_MAPS, config_map("c"))
            assert answer.code == 500
            assert "only those are called" in answer.tree["message"]

    def test_services_are_refused_in_words(self, configure: Any) -> None:
        refused = configure(clientConfig={"service": {"name": "s", "namespace": "n"}}).refused(422)
        assert "clientConfig.url" in json.dumps(refused)

    def test_webhooks_do_not_decide_about_webhooks(self, client: Client, webhook: Webhook, configure: Any) -> None:
        everything = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
        webhook.answer = lambda request: {"allowed": False}
        configure(rules=everything).ok()
        client.post(WIDGETS, widget("locked")).refused(403)
        client.merge(
            f"{CONFIGURATIONS}/validatingwebhookconfigurations/test", {"metadata": {"labels": {"a": "b"}}}
        ).ok()
