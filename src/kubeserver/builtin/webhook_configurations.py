"""Webhook configurations: defaults and validation of rules, addresses and timeouts."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from kubemachinery import meta, selectors
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, invalid, not_supported, required

_OPERATIONS: Final = ("*", "CREATE", "UPDATE", "DELETE", "CONNECT")
_SECONDS_MAX: Final = 30
_REVIEWS: Final = ("v1", "v1beta1")


def validate(new: Tree, _old: Tree | None, _subresource: str) -> Errors:
    kind = new.get("kind", "")
    yield from checks.enums(f"admissionregistration.v1.{kind}", new)
    seen: set[str] = set()
    for index, hook in enumerate(new.get("webhooks", ())):
        path = f"webhooks[{index}]"
        name = hook.get("name", "")
        if not name:
            yield required(f"{path}.name")
        elif name.count(".") < 2 or meta.check_subdomain_name(name):
            yield invalid(f"{path}.name", name, "must be a domain of three parts or more")
        if name in seen:
            yield checks.duplicate(f"{path}.name", name)
        seen.add(name)
        yield from _validate_hook(hook, path)


def _validate_hook(hook: Tree, path: str) -> Errors:
    versions = hook.get("admissionReviewVersions") or ()
    if not versions:
        yield required(f"{path}.admissionReviewVersions", "v1 or v1beta1")
    for index, version in enumerate(versions):
        place = f"{path}.admissionReviewVersions[{index}]"
        yield from checks.named(meta.check_label_1035_name, version, place)
        if version in versions[:index]:
            yield invalid(place, version, "stands there twice")
    if versions and not set(versions) & set(_REVIEWS):
        yield invalid(f"{path}.admissionReviewVersions", versions, "v1 or v1beta1 must be among them")
    if hook.get("sideEffects") is None:
        yield required(f"{path}.sideEffects", "None or NoneOnDryRun")
    elif hook["sideEffects"] not in ("None", "NoneOnDryRun"):
        yield not_supported(f"{path}.sideEffects", hook["sideEffects"], ("None", "NoneOnDryRun"))
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= _SECONDS_MAX:
        yield invalid(f"{path}.timeoutSeconds", seconds, f"from 1 to {_SECONDS_MAX} seconds")
    for field in ("namespaceSelector", "objectSelector"):
        yield from selectors.check(hook.get(field), f"{path}.{field}")
    for index, rule in enumerate(hook.get("rules", ())):
        yield from _validate_rule(rule, f"{path}.rules[{index}]")
    yield from _validate_client(hook.get("clientConfig", {}), f"{path}.clientConfig")


def _validate_rule(rule: Tree, path: str) -> Errors:
    operations = rule.get("operations") or ()
    if not operations:
        yield required(f"{path}.operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    if len(operations) > 1 and "*" in operations:
        yield invalid(f"{path}.operations", operations, "`*` holds all the others already")
    for field in ("apiGroups", "apiVersions", "resources"):
        if not rule.get(field):
            yield required(f"{path}.{field}")
    for field in ("apiVersions", "resources"):
        for index, value in enumerate(rule.get(field, ())):
            if not value:
                yield required(f"{path}.{field}[{index}]")


def _validate_client(client: Tree, path: str) -> Errors:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "needs a url or a service, and not both")
    elif url is not None:
        try:
            parts = urlsplit(url)
        except ValueError as wrong:
            yield invalid(f"{path}.url", url, f"is no URL: {wrong}")
            return
        if parts.scheme != "https" or not parts.hostname:
            yield invalid(f"{path}.url", url, "must be https and name a host")
        if parts.username or parts.query or parts.fragment:
            yield invalid(f"{path}.url", url, "must have neither user nor query nor fragment")
    elif service is not None:
        for field in ("name", "namespace"):
            if not service.get(field):
                yield required(f"{path}.service.{field}", f"the service's {field}")
