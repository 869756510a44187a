"""The metadata of a written object: decoded, cleaned, completed by the server, validated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kubemachinery import meta, status
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.registry.strategy import Resource, Tree

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
# The finalizers without a domain that Kubernetes defines.
KNOWN_FINALIZERS: Final = frozenset({FOREGROUND, ORPHAN, "kubernetes", "customresourcecleanup.apiextensions.k8s.io"})

# Only the server sets these. The client's values are dropped, except where they are compared.
_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_KNOWN: Final = frozenset({*(field.encode_name for field in msgspec.structs.fields(meta.ObjectMeta)), "managedFields"})
_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_GENERATED_LENGTH: Final = 63
_ANNOTATIONS_BYTES: Final = 256 * 1024


def read(tree: Tree) -> Tree:
    """Return the metadata of a tree, replaced in it by a copy without nulls; raise 400 for invalid metadata."""
    given = tree.get("metadata")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise status.bad_request("metadata must be an object")
    cleaned = {key: value for key, value in given.items() if value is not None}
    typed = {key: value for key, value in cleaned.items() if key != "managedFields"}
    try:
        msgspec.convert(typed, meta.ObjectMeta)
        for name in ("creationTimestamp", "deletionTimestamp"):
            if name in cleaned:
                meta.parse_time(cleaned[name])
    except msgspec.ValidationError as error:
        message = str(error).replace("`$.", "`metadata.")
        raise status.bad_request(f"the metadata cannot be read: {message}") from None
    except meta.TimeError as error:
        raise status.bad_request(f"the metadata cannot be read: {error}") from None
    tree["metadata"] = cleaned
    return cleaned


def unknown(metadata: Tree) -> list[str]:
    return [f"metadata.{key}" for key in metadata if key not in _KNOWN]


def prune(metadata: Tree) -> None:
    """Drop unknown fields, and empty values that mean the same as absent ones."""
    for key in [key for key, value in metadata.items() if key not in _KNOWN or value in ("", [], {})]:
        if key != "managedFields":
            del metadata[key]


def begin(metadata: Tree, uid: str, now: str, *, generation: bool) -> None:
    """Set the metadata that the server alone sets on a new object."""
    for key in _SERVER_OWNED:
        metadata.pop(key, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if generation:
        metadata["generation"] = 1


def carry_over(new: Tree, old: Tree) -> None:
    """Restore the metadata that an update may not change."""
    for key in _SERVER_OWNED:
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)
    for key in ("name", "namespace"):
        if key in old:
            new[key] = old[key]
    new.pop("resourceVersion", None)


def generate_name(base: str, rng: random.Random) -> str:
    """Return a prefix with five random characters, from an alphabet that forms no words."""
    suffix = "".join(rng.choice(_NAME_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return base[: _GENERATED_LENGTH - _SUFFIX_LENGTH] + suffix


# --- Checks -----------------------------------------------------------------------------------------------------------


def check(resource: Resource, metadata: Tree, old: Tree | None) -> Sequence[FieldError]:
    """Yield the errors of the metadata; an error that existed before an update and did not change is ignored."""
    return list(_check(resource, metadata, old))


def _check(resource: Resource, metadata: Tree, old: Tree | None) -> Iterator[FieldError]:
    if old is None:
        yield from _check_name(resource, metadata)
    before = old or {}
    for part, checks in _PARTS.items():
        value = metadata.get(part)
        if value and value != before.get(part):
            yield from checks(value)
    if old is not None and old.get("deletionTimestamp"):
        added = [f for f in metadata.get("finalizers", ()) if f not in old.get("finalizers", ())]
        if added:
            yield FieldError(
                "metadata.finalizers",
                ErrorType.FORBIDDEN,
                f"no new finalizers can be added if the object is being deleted, found new finalizers {added}",
            )


def _check_name(resource: Resource, metadata: Tree) -> Iterator[FieldError]:
    name = metadata.get("name", "")
    checked = meta.check_label_name if resource.label_name else meta.check_subdomain_name
    if not name:
        yield FieldError("metadata.name", ErrorType.REQUIRED, "name or generateName is required")
    elif not resource.free_name:
        for message in checked(name):
            yield FieldError("metadata.name", ErrorType.INVALID, message, name)
    elif name in (".", "..") or "/" in name or "%" in name:
        yield FieldError("metadata.name", ErrorType.INVALID, "may not be '.' or '..', nor hold '/' or '%'", name)


def _check_labels(labels: dict[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        for message in meta.check_qualified_name(key):
            yield FieldError("metadata.labels", ErrorType.INVALID, message, key)
        for message in meta.check_label_value(value):
            yield FieldError("metadata.labels", ErrorType.INVALID, message, value)


def _check_annotations(annotations: dict[str, str]) -> Iterator[FieldError]:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len(value.encode())
        for message in meta.check_qualified_name(key.lower()):
            yield FieldError("metadata.annotations", ErrorType.INVALID, message, key)
    if size > _ANNOTATIONS_BYTES:
        yield FieldError("metadata.annotations", ErrorType.TOO_LONG, f"may not be more than {_ANNOTATIONS_BYTES} bytes")


def _check_finalizers(finalizers: list[str]) -> Iterator[FieldError]:
    for finalizer in finalizers:
        for message in meta.check_qualified_name(finalizer):
            yield FieldError("metadata.finalizers", ErrorType.INVALID, message, finalizer)
    if FOREGROUND in finalizers and ORPHAN in finalizers:
        yield FieldError(
            "metadata.finalizers", ErrorType.INVALID, f"finalizers cannot be both {ORPHAN} and {FOREGROUND}", finalizers
        )


def _check_owners(owners: list[dict[str, Any]]) -> Iterator[FieldError]:
    steering: list[str] = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        version = owner.get("apiVersion", "")
        if not version or version.count("/") > 1:
            yield FieldError(f"{path}.apiVersion", ErrorType.INVALID, "must be a group and version", version)
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                yield FieldError(f"{path}.{key}", ErrorType.INVALID, f"{key} must not be empty", owner.get(key, ""))
        if version in ("v1", "events.k8s.io/v1") and owner.get("kind") == "Event":
            yield FieldError(
                path, ErrorType.INVALID, f"{version}, Kind=Event is disallowed from being an owner", version
            )
        if owner.get("controller"):
            steering.append(str(owner.get("name", "")))
    if len(steering) > 1:
        yield FieldError(
            "metadata.ownerReferences",
            ErrorType.INVALID,
            f"only one reference can have controller set to true, and {' and '.join(steering)} have",
            owners,
        )


_PARTS: Final[dict[str, Callable[[Any], Iterator[FieldError]]]] = {
    "labels": _check_labels,
    "annotations": _check_annotations,
    "finalizers": _check_finalizers,
    "ownerReferences": _check_owners,
}
