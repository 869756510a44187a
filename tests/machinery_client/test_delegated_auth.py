"""Delegated authentication and authorization, with a stand-in for the API server that completes the reviews."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kubemachinery.client.client import ApiClient
from kubemachinery.client.delegated_auth import (
    CACHE_SECONDS,
    INVALID_TOKEN_CACHE_SECONDS,
    AccessDenial,
    DelegatedAuthorizer,
    RequestHeaderConfig,
    authorized,
)
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.http_messages import Request, Response

Tree = dict[str, Any]

METRICS = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
PROVEN = {"CN": ["front"], "O": []}
REQUEST_HEADER = RequestHeaderConfig.from_config_map(
    {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
)


class HandClock:
    seconds = 0.0

    def now(self) -> int:
        return int(self.seconds * 1e9)

    def monotonic(self) -> float:
        return self.seconds


class ApiServer:
    """Accepts one token, allows `ada` and the group `ops` everything, and records the reviews."""

    def __init__(self) -> None:
        self.asked: list[Tree] = []
        self.is_up = True

    async def answer(self, request: Request) -> Response:
        if not self.is_up:
            return Response(500, b"{}")
        review = msgspec.json.decode(await request.read(1_000_000))
        spec = review["spec"]
        self.asked.append(spec)
        if review["kind"] == "TokenReview":
            known = spec["token"] == "secret"
            review["status"] = {"authenticated": known, "user": {"username": "ada", "groups": ["dev"]} if known else {}}
        else:
            review["status"] = {"allowed": spec["user"] == "ada" or "ops" in spec["groups"]}
        return Response(201, msgspec.json.encode(review))


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def authorizer(server: ApiServer, clock: HandClock, front: RequestHeaderConfig | None = None) -> DelegatedAuthorizer:
    return DelegatedAuthorizer(ApiClient(LocalTransport(server.answer), random.Random(1)), clock, front)


def request(certificate: Any = None, **headers: str | list[str]) -> Request:
    lines = [
        (name.replace("_", "-"), value)
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return Request(
        "GET", "/metrics", headers={name.lower(): value for name, value in lines}, lines=lines, certificate=certificate
    )


class TestTokens:
    async def test_valid_token_is_allowed_by_the_permissions_of_its_user(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        assert await authorizer(server, clock).denial(request(Authorization="Bearer secret"), METRICS) is None
        assert server.asked[1]["user"] == "ada"
        assert server.asked[1]["groups"] == ["dev"]
        assert server.asked[1]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}

    async def test_invalid_token_is_denied(self, server: ApiServer, clock: HandClock) -> None:
        refusal = await authorizer(server, clock).denial(request(Authorization="Bearer guess"), METRICS)
        assert refusal is not None
        assert refusal.code == 401

    async def test_request_without_a_token_is_anonymous(self, server: ApiServer, clock: HandClock) -> None:
        refusal = await authorizer(server, clock).denial(request(), METRICS)
        assert refusal == AccessDenial(403, "user system:anonymous is not permitted to do this")
        assert server.asked[0]["groups"] == ["system:unauthenticated"]

    async def test_reviews_are_cached_for_seconds(self, server: ApiServer, clock: HandClock) -> None:
        at = authorizer(server, clock)
        for _ in range(3):
            await at.denial(request(Authorization="Bearer secret"), METRICS)
        assert len(server.asked) == 2
        clock.seconds += CACHE_SECONDS + 1
        await at.denial(request(Authorization="Bearer secret"), METRICS)
        assert len(server.asked) == 4

    async def test_invalid_tokens_are_cached(self, server: ApiServer, clock: HandClock) -> None:
        at = authorizer(server, clock)
        for _ in range(3):
            refusal = await at.denial(request(Authorization="Bearer guess"), METRICS)
            assert refusal is not None
            assert refusal.code == 401
        assert len(server.asked) == 1
        clock.seconds += INVALID_TOKEN_CACHE_SECONDS + 1  # it may be a good one by now
        await at.denial(request(Authorization="Bearer guess"), METRICS)
        assert len(server.asked) == 2
        for number in range(5_000):  # guesses neither grow the cache without bound nor evict valid users
            await at.denial(request(Authorization="Bearer secret"), METRICS)
            await at.denial(request(Authorization=f"Bearer guess-{number}"), METRICS)
        assert len(at._invalid_tokens.kept) <= 1024
        assert sum(asked.get("token") == "secret" for asked in server.asked) == 1

    async def test_requests_are_denied_while_reviews_fail(self, server: ApiServer, clock: HandClock) -> None:
        server.is_up = False
        refusal = await authorizer(server, clock).denial(request(Authorization="Bearer secret"), METRICS)
        assert refusal is not None
        assert refusal.code == 503


class TestRequestHeaders:
    async def test_front_proxy_names_the_user_in_headers(self, server: ApiServer, clock: HandClock) -> None:
        asked = request(PROVEN, X_Remote_User="eve", X_Remote_Group=["dev", "ops"], X_Remote_Extra_Scopes="a")
        assert await authorizer(server, clock, REQUEST_HEADER).denial(asked, METRICS) is None
        assert server.asked[0]["user"] == "eve"
        assert server.asked[0]["extra"] == {"scopes": ["a"]}

    async def test_comma_in_a_group_name_does_not_split_it(self, server: ApiServer, clock: HandClock) -> None:
        asked = request(PROVEN, X_Remote_User="eve", X_Remote_Group="dev, ops")
        refusal = await authorizer(server, clock, REQUEST_HEADER).denial(asked, METRICS)
        assert refusal is not None
        assert refusal.code == 403
        assert server.asked[0]["groups"] == ["dev, ops"]

    @pytest.mark.parametrize("certificate", [None, {"CN": ["somebody"]}], ids=["none", "of another name"])
    async def test_user_headers_of_other_clients_are_ignored(
        self, server: ApiServer, clock: HandClock, certificate: Any
    ) -> None:
        asked = request(certificate, X_Remote_User="ada")
        refusal = await authorizer(server, clock, REQUEST_HEADER).denial(asked, METRICS)
        assert refusal == AccessDenial(403, "user system:anonymous is not permitted to do this")

    async def test_user_headers_are_ignored_without_a_request_header_ca(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        asked = request(PROVEN, X_Remote_User="ada")
        refusal = await authorizer(server, clock, RequestHeaderConfig.from_config_map({})).denial(asked, METRICS)
        assert refusal is not None
        assert refusal.code == 403


async def test_authorized_handler_requires_permission(server: ApiServer, clock: HandClock) -> None:
    async def figures(request: Request) -> Response:
        return Response(200, b"figures")

    handler = authorized(figures, authorizer(server, clock))
    assert (await handler(request(Authorization="Bearer secret"))).body == b"figures"
    assert (await handler(request())).status == 403
