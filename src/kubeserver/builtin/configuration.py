"""ConfigMaps, Secrets and LimitRanges."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from kubemachinery import meta, quantity
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, duplicate, forbidden, invalid, named, required

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_LENGTH: Final = 253
_DATA_BYTES: Final = 1024 * 1024

# What a secret of a given type must hold.
_SECRET_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _validate_keys(keys: Iterable[str], path: str) -> Errors:
    for key in keys:
        if len(key) > _KEY_LENGTH or not _KEY.fullmatch(key) or key in (".", "..") or key.startswith(".."):
            yield invalid(f"{path}[{key}]", key, "must be letters, digits, '-', '_' and '.', and not begin with '..'")


def _validate_frozen(new: Tree, old: Tree, *fields: str) -> Errors:
    """Refuse changes of an immutable object, and of its immutability."""
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", "the object was declared immutable")
    for field in fields:
        if new.get(field, {}) != old.get(field, {}):
            yield forbidden(field, "the object was declared immutable")


# --- ConfigMap --------------------------------------------------------------------------------------------------------


def validate_config_map(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    data, binary = new.get("data", {}), new.get("binaryData", {})
    yield from _validate_keys(data, "data")
    yield from _validate_keys(binary, "binaryData")
    for key in data:
        if key in binary:
            yield invalid(f"data[{key}]", key, "the key is in binaryData too")
    size = sum(len(value.encode()) for value in data.values())
    size += sum(len(base64.b64decode(value)) for value in binary.values())
    if size > _DATA_BYTES:
        yield FieldError("", ErrorType.TOO_LONG, f"at most {_DATA_BYTES} bytes")
    if old is not None:
        yield from _validate_frozen(new, old, "data", "binaryData")


# --- Secret -----------------------------------------------------------------------------------------------------------


def with_text_data(secret: Tree) -> Tree:
    """Return the Secret with its write-only `stringData` moved into `data`."""
    texts = secret.pop("stringData", None)
    if texts:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}
    return secret


def validate_secret(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    data = new.get("data", {})
    yield from _validate_keys(data, "data")
    if sum(len(base64.b64decode(value)) for value in data.values()) > _DATA_BYTES:
        yield FieldError("data", ErrorType.TOO_LONG, f"at most {_DATA_BYTES} bytes")
    kind = new.get("type", "")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker"):
            try:
                msgspec.json.decode(base64.b64decode(data[key]))
            except msgspec.DecodeError:
                yield invalid(f"data[{key}]", "<secret>", "must be JSON")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        yield required("data[username]")
        yield required("data[password]")
    account = "kubernetes.io/service-account.name"
    if kind == "kubernetes.io/service-account-token" and not new["metadata"].get("annotations", {}).get(account):
        yield required(f"metadata.annotations[{account}]")
    if old is not None:
        yield from checks.immutable(new, old, "", "type")
        yield from _validate_frozen(new, old, "data")


# --- LimitRange -------------------------------------------------------------------------------------------------------


# Which amount must not exceed which, and which of the two the error names.
_IN_ORDER: Final = (
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("min", "default", "default"),
    ("defaultRequest", "default", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("default", "max", "default"),
)


def validate_limit_range(new: Tree, _old: Tree | None, _subresource: str) -> Errors:
    seen: set[str] = set()
    for index, item in enumerate(new["spec"].get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = item.get("type", "")
        yield from named(meta.check_qualified_name, kind, f"{path}.type")
        if kind and kind not in ("Container", "PersistentVolumeClaim", "Pod") and "/" not in kind:
            yield invalid(f"{path}.type", kind, "is no limit that every cluster knows; others have a domain")
        if kind in seen:
            yield duplicate(f"{path}.type", kind)
        seen.add(kind)
        yield from _validate_limits(item, path, kind)


def _validate_limits(item: Tree, path: str, kind: str) -> Errors:
    low, high = item.get("min", {}), item.get("max", {})
    limit, request = item.get("default", {}), item.get("defaultRequest", {})
    ratio = item.get("maxLimitRequestRatio", {})
    for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"):
        for resource in item.get(field, {}):
            place = f"{path}.{field}[{resource}]"
            yield from named(meta.check_qualified_name, resource, place)
            if "/" not in resource and not checks.is_standard(resource):
                yield invalid(place, resource, "is no resource that every cluster knows; others have a domain")
    if kind == "Pod":
        for field, amounts in (("default", limit), ("defaultRequest", request)):
            if amounts:
                yield forbidden(f"{path}.{field}", f"is not for limits of a {kind}")
    for resource in sorted({*low, *high, *limit, *request, *ratio}):
        for less, more, blamed in _IN_ORDER:
            below, above = item.get(less, {}).get(resource), item.get(more, {}).get(resource)
            if below is not None and above is not None and quantity.parse(below) > quantity.parse(above):
                value = item[blamed][resource]
                yield invalid(f"{path}.{blamed}[{resource}]", value, f"{less} {below} is greater than {more} {above}")
        if resource in ratio and quantity.parse(ratio[resource]) < quantity.parse("1"):
            yield invalid(
                f"{path}.maxLimitRequestRatio[{resource}]", ratio[resource], "a limit is not less than its request"
            )
