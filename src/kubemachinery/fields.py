"""Declarations of API fields: description, default, limits and validation rules.

Every field of an API type is declared once, as `Annotated[T, Field("description", limits…)]`. The type determines the
kind of value; the `Field` has everything else. CRDs, OpenAPI documents, defaulting, validation and the reference pages
are derived from it (see `pykueue.api.schema`).

A `Field` without a description is a named set of limits, such as `Subdomain` below. Annotations are merged, and the
outer one wins: `Annotated[Subdomain, Field("The queue.")]` has the limits of the inner and the description of the
outer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from kubemachinery.quantity import QuantityText

T = TypeVar("T")


class ValidationRule(msgspec.Struct, frozen=True):
    """A CEL rule over `self` (and `oldSelf`, on update), and the message when it does not hold."""

    cel: str
    message: str
    # The path of the error, relative to the value with the rule (`.name`).
    field_path: str | None = None


IMMUTABLE: Final = ValidationRule("self == oldSelf", "cannot be changed once set")


# Compared by identity: a default may be a dict, and annotations must be hashable.
class Field(msgspec.Struct, frozen=True, eq=False):
    """Description, default and limits of one field; the limits have the names of JSON Schema and Kubernetes."""

    meaning: str = ""
    default: Any = msgspec.UNSET
    enum: tuple[str, ...] | type[StrEnum] | None = None
    format: str | None = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    # How server-side apply merges a list (atomic, set, map) or a map (atomic, granular).
    list_type: str | None = None
    list_map_keys: tuple[str, ...] = ()
    map_type: str | None = None
    nullable: bool = False
    # Text or number, as quantities are.
    int_or_string: bool = False
    # Unknown fields are kept instead of pruned.
    preserve_unknown: bool = False
    rules: tuple[ValidationRule, ...] = ()

    def refined_by(self, outer: Field) -> Field:
        """This field refined by `outer`: values set in `outer` replace those of this one; rules are concatenated."""
        if self is NOTHING:
            return outer
        values = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(outer, name)) != getattr(NOTHING, name) and name != "rules"
        }
        return replace(self, **values, rules=self.rules + outer.rules)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that `enum` allows, as plain text; empty without an enum."""
        return tuple(str(choice) for choice in self.enum or ())


# A field without any declaration.
NOTHING: Final = Field()


class RequiredDefault:
    """Makes the value of a required field that is absent. A class of its own, so that `schema` recognizes it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> Any:
        return self._make()


def required(make: Callable[[], T]) -> T:
    """The Python default of a field that the API requires: `make()` is its value while it is absent.

    Unlike an ordinary default it is always written: an API server refuses a Condition without a message, even when the
    message is empty.
    """
    stand_in: T = msgspec.field(default_factory=RequiredDefault(make))
    return stand_in


def always(value: T) -> T:
    """The Python default of a field that is always written, such as `kind`."""
    constant: T = msgspec.field(default_factory=lambda: value)
    return constant


# --- Limits that many fields share ------------------------------------------------------------------------------------

LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUALIFIED_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

Int32: TypeAlias = Annotated[int, Field(format="int32")]
Int64: TypeAlias = Annotated[int, Field(format="int64")]
Time: TypeAlias = Annotated[str, Field(format="date-time")]
Label: TypeAlias = Annotated[str, Field(max_length=63, pattern=LABEL_PATTERN)]
Subdomain: TypeAlias = Annotated[str, Field(max_length=253, pattern=SUBDOMAIN_PATTERN)]
# Quantities stay text; `quantity.parse` converts them to exact numbers for calculations.
Quantity: TypeAlias = Annotated[QuantityText, Field(int_or_string=True, pattern=QUANTITY_PATTERN)]
