"""Defaulting: the values of absent fields, and the removal of nulls where null is not allowed.

A default is set only in an object that exists. A null where the schema does not allow null is replaced by the default,
or removed without one. The tree is copied only where a value changes.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

from kubemachinery.structural.node import ABSENT, Json, SchemaNode

Fill = Callable[[Json], Json]


def compile_defaulting(node: SchemaNode) -> Fill:
    """The defaulting function for a value of this schema."""
    return _fill_container(node) or _as_it_is


def _as_it_is(value: Json) -> Json:
    return value


def _fill_container(node: SchemaNode) -> Fill | None:
    """The defaulting function of an object or list; None when nothing below has a default."""
    fill_object = _fill_object(node) if node.properties or node.additional else None
    fill_list = _fill_list(node.items) if node.items is not None else None
    if fill_object is None and fill_list is None:
        return None

    def fill(value: Json) -> Json:
        if type(value) is dict and fill_object is not None:
            return fill_object(value)
        if type(value) is list and fill_list is not None:
            return fill_list(value)
        return value

    return fill


def _fill_object(node: SchemaNode) -> Fill:
    children = {name: _fill_container(child) for name, child in node.fields.items()}
    additional = _fill_container(node.additional) if node.additional is not None else None
    makers = {name: _maker(child) for name, child in node.fields.items() if child.default is not ABSENT}
    make_additional = _maker(node.additional) if node.additional and node.additional.default is not ABSENT else None

    def fill_object(value: dict[str, Json]) -> dict[str, Json]:
        filled = value
        for name, item in value.items():
            if item is None:
                child = node.child(name)
                if child is None or child.nullable:
                    continue
                filled = dict(value) if filled is value else filled
                make = makers.get(name) if name in children else make_additional
                if make is None:
                    del filled[name]
                else:
                    filled[name] = make()
            elif (fill := children.get(name, additional)) is not None and (new := fill(item)) is not item:
                filled = dict(value) if filled is value else filled
                filled[name] = new
        for name, make in makers.items():
            if name not in filled:
                filled = dict(value) if filled is value else filled
                filled[name] = make()
        return filled

    return fill_object


def _maker(node: SchemaNode) -> Callable[[], Json]:
    """A function that makes the default of a node, completed with the defaults below it."""
    return fresh(compile_defaulting(node)(node.default))


def _fill_list(items: SchemaNode) -> Fill | None:
    fill_item = _fill_container(items)
    replace_null = not items.nullable and items.default is not ABSENT
    if fill_item is None and not replace_null:
        return None
    make = _maker(items) if replace_null else None

    def fill(item: Json) -> Json:
        if item is None:
            return None if make is None else make()
        return item if fill_item is None else fill_item(item)

    def fill_list(value: list[Json]) -> list[Json]:
        filled = [fill(item) for item in value]
        return value if all(map(is_, filled, value)) else filled

    return fill_list


def fresh(value: Json) -> Callable[[], Json]:
    """A function that copies a JSON value, so that no two trees share a mutable default."""
    if isinstance(value, dict):
        members = {name: fresh(item) for name, item in value.items()}
        return lambda: {name: make() for name, make in members.items()}
    if isinstance(value, list):
        entries = [fresh(item) for item in value]
        return lambda: [make() for make in entries]
    return lambda: value
