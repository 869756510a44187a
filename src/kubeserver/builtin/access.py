"""Roles and bindings: validated and stored; this server does not enforce them."""

from __future__ import annotations

from typing import Final

from kubemachinery import meta
from kubeserver.builtin.checks import Errors, Tree, invalid, named, not_supported, required

_GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def validate_role(new: Tree, _old: Tree | None, _subresource: str) -> Errors:
    for index, rule in enumerate(new.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "a rule allows something")
        if rule.get("nonResourceURLs"):
            continue
        for field in ("apiGroups", "resources"):
            if not rule.get(field):
                yield required(f"{path}.{field}", f"a rule about resources names {field}")


def validate_binding(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    role = new.get("roleRef", {})
    if old is not None and role != old.get("roleRef"):
        yield invalid("roleRef", role, "a binding stays with its role")
    if role.get("apiGroup") != _GROUP:
        yield not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (_GROUP,))
    kinds = ("ClusterRole",) if new.get("kind") == "ClusterRoleBinding" else ("Role", "ClusterRole")
    if role.get("kind") not in kinds:
        yield not_supported("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield required("roleRef.name")
    for index, subject in enumerate(new.get("subjects", ())):
        yield from _validate_subject(subject, f"subjects[{index}]")


def _validate_subject(subject: Tree, path: str) -> Errors:
    name, kind, group = (subject.get(field, "") for field in ("name", "kind", "apiGroup"))
    if not name:
        yield required(f"{path}.name")
    match kind:
        case "ServiceAccount":
            if name:
                yield from named(meta.check_subdomain_name, name, f"{path}.name")
            if group:
                yield not_supported(f"{path}.apiGroup", group, ("",))
            if not subject.get("namespace"):
                yield required(f"{path}.namespace")
        case "User" | "Group":
            if group != _GROUP:
                yield not_supported(f"{path}.apiGroup", group, (_GROUP,))
        case _:
            yield not_supported(f"{path}.kind", kind, _SUBJECTS)
