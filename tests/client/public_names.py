"""The public names of the Python API, one per line: `python -m client.public_names` in `tests` prints them.

Public are `pykueue.Client`, `pykueue.AsyncClient`, `pykueue.testing`, the pytest fixtures, and what their methods take and
return: names of parameters and fields, not types. The types of `pykueue.api` are not listed: they are the API of Kueue.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator

import pykueue
from pykueue import pytest_plugin, testing


def lines() -> list[str]:
    """All public names, in alphabetical order."""
    return sorted(set(_lines()))


def _lines() -> Iterator[str]:
    roots: dict[str, type] = {"pykueue.Client": pykueue.Client, "pykueue.AsyncClient": pykueue.AsyncClient}
    for name, value in vars(testing).items():
        if not name.startswith("_") and getattr(value, "__module__", "") == testing.__name__:
            if isinstance(value, type):
                roots[f"pykueue.testing.{name}"] = value
            elif callable(value):
                yield f"pykueue.testing.{name}{_parameters(value)}"
    yield from (f"pykueue.{name}" for name in pykueue.__all__)
    for name in _fixtures():
        yield f"fixture {name}"
    values: set[type] = set()
    for name, root in roots.items():
        for method, member in _public(root):
            if isinstance(member, property):
                yield f"{name}.{method}"
                continue
            yield f"{name}.{method}{_parameters(member)}"
            values |= _own_types(member) if method != "__init__" else set()
    for value in _closure(values):
        yield from (f"{value.__name__}.{field}" for field in _fields(value))


def _fixtures() -> Iterator[str]:
    for name, value in vars(pytest_plugin).items():
        if type(value).__name__ == "FixtureFunctionDefinition":
            yield name


def _public(owner: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(owner).items():
        if not name.startswith("_") or (name == "__init__" and owner is not testing.Kueue):  # `system` makes one
            yield name, member


def _parameters(function: object) -> str:
    """Names, kinds and whether a default exists; options of `**kwargs` are listed as fields of their TypedDict."""
    assert callable(function)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown: list[str] = []
    is_keyword_only = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            shown.append("*")
        star = next((mark for kind, mark in stars.items() if kind is parameter.kind), "")
        shown.append(f"{star}{parameter.name}" + ("=…" if parameter.default is not parameter.empty else ""))
    return f"({', '.join(shown)})"


def _own_types(function: object) -> set[type]:
    """The classes of this project in the annotations of a function."""
    found: set[type] = set()
    for hint in typing.get_type_hints(function, include_extras=True).values():
        found |= set(_inside(hint))
    return found


def _inside(hint: object) -> Iterator[type]:
    if arguments := typing.get_args(hint):
        for inner in arguments:
            yield from _inside(inner)
    elif isinstance(hint, type) and re.match(r"pykueue\.(?!api\.)", hint.__module__):
        yield hint


def _closure(values: set[type]) -> list[type]:
    """These classes and those of their fields."""
    found, todo = set(values), list(values)
    while todo:
        hints = typing.get_type_hints(todo.pop())
        new = {inner for hint in hints.values() for inner in _inside(hint)} - found
        found |= new
        todo += new
    return sorted(found, key=lambda each: each.__name__)


def _fields(value: type) -> Iterator[str]:
    """Fields, members of an enumeration, and public properties and methods."""
    yield from (name for name in typing.get_type_hints(value) if not name.startswith("_"))
    for name, member in vars(value).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property | classmethod)):
            yield name
    if members := getattr(value, "__members__", None):
        yield from members


if __name__ == "__main__":
    print("\n".join(lines()))
