"""Who is asking, and what they may: a token or a client certificate, and two roles.

There is no anonymous access beyond health and version. An authenticated user is an administrator unless the identity
says `view`; RBAC objects can be stored, but nobody asks them here (`limits` says so).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kubemachinery import status
from kubemachinery.http_server import Request

ADMINISTRATORS: Final = "system:masters"
VIEWERS: Final = "embedded:view"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS: Final = "system:anonymous"

READING: Final = frozenset({"get", "list", "watch"})
# Reading these would give a viewer somebody else's rights.
_SECRET: Final = frozenset({("", "secrets")})
_REVIEWS: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
_OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/version"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class RequestUser:
    """Somebody, with the groups that decide what they may do."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def is_viewer(self) -> bool:
        return VIEWERS in self.groups and ADMINISTRATORS not in self.groups

    @property
    def is_nobody(self) -> bool:
        """Such a user never comes through the door, but it can be asked about."""
        return self.name == ANONYMOUS or UNAUTHENTICATED in self.groups


ADMIN: Final = RequestUser("admin", (ADMINISTRATORS, AUTHENTICATED))
VIEWER: Final = RequestUser("view", (VIEWERS, AUTHENTICATED))
# The server's own hands: the collector, the namespace controller.
SYSTEM: Final = RequestUser("system:embedded", (ADMINISTRATORS, AUTHENTICATED))


class Authenticator:
    """The identities that this server knows, and the names under which it may be addressed."""

    def __init__(self, tokens: Mapping[str, RequestUser], hosts: Iterable[str] = ()) -> None:
        # Only digests are kept: a token cannot leak from a memory dump or a log line that never had it.
        self._tokens = [(_digest(token), user) for token, user in tokens.items()]
        self._hosts = _LOOPBACK_NAMES | {host.lower() for host in hosts}

    def check_host(self, request: Request) -> None:
        """A page on the web can make a browser send requests here, but not with our name in the Host header."""
        host = request.headers.get("host", "")
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        if name.lower() not in self._hosts:
            raise status.StatusError(403, "Forbidden", f"this server is not called {name[:100]!r}")

    def holder(self, token: str) -> RequestUser | None:
        """Whose token this is."""
        given, found = _digest(token), None
        for digest, user in self._tokens:
            # All are compared, in constant time each: how long it takes says nothing.
            if hmac.compare_digest(digest, given):
                found = user
        return found

    def authenticate(self, request: Request) -> RequestUser:
        """Who is asking; raises 401 where nobody can tell, and 403 for somebody who wants to be somebody else."""
        if any(name.startswith("impersonate-") for name in request.headers):
            raise status.StatusError(403, "Forbidden", "impersonation is not supported by this server")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            found = self.holder(token.strip())
            if found is not None:
                return found
            raise status.unauthorized()
        if request.certificate is not None:
            name = (request.certificate.get("CN") or [""])[0]
            return RequestUser(name, (*request.certificate.get("O", ()), AUTHENTICATED))
        raise status.unauthorized()


def is_open(path: str) -> bool:
    """Whether a path is for everybody."""
    return (path.rstrip("/") or "/") in _OPEN_PATHS


def allows(user: RequestUser, verb: str, group: str, plural: str) -> bool:
    """Whether a user may do this; `*` asks for all verbs, groups or resources at once."""
    if user.is_nobody:
        return False
    if not user.is_viewer:
        return True
    if verb == "create" and group in ("authorization.k8s.io", "authentication.k8s.io") and plural in _REVIEWS:
        return True
    hidden = any(group in (of, "*") and plural in (secret, "*") for of, secret in _SECRET)
    return verb in READING and not hidden


def check(user: RequestUser, verb: str, group: str, plural: str, name: str) -> None:
    if not allows(user, verb, group, plural):
        raise status.forbidden(
            group, plural, name, f'User "{user.name}" cannot {verb} resource "{plural}" in API group "{group}"'
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
