"""Validation of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from kubemachinery import meta, structural
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.jsonpath import PathError, compile_path
from kubeserver.registry import scale, unsupported
from kubeserver.registry.strategy import Tree

_COLUMN_TYPES: Final = ("integer", "number", "string", "boolean", "date")
_FIXED: Final = ("group", "scope", "names.plural", "names.kind")


def check(new: Tree, old: Tree | None, converted: Collection[str], *, reads_schemas: bool) -> Iterator[FieldError]:
    """Yield the errors of a definition. `converted` are the groups whose versions this process converts itself."""
    spec = new.get("spec")
    if not isinstance(spec, dict):
        yield FieldError("spec", ErrorType.REQUIRED, "")
        return
    if old is not None and spec == old.get("spec"):
        return
    yield from _check_names(new, spec)
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        yield FieldError("spec.versions", ErrorType.REQUIRED, "there must be at least one version")
        return
    yield from _check_versions(versions)
    for index, version in enumerate(versions):
        yield from _check_version(version, f"spec.versions[{index}]", reads=reads_schemas)
    yield from _check_conversion(spec, versions, converted)
    if old is not None:
        yield from _check_fixed(new, old)


def _check_names(tree: Tree, spec: Tree) -> Iterator[FieldError]:
    group, names = spec.get("group", ""), spec.get("names")
    if not isinstance(group, str) or "." not in group or meta.check_subdomain_name(group):
        yield FieldError("spec.group", ErrorType.INVALID, "should be a domain with at least one dot", group)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield FieldError("spec.scope", ErrorType.NOT_SUPPORTED, "must be Namespaced or Cluster", spec.get("scope", ""))
    if not isinstance(names, dict):
        yield FieldError("spec.names", ErrorType.REQUIRED, "")
        return
    for key in ("plural", "singular"):
        for message in meta.check_label_1035_name(str(names.get(key) or "")):
            yield FieldError(f"spec.names.{key}", ErrorType.INVALID, message, names.get(key, ""))
    for key in ("kind", "listKind"):
        for message in meta.check_label_1035_name(str(names.get(key) or "").lower()):
            yield FieldError(f"spec.names.{key}", ErrorType.INVALID, message, names.get(key, ""))
    for index, short in enumerate(names.get("shortNames") or ()):
        for message in meta.check_label_1035_name(short):
            yield FieldError(f"spec.names.shortNames[{index}]", ErrorType.INVALID, message, short)
    wanted = f"{names.get('plural')}.{group}"
    if tree["metadata"].get("name") != wanted:
        yield FieldError(
            "metadata.name",
            ErrorType.INVALID,
            f"must be spec.names.plural and spec.group: {wanted}",
            tree["metadata"].get("name"),
        )


def _check_versions(versions: list[Any]) -> Iterator[FieldError]:
    known = [one for one in versions if isinstance(one, dict)]
    if len([one for one in known if one.get("storage")]) != 1:
        yield FieldError(
            "spec.versions", ErrorType.INVALID, "must have exactly one version marked as storage version", _brief(known)
        )
    if not any(one.get("served") for one in known):
        yield FieldError("spec.versions", ErrorType.INVALID, "must have at least one served version", _brief(known))
    seen: set[str] = set()
    for index, one in enumerate(known):
        name = one.get("name")
        if name in seen:
            yield FieldError(f"spec.versions[{index}].name", ErrorType.DUPLICATE, "", name)
        seen.add(str(name))


def _brief(versions: list[Tree]) -> list[Any]:
    return [one.get("name") for one in versions]


def _check_version(version: Any, path: str, *, reads: bool) -> Iterator[FieldError]:
    if not isinstance(version, dict):
        yield FieldError(path, ErrorType.TYPE_INVALID, "must be an object", version)
        return
    for message in meta.check_label_1035_name(str(version.get("name") or "")):
        yield FieldError(f"{path}.name", ErrorType.INVALID, message, version.get("name", ""))
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        yield FieldError(f"{path}.schema.openAPIV3Schema", ErrorType.REQUIRED, "schemas are required")
    elif reads:
        yield from structural.check_schema(schema, f"{path}.schema.openAPIV3Schema")
    declared = version.get("subresources")
    if isinstance(declared, dict) and declared.get(scale.NAME) is not None:
        yield from scale.check(declared[scale.NAME], f"{path}.subresources.scale")
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    for index, selectable in enumerate(version.get("selectableFields") or ()):
        given = selectable.get("jsonPath") if isinstance(selectable, dict) else None
        if not isinstance(given, str) or not given.startswith(".") or "[" in given:
            yield FieldError(
                f"{path}.selectableFields[{index}].jsonPath", ErrorType.INVALID, "must be a simple path", given
            )


def _check_column(column: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(column, dict):
        yield FieldError(path, ErrorType.TYPE_INVALID, "must be an object", column)
        return
    if not column.get("name"):
        yield FieldError(f"{path}.name", ErrorType.REQUIRED, "")
    if column.get("type") not in _COLUMN_TYPES:
        yield FieldError(
            f"{path}.type",
            ErrorType.NOT_SUPPORTED,
            f"must be one of {', '.join(_COLUMN_TYPES)}",
            column.get("type", ""),
        )
    given = column.get("jsonPath")
    if not isinstance(given, str) or not given:
        yield FieldError(f"{path}.jsonPath", ErrorType.REQUIRED, "")
        return
    try:
        compile_path(given)
    except PathError as error:
        yield FieldError(f"{path}.jsonPath", ErrorType.INVALID, str(error), given)


def _check_conversion(spec: Tree, versions: list[Any], converted: Collection[str]) -> Iterator[FieldError]:
    strategy = (spec.get("conversion") or {}).get("strategy", "None")
    if strategy not in ("None", "Webhook"):
        yield FieldError("spec.conversion.strategy", ErrorType.NOT_SUPPORTED, "must be None or Webhook", strategy)
    served = [one for one in versions if isinstance(one, dict) and one.get("served")]
    if strategy == "Webhook" and spec.get("group") not in converted and len(served) > 1:
        words = unsupported.words("conversion-webhooks")
        yield FieldError("spec.conversion.strategy", ErrorType.INVALID, words, strategy)
    if spec.get("preserveUnknownFields"):
        yield FieldError(
            "spec.preserveUnknownFields",
            ErrorType.INVALID,
            "must be false; use x-kubernetes-preserve-unknown-fields in the schema",
            True,
        )


def _check_fixed(new: Tree, old: Tree) -> Iterator[FieldError]:
    for path in _FIXED:
        before, after = old.get("spec"), new.get("spec")
        for part in path.split("."):
            before = before.get(part) if isinstance(before, dict) else None
            after = after.get(part) if isinstance(after, dict) else None
        if before != after:
            yield FieldError(f"spec.{path}", ErrorType.INVALID, "field is immutable", after)
    present = {one.get("name") for one in new["spec"]["versions"] if isinstance(one, dict)}
    for index, stored in enumerate((new.get("status") or {}).get("storedVersions") or ()):
        if stored not in present:
            yield FieldError(
                f"status.storedVersions[{index}]",
                ErrorType.INVALID,
                "objects may be stored in this version, so it must appear in spec.versions",
                stored,
            )
