"""Request bodies: JSON and YAML decoded into trees, with bounds on size, depth and length.

Depth is limited before a recursive parser reads the text; YAML aliases are refused, because a kilobyte of them expands
to gigabytes; numbers that JSON cannot carry are refused here and not when the object is stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import yaml

from kubemachinery import kubectl_yaml, status
from kubemachinery.serving import negotiation

BODY_BYTES: Final = 3 * 1024 * 1024
OBJECT_BYTES: Final = 1536 * 1024
DEPTH_MAX: Final = 100
# YAML takes a hundred times as long to read as JSON: this many values and ends of values, about half a second.
YAML_EVENTS_MAX: Final = 100_000

JSON: Final = negotiation.JSON
YAML: Final = negotiation.YAML
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_YAML: Final = "application/apply-patch+yaml"

_OPERATION: Final = ("op", "path", "from", "value")
_ALL_BUT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_INTEGERS: Final = range(-(2**63), 2**64)


def media_type(header: str) -> str:
    """The type without its parameters."""
    return header.partition(";")[0].strip().lower()


def parse_json(body: bytes) -> Any:
    """The value of a JSON text; raises 400 with the place for what is none."""
    _check_depth(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise status.bad_request(f"the body is not valid JSON: {error}") from None


def _check_depth(body: bytes) -> None:
    brackets = body.translate(None, _ALL_BUT_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for bracket in brackets:
        # Brackets inside of strings are counted too. That can only refuse text which holds a hundred open ones.
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_MAX:
            raise status.bad_request(f"the body is nested deeper than {DEPTH_MAX} levels")


def duplicates(body: bytes, tree: Any) -> list[str]:
    """A sentence for each key that a JSON text, which was read as `tree`, gives twice.

    A text without any is as long as what it decodes to, white space aside; only where the lengths differ is it read
    again, key by key. Most are equal to it.
    """
    try:
        again = msgspec.json.encode(tree)
        if body == again or len(msgspec.json.format(body, indent=-1)) == len(again):
            return []
        marked = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, OverflowError, RecursionError):
        return []
    return [f'duplicate field "{path}"' for path in dict.fromkeys(_doubled(marked, ""))]


def unknown_in_patch(kind: str, patch: Any) -> list[str]:
    """A sentence for each word that an operation of a JSON patch should not have."""
    if kind != JSON_PATCH or not isinstance(patch, list):
        return []
    return [
        f'json patch unknown field "[{at}].{key}"'
        for at, operation in enumerate(patch)
        for key in (operation if isinstance(operation, dict) else ())
        if key not in _OPERATION
    ]


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, repetitions and all."""


def _doubled(value: Any, path: str) -> Iterable[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            place = f"{path}.{key}" if path else key
            if key in seen:
                yield place
            seen.add(key)
            yield from _doubled(inner, place)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _doubled(inner, f"{path}[{index}]")


# --- YAML -------------------------------------------------------------------------------------------------------------


def _check_events(body: bytes) -> None:
    """Check the depth and length of a YAML text and refuse aliases, event by event, before it is loaded.

    Loading recurses in C, where too deep ends the process and not the request.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(body, Loader=kubectl_yaml.Loader)):
        match event:
            case yaml.AliasEvent():
                raise status.bad_request("the body is not acceptable YAML: aliases are not read")
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
        if depth > DEPTH_MAX:
            raise status.bad_request(f"the body is nested deeper than {DEPTH_MAX} levels")
        if count > YAML_EVENTS_MAX:
            raise status.bad_request("the body is too long to be read as YAML; JSON has no such limit")


def parse_yaml(body: bytes) -> Any:
    """The value of one YAML document. Most bodies sent as YAML are JSON, which is read a hundred times faster."""
    if body.lstrip()[:1] == b"{":
        try:
            return parse_json(body)
        except status.StatusError:
            pass
    _check_depth(body)
    try:
        _check_events(body)
        value = yaml.load(body, Loader=kubectl_yaml.Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        message = " ".join(str(error).split())
        raise status.bad_request(f"the body is not valid YAML: {message}") from None
    return _as_json(value, 0)


def _as_json(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise status.bad_request(f"the body is nested deeper than {DEPTH_MAX} levels")
    match value:
        case dict():
            return {_key(key): _as_json(inner, depth + 1) for key, inner in value.items()}
        case list():
            return [_as_json(inner, depth + 1) for inner in value]
        case float() if not math.isfinite(value):
            raise status.bad_request("the body holds a number that JSON cannot express")
        case bool() | int() | float() | str() | None:
            return value
        case _:
            raise status.bad_request(f"the body holds a {type(value).__name__}, which JSON cannot express")


def _key(key: Any) -> str:
    text = kubectl_yaml.key_text(key)
    if text is None:
        raise status.bad_request("the body holds a mapping with a key that is not text")
    return text


# --- Encoding ---------------------------------------------------------------------------------------------------------


def encode(tree: Any) -> bytes:
    try:
        return msgspec.json.encode(tree)
    except (OverflowError, RecursionError, ValueError) as error:
        raise status.bad_request(f"the object cannot be written as JSON: {error}") from None


def to_yaml(body: bytes) -> bytes:
    return kubectl_yaml.dump(msgspec.json.decode(body), sort_keys=True).encode()


def check_size(body: bytes) -> None:
    if len(body) > OBJECT_BYTES:
        raise status.StatusError(
            413, "RequestEntityTooLarge", f"the object is {len(body)} bytes long; at most {OBJECT_BYTES} are kept"
        )
