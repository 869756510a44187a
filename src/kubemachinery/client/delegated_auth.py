"""Delegated authentication and authorization: a server behind an API server leaves both to it.

    authorizer = DelegatedAuthorizer(client, clock, request_header)
    denial = await authorizer.denial(request, {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}})

A client is identified by a bearer token, which the API server checks by TokenReview; or the client is the API server
itself as a front proxy, which proves that with a certificate and names the user in headers. All others are anonymous.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.clock import Clock
from kubemachinery.http_messages import Handler, Request, Response
from kubemachinery.kinds import Kind, Scope, Version

log = logging.getLogger(__name__)

Tree = dict[str, Any]
V = TypeVar("V")


def _review(group: str, kind: str) -> Kind:
    return Kind(group, kind, f"{kind.lower()}s", (Version("v1", storage=True),), Scope.CLUSTER)


TOKEN_REVIEW: Final = _review("authentication.k8s.io", "TokenReview")
SUBJECT_ACCESS_REVIEW: Final = _review("authorization.k8s.io", "SubjectAccessReview")

# The ConfigMap in which an API server publishes how extension servers authenticate it.
CONFIG_MAP_NAMESPACE: Final = "kube-system"
CONFIG_MAP_NAME: Final = "extension-apiserver-authentication"

# How long reviews are cached: a permission that was revoked ends within seconds.
CACHE_SECONDS: Final = 10.0
# How long an invalid token is cached: guessed tokens cost the API server little, and a token that was just created
# is accepted soon.
INVALID_TOKEN_CACHE_SECONDS: Final = 5.0
_CACHE_MAX: Final = 1024


class UserInfo(msgspec.Struct, frozen=True):
    """A user, with the fields of TokenReview and SubjectAccessReview."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS: Final = UserInfo("system:anonymous", groups=("system:unauthenticated",))


class AccessDenial(msgspec.Struct, frozen=True):
    """Why a request is denied: 401 for an invalid token, 403 for a missing permission, 503 for a failed review."""

    code: int
    message: str


# --- Request headers of the front proxy -------------------------------------------------------------------------------


class RequestHeaderConfig(msgspec.Struct, frozen=True):
    """How the front proxy (the API server) authenticates, and in which headers it names the user."""

    # PEM. A client certificate of these authorities, with one of the names if any are given, is the front proxy.
    authorities: str = ""
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)
    # For a port that only this machine can reach, behind an API server without a client certificate.
    trusts_any_client: bool = False

    @classmethod
    def from_config_map(cls, data: Mapping[str, str]) -> RequestHeaderConfig:
        """Read the configuration from the data of the ConfigMap."""

        def values(name: str, default: tuple[str, ...]) -> tuple[str, ...]:
            try:
                found = msgspec.json.decode(data.get(f"requestheader-{name}", ""), type=tuple[str, ...])
            except msgspec.DecodeError:
                return default
            return found or default

        return cls(
            data.get("requestheader-client-ca-file", ""),
            values("allowed-names", ()),
            values("username-headers", cls().user_headers),
            values("uid-headers", cls().uid_headers),
            values("group-headers", cls().group_headers),
            values("extra-headers-prefix", cls().extra_prefixes),
        )

    def user_of(self, request: Request) -> UserInfo | None:
        """The user that the front proxy names; None when the request does not come from the front proxy."""
        name = next((value for header in self.user_headers for value in request.every(header) if value), "")
        if not name or not (self.trusts_any_client or self._is_front_proxy(request)):
            return None
        return UserInfo(
            name,
            next((value for header in self.uid_headers for value in request.every(header)), ""),
            tuple(value for header in self.group_headers for value in request.every(header)),
            tuple(self._extra(request)),
        )

    def _is_front_proxy(self, request: Request) -> bool:
        if not self.authorities or request.certificate is None:
            return False
        return not self.names or any(name in self.names for name in request.certificate.get("CN", ()))

    def _extra(self, request: Request) -> Iterator[tuple[str, tuple[str, ...]]]:
        for prefix in self.extra_prefixes:
            for header in request.headers:
                if header.startswith(prefix.lower()):
                    yield unquote(header.removeprefix(prefix.lower())), tuple(request.every(header))


# --- Reviews ----------------------------------------------------------------------------------------------------------


@dataclass
class _TtlCache(Generic[V]):
    """A cache with a time to live. When it is full, it is cleared."""

    clock: Clock
    seconds: float = CACHE_SECONDS
    kept: dict[Hashable, tuple[float, V]] = field(default_factory=dict)

    def find(self, key: Hashable) -> V | None:
        until, answer = self.kept.get(key, (0.0, None))
        return answer if until > self.clock.monotonic() else None

    def keep(self, key: Hashable, answer: V) -> V:
        if len(self.kept) >= _CACHE_MAX:
            self.kept.clear()
        self.kept[key] = (self.clock.monotonic() + self.seconds, answer)
        return answer


class DelegatedAuthorizer:
    """Authenticates and authorizes requests by reviews of the API server."""

    def __init__(self, client: ApiClient, clock: Clock, request_header: RequestHeaderConfig | None = None) -> None:
        self.client = client
        self.request_header = request_header or RequestHeaderConfig()
        self._users: _TtlCache[UserInfo] = _TtlCache(clock)
        self._invalid_tokens: _TtlCache[bool] = _TtlCache(clock, INVALID_TOKEN_CACHE_SECONDS)
        self._decisions: _TtlCache[bool] = _TtlCache(clock)

    async def denial(self, request: Request, attributes: Tree) -> AccessDenial | None:
        """Why the request is denied, or None; `attributes` are those of a SubjectAccessReview."""
        try:
            user = self.request_header.user_of(request) or await self._authenticate(
                request.headers.get("authorization", "")
            )
            if user is None:
                return AccessDenial(401, "invalid bearer token")
            allowed = await self._is_allowed(user, attributes)
        except KubeError as error:
            log.warning("authorization failed: the API server did not complete the review: %s", error)
            return AccessDenial(503, "the API server did not complete the review; try again")
        if allowed and user is not ANONYMOUS:
            request.identified()
        return None if allowed else AccessDenial(403, f"user {user.name} is not permitted to do this")

    async def _authenticate(self, authorization: str) -> UserInfo | None:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        key = hashlib.sha256(token.encode()).digest()  # short, and not secret
        known = self._users.find(key)
        if known is not None or self._invalid_tokens.find(key):
            return known
        answer = await self._review_status(TOKEN_REVIEW, {"token": token})
        named = answer.get("user") or {}
        if not answer.get("authenticated") or not named.get("username"):
            self._invalid_tokens.keep(key, True)
            return None
        extra = sorted((name, tuple(values)) for name, values in (named.get("extra") or {}).items())
        user = UserInfo(named["username"], named.get("uid", ""), tuple(named.get("groups") or ()), tuple(extra))
        return self._users.keep(key, user)

    async def _is_allowed(self, user: UserInfo, attributes: Tree) -> bool:
        key = (user, json.dumps(attributes, sort_keys=True))
        known = self._decisions.find(key)
        if known is not None:
            return known
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            **attributes,
        }
        return self._decisions.keep(key, bool((await self._review_status(SUBJECT_ACCESS_REVIEW, spec)).get("allowed")))

    async def _review_status(self, kind: Kind, spec: Tree) -> Tree:
        review = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
        answer: Tree = (await self.client.create(kind, review)).get("status") or {}
        return answer


def authorized(handler: Handler, authorizer: DelegatedAuthorizer) -> Handler:
    """The handler, for users who may `get` the path of the request."""

    async def answer(request: Request) -> Response:
        attributes = {"nonResourceAttributes": {"path": request.path, "verb": "get"}}
        denial = await authorizer.denial(request, attributes)
        if denial is None:
            return await handler(request)
        return Response(denial.code, denial.message.encode() + b"\n", "text/plain; charset=utf-8")

    return answer
