"""Who may change or refuse an object on its way in: functions of this process, and webhooks on this machine.

In-process hooks are plain functions handed in by whoever builds the server. Webhooks are what the two kinds of webhook
configuration ask for: an AdmissionReview is posted, a JSON patch or a verdict comes back. Only loopback addresses are
called unless the server was told otherwise, because a URL in an object must not make this process knock at other doors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from kubemachinery import status
from kubemachinery.field_errors import FieldError
from kubeserver.registry import metadata
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """One write, as a hook sees it. `object` is None for a deletion, `old` for a creation."""

    operation: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    object: Tree | None = None
    old: Tree | None = None
    options: Tree = field(default_factory=dict)
    # What the request itself spoke, where a hook is handed another version.
    request_resource: Resource | None = None


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What a validating hook says: field errors, or a plain refusal, or nothing but warnings."""

    errors: Sequence[FieldError] = ()
    denied: str = ""
    warnings: Sequence[str] = ()


ACCEPTED: Final = ValidationResult()


@dataclass(frozen=True, kw_only=True)
class AdmissionHook:
    """A function of this process that takes part in admission, for one resource in the version it speaks.

    `mutate` gives the object to go on with, or None to leave it; it may change the object that it is given. `validate`
    must not. Neither is ever called for what `operations` and `subresources` do not name.
    """

    name: str
    group: str
    plural: str
    version: str
    operations: frozenset[str] = frozenset({CREATE, UPDATE})
    subresources: frozenset[str] = frozenset({""})
    mutate: Callable[[AdmissionAttributes], Tree | None] | None = None
    validate: Callable[[AdmissionAttributes], ValidationResult] | None = None

    def concerns(self, review: AdmissionAttributes) -> bool:
        return (
            review.resource.group == self.group
            and review.resource.plural == self.plural
            and review.operation in self.operations
            and review.subresource in self.subresources
        )


class WebhookDispatcher(Protocol):
    """The call-out, as this module needs it; `webhooks.Caller` is one."""

    @property
    def any_at_all(self) -> bool:
        """Whether any webhook is configured."""
        ...

    def any_for(self, review: AdmissionAttributes) -> bool:
        """Whether one of them has to be asked about this write."""
        ...

    async def mutate(self, review: AdmissionAttributes) -> tuple[Tree, list[str]]: ...

    async def validate(self, review: AdmissionAttributes) -> list[str]: ...


# Gives an object of a resource in another version of it: (resource, object, version) -> (resource there, object there).
InVersion = Callable[[Resource, Tree, str], tuple[Resource, Tree]]


class AdmissionChain:
    """All hooks, in order: in-process ones first, then webhooks."""

    def __init__(
        self, hooks: Iterable[AdmissionHook], in_version: InVersion, webhooks: WebhookDispatcher | None = None
    ) -> None:
        self._in_version = in_version
        self._webhooks = webhooks
        self._mutating: dict[tuple[str, str], list[AdmissionHook]] = {}
        self._validating: dict[tuple[str, str], list[AdmissionHook]] = {}
        for hook in hooks:
            if hook.mutate is not None:
                self._mutating.setdefault((hook.group, hook.plural), []).append(hook)
            if hook.validate is not None:
                self._validating.setdefault((hook.group, hook.plural), []).append(hook)

    async def mutated(self, context: WriteContext, operation: str, new: Tree, old: Tree | None) -> Tree:
        """The object after everybody who may change it; what only the server says is not theirs to change."""
        if self._is_idle(context.resource):
            return new
        review = _review(context, operation, new, old)
        changed = self._mutate(review)
        if self._webhooks is not None and self._webhooks.any_for(review):
            changed, warnings = await self._webhooks.mutate(_review(context, operation, changed or new, old))
            context.warnings.extend(warnings)
        if changed is None:
            return new
        rules, before = context.resource.rules, new["metadata"]
        details = metadata.read(changed)
        metadata.carry_over(details, before)
        if not before.get("name"):
            details.pop("name", None)
        changed = rules.default(rules.prune(changed))
        changed["metadata"] = details
        return changed

    async def validated(self, context: WriteContext, operation: str, new: Tree | None, old: Tree | None) -> None:
        """Raises where anybody refuses the write. Whoever is asked outside of this process is asked last."""
        if self._is_idle(context.resource):
            return
        review = _review(context, operation, new, old)
        self._validate(review, context.warnings)
        if self._webhooks is not None and self._webhooks.any_for(review):
            context.warnings.extend(await self._webhooks.validate(review))

    def _is_idle(self, resource: Resource) -> bool:
        """Whether nobody can have anything to say about this resource, as is most often so."""
        which = (resource.group, resource.plural)
        if which in self._mutating or which in self._validating:
            return False
        return self._webhooks is None or not self._webhooks.any_at_all

    def may_change(self, resource: Resource, operation: str, subresource: str) -> bool:
        """Whether anybody could change the object of such a write."""
        if self._webhooks is not None and self._webhooks.any_at_all:
            return True
        hooks = self._mutating.get((resource.group, resource.plural), ())
        return any(operation in hook.operations and subresource in hook.subresources for hook in hooks)

    def _mutate(self, review: AdmissionAttributes) -> Tree | None:
        """The object after the mutating hooks of this process; None where none changed it."""
        changed: Tree | None = None
        for hook in self._mutating.get((review.resource.group, review.resource.plural), ()):
            if not hook.concerns(review) or hook.mutate is None:
                continue
            result = hook.mutate(self._spoken(hook, review))
            if result is not None:
                _, changed = self._in_version(review.resource, result, review.resource.version)
                review = replace(review, object=changed)
        return changed

    def _validate(self, review: AdmissionAttributes, warnings: list[str]) -> None:
        """Raises for the first hook of this process that refuses; a refusal may come with warnings, too."""
        for hook in self._validating.get((review.resource.group, review.resource.plural), ()):
            if not hook.concerns(review) or hook.validate is None:
                continue
            verdict = hook.validate(self._spoken(hook, review))
            warnings += verdict.warnings
            if verdict.errors:
                raise _refused(hook.name, status.invalid(hook.group, review.resource.kind, review.name, verdict.errors))
            if verdict.denied:
                raise _refused(hook.name, status.StatusError(403, "Forbidden", verdict.denied))

    def _spoken(self, hook: AdmissionHook, review: AdmissionAttributes) -> AdmissionAttributes:
        if review.resource.version == hook.version:
            return review
        spoken, new, old = review.resource, review.object, review.old
        if new is not None:
            spoken, new = self._in_version(review.resource, new, hook.version)
        if old is not None:
            spoken, old = self._in_version(review.resource, old, hook.version)
        return replace(review, resource=spoken, object=new, old=old, request_resource=review.resource)


def _review(context: WriteContext, operation: str, new: Tree | None, old: Tree | None) -> AdmissionAttributes:
    return AdmissionAttributes(
        operation=operation,
        resource=context.resource,
        subresource=context.subresource,
        namespace=context.namespace,
        name=context.name,
        user=context.user.name,
        groups=context.user.groups,
        dry_run=context.dry_run,
        object=new,
        old=old,
        options=context.options,
    )


def _refused(name: str, error: status.StatusError) -> status.StatusError:
    """Clients know a refusal by a webhook from its first words, whoever runs it."""
    error.message = f'admission webhook "{name}" denied the request: {error.message}'
    return error


def refused_by(name: str, code: int, reason: str, message: str, details: Any = None) -> status.StatusError:
    return _refused(name, status.StatusError(code, reason, message, details=details))
