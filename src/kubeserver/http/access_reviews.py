"""Access reviews, answered and never stored: TokenReview, SubjectAccessReview and the reviews of oneself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kubemachinery import status
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.protocol import authentication
from kubeserver.protocol.authentication import Authenticator, RequestUser
from kubeserver.registry.strategy import Tree

_GROUP = "authorization.k8s.io"


def review(
    authenticator: Authenticator, user: RequestUser, kind: str, tree: Tree, served: Mapping[str, Iterable[str]]
) -> Tree:
    """Return a review with its status; `kind` is that of the review.

    `served` are the resources of every group, subresources among them (`pods/status`).
    """
    spec = tree.get("spec") or {}
    match kind:
        case "SelfSubjectAccessReview":
            _refuse(_attribute_errors(spec))
            found = _may(user, spec)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            _refuse((*_attribute_errors(spec), *_subject_errors(spec)))
            found = _may(RequestUser(spec.get("user") or "", tuple(spec.get("groups") or ())), spec)
        case "SelfSubjectReview":
            found = {"userInfo": _info(user)}
        case "SelfSubjectRulesReview":
            if not spec.get("namespace"):
                raise status.bad_request("the namespace that is asked about is missing")
            found = _rules(user, served)
        case "TokenReview":
            found = _holder(authenticator, spec)
        case _:
            raise status.method_not_allowed("POST", kind)
    return {**tree, "status": found}


def _refuse(errors: Iterable[FieldError]) -> None:
    """Raise 422 without a kind, as kube-apiserver does."""
    found = list(errors)
    if found:
        raise status.invalid(_GROUP, "", "", found)


def _attribute_errors(spec: Tree) -> Iterator[FieldError]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is None and other is None:
        why = "either this or nonResourceAttributes must be there"
        yield FieldError("spec.resourceAttributes", ErrorType.INVALID, why, None)
    if resource is not None and other is not None:
        why = "cannot be there together with resourceAttributes"
        yield FieldError("spec.nonResourceAttributes", ErrorType.INVALID, why, other)


def _subject_errors(spec: Tree) -> Iterator[FieldError]:
    if not spec.get("user") and not spec.get("groups"):
        yield FieldError("spec.user", ErrorType.INVALID, "a user or a group must be named", "")


def _holder(authenticator: Authenticator, spec: Tree) -> Tree:
    token = spec.get("token") or ""
    if not token:
        raise status.bad_request("a token to look at is missing")
    known = authenticator.holder(token)
    if known is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _info(known)}


def _may(user: RequestUser, spec: Tree) -> Tree:
    asked = spec.get("resourceAttributes")
    if isinstance(asked, dict):
        verb, group, plural = (str(asked.get(key) or "") for key in ("verb", "group", "resource"))
        allowed = authentication.allows(user, verb, group, plural)
    else:
        other = spec.get("nonResourceAttributes")
        verb, path = (str(other.get(key) or "") for key in ("verb", "path")) if isinstance(other, dict) else ("", "")
        may_look = authentication.is_open(path) if user.is_anonymous else True
        allowed = verb == "get" and may_look if user.is_viewer or user.is_anonymous else True
    return {"allowed": allowed, "reason": _reason(user)}


def _reason(user: RequestUser) -> str:
    if user.is_anonymous:
        return "embedded: anonymous requests are not permitted"
    if user.is_viewer:
        return "embedded: the role view may get, list and watch all but Secrets"
    return "embedded: authorization off"


def _info(user: RequestUser) -> Tree:
    return {"username": user.name, "groups": list(user.groups)}


def _rules(user: RequestUser, served: Mapping[str, Iterable[str]]) -> Tree:
    if not user.is_viewer:
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        return {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}
    verbs = sorted(authentication.READING)
    # These rules cannot express "all but Secrets", so what may be read is listed.
    rules = [
        {"verbs": verbs, "apiGroups": [group], "resources": readable}
        for group, names in sorted(served.items())
        if (
            readable := sorted(
                name for name in names if authentication.allows(user, "get", group, name.partition("/")[0])
            )
        )
    ]
    paths = {"verbs": ["get"], "nonResourceURLs": ["*"]}
    return {"resourceRules": rules, "nonResourceRules": [paths], "incomplete": False}
