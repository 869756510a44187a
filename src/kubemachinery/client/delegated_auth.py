"""Who asks, and may they? A program behind an API server leaves both questions to it.

    authorizer = Door(client, front, clock)
    refusal = await authorizer.denial(request, {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}})

A caller is known by a token, which the API server is asked about; or it is the API server itself, which proves that
with a certificate and says in headers for whom it asks. Everybody else is nobody in particular.
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
from kubemachinery.http_server import Handler, Request, Response
from kubemachinery.kinds import Kind, Scope, Version

log = logging.getLogger(__name__)

Tree = dict[str, Any]
V = TypeVar("V")


def _review(group: str, kind: str) -> Kind:
    return Kind(group, kind, f"{kind.lower()}s", (Version("v1", storage=True),), Scope.CLUSTER)


TOKEN_REVIEW: Final = _review("authentication.k8s.io", "TokenReview")
SUBJECT_ACCESS_REVIEW: Final = _review("authorization.k8s.io", "SubjectAccessReview")

# Where an API server says how it is recognised by the programs behind it.
CONFIG_MAP_NAMESPACE: Final = "kube-system"
CONFIG_MAP_NAME: Final = "extension-apiserver-authentication"

# What the API server said is believed for this long: a right that was taken away ends within seconds.
CACHE_SECONDS: Final = 10.0
# And that nobody is known by a token for this long: whoever guesses costs the API server little, and a token that was
# just made is soon good.
INVALID_TOKEN_CACHE_SECONDS: Final = 5.0
_REMEMBERED_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Somebody, as reviews name them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS: Final = UserInfo("system:anonymous", groups=("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class AccessDenial:
    """Why somebody is turned away; 401 for whom we do not know, 403 for who may not."""

    code: int
    message: str


# --- The API server in front ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestHeaderConfig:
    """How the API server in front proves itself, and in which headers it says for whom it asks."""

    # PEM; whoever has a certificate of these authorities, and one of the names where any are given, is the API server.
    authorities: str = ""
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)
    # For a port that only this machine can reach, behind an API server that has no certificate to prove itself with.
    trusts_any_client: bool = False

    @classmethod
    def from_config_map(cls, data: Mapping[str, str]) -> RequestHeaderConfig:
        """Read it from the ConfigMap in which API servers keep it."""

        def words(name: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
            try:
                found = msgspec.json.decode(data.get(f"requestheader-{name}", ""), type=tuple[str, ...])
            except msgspec.DecodeError:
                return otherwise
            return found or otherwise

        return cls(
            data.get("requestheader-client-ca-file", ""),
            words("allowed-names", ()),
            words("username-headers", cls().user_headers),
            words("uid-headers", cls().uid_headers),
            words("group-headers", cls().group_headers),
            words("extra-headers-prefix", cls().extra_prefixes),
        )

    def user_of(self, request: Request) -> UserInfo | None:
        """For whom the API server asks; None where it is not the API server that asks."""
        name = next((value for header in self.user_headers for value in request.every(header) if value), "")
        if not name or not (self.trusts_any_client or self._is_proven(request)):
            return None
        return UserInfo(
            name,
            next((value for header in self.uid_headers for value in request.every(header)), ""),
            tuple(value for header in self.group_headers for value in request.every(header)),
            tuple(self._extra(request)),
        )

    def _is_proven(self, request: Request) -> bool:
        if not self.authorities or request.certificate is None:
            return False
        return not self.names or any(name in self.names for name in request.certificate.get("CN", ()))

    def _extra(self, request: Request) -> Iterator[tuple[str, tuple[str, ...]]]:
        for prefix in self.extra_prefixes:
            for header in request.headers:
                if header.startswith(prefix.lower()):
                    yield unquote(header.removeprefix(prefix.lower())), tuple(request.every(header))


# --- Asking it --------------------------------------------------------------------------------------------------------


@dataclass
class _TtlCache(Generic[V]):
    """Answers for a while. When there are too many, all are asked for anew."""

    clock: Clock
    seconds: float = CACHE_SECONDS
    kept: dict[Hashable, tuple[float, V]] = field(default_factory=dict)

    def find(self, key: Hashable) -> V | None:
        until, answer = self.kept.get(key, (0.0, None))
        return answer if until > self.clock.monotonic() else None

    def keep(self, key: Hashable, answer: V) -> V:
        if len(self.kept) >= _REMEMBERED_MAX:
            self.kept.clear()
        self.kept[key] = (self.clock.monotonic() + self.seconds, answer)
        return answer


class DelegatedAuthorizer:
    """Lets a request pass, or says why not."""

    def __init__(self, client: ApiClient, clock: Clock, request_header: RequestHeaderConfig | None = None) -> None:
        self.client = client
        self.request_header = request_header or RequestHeaderConfig()
        self._users: _TtlCache[UserInfo] = _TtlCache(clock)
        self._invalid_tokens: _TtlCache[bool] = _TtlCache(clock, INVALID_TOKEN_CACHE_SECONDS)
        self._decisions: _TtlCache[bool] = _TtlCache(clock)

    async def denial(self, request: Request, attributes: Tree) -> AccessDenial | None:
        """Why the request may not pass; `attributes` is what it wants, in the words of a SubjectAccessReview."""
        try:
            user = self.request_header.user_of(request) or await self._authenticate(
                request.headers.get("authorization", "")
            )
            if user is None:
                return AccessDenial(401, "nobody is known by this token")
            allowed = await self._is_allowed(user, attributes)
        except KubeError as error:
            log.warning("the API server could not be asked who may pass: %s", error)
            return AccessDenial(503, "the API server could not be asked; try again")
        if allowed and user is not ANONYMOUS:
            request.identified()
        return None if allowed else AccessDenial(403, f"{user.name} may not do this")

    async def _authenticate(self, authorization: str) -> UserInfo | None:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        key = hashlib.sha256(token.encode()).digest()  # as short for a long token, and no secret
        known = self._users.find(key)
        if known is not None or self._invalid_tokens.find(key):
            return known
        answer = await self._review_status(TOKEN_REVIEW, {"token": token})
        said = answer.get("user") or {}
        if not answer.get("authenticated") or not said.get("username"):
            self._invalid_tokens.keep(key, True)
            return None
        extra = sorted((name, tuple(values)) for name, values in (said.get("extra") or {}).items())
        user = UserInfo(said["username"], said.get("uid", ""), tuple(said.get("groups") or ()), tuple(extra))
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
    """The same handler for those who may `get` its paths."""

    async def answer(request: Request) -> Response:
        wanted = {"nonResourceAttributes": {"path": request.path, "verb": "get"}}
        refusal = await authorizer.denial(request, wanted)
        if refusal is None:
            return await handler(request)
        return Response(refusal.code, refusal.message.encode() + b"\n", "text/plain; charset=utf-8")

    return answer
