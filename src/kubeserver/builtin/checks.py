"""Checks that the built-in kinds share. Each yields the field errors it finds; none raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubemachinery import meta, quantity
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.builtin_types.types import FieldType, message

Tree = dict[str, Any]
Errors = Iterator[FieldError]

IMMUTABLE: Final = "field is immutable"


def required(path: str, why: str = "") -> FieldError:
    return FieldError(path, ErrorType.REQUIRED, why)


def invalid(path: str, value: object, why: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, why, value)


def forbidden(path: str, why: str) -> FieldError:
    return FieldError(path, ErrorType.FORBIDDEN, why)


def duplicate(path: str, value: object) -> FieldError:
    return FieldError(path, ErrorType.DUPLICATE, "", value)


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldError:
    known = ", ".join(f'"{one}"' for one in supported)
    return FieldError(path, ErrorType.NOT_SUPPORTED, f"supported values: {known}", value)


def not_negative(tree: Tree, path: str, *fields: str) -> Errors:
    for field in fields:
        value = tree.get(field)
        if value is not None and value < 0:
            yield invalid(f"{path}.{field}", value, "must not be negative")


def between(value: int, low: int, high: int, path: str) -> Errors:
    if not low <= value <= high:
        yield invalid(path, value, f"must be from {low} to {high}")


def named(check: Callable[[str], Iterable[str]], value: str, path: str) -> Errors:
    """Yield the errors of one of `meta`'s checks of names."""
    for text in check(value):
        yield invalid(path, value, text)


def immutable(new: Tree, old: Tree, path: str, *fields: str) -> Errors:
    for field in fields:
        if new.get(field) != old.get(field):
            yield invalid(f"{path}.{field}" if path else field, new.get(field), IMMUTABLE)


def labels(tree: Mapping[str, str] | None, path: str) -> Errors:
    for key, value in (tree or {}).items():
        yield from named(meta.check_qualified_name, key, path)
        yield from named(meta.check_label_value, value, path)


def unique(names: Iterable[tuple[str, object]]) -> Errors:
    """Yield errors for the second and later of equal values."""
    seen: set[object] = set()
    for path, value in names:
        if value in seen:
            yield duplicate(path, value)
        seen.add(value)


# The validation of selectors checks the operators of these.
_CHECKED_ELSEWHERE: Final = frozenset({"core.v1.NodeSelectorRequirement", "meta.v1.LabelSelectorRequirement"})


def enums(name: str, tree: Tree, skip: tuple[str, ...] = ("status", "metadata")) -> Errors:
    """Values outside the closed sets that the table of fields knows, anywhere in the object but below `skip`."""
    for field in message(name).fields.values():
        if field.name in tree and field.name not in skip:
            yield from _enums(field.type, field.enum, tree[field.name], field.name)


def _enums(kind: FieldType, allowed: tuple[str, ...], value: Any, path: str) -> Errors:
    if value is None:
        return
    if kind.item is not None:
        for index, one in enumerate(value):
            yield from _enums(kind.item, allowed, one, f"{path}[{index}]")
    elif kind.value is not None:
        for key, one in value.items():
            yield from _enums(kind.value, allowed, one, f"{path}[{key}]")
    elif kind.name in _CHECKED_ELSEWHERE:
        return
    elif kind.is_message:
        for field in message(kind.name).fields.values():
            if field.name in value:
                yield from _enums(field.type, field.enum, value[field.name], f"{path}.{field.name}")
    elif allowed and value not in allowed and (value or kind.pointer):
        yield not_supported(path, value, sorted(allowed))


# --- resources --------------------------------------------------------------------------------------------------------

_NATIVE_DOMAIN: Final = "kubernetes.io/"
CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES: Final = "hugepages-"


def is_standard(resource: str) -> bool:
    """Whether this is a standard resource, with a short name."""
    return resource in CONTAINER_RESOURCES or resource == "storage" or resource.startswith(HUGE_PAGES)


def is_extended(resource: str) -> bool:
    """Whether this is an extended resource, such as a device."""
    return "/" in resource and _NATIVE_DOMAIN not in resource and not resource.startswith("requests.")


def amounts(tree: Mapping[str, str], path: str, *, dotted: bool = False) -> Errors:
    """Yield errors for negative quantities, and for fractions of resources that are counted in whole numbers."""
    for resource, text in tree.items():
        place = f"{path}.{resource}" if dotted else f"{path}[{resource}]"
        amount = quantity.parse(text)
        if amount.sign < 0:
            yield invalid(place, text, "must not be negative")
        if is_extended(resource) and amount.milli_value() % 1000:
            yield invalid(place, text, "must be a whole number")
        yield from (invalid(place, resource, text) for text in meta.check_qualified_name(resource))


def container_amounts(tree: Mapping[str, str], path: str) -> Errors:
    yield from amounts(tree, path)
    for resource in tree:
        known = resource in CONTAINER_RESOURCES or resource.startswith(HUGE_PAGES)
        if "/" not in resource and not known:
            yield invalid(
                f"{path}[{resource}]", resource, "is no resource that containers can ask for; others have a domain"
            )


def requirements(tree: Tree, path: str) -> Errors:
    """Limits and requests of one container: each in order, and no request above its limit."""
    limits, requests = tree.get("limits", {}), tree.get("requests", {})
    yield from container_amounts(limits, f"{path}.limits")
    for resource, text in requests.items():
        yield from container_amounts({resource: text}, f"{path}.requests")
        limit = limits.get(resource)
        whole = is_extended(resource) or resource.startswith(HUGE_PAGES)
        if limit is None:
            if whole:
                yield required(f"{path}.limits", "this resource cannot be overcommitted, so its limit is required")
        elif whole and quantity.parse(text) != quantity.parse(limit):
            yield invalid(f"{path}.requests", text, f"{resource} is not shared: the request must be the limit, {limit}")
        elif quantity.parse(text) > quantity.parse(limit):
            yield invalid(f"{path}.requests", text, f"is more than the limit of {resource}, {limit}")
    asked = {*limits, *requests}
    if any(resource.startswith(HUGE_PAGES) for resource in asked) and not asked & {"cpu", "memory"}:
        yield forbidden(path, "huge pages go with cpu or memory")
