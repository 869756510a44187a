"""Admission: hooks in this process and webhooks that change or refuse an object before it is stored.

In-process hooks are functions that the builder of the server passes in. Webhooks are those of the two webhook
configuration kinds: an AdmissionReview is posted, a response with a JSON patch or a decision comes back. Only loopback
addresses are called unless the server is configured otherwise: a URL in an object must not reach other machines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from kubemachinery import status
from kubemachinery.field_errors import FieldError
from kubeserver.registry import metadata
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"


class AdmissionAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """One write as hooks receive it. `object` is None for a deletion, `old` for a creation."""

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
    options: Tree = msgspec.field(default_factory=dict)
    # The resource of the request, where a hook gets another version.
    request_resource: Resource | None = None


class ValidationResult(msgspec.Struct, frozen=True):
    """The result of a validating hook: field errors, or a refusal, or warnings alone."""

    errors: Sequence[FieldError] = ()
    denied: str = ""
    warnings: Sequence[str] = ()


ACCEPTED: Final = ValidationResult()


class AdmissionHook(msgspec.Struct, frozen=True, kw_only=True):
    """A function of this process that takes part in admission, for one resource in one version.

    `mutate` returns the object to continue with, or None for no change; it may change its argument. `validate` must
    not. Both are called for the `operations` and `subresources` of the hook only.
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
    """The interface of the webhook caller; `webhooks.WebhookCaller` implements it."""

    @property
    def any_at_all(self) -> bool:
        """Whether any webhook is configured."""
        ...

    def any_for(self, review: AdmissionAttributes) -> bool:
        """Whether one of them has to be called for this write."""
        ...

    async def mutate(self, review: AdmissionAttributes) -> tuple[Tree, list[str]]: ...

    async def validate(self, review: AdmissionAttributes) -> list[str]: ...


# Runs work on the tree of one write: in a thread where it is long.
Work = Callable[[Callable[[], Tree]], Awaitable[Tree]]
# Gives an object of a resource in another version of it: (resource, object, version) -> (resource there, object there).
InVersion = Callable[[Resource, Tree, str], tuple[Resource, Tree]]


async def _in_line(function: Callable[[], Tree]) -> Tree:
    return function()


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

    async def mutated(
        self, context: WriteContext, operation: str, new: Tree, old: Tree | None, work: Work = _in_line
    ) -> Tree:
        """Return the object after all mutating hooks; metadata that only the server sets is restored."""
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
        read = await work(lambda: rules.default(rules.prune(changed)))
        read["metadata"] = details
        return read

    async def validated(self, context: WriteContext, operation: str, new: Tree | None, old: Tree | None) -> None:
        """Raise where a validating hook refuses the write. Webhooks are called last."""
        if self._is_idle(context.resource):
            return
        review = _review(context, operation, new, old)
        self._validate(review, context.warnings)
        if self._webhooks is not None and self._webhooks.any_for(review):
            context.warnings.extend(await self._webhooks.validate(review))

    def _is_idle(self, resource: Resource) -> bool:
        """Whether no hook concerns this resource, the most frequent case."""
        which = (resource.group, resource.plural)
        if which in self._mutating or which in self._validating:
            return False
        return self._webhooks is None or not self._webhooks.any_at_all

    def may_change(self, resource: Resource, operation: str, subresource: str) -> bool:
        """Whether a hook may change the object of such a write."""
        if self._webhooks is not None and self._webhooks.any_at_all:
            return True
        hooks = self._mutating.get((resource.group, resource.plural), ())
        return any(operation in hook.operations and subresource in hook.subresources for hook in hooks)

    def _mutate(self, review: AdmissionAttributes) -> Tree | None:
        """Return the object after the mutating hooks of this process; None where none changed it."""
        changed: Tree | None = None
        for hook in self._mutating.get((review.resource.group, review.resource.plural), ()):
            if not hook.concerns(review) or hook.mutate is None:
                continue
            result = hook.mutate(self._converted(hook, review))
            if result is not None:
                _, changed = self._in_version(review.resource, result, review.resource.version)
                review = replace(review, object=changed)
        return changed

    def _validate(self, review: AdmissionAttributes, warnings: list[str]) -> None:
        """Raise for the first hook of this process that refuses; a refusal may have warnings too."""
        for hook in self._validating.get((review.resource.group, review.resource.plural), ()):
            if not hook.concerns(review) or hook.validate is None:
                continue
            result = hook.validate(self._converted(hook, review))
            warnings += result.warnings
            if result.errors:
                raise _refused(hook.name, status.invalid(hook.group, review.resource.kind, review.name, result.errors))
            if result.denied:
                raise _refused(hook.name, status.StatusError(403, "Forbidden", result.denied))

    def _converted(self, hook: AdmissionHook, review: AdmissionAttributes) -> AdmissionAttributes:
        if review.resource.version == hook.version:
            return review
        resource, new, old = review.resource, review.object, review.old
        if new is not None:
            resource, new = self._in_version(review.resource, new, hook.version)
        if old is not None:
            resource, old = self._in_version(review.resource, old, hook.version)
        return replace(review, resource=resource, object=new, old=old, request_resource=review.resource)


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
    """Return the refusal of a hook. Clients recognize it by its first words, in the process or not."""
    error.message = f'admission webhook "{name}" denied the request: {error.message}'
    return error


def refused_by(name: str, code: int, reason: str, message: str, details: Any = None) -> status.StatusError:
    return _refused(name, status.StatusError(code, reason, message, details=details))
