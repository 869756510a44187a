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

from pykueue.apiserver import status
from pykueue.apiserver.strategy import Tree
from pykueue.serving import Request

ADMINISTRATORS: Final = "system:masters"
VIEWERS: Final = "embedded:view"
AUTHENTICATED: Final = "system:authenticated"

_READING: Final = frozenset({"get", "list", "watch"})
# Reading these would give a viewer somebody else's rights.
_SECRET: Final = frozenset({("", "secrets")})
_REVIEWS: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
_OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/version"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class User:
    """Somebody, with the groups that decide what they may do."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def is_viewer(self) -> bool:
        return VIEWERS in self.groups and ADMINISTRATORS not in self.groups


ADMIN: Final = User("admin", (ADMINISTRATORS, AUTHENTICATED))
VIEWER: Final = User("view", (VIEWERS, AUTHENTICATED))
# The server's own hands: the collector, the namespace controller.
SYSTEM: Final = User("system:embedded", (ADMINISTRATORS, AUTHENTICATED))


class Access:
    """The identities that this server knows, and the names under which it may be addressed."""

    def __init__(self, tokens: Mapping[str, User], hosts: Iterable[str] = ()) -> None:
        # Only digests are kept: a token cannot leak from a memory dump or a log line that never had it.
        self._tokens = [(_digest(token), user) for token, user in tokens.items()]
        self._hosts = _LOOPBACK_NAMES | {host.lower() for host in hosts}

    def check_host(self, request: Request) -> None:
        """A page on the web can make a browser send requests here, but not with our name in the Host header."""
        host = request.headers.get("host", "")
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        if name.lower() not in self._hosts:
            raise status.StatusError(403, "Forbidden", f"this server is not called {name[:100]!r}")

    def holder(self, token: str) -> User | None:
        """Whose token this is."""
        given, found = _digest(token), None
        for digest, user in self._tokens:
            # All are compared, in constant time each: how long it takes says nothing.
            if hmac.compare_digest(digest, given):
                found = user
        return found

    def authenticate(self, request: Request) -> User:
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
            return User(name, (*request.certificate.get("O", ()), AUTHENTICATED))
        raise status.unauthorized()


def is_open(path: str) -> bool:
    """Whether a path is for everybody."""
    return (path.rstrip("/") or "/") in _OPEN_PATHS


def allows(user: User, verb: str, group: str, plural: str) -> bool:
    if not user.is_viewer:
        return True
    if verb == "create" and group in ("authorization.k8s.io", "authentication.k8s.io") and plural in _REVIEWS:
        return True
    return verb in _READING and (group, plural) not in _SECRET


def check(user: User, verb: str, group: str, plural: str, name: str) -> None:
    if not allows(user, verb, group, plural):
        raise status.forbidden(
            group, plural, name, f'User "{user.name}" cannot {verb} resource "{plural}" in API group "{group}"'
        )


# --- Reviews ----------------------------------------------------------------------------------------------------------


def review(door: Access, user: User, kind: str, tree: Tree) -> Tree:
    """The answer to a question about access; `kind` says which question it is. The answer is never stored."""
    spec = tree.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    match kind:
        case "SelfSubjectAccessReview":
            found = _may(user, spec)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            groups = spec.get("groups")
            asked_of = tuple(str(group) for group in groups) if isinstance(groups, list) else ()
            found = _may(User(str(spec.get("user") or ""), asked_of), spec)
        case "SelfSubjectReview":
            found = {"userInfo": _info(user)}
        case "SelfSubjectRulesReview":
            found = _rules(user)
        case "TokenReview":
            known = door.holder(str(spec.get("token") or ""))
            found = {"authenticated": True, "user": _info(known)} if known else {"authenticated": False}
        case _:
            raise status.method_not_allowed("POST", kind)
    return {**tree, "status": found}


def _may(user: User, spec: Tree) -> Tree:
    asked = spec.get("resourceAttributes")
    if isinstance(asked, dict):
        verb, group, plural = (str(asked.get(key) or "") for key in ("verb", "group", "resource"))
        allowed = allows(user, verb, group, plural)
    else:
        other = spec.get("nonResourceAttributes")
        verb = str(other.get("verb") or "get") if isinstance(other, dict) else "get"
        allowed = not user.is_viewer or verb == "get"
    reason = "embedded: authorization off" if not user.is_viewer else "embedded: the role view may get, list and watch"
    return {"allowed": allowed, "reason": reason}


def _info(user: User) -> Tree:
    return {"username": user.name, "groups": list(user.groups)}


def _rules(user: User) -> Tree:
    verbs = sorted(_READING) if user.is_viewer else ["*"]
    paths = ["get"] if user.is_viewer else ["*"]
    return {
        "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": paths, "nonResourceURLs": ["*"]}],
        # There is no way to say "all but Secrets" in these rules.
        "incomplete": user.is_viewer,
    }


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
