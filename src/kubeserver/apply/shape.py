"""How values of one schema merge: which maps and lists are granular, and which are atomic.

A `Shape` holds the rules for each of the three forms of a JSON value: scalar, map, list. It is compiled from an OpenAPI
v3 schema lazily, child by child: the CRD of a Workload has thousands of nodes and one apply looks at a few dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeserver.apply import paths
from kubeserver.builtin_types import schemas

Schema = Mapping[str, Any]

# Longer strings are no names, and are not cached.
_NAME_LENGTH: Final = 63


class MissingListKey(Exception):
    """A list item has no key that distinguishes it from the other items."""


class Shape:
    """The merging rules of one schema node. At most one of the alternatives fits a value that is not null."""

    __slots__ = ("deduced", "list", "map", "scalar", "zero")

    def __init__(
        self,
        scalar: str | None = None,
        map: MapShape | None = None,
        list: ListShape | None = None,
        *,
        deduced: bool = False,
        zero: Mapping[str, Any] | None = None,
    ) -> None:
        self.scalar = scalar
        self.map = map
        self.list = list
        self.deduced = deduced  # no schema here: the form of the value decides
        self.zero = zero or {}  # of a kind: the object before anything is set

    @classmethod
    def of(cls, schema: Schema | None, zero: Mapping[str, Any] | None = None) -> Shape:
        """Return the shape of one version of a kind, with the metadata of every kind.

        None is a kind without a schema: the form of each value decides. `zero` is what an object of the kind is
        before anything is set: nothing for a custom resource, the zero value of its type for a built-in kind.
        """
        if schema is None:
            return DEDUCED
        return Shape(map=_map(_with_metadata(schema), preserve=_preserves(schema)), zero=zero)


class MapShape:
    """A map: its named fields, and what any other key holds (None: there are no others)."""

    __slots__ = ("_compiled", "_schemas", "atomic", "other")

    def __init__(
        self, schemas: Mapping[str, Callable[[], Shape]], other: Callable[[], Shape] | None, *, atomic: bool
    ) -> None:
        self._schemas = schemas
        self._compiled: dict[str, Shape] = {}
        self.other = other
        self.atomic = atomic

    def is_named(self, field: str) -> bool:
        return field in self._schemas

    @property
    def is_open(self) -> bool:
        return self.other is not None

    def child(self, field: str) -> Shape | None:
        """The shape of one field's value; None where the schema knows no such field."""
        found = self._compiled.get(field)
        if found is not None:
            return found
        make = self._schemas.get(field)
        if make is None:
            # All other keys share one shape, cached under the empty name, which no field has.
            if self.other is None:
                return None
            shared = self._compiled.get("")
            if shared is None:
                shared = self._compiled[""] = self.other()
            return shared
        shape = self._compiled[field] = make()
        return shape


class ListShape:
    """A list: `atomic`, a set of scalars (no `keys`), or a map list whose items are identified by `keys`."""

    __slots__ = ("_item", "_make_item", "atomic", "defaults", "keys")

    def __init__(
        self,
        item: Callable[[], Shape],
        *,
        atomic: bool,
        keys: tuple[str, ...] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._make_item = item
        self._item: Shape | None = None
        self.atomic = atomic
        self.keys = keys
        self.defaults = defaults or {}

    @property
    def item(self) -> Shape:
        if self._item is None:
            self._item = self._make_item()
        return self._item

    def element(self, item: Any) -> str:
        """Return the path element of an item; raise `MissingListKey` with the reason where there is none."""
        if not self.keys:
            if isinstance(item, (dict, list)):
                raise MissingListKey("an item of a set must be a plain value")
            if item is None:
                raise MissingListKey("an item of a set must not be null")
            return paths.value_element(item)
        if not isinstance(item, dict):
            raise MissingListKey("an item of a list with keys must be an object")
        if len(self.keys) == 1 and type(name := item.get(self.keys[0])) is str and len(name) <= _NAME_LENGTH:
            return paths.name_element(self.keys[0], name)
        keys = {}
        for name in self.keys:
            value = item.get(name, msgspec.UNSET)
            if value is msgspec.UNSET:
                value = self.defaults.get(name, msgspec.UNSET)
            if value is not msgspec.UNSET:
                keys[name] = value
        if not keys:
            raise MissingListKey(f"an item has none of the keys of its list: {', '.join(self.keys)}")
        return paths.key_element(keys)


def _preserves(schema: Schema) -> bool:
    return schema.get("x-kubernetes-preserve-unknown-fields") is True


def _with_metadata(schema: Schema) -> Schema:
    """Return the schema with the fields of every object: apiVersion, kind, metadata."""
    common = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": schemas.inlined("meta.v1.ObjectMeta"),
    }
    return {**schema, "properties": {**(schema.get("properties") or {}), **common}}


def _compile(schema: Schema, *, preserve: bool) -> Shape:
    preserve = preserve or _preserves(schema)
    if schema.get("x-kubernetes-embedded-resource") is True:
        schema = _with_metadata(schema)
    sort = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        return SCALAR
    if sort == "object":
        return Shape(map=_map(schema, preserve=preserve))
    if sort == "array":
        return Shape(list=_list(schema, preserve=preserve))
    if sort == "":
        if preserve and "properties" not in schema and "items" not in schema:
            return DEDUCED
        return Shape(scalar="any", map=_map(schema, preserve=preserve), list=_list(schema, preserve=preserve))
    if sort in ("integer", "number"):
        return NUMBER
    if sort == "boolean":
        return BOOLEAN
    # A string with a format may be written as something else (int-or-string), so only plain ones are held to it.
    return STRING if schema.get("format", "") in ("", "byte") else SCALAR


def _map(schema: Schema, *, preserve: bool) -> MapShape:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    other: Callable[[], Shape] | None = None
    if isinstance(additional, Mapping):
        other = _later(additional, preserve)
    elif additional is True or (additional is None and (preserve or not properties)):
        other = _deduced
    return MapShape(
        {name: _later(child, preserve) for name, child in properties.items()},
        other,
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
    )


def _list(schema: Schema, *, preserve: bool) -> ListShape:
    items: Schema | None = schema.get("items")
    sort = schema.get("x-kubernetes-list-type", "atomic")
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if sort == "map" else ()
    fields: Mapping[str, Schema] = (items or {}).get("properties") or {}
    defaults = {key: fields[key]["default"] for key in keys if "default" in fields.get(key, {})}
    return ListShape(
        _later(items, preserve) if items is not None else _opaque, atomic=sort == "atomic", keys=keys, defaults=defaults
    )


def _later(schema: Schema, preserve: bool) -> Callable[[], Shape]:
    return lambda: _compile(schema, preserve=preserve)


def _deduced() -> Shape:
    return DEDUCED


def _opaque() -> Shape:
    return OPAQUE


SCALAR: Final = Shape(scalar="any")
NUMBER: Final = Shape(scalar="number")
BOOLEAN: Final = Shape(scalar="boolean")
STRING: Final = Shape(scalar="string")
# Without a schema maps are granular and lists atomic, as in kube-apiserver.
DEDUCED: Final = Shape(
    scalar="any", map=MapShape({}, _deduced, atomic=False), list=ListShape(_opaque, atomic=True), deduced=True
)
# Atomic whatever the value is.
OPAQUE: Final = Shape(scalar="any", map=MapShape({}, _opaque, atomic=True), list=ListShape(_opaque, atomic=True))
