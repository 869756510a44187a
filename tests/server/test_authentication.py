"""Authentication by token or certificate, the permissions of viewers, load shedding."""

from __future__ import annotations

import contextlib
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery.clock import SystemClock
from kubemachinery.http_messages import Request
from kubemachinery.status import StatusError
from kubeserver.protocol.authentication import ADMIN, VIEWER, VIEWERS, Authenticator, RequestUser
from kubeserver.protocol.load_shedding import LOG_STREAMS, WATCHES, LoadShedder, RequestLimits
from kubeserver.serve import ServerSettings
from server.conftest import CONFIG_MAPS, WIDGETS, Client, Running, config_map, parts
from waiting import until

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def may(client: Client, verb: str, resource: str, group: str = "") -> bool:
    attributes = {"verb": verb, "resource": resource, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer: bool = client.post(REVIEWS, review).ok()["status"]["allowed"]
    return answer


@pytest.fixture
def unknown(running: Running) -> Client:
    return running.client(token="")


@pytest.fixture
def viewer(running: Running) -> Client:
    return running.client(token=running.serving.credentials.view_token)


class TestAuthentication:
    def test_health_and_version_need_no_authentication(self, unknown: Client) -> None:
        for path in ("/livez", "/readyz", "/healthz"):
            assert unknown.get(path).body == b"ok"
        version = unknown.get("/version").ok()
        fields = [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ]
        assert all(isinstance(version[field], str) and version[field] for field in fields)

    def test_a_probe_can_be_asked_for_one_check_or_for_all_but_one(self, client: Client) -> None:
        assert client.get("/livez/ping").body == client.get("/readyz/store").body == b"ok"
        client.get("/livez/weather").refused(404)
        lines = client.get("/readyz?verbose&exclude=started").body.decode().splitlines()
        assert lines == ["[+]ping ok", "[+]started excluded: ok", "[+]store ok", "readyz check passed"]

    def test_only_whole_answers_are_given_about_resources(self, client: Client) -> None:
        for path in ("/api", "/api/v1", "/api/v1/namespaces", "/api/v1/namespaces/default", "/version"):
            assert client.send("HEAD", path).status == 405
        assert client.send("HEAD", "/livez").status == 200

    def test_everything_else_is_not(self, running: Running, unknown: Client) -> None:
        paths = running.client().get("/").ok()["paths"]
        open_paths = {"/livez", "/readyz", "/healthz", "/version"}
        for path in [*paths, "/", WIDGETS, f"{WIDGETS}/x", "/openapi/v3/api/v1", "/nowhere", "/metrics"]:
            if path not in open_paths:
                answer = unknown.get(path)
                assert answer.refused(401)["reason"] == "Unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")

    def test_a_wrong_token_is_no_token(self, running: Running) -> None:
        running.client(token="x" * 43).get(WIDGETS).refused(401)

    def test_a_client_certificate_is_enough(self, running: Running, tmp_path: Path) -> None:
        identity = running.serving.credentials.admin
        path = tmp_path / "client.pem"
        path.write_bytes(identity.certificate + identity.key)
        holder = running.client(token="", certificate=path)
        assert holder.get(WIDGETS).ok()["kind"] == "WidgetList"

    def test_the_certificate_comes_before_the_token(self, running: Running, tmp_path: Path) -> None:
        """As in kube-apiserver: a token that is not valid does not matter, and one that is valid names no other user."""
        credentials = running.serving.credentials
        path = tmp_path / "client.pem"
        path.write_bytes(credentials.viewer.certificate + credentials.viewer.key)
        for token in ("FAKE-TOKEN-123456", credentials.admin_token):
            holder = running.client(token=token, certificate=path)
            holder.get(WIDGETS).ok()
            holder.post(CONFIG_MAPS, config_map("mine")).refused(403)

    def test_a_certificate_without_a_common_name_names_no_user(self) -> None:
        unnamed = {"O": ["system:masters"]}
        authenticator = Authenticator({"secret": VIEWER})
        with pytest.raises(StatusError) as refused:
            authenticator.authenticate(Request("GET", "/api", certificate=unnamed))
        assert refused.value.code == 401
        request = Request("GET", "/api", headers={"authorization": "Bearer secret"}, certificate=unnamed)
        assert authenticator.authenticate(request) == VIEWER

    def test_impersonation_is_refused(self, client: Client) -> None:
        client.get(WIDGETS, headers={"Impersonate-User": "root"}).refused(403)

    def test_a_page_on_the_web_cannot_borrow_our_name(self, client: Client) -> None:
        client.get(WIDGETS, headers={"Host": "evil.example"}).refused(403)
        client.get(WIDGETS, headers={"Host": "localhost:1234"}).ok()


class TestTheRoleView:
    def test_looks_but_does_not_touch(self, client: Client, viewer: Client) -> None:
        client.post(CONFIG_MAPS, config_map("seen")).ok()
        viewer.get(f"{CONFIG_MAPS}/seen").ok()
        viewer.get(CONFIG_MAPS).ok()
        assert next(viewer.watch(CONFIG_MAPS, timeoutSeconds=5))
        viewer.post(CONFIG_MAPS, config_map("mine")).refused(403)
        viewer.put(f"{CONFIG_MAPS}/seen", config_map("seen")).refused(403)
        viewer.merge(f"{CONFIG_MAPS}/seen", {"data": {"a": "b"}}).refused(403)
        viewer.delete(f"{CONFIG_MAPS}/seen").refused(403)
        viewer.delete(CONFIG_MAPS).refused(403)
        viewer.post("/.well-known/embedded-backup", {}).refused(403)

    def test_does_not_read_secrets(self, viewer: Client) -> None:
        viewer.get("/api/v1/namespaces/default/secrets").refused(403)
        viewer.get("/api/v1/secrets", watch="true").refused(403)

    def test_self_reviews_report_the_permissions_of_a_viewer(self, client: Client, viewer: Client) -> None:
        assert may(viewer, "list", "pods")
        assert not may(viewer, "create", "pods")
        assert not may(viewer, "get", "secrets")
        assert may(client, "create", "pods")


class TestReviews:
    def ask(self, client: Client, kind: str, spec: dict[str, object]) -> dict[str, object]:
        group = "authentication" if kind in ("TokenReview", "SelfSubjectReview") else "authorization"
        path = f"/apis/{group}.k8s.io/v1/{kind.lower()}s"
        review = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        answer: dict[str, object] = client.post(path, review).ok()["status"]
        return answer

    def test_reviews_about_other_users(self, client: Client) -> None:
        asked: dict[str, object] = {"resourceAttributes": {"verb": "delete", "resource": "pods"}}
        assert (
            self.ask(client, "SubjectAccessReview", {**asked, "user": "x", "groups": ["embedded:view"]})["allowed"]
            is False
        )
        assert self.ask(client, "SubjectAccessReview", {**asked, "user": "x"})["allowed"] is True

    def test_about_a_token(self, running: Running, client: Client) -> None:
        known = self.ask(client, "TokenReview", {"token": running.serving.credentials.view_token})
        assert known == {
            "authenticated": True,
            "user": {"username": "view", "groups": ["embedded:view", "system:authenticated"]},
        }
        unknown = self.ask(client, "TokenReview", {"token": "somebody's"})
        assert unknown == {"user": {}, "error": "invalid bearer token"}

    @pytest.mark.parametrize(
        ("kind", "spec", "code"),
        [
            ("TokenReview", {}, 400),
            ("TokenReview", {"token": ""}, 400),
            ("TokenReview", {"token": 7}, 400),
            ("SubjectAccessReview", {"user": "x"}, 422),
            ("SubjectAccessReview", {"resourceAttributes": {}}, 422),
            ("SelfSubjectAccessReview", {}, 422),
            ("SelfSubjectAccessReview", {"resourceAttributes": {}, "nonResourceAttributes": {}}, 422),
            ("SelfSubjectRulesReview", {}, 400),
        ],
    )
    def test_a_question_that_lacks_something_is_refused(
        self, client: Client, kind: str, spec: dict[str, object], code: int
    ) -> None:
        group = "authentication" if kind == "TokenReview" else "authorization"
        review = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        client.post(f"/apis/{group}.k8s.io/v1/{kind.lower()}s", review).refused(code)

    def test_about_oneself(self, viewer: Client) -> None:
        assert self.ask(viewer, "SelfSubjectReview", {})["userInfo"] == {
            "username": "view",
            "groups": ["embedded:view", "system:authenticated"],
        }

    def test_about_all_that_one_may(self, client: Client, viewer: Client) -> None:
        """What is listed is what is true: every resource that is served, and of Secrets nothing."""
        everything = self.ask(client, "SelfSubjectRulesReview", {"namespace": "default"})
        assert everything["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        rules: Any = self.ask(viewer, "SelfSubjectRulesReview", {"namespace": "default"})["resourceRules"]
        assert all(rule["verbs"] == ["get", "list", "watch"] for rule in rules)
        readable = {rule["apiGroups"][0]: rule["resources"] for rule in rules}
        assert {"pods", "pods/status", "configmaps"} <= set(readable[""])
        assert "widgets" in readable["example.com"]
        assert "secrets" not in readable[""]

    @pytest.mark.parametrize(
        ("groups", "attributes", "allowed"),
        [
            ("embedded:view", {"verb": "get", "resource": "*"}, False),
            ("embedded:view", {"verb": "*", "resource": "pods"}, False),
            ("embedded:view", {"verb": "list", "group": "*", "resource": "secrets"}, False),
            ("embedded:view", {"verb": "list", "group": "batch", "resource": "*"}, True),
            ("system:unauthenticated", {"verb": "get", "resource": "pods"}, False),
            ("system:authenticated", {"verb": "delete", "resource": "nodes"}, True),
        ],
    )
    def test_an_answer_for_many_is_an_answer_for_each(
        self, client: Client, groups: str, attributes: dict[str, str], allowed: bool
    ) -> None:
        spec: dict[str, object] = {"user": "x", "groups": [groups], "resourceAttributes": attributes}
        assert self.ask(client, "SubjectAccessReview", spec)["allowed"] is allowed

    @pytest.mark.parametrize(
        ("groups", "verb", "path", "allowed"),
        [
            ("embedded:view", "get", "/openapi/v3", True),
            ("embedded:view", "post", "/.well-known/embedded-backup", False),
            ("system:unauthenticated", "get", "/livez", True),
            ("system:unauthenticated", "get", "/openapi/v3", False),
            ("system:masters", "post", "/.well-known/embedded-backup", True),
        ],
    )
    def test_about_paths_that_are_no_resources(
        self, client: Client, groups: str, verb: str, path: str, allowed: bool
    ) -> None:
        spec: dict[str, object] = {
            "user": "x",
            "groups": [groups],
            "nonResourceAttributes": {"verb": verb, "path": path},
        }
        assert self.ask(client, "SubjectAccessReview", spec)["allowed"] is allowed


class TestSecrets:
    def test_the_kubeconfig_is_for_its_owner_only(self, running: Running) -> None:
        path: Path = running.serving.kubeconfig
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        document = yaml.safe_load(path.read_text())
        assert set(document["users"][0]["user"]) == {"token", "client-certificate-data", "client-key-data"}
        for file in (path.parent / "pki").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_credentials_outlive_a_restart(self, tmp_path: Path) -> None:
        settings = ServerSettings(data_dir=tmp_path)
        with Running(settings, parts()) as first:
            token, ca = first.serving.credentials.admin_token, first.serving.credentials.ca
        with Running(settings, parts()) as second:
            again = Client(second.serving.url, ca, token)
            assert again.get(WIDGETS).ok()["items"] == []


class TestBackups:
    def test_backups_are_made_while_writes_continue(self, running: Running, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("saved")).ok()
        made = client.post("/.well-known/embedded-backup", {}).ok()
        folder = running.serving.kubeconfig.parent / "backups" / made["name"]
        assert sorted(path.name for path in folder.iterdir()) == ["events.db", "state.db"]
        assert folder.stat().st_mode & 0o077 == 0
        assert folder.parent.stat().st_mode & 0o077 == 0
        assert (running.serving.kubeconfig.parent / "port").stat().st_mode & 0o077 == 0


class TestShedding:
    def test_what_is_too_much_is_refused_at_once(self) -> None:
        class Stopped:
            def now(self) -> int:
                return 0

            def monotonic(self) -> float:
                return 0.0

        shedder = LoadShedder(Stopped(), RequestLimits(in_flight_max=2, burst=5, rate_per_second=1, watches_max=3))
        with shedder.request("a"), shedder.request("a"):
            with pytest.raises(StatusError) as refused, shedder.request("a"):
                pass
            assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "1")
        with shedder.request("a"), shedder.request("a"):
            pass
        with pytest.raises(StatusError, match="this user"), shedder.request("a"):
            pass
        with shedder.request("b"):
            pass
        with contextlib.ExitStack() as open_streams:
            for user in (ADMIN, ADMIN, VIEWER):
                open_streams.enter_context(shedder.stream(WATCHES, user))
            with pytest.raises(StatusError, match="3 watches are open"):
                shedder.check_stream(WATCHES, ADMIN)
        shedder.check_stream(WATCHES, ADMIN)

    @pytest.mark.parametrize("sort", [WATCHES, LOG_STREAMS])
    def test_neither_one_user_nor_all_viewers_can_take_every_stream(self, sort: str) -> None:
        shedder, caps = LoadShedder(SystemClock()), RequestLimits()
        together, for_one, for_viewers = (
            (caps.watches_max, caps.watches_per_user_max, caps.watches_of_viewers_max)
            if sort == WATCHES
            else (caps.log_streams_max, caps.log_streams_per_user_max, caps.log_streams_of_viewers_max)
        )
        assert for_viewers < for_one < together
        with contextlib.ExitStack() as open_streams:
            for index in range(for_viewers):
                viewer = RequestUser(f"viewer-{index}", (VIEWERS,))
                shedder.check_stream(sort, viewer)
                open_streams.enter_context(shedder.stream(sort, viewer))
            with pytest.raises(StatusError, match="of the role view are open"):
                shedder.check_stream(sort, VIEWER)
            shedder.check_stream(sort, ADMIN)
        with contextlib.ExitStack() as open_streams:
            for _ in range(for_one):
                shedder.check_stream(sort, ADMIN)
                open_streams.enter_context(shedder.stream(sort, ADMIN))
            with pytest.raises(StatusError, match="of user 'admin' are open"):
                shedder.check_stream(sort, ADMIN)
            shedder.check_stream(sort, RequestUser("another"))

    def test_too_many_watches_get_429(self, tmp_path: Path) -> None:
        with Running(ServerSettings(data_dir=tmp_path), parts(caps=RequestLimits(watches_max=2))) as server:
            one = server.client()
            streams = [one.watch("/api/v1/namespaces", timeoutSeconds=90) for _ in range(2)]
            for stream in streams:
                assert next(stream)
            one.get("/api/v1/namespaces", watch="true").refused(429)
            one.get("/api/v1/namespaces").ok()

    def test_the_slot_of_a_watch_is_freed_when_its_client_disconnects(self, tmp_path: Path) -> None:
        """Nothing is written to the kind, so no write can reveal that the client disconnected."""
        with Running(ServerSettings(data_dir=tmp_path), parts(caps=RequestLimits(watches_max=2))) as server:
            one = server.client()
            responses = [one.send("GET", CONFIG_MAPS, watch="true", timeoutSeconds=3600) for _ in range(2)]
            one.get(CONFIG_MAPS, watch="true").refused(429)
            for response in responses:
                response.close()
            until(lambda: server.serving.embedded.registry.watches == 0)
            with contextlib.closing(one.send("GET", CONFIG_MAPS, watch="true", timeoutSeconds=1)) as again:
                assert again.status == 200


class TestStreams:
    def test_a_stalled_reader_is_disconnected_without_effect_on_others(
        self, running: Running, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from kubeserver.storage import watch

        monkeypatch.setattr(watch, "STALL_SECONDS", 0.3)
        response = client.send("GET", CONFIG_MAPS, watch="true", timeoutSeconds=60)
        # The buffers of both sockets take a few megabytes before a write blocks.
        large = {"x": "y" * 900_000}
        for index in range(12):
            client.post(CONFIG_MAPS, config_map(f"large-{index}", large)).ok()  # writers do not wait for readers
        until(lambda: not running.serving.embedded.registry.watches)
        response.close()


def test_no_log_holds_a_token(running: Running) -> None:
    """Error messages and logs never contain credentials."""
    token = running.serving.credentials.admin_token
    client = running.client()
    for path in (WIDGETS, "/nowhere", f"{WIDGETS}/{'x' * 300}"):
        assert token.encode() not in client.get(path).body
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False)
    assert token not in listed.stdout
