"""Objects made up from a schema, each with one thing wrong (or not): a server accepts what its schema permits.

The base of an object is valid as far as the schema can express it: required fields, types, enums, bounds, patterns, keys of
lists. One mutation then touches one place. Rules in CEL may refuse either; both servers must then respond alike.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

Tree = dict[str, Any]
Schema = dict[str, Any]
Path = tuple[str | int, ...]

# Text that fits the patterns which CRDs use for names, keys, times and the like.
_TEXTS: Final = (
    "a",
    "name-1",
    "example.com/name",
    "key",
    "v1",
    "default",
    "one.two",
    "kubernetes.io/hostname",
    "2026-01-01T00:00:00Z",
    "1Gi",
    "100m",
    "5",
    "Reason",
    "10.0.0.1",
    "A",
)
_DEEPEST: Final = 7
_COMMON: Final = ("apiVersion", "kind", "metadata")


class Maker:
    """Makes objects of one schema from a seed."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._schema = schema
        self._random = random.Random(seed)

    def object(self, head: Tree) -> Tree:
        """A valid object, as far as the schema can express it."""
        made = self._value(self._schema, 0)
        body = {key: value for key, value in made.items() if key not in (*_COMMON, "status")}
        return {**head, **body}

    def part(self, field: str) -> Any:
        """A valid value of one field of the object."""
        return self._value(self._schema["properties"][field], 1)

    def mutated(self, tree: Tree) -> tuple[str, Tree]:
        """The object with one thing changed, and what that is."""
        places = [place for place in self._places(tree, self._schema, ()) if place[0][0] not in _COMMON]
        if not places:
            return "nothing", tree
        for _ in range(20):
            path, schema = self._random.choice(places)
            name, mutate = self._random.choice(_MUTATIONS)
            out = copy.deepcopy(tree)
            if mutate(self._random, out, path, schema):
                return f"{name} at {_spelt(path)}", out
        return "nothing", tree

    # --- valid values

    def _value(self, schema: Schema, depth: int) -> Any:
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return self._random.choice((1, "2", "100m"))
        match schema.get("type"):
            case "object":
                return self._map(schema, depth)
            case "array":
                return self._list(schema, depth)
            case "integer":
                low = schema.get("minimum", 0)
                return self._random.randint(low, min(schema.get("maximum", low + 5), low + 5))
            case "number":
                return 1.5
            case "boolean":
                return self._random.random() < 0.5
            case "string":
                return self._text(schema)
        return {}

    def _map(self, schema: Schema, depth: int) -> Tree:
        out: Tree = {}
        required = schema.get("required") or ()
        for name, child in (schema.get("properties") or {}).items():
            wanted = name in required or (depth < _DEEPEST and self._random.random() < (0.9 if depth == 0 else 0.35))
            if wanted:
                value = self._value(child, depth + 1)
                if value is not None:
                    out[name] = value
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and depth < _DEEPEST:
            for _ in range(self._random.randint(0, 2)):
                out[self._random.choice(("cpu", "memory", "key"))] = self._value(extra, depth + 1)
        return out

    def _list(self, schema: Schema, depth: int) -> list[Any]:
        items = schema.get("items") or {}
        low = schema.get("minItems", 0)
        count = self._random.randint(low, max(low, min(schema.get("maxItems", 2), 2)))
        made = [self._value(items, depth + 1) for _ in range(count)]
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for number, item in enumerate(made):
            for key in keys:
                child = (items.get("properties") or {}).get(key, {})
                if "enum" not in child and child.get("type") == "string":
                    item[key] = f"item-{number}"
        if schema.get("x-kubernetes-list-type") == "set":
            made = list(dict.fromkeys(map(str, made))) if made and isinstance(made[0], str) else made[:1]
        return made

    def _text(self, schema: Schema) -> str | None:
        if schema.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        # RE2 takes flags anywhere; Python only at the very beginning.
        pattern = schema.get("pattern")
        if pattern is not None and "(?i)" in pattern:
            pattern = "(?i)" + pattern.replace("(?i)", "")
        low, high = schema.get("minLength", 0), schema.get("maxLength", 1000)
        fitting = [
            text
            for text in _TEXTS
            if low <= len(text) <= high and (pattern is None or re.search(pattern, text) is not None)
        ]
        return self._random.choice(fitting) if fitting else None

    # --- places

    def _places(self, value: Any, schema: Schema, path: Path) -> Iterator[tuple[Path, Schema]]:
        if path:
            yield path, schema
        if isinstance(value, dict):
            properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
            for key, inner in value.items():
                child = properties.get(key, extra)
                if isinstance(child, dict):
                    yield from self._places(inner, child, (*path, key))
        elif isinstance(value, list) and isinstance(schema.get("items"), dict):
            for index, inner in enumerate(value):
                yield from self._places(inner, schema["items"], (*path, index))


def _spelt(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _parent(tree: Tree, path: Path) -> Any:
    at: Any = tree
    for step in path[:-1]:
        at = at[step]
    return at


# --- mutations: each changes the tree in place, and returns whether it could -------------------------------------------

Mutation = Callable[[random.Random, Tree, Path, Schema], bool]


def _remove(_chance: random.Random, tree: Tree, path: Path, _schema: Schema) -> bool:
    parent = _parent(tree, path)
    if not isinstance(parent, dict):
        return False
    del parent[path[-1]]
    return True


def _set(value: Any) -> Mutation:
    def mutate(_chance: random.Random, tree: Tree, path: Path, _schema: Schema) -> bool:
        _parent(tree, path)[path[-1]] = copy.deepcopy(value)
        return True

    return mutate


def _beyond(_chance: random.Random, tree: Tree, path: Path, schema: Schema) -> bool:
    """One beyond a bound, or just on it."""
    value: Any
    if "maximum" in schema:
        value = schema["maximum"] + _chance.choice((0, 1))
    elif "minimum" in schema:
        value = schema["minimum"] - _chance.choice((0, 1))
    elif "maxLength" in schema and schema["maxLength"] < 5000:
        value = "a" * (schema["maxLength"] + _chance.choice((0, 1)))
    elif "minLength" in schema:
        value = "a" * max(0, schema["minLength"] - 1)
    elif schema.get("minItems"):
        value = []
    elif "maxItems" in schema and schema["maxItems"] <= 20:
        current = _parent(tree, path)[path[-1]]
        if not current:
            return False
        value = [copy.deepcopy(current[0]) for _ in range(schema["maxItems"] + 1)]
        for number, item in enumerate(value):
            for key in schema.get("x-kubernetes-list-map-keys") or ():
                item[key] = f"item-{number}"
    else:
        return False
    _parent(tree, path)[path[-1]] = value
    return True


def _extra(_chance: random.Random, tree: Tree, path: Path, schema: Schema) -> bool:
    here = _parent(tree, path)[path[-1]]
    if not isinstance(here, dict):
        return False
    here["zzz"] = _chance.choice((1, "x", {}))
    return True


def _twice(_chance: random.Random, tree: Tree, path: Path, _schema: Schema) -> bool:
    here = _parent(tree, path)[path[-1]]
    if not isinstance(here, list) or not here:
        return False
    here.append(copy.deepcopy(here[0]))
    return True


_MUTATIONS: Final[tuple[tuple[str, Mutation], ...]] = (
    ("nothing there", _remove),
    ("null", _set(None)),
    ("a number", _set(7)),
    ("a negative number", _set(-1)),
    ("a fraction", _set(1.5)),
    ("a text", _set("some text")),
    ("an empty text", _set("")),
    ("upper case", _set("UPPER_case!")),
    ("a truth", _set(True)),
    ("a list", _set([])),
    ("a map", _set({})),
    ("a large number", _set(2**40)),
    ("a bound", _beyond),
    ("a bound again", _beyond),
    ("an unknown field", _extra),
    ("an item twice", _twice),
)
