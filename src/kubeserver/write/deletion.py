"""DeleteOptions, and the begin of a deletion: at once, or with a deletionTimestamp that waits for finalizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubemachinery import meta, status
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.meta import Nanoseconds
from kubeserver.registry import metadata, namespaces
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext


class DeleteOptions(msgspec.Struct, frozen=True):
    """Grace period, propagation policy and preconditions."""

    grace_seconds: int | None = None
    propagation: str = ""
    preconditions: Tree = msgspec.field(default_factory=dict)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> DeleteOptions:
        grace, propagation = options.get("gracePeriodSeconds"), options.get("propagationPolicy") or ""
        orphan, preconditions = options.get("orphanDependents"), options.get("preconditions") or {}
        errors = []
        if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
            errors.append(FieldError("gracePeriodSeconds", ErrorType.INVALID, "must be a number of seconds", grace))
        if propagation not in ("", "Foreground", "Background", "Orphan"):
            errors.append(
                FieldError(
                    "propagationPolicy",
                    ErrorType.NOT_SUPPORTED,
                    "must be Foreground, Background or Orphan",
                    propagation,
                )
            )
        if propagation and orphan is not None:
            errors.append(
                FieldError(
                    "propagationPolicy",
                    ErrorType.INVALID,
                    "orphanDependents and propagationPolicy cannot be both set",
                    propagation,
                )
            )
        if not isinstance(preconditions, dict):
            errors.append(FieldError("preconditions", ErrorType.TYPE_INVALID, "must be an object", preconditions))
        if errors:
            raise status.invalid("meta.k8s.io", "DeleteOptions", "", errors)
        if orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        known = {key: preconditions[key] for key in ("uid", "resourceVersion") if preconditions.get(key)}
        return cls(grace, propagation, known)

    def finalizers(self, present: list[str]) -> list[str]:
        """Return the finalizers of an object with that of the propagation policy asked for."""
        if not self.propagation:
            return present
        others = [one for one in present if one not in (metadata.FOREGROUND, metadata.ORPHAN)]
        match self.propagation:
            case "Foreground":
                return [*others, metadata.FOREGROUND]
            case "Orphan":
                return [*others, metadata.ORPHAN]
        return others


def begin(context: WriteContext, wanted: DeleteOptions, tree: Tree, now: Nanoseconds) -> None:
    """Set the deletionTimestamp of an object, or shorten its grace period."""
    resource, details = context.resource, tree["metadata"]
    finalizers = wanted.finalizers(details.get("finalizers") or [])
    already = bool(details.get("deletionTimestamp"))
    pending = details.get("deletionGracePeriodSeconds")
    if already and resource.grace_seconds is not None and pending is not None:
        # The grace period runs: only a shorter one changes anything, also the finalizers.
        asked = wanted.grace_seconds
        if asked is None or (asked if asked >= 0 else 1) >= pending:
            return
    grace = _grace_seconds(resource, tree, wanted.grace_seconds)
    if not already or grace < details.get("deletionGracePeriodSeconds", 0):
        # A grace period may be any int64, for example as a word for "without limit"; its end has to be a timestamp.
        details["deletionTimestamp"] = meta.format_time(min(now + grace * meta.SECOND, meta.LATEST_TIME))
        details["deletionGracePeriodSeconds"] = grace
    if finalizers:
        details["finalizers"] = finalizers
    else:
        details.pop("finalizers", None)
    namespaces.begin_deletion(context.key, tree)
    if not already and resource.generation:
        details["generation"] = details.get("generation", 1) + 1


def is_over(tree: Tree) -> bool:
    """Whether a deletion has begun and waits for nothing: no finalizers, no grace period."""
    details = tree["metadata"]
    return (
        bool(details.get("deletionTimestamp"))
        and not details.get("finalizers")
        and not details.get("deletionGracePeriodSeconds")
        and not namespaces.is_held(tree)
    )


def _grace_seconds(resource: Resource, tree: Tree, asked: int | None) -> int:
    """Return the grace period: only a pod on a node has one."""
    if resource.grace_seconds is None:
        return 0
    if asked is not None:
        grace = asked if asked >= 0 else 1  # as kube-apiserver takes it
    else:
        own = (tree.get("spec") or {}).get("terminationGracePeriodSeconds")
        grace = own if isinstance(own, int) else resource.grace_seconds
    placed = (tree.get("spec") or {}).get("nodeName")
    ended = (tree.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return grace if placed and not ended else 0
