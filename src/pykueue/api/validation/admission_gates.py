"""The annotation that holds a job back until others agree: a comma list of gates that only ever gets shorter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error

ANNOTATION: Final = labels.ADMISSION_GATED_BY
PATH: Final = f"metadata.annotations[{ANNOTATION}]"
GATE_LENGTH_MAX: Final = 63

# Characters of a URL path that need no escape, and escapes.
_URL_PATH: Final = re.compile(r"(?:[A-Za-z0-9/\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})+")


def gates(tree: object) -> list[str]:
    """The gates that hold an object, in their order; none where the annotation is absent or empty."""
    written = unstructured.text(unstructured.get(tree, "metadata", "annotations", ANNOTATION))
    return [gate.strip() for gate in written.split(",")] if written else []


def validate_create(tree: Tree) -> Iterator[FieldError]:
    value = unstructured.get(tree, "metadata", "annotations", ANNOTATION)
    seen: set[str] = set()
    for gate in gates(tree):
        if not gate:
            yield field_error.invalid(PATH, value, "must not have an empty item")
        elif gate in seen:
            yield field_error.invalid(PATH, value, f"names the gate {gate} twice")
        else:
            yield from _gate(gate)
        seen.add(gate)


def validate_update(new: Tree, old: Tree) -> Iterator[FieldError]:
    """In addition to `validate_create`: no gate may be added; all may be removed."""
    before, added = gates(old), set(gates(new)) - set(gates(old))
    if added and not before:
        yield field_error.forbidden(PATH, "cannot be added to an object that was made without gates")
    elif added:
        yield field_error.forbidden(
            PATH, f"gates can only be removed, and {', '.join(sorted(added))} was not there before"
        )


def _gate(gate: str) -> Iterator[FieldError]:
    domain, slash, path = gate.partition("/")
    if not slash or not path or not _URL_PATH.fullmatch(path):
        yield field_error.invalid(PATH, gate, "a gate is a domain and a path, such as example.com/budget")
    else:
        yield from field_error.invalid_each(PATH, gate, meta.check_subdomain_name(domain))
    if len(gate) > GATE_LENGTH_MAX:
        yield field_error.too_long(PATH, f"a gate must be no more than {GATE_LENGTH_MAX} characters")
