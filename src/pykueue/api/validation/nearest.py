"""The nearest known name for an unknown one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from kubemachinery import unstructured
from pykueue.api import registry, schema


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or empty when no known name is close."""
    by_lower = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[nearest[0]]}?" if nearest else ""


def field_meant(tree: object, path: str) -> str:
    """The same for an unknown field of one of pykueue's kinds."""
    found = registry.CUSTOM.find(
        unstructured.text(unstructured.get(tree, "apiVersion")), unstructured.text(unstructured.get(tree, "kind"))
    )
    if not path or path.endswith("."):  # a field without a name
        return ""
    *parents, name = re.findall(r"[^.\[\]]+", path)
    place: Any = schema.of(found[0], found[1].name) if found is not None else {}
    for parent in parents:
        place = unstructured.mapping(
            place.get("items") if parent.isdigit() else unstructured.get(place, "properties", parent)
        )
    return did_you_mean(name, unstructured.mapping(place.get("properties")))
