"""What a field of the API says of itself: its meaning, its default, its limits, its rules.

Every field of a type in this room is written once, as `Annotated[T, Field("what it means", limits…)]`. The type checks
what kind of value it is; everything else that people and API servers want to know stands in the `Field`. CRDs, OpenAPI
documents, defaulting, validation and the reference pages are derived from it (see `schema`).

A `Field` without a meaning is a set of limits with a name, such as `Subdomain` below. Annotations add up, and what
stands further out wins: `Annotated[Subdomain, Field("The queue.")]` has the limits of one and the meaning of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from kubemachinery.quantity import QuantityText

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """A rule in CEL over `self` (and `oldSelf`, on update), and the sentence for those who break it."""

    cel: str
    message: str
    # Where the complaint points to, as a path from the place that carries the rule (`.name`).
    field_path: str | None = None


IMMUTABLE: Final = ValidationRule("self == oldSelf", "cannot be changed once set")


# Compared by identity: a default may be a dict, and annotations want to be hashed.
@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Meaning, default and limits of one field; the names of the limits are those of JSON Schema and Kubernetes."""

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
    # What the schema does not name is kept instead of pruned.
    preserve_unknown: bool = False
    rules: tuple[ValidationRule, ...] = ()

    def refined_by(self, outer: Field) -> Field:
        """This field as `outer` refines it: whatever `outer` says replaces what is said here; rules add up."""
        said = {
            part.name: value
            for part in fields(outer)
            if (value := getattr(outer, part.name)) != getattr(NOTHING, part.name) and part.name != "rules"
        }
        return replace(self, **said, rules=self.rules + outer.rules)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that `enum` allows, as plain text; none when anything goes."""
        return tuple(str(choice) for choice in self.enum or ())


# A field of which nothing is said.
NOTHING: Final = Field()


class RequiredDefault:
    """Makes the stand-in for a required field that is absent. A type of its own, so that the schema can tell."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> Any:
        return self._make()


def required(make: Callable[[], T]) -> T:
    """The Python default of a field that the API requires: `make()` stands in while it is absent.

    Unlike an ordinary default it is always written: a Condition whose message is empty still has a message, and an API
    server refuses one without.
    """
    stand_in: T = msgspec.field(default_factory=RequiredDefault(make))
    return stand_in


def always(value: T) -> T:
    """The Python default of a field that is written even when nobody set it, such as `kind`."""
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
# Quantities stay as they came; `quantity.parse` makes exact numbers of them where somebody calculates.
Quantity: TypeAlias = Annotated[QuantityText, Field(int_or_string=True, pattern=QUANTITY_PATTERN)]
