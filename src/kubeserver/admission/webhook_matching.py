"""Which webhooks match which writes: webhook configurations, parsed once whenever one of them changes."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from kubemachinery import cel, meta, selectors
from kubeserver.admission.chain import AdmissionAttributes
from kubeserver.registry.strategy import Resource, Tree

TIMEOUT_SECONDS: Final = 10
_BUDGET: Final = 1_000_000
_VARIABLES: Final = dict.fromkeys(("object", "oldObject", "request"), cel.types.DYN)


class WebhookConfigurationError(Exception):
    """A match condition that cannot be evaluated: a failure of the webhook."""


class WebhookRule(msgspec.Struct, frozen=True):
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[str]
    scope: str

    def covers(self, review: AdmissionAttributes, resource: Resource) -> bool:
        return (
            _in(review.operation, self.operations)
            and _in(resource.group, self.groups)
            and _in(resource.version, self.versions)
            and self._names(resource.plural, review.subresource)
            and self.scope in ("*", "Namespaced" if resource.namespaced else "Cluster")
        )

    def _names(self, plural: str, subresource: str) -> bool:
        if not subresource:
            return plural in self.resources or "*" in self.resources or "*/*" in self.resources
        wanted = {f"{plural}/{subresource}", f"*/{subresource}", f"{plural}/*", "*/*"}
        return bool(wanted & self.resources)


def _in(value: str, among: frozenset[str]) -> bool:
    return value in among or "*" in among


class Webhook(msgspec.Struct, frozen=True):
    """One webhook of one configuration, parsed."""

    name: str
    configuration: str
    url: str
    ca: str
    rules: tuple[WebhookRule, ...]
    namespace_selector: selectors.Selector
    object_selector: selectors.Selector
    conditions: tuple[tuple[str, str], ...]
    timeout_seconds: float
    ignores_failure: bool
    equivalent: bool
    has_side_effects: bool
    again: bool

    def selects(self, review: AdmissionAttributes) -> bool:
        """Whether the selectors match the old or the new object, so that removing a label does not evade a webhook."""
        selector = self.object_selector
        if not selector.requirements:
            return True
        return any(selector.matches(labels(tree)) for tree in (review.object, review.old) if tree is not None)

    def conditions_hold(self, review: AdmissionAttributes) -> bool:
        """Every `matchConditions` expression must be true; one that cannot be evaluated is a failure of the webhook."""
        variables = {
            "object": review.object,
            "oldObject": review.old,
            "request": {
                "operation": review.operation,
                "name": review.name,
                "namespace": review.namespace,
                "kind": kind_of(review.resource),
                "resource": resource_of(review.resource),
                "subResource": review.subresource,
                "dryRun": review.dry_run,
                "userInfo": {"username": review.user, "groups": list(review.groups)},
            },
        }
        for name, expression in self.conditions:
            answer = _evaluated(expression, variables)
            if answer is not True and answer is not False:
                raise WebhookConfigurationError(f"its match condition {name!r} cannot be evaluated: {answer}")
            if not answer:
                return False
        return True


def webhooks(configuration: Tree) -> Iterator[Webhook]:
    for row in configuration.get("webhooks") or ():
        client = row.get("clientConfig") or {}
        yield Webhook(
            name=row.get("name", ""),
            configuration=configuration["metadata"]["name"],
            url=_cleaned(client.get("url") or ""),
            ca=_authority(client.get("caBundle")),
            rules=tuple(_rule(rule) for rule in row.get("rules") or ()),
            namespace_selector=_selector(row.get("namespaceSelector")),
            object_selector=_selector(row.get("objectSelector")),
            conditions=tuple((c.get("name", ""), c.get("expression", "")) for c in row.get("matchConditions") or ()),
            timeout_seconds=float(row.get("timeoutSeconds") or TIMEOUT_SECONDS),
            ignores_failure=row.get("failurePolicy") == "Ignore",
            equivalent=row.get("matchPolicy", "Equivalent") == "Equivalent",
            has_side_effects=row.get("sideEffects") not in ("None", "NoneOnDryRun"),
            again=row.get("reinvocationPolicy") == "IfNeeded",
        )


def _cleaned(url: str) -> str:
    """The URL that kube-apiserver calls: the path as Go's `path.Join` leaves it, without doubled slashes, dot segments
    and a trailing slash. envtest registers `https://127.0.0.1:PORT//mutate-…`, which a Go server would redirect.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # refused at creation; the call fails with the reason
    path = posixpath.normpath("/" + unquote(parts.path).lstrip("/"))
    return urlunsplit((parts.scheme, parts.netloc, quote(path, safe="/$&+,:;=@"), "", ""))


def _rule(row: Tree) -> WebhookRule:
    return WebhookRule(
        operations=frozenset(row.get("operations") or ()),
        groups=frozenset(row.get("apiGroups") or ()),
        versions=frozenset(row.get("apiVersions") or ()),
        resources=frozenset(row.get("resources") or ()),
        scope=row.get("scope") or "*",
    )


def _selector(tree: Any) -> selectors.Selector:
    if not tree:
        return selectors.EVERYTHING
    return selectors.compile(msgspec.convert(tree, meta.LabelSelector))


def _authority(bundle: Any) -> str:
    try:
        return base64.b64decode(bundle or "").decode("ascii")
    except (binascii.Error, ValueError, TypeError):
        return ""


# --- Matching ---------------------------------------------------------------------------------------------------------


def kind_of(resource: Resource) -> Tree:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def resource_of(resource: Resource) -> Tree:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def labels(tree: Tree | None) -> dict[str, str]:
    found = ((tree or {}).get("metadata") or {}).get("labels") or {}
    return found if isinstance(found, dict) else {}


def _evaluated(expression: str, variables: Tree) -> Any:
    program = _compiled(expression)
    return program if isinstance(program, cel.CompileError) else program.evaluate(variables, cel.StepBudget(_BUDGET))


@lru_cache(maxsize=256)
def _compiled(expression: str) -> cel.Program | cel.CompileError:
    return cel.compile(expression, _VARIABLES, result=cel.types.BOOL)
