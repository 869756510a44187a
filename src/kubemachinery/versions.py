"""Differences of an older version of a kind from the storage version, as data.

A version is not a second set of types: it is the same fields with a table of differences, which `schema` applies to
the schema that it derived from the types. Places are written as in an error message, `spec.podSets[].count`; the empty
place is the object itself.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kubemachinery.fields import NOTHING, Field, ValidationRule


class FieldRenamed(msgspec.Struct, frozen=True):
    """The field at `place` has another name."""

    place: str
    name: str


class FieldsRemoved(msgspec.Struct, frozen=True):
    """The fields named do not exist in the object at `place`."""

    place: str
    names: tuple[str, ...]


class FieldsAdded(msgspec.Struct, frozen=True):
    """The object at `place` also has the fields of `fields`; they replace fields of the same name."""

    place: str
    fields: type[msgspec.Struct]


class LimitsChanged(msgspec.Struct, frozen=True):
    """The value at `place` does not have the limits named in `without`, and has those of `field`."""

    place: str
    without: tuple[str, ...] = ()
    field: Field = NOTHING


class RequiredFields(msgspec.Struct, frozen=True):
    """The object at `place` requires exactly these fields."""

    place: str
    names: tuple[str, ...]


class RulesReplaced(msgspec.Struct, frozen=True):
    """The value at `place` has these rules instead of its own."""

    place: str
    rules: tuple[ValidationRule, ...]


VersionChange: TypeAlias = FieldRenamed | FieldsRemoved | FieldsAdded | LimitsChanged | RequiredFields | RulesReplaced
