"""JSON patch, merge patch and strategic merge patch; server-side apply is in `apply`."""

from __future__ import annotations

from typing import Any

from kubemachinery import patches, status
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.protocol import bodies
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext


def types(resource: Resource) -> list[str]:
    """Return the media types of the patches that a kind supports."""
    strategic = [bodies.STRATEGIC_PATCH] if resource.strategic is not None else []
    return [bodies.JSON_PATCH, bodies.MERGE_PATCH, *strategic, bodies.APPLY_YAML]


def patched(context: WriteContext, kind: str, old: Tree, patch: Any, *, shown_as: Resource | None = None) -> Any:
    """Return an object, or its Scale, with a patch applied."""
    try:
        return _patched(shown_as or context.resource, kind, old, patch)
    except patches.PatchError as error:
        if error.fault is patches.Fault.MALFORMED:
            raise status.bad_request(str(error)) from None
        raise context.invalid([FieldError("patch", ErrorType.INVALID, str(error))]) from None


def _patched(resource: Resource, kind: str, old: Tree, patch: Any) -> Any:
    match kind:
        case bodies.JSON_PATCH:
            return patches.apply(old, patch)
        case bodies.MERGE_PATCH:
            if not isinstance(patch, dict):
                raise status.bad_request("a merge patch is an object")
            return patches.merge(old, patch)
        case bodies.STRATEGIC_PATCH if resource.strategic is not None:
            if not isinstance(patch, dict):
                raise status.bad_request("a strategic merge patch is an object")
            return resource.strategic(old, patch)
    raise status.unsupported_media_type(kind, types(resource))
