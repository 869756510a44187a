"""Embedded resources (`x-kubernetes-embedded-resource`): their apiVersion, kind and metadata are validated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from kubemachinery.field_errors import ErrorType
from kubemachinery.structural.node import Json, SchemaNode
from kubemachinery.structural.values import Finding, within

Search = Callable[[Json], list[Finding]]

_KIND: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.IGNORECASE)
_METADATA_TYPES: Final[dict[str, type]] = {
    "annotations": dict,
    "finalizers": list,
    "generateName": str,
    "labels": dict,
    "name": str,
    "namespace": str,
    "ownerReferences": list,
    "uid": str,
}


def compile_embedded(node: SchemaNode) -> Search | None:
    """The check of embedded resources below a node; None when there are none."""
    children = {name: found for name, child in node.fields.items() if (found := compile_embedded(child))}
    additional = compile_embedded(node.additional) if node.additional is not None else None
    items = compile_embedded(node.items) if node.items is not None else None
    if not (node.embedded or children or additional or items):
        return None

    def search(value: Json) -> list[Finding]:
        findings: list[Finding] = []
        if type(value) is dict:
            if node.embedded:
                findings += _identity(value)
            for name, item in value.items():
                if name in children:
                    findings += within(f".{name}", children[name](item))
                elif additional is not None and name not in node.fields:
                    findings += within(f"[{name}]", additional(item))
        elif type(value) is list and items is not None:
            for index, item in enumerate(value):
                findings += within(f"[{index}]", items(item))
        return findings

    return search


def _identity(value: dict[str, Json]) -> Iterator[Finding]:
    for name, is_valid in (("apiVersion", _is_api_version), ("kind", _is_kind)):
        if name not in value:
            yield Finding(ErrorType.REQUIRED, "", steps=[f".{name}"])
        elif not isinstance(text := value[name], str):
            yield Finding(ErrorType.INVALID, "must be a string", text, [f".{name}"])
        elif not text:
            yield Finding(ErrorType.INVALID, "must not be empty", text, [f".{name}"])
        elif not is_valid(text):
            yield Finding(ErrorType.INVALID, f"is not a proper {name}", text, [f".{name}"])
    metadata = value.get("metadata", {})
    if not isinstance(metadata, dict):
        yield Finding(ErrorType.INVALID, "must be an object", metadata, [".metadata"])
        return
    for name, expected in _METADATA_TYPES.items():
        if metadata.get(name) is not None and not isinstance(metadata[name], expected):
            yield Finding(ErrorType.INVALID, "is of the wrong type", metadata[name], [f".{name}", ".metadata"])


def _is_api_version(text: str) -> bool:
    return text.count("/") <= 1


def _is_kind(text: str) -> bool:
    return _KIND.fullmatch(text) is not None
