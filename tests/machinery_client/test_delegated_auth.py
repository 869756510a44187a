"""Who asks, and may they: told by a stand-in for the API server that is asked about both."""

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
from kubemachinery.client.transport import LocalTransport
from kubemachinery.http_server import Request, Response

Tree = dict[str, Any]

METRICS = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
PROVEN = {"CN": ["front"], "O": []}
FRONT = RequestHeaderConfig.from_config_map(
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
    """Knows one token, lets `ada` and the group `ops` do everything, and remembers what it was asked."""

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


def door(server: ApiServer, clock: HandClock, front: RequestHeaderConfig | None = None) -> DelegatedAuthorizer:
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
    async def test_a_known_token_passes_if_its_user_may(self, server: ApiServer, clock: HandClock) -> None:
        assert await door(server, clock).denial(request(Authorization="Bearer secret"), METRICS) is None
        assert server.asked[1]["user"] == "ada"
        assert server.asked[1]["groups"] == ["dev"]
        assert server.asked[1]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}

    async def test_an_unknown_token_is_nobodys(self, server: ApiServer, clock: HandClock) -> None:
        refusal = await door(server, clock).denial(request(Authorization="Bearer guess"), METRICS)
        assert refusal is not None
        assert refusal.code == 401

    async def test_without_a_token_one_is_anonymous_and_may_what_anonymous_people_may(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        refusal = await door(server, clock).denial(request(), METRICS)
        assert refusal == AccessDenial(403, "system:anonymous may not do this")
        assert server.asked[0]["groups"] == ["system:unauthenticated"]

    async def test_answers_are_believed_for_seconds_only(self, server: ApiServer, clock: HandClock) -> None:
        at = door(server, clock)
        for _ in range(3):
            await at.denial(request(Authorization="Bearer secret"), METRICS)
        assert len(server.asked) == 2
        clock.seconds += CACHE_SECONDS + 1
        await at.denial(request(Authorization="Bearer secret"), METRICS)
        assert len(server.asked) == 4

    async def test_whoever_guesses_again_and_again_is_not_asked_about_each_time(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        at = door(server, clock)
        for _ in range(3):
            refusal = await at.denial(request(Authorization="Bearer guess"), METRICS)
            assert refusal is not None
            assert refusal.code == 401
        assert len(server.asked) == 1
        clock.seconds += INVALID_TOKEN_CACHE_SECONDS + 1  # it may be a good one by now
        await at.denial(request(Authorization="Bearer guess"), METRICS)
        assert len(server.asked) == 2
        for number in range(5_000):  # no guess makes the memory grow without end, nor forgets who is known
            await at.denial(request(Authorization="Bearer secret"), METRICS)
            await at.denial(request(Authorization=f"Bearer guess-{number}"), METRICS)
        assert len(at._invalid_tokens.kept) <= 1024
        assert sum(asked.get("token") == "secret" for asked in server.asked) == 1

    async def test_nobody_passes_while_the_api_server_cannot_be_asked(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        server.is_up = False
        refusal = await door(server, clock).denial(request(Authorization="Bearer secret"), METRICS)
        assert refusal is not None
        assert refusal.code == 503


class TestFront:
    async def test_the_proven_api_server_asks_for_others(self, server: ApiServer, clock: HandClock) -> None:
        asked = request(PROVEN, X_Remote_User="eve", X_Remote_Group=["dev", "ops"], X_Remote_Extra_Scopes="a")
        assert await door(server, clock, FRONT).denial(asked, METRICS) is None
        assert server.asked[0]["user"] == "eve"
        assert server.asked[0]["extra"] == {"scopes": ["a"]}

    async def test_a_comma_in_the_name_of_a_group_makes_no_second_group(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        asked = request(PROVEN, X_Remote_User="eve", X_Remote_Group="dev, ops")
        refusal = await door(server, clock, FRONT).denial(asked, METRICS)
        assert refusal is not None
        assert refusal.code == 403
        assert server.asked[0]["groups"] == ["dev, ops"]

    @pytest.mark.parametrize("certificate", [None, {"CN": ["somebody"]}], ids=["none", "of another name"])
    async def test_whoever_else_names_a_user_is_not_believed(
        self, server: ApiServer, clock: HandClock, certificate: Any
    ) -> None:
        asked = request(certificate, X_Remote_User="ada")
        refusal = await door(server, clock, FRONT).denial(asked, METRICS)
        assert refusal == AccessDenial(403, "system:anonymous may not do this")

    async def test_an_api_server_that_tells_of_no_authority_is_not_believed(
        self, server: ApiServer, clock: HandClock
    ) -> None:
        asked = request(PROVEN, X_Remote_User="ada")
        refusal = await door(server, clock, RequestHeaderConfig.from_config_map({})).denial(asked, METRICS)
        assert refusal is not None
        assert refusal.code == 403


async def test_behind_a_guard_only_those_who_may_are_answered(server: ApiServer, clock: HandClock) -> None:
    async def figures(request: Request) -> Response:
        return Response(200, b"figures")

    handler = authorized(figures, door(server, clock))
    assert (await handler(request(Authorization="Bearer secret"))).body == b"figures"
    assert (await handler(request())).status == 403
