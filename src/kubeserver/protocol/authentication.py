"""Authentication by token or client certificate, and authorization by two roles.

There is no anonymous access beyond health and version. An authenticated user is an administrator unless it is in
the group of viewers; RBAC objects are stored and not enforced (`registry.unsupported`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kubemachinery import status
from kubemachinery.http_messages import Request

ADMINISTRATORS: Final = "system:masters"
VIEWERS: Final = "embedded:view"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS: Final = "system:anonymous"

READING: Final = frozenset({"get", "list", "watch"})
# A viewer that could read these would gain the permissions of other users.
_SECRET: Final = frozenset({("", "secrets")})
_REVIEWS: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
_OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/version"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class RequestUser(msgspec.Struct, frozen=True):
    """An authenticated user; the groups decide what is permitted."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def is_viewer(self) -> bool:
        return VIEWERS in self.groups and ADMINISTRATORS not in self.groups

    @property
    def is_anonymous(self) -> bool:
        """Whether this is the anonymous user. Authentication never returns it, but access reviews may name it."""
        return self.name == ANONYMOUS or UNAUTHENTICATED in self.groups


ADMIN: Final = RequestUser("admin", (ADMINISTRATORS, AUTHENTICATED))
VIEWER: Final = RequestUser("view", (VIEWERS, AUTHENTICATED))
# The server's own controllers: garbage collector, namespace controller.
SYSTEM: Final = RequestUser("system:embedded", (ADMINISTRATORS, AUTHENTICATED))


class Authenticator:
    """The users with tokens, and the host names by which the server may be addressed."""

    def __init__(self, tokens: Mapping[str, RequestUser], hosts: Iterable[str] = ()) -> None:
        # Only digests are kept, so that a memory dump or a log line cannot leak a token.
        self._tokens = [(_digest(token), user) for token, user in tokens.items()]
        self._hosts = _LOOPBACK_NAMES | {host.lower() for host in hosts}

    def check_host(self, request: Request) -> None:
        """Refuse other Host headers: a web page can make a browser send requests here, but not with the right one."""
        host = request.headers.get("host", "")
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        if name.lower() not in self._hosts:
            raise status.StatusError(403, "Forbidden", f"this server is not called {name[:100]!r}")

    def holder(self, token: str) -> RequestUser | None:
        """Return the user of a token; None for an invalid one."""
        given, found = _digest(token), None
        for digest, user in self._tokens:
            # All digests are compared, each in constant time, so that the duration reveals nothing.
            if hmac.compare_digest(digest, given):
                found = user
        return found

    def authenticate(self, request: Request) -> RequestUser:
        """Return the user of a request; raise 401 without valid credentials, and 403 for impersonation.

        As in kube-apiserver the certificate is regarded first, and the token only without one that names a user: a
        kubeconfig may have both, and its token be of another server.
        """
        if any(name.startswith("impersonate-") for name in request.headers):
            raise status.StatusError(403, "Forbidden", "impersonation is not supported by this server")
        name = (request.certificate.get("CN") or [""])[0] if request.certificate is not None else ""
        if request.certificate is not None and name:
            return RequestUser(name, (*request.certificate.get("O", ()), AUTHENTICATED))
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            found = self.holder(token.strip())
            if found is not None:
                return found
        raise status.unauthorized()


def is_open(path: str) -> bool:
    """Whether a path is served without authentication."""
    return (path.rstrip("/") or "/") in _OPEN_PATHS


def allows(user: RequestUser, verb: str, group: str, plural: str) -> bool:
    """Whether a user may do this; `*` asks for all verbs, groups or resources at once."""
    if user.is_anonymous:
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
