"""Laws of reading and writing: what is encoded is read again, and writing back changes what was changed, no more."""

from __future__ import annotations

import copy
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.api import codec, kube, kueue

# Types that between them have every form a field can take: keyed lists, plain lists, maps, quantities, nested objects.
# Whole objects seldom get deep within a few choices, so their parts stand beside them.
TYPES = (
    kueue.Workload,
    kueue.WorkloadSpec,
    kueue.WorkloadStatus,
    kueue.Admission,
    kueue.ClusterQueue,
    kueue.ClusterQueueSpec,
    kueue.ResourceFlavorSpec,
    kueue.TopologySpec,
    kube.Pod,
    kube.PodSpec,
    kube.Container,
)

# Few words, so that keys collide and entries are equal now and then.
WORDS = st.sampled_from(["", "a", "b", "main", "None", "ä"])
UNKNOWN = "x-unknown"


@cache
def objects(type_: type[msgspec.Struct], depth: int) -> st.SearchStrategy[Any]:
    """Values of a type with a few of its fields set, down to some depth."""
    if depth == 0:
        return st.just(type_())
    members = {member.name: values(member.type, depth - 1) for member in msgspec.structs.fields(type_)}
    chosen = st.lists(st.sampled_from(sorted(members)), max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: members[name] for name in names})).map(
        lambda given: type_(**given)
    )


def values(annotation: Any, depth: int = 5) -> st.SearchStrategy[Any]:
    """Values of any type that the fields of the API are made of."""
    if get_origin(annotation) is Annotated:
        return values(get_args(annotation)[0], depth)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return objects(annotation, depth)
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return st.lists(values(arguments[0], depth), min_size=1, max_size=3).map(tuple)
    if get_origin(annotation) is dict:
        entries = values(arguments[1], depth) if arguments[1] is not Any else WORDS
        return st.dictionaries(WORDS, entries, max_size=2)
    if arguments:
        return st.one_of(*[values(argument, depth) for argument in arguments])
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        str: WORDS,
        int: st.integers(0, 2),
        bool: st.booleans(),
        float: st.sampled_from([0.5, 2.25]),
        type(None): st.none(),
    }
    return scalars[annotation]


PAIRS = st.sampled_from(TYPES).flatmap(lambda type_: st.tuples(values(type_), values(type_)))


def sprinkled(value: Any, annotation: Any, draw: Any) -> Any:
    """A tree with a field that no type names in some of its objects, never in maps, whose keys belong to users."""
    if get_origin(annotation) is Annotated:
        return sprinkled(value, get_args(annotation)[0], draw)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct) and isinstance(value, dict):
        types = {member.encode_name: member.type for member in msgspec.structs.fields(annotation)}
        tree = {key: sprinkled(entry, types[key], draw) for key, entry in value.items()}
        return {**tree, UNKNOWN: draw(st.integers(0, 99))} if draw(st.booleans()) else tree
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if isinstance(value, list):
        return [sprinkled(entry, arguments[0], draw) for entry in value]
    if get_origin(annotation) is dict and isinstance(value, dict):
        return {key: sprinkled(entry, arguments[1], draw) for key, entry in value.items()}
    return sprinkled(value, arguments[0], draw) if len(arguments) == 1 else value


def unknown(tree: Any) -> int:
    """How many unknown fields a tree holds."""
    if isinstance(tree, dict):
        return (UNKNOWN in tree) + sum(unknown(entry) for entry in tree.values())
    return sum(unknown(entry) for entry in tree) if isinstance(tree, list) else 0


@given(PAIRS)
def test_what_is_encoded_is_read_again(pair: tuple[Any, Any]) -> None:
    value, _ = pair
    assert codec.decode(codec.encode(value), type(value)) == value
    assert codec.from_tree(codec.to_tree(value), type(value)) == value


@given(PAIRS, st.data())
def test_writing_back_leads_to_exactly_the_value_that_was_wanted(pair: tuple[Any, Any], data: st.DataObject) -> None:
    before, after = pair
    raw = sprinkled(codec.to_tree(before), type(before), data.draw)
    kept = copy.deepcopy(raw)
    written = codec.write_back(raw, before, after)
    assert codec.from_tree(written, type(after)) == after
    assert raw == kept


@given(PAIRS, st.data())
def test_writing_back_and_forth_restores_every_known_field(pair: tuple[Any, Any], data: st.DataObject) -> None:
    before, after = pair
    raw = sprinkled(codec.to_tree(before), type(before), data.draw)
    restored = codec.write_back(codec.write_back(raw, before, after), after, before)
    assert codec.from_tree(restored, type(before)) == before


@given(PAIRS, st.data())
def test_writing_back_the_same_is_writing_nothing(pair: tuple[Any, Any], data: st.DataObject) -> None:
    before, _ = pair
    raw = sprinkled(codec.to_tree(before), type(before), data.draw)
    assert codec.write_back(raw, before, before) is raw


def one_change(value: msgspec.Struct, draw: Any) -> msgspec.Struct:
    """The value with one scalar changed somewhere, however deep, and no key of a keyed list."""
    members = {member.name: member for member in msgspec.structs.fields(value)}
    nested = [name for name in members if isinstance(getattr(value, name), msgspec.Struct)]
    listed = [
        name
        for name in members
        if isinstance(getattr(value, name), tuple)
        and getattr(value, name)
        and all(isinstance(entry, msgspec.Struct) for entry in getattr(value, name))
    ]
    inner = nested + listed
    if inner and draw(st.integers(0, 3)):
        name = draw(st.sampled_from(inner))
        held = getattr(value, name)
        if isinstance(held, tuple):
            place = draw(st.integers(0, len(held) - 1))
            return msgspec.structs.replace(
                value, **{name: (*held[:place], one_change(held[place], draw), *held[place + 1 :])}
            )
        return msgspec.structs.replace(value, **{name: one_change(held, draw)})
    scalars = [
        name
        for name in members
        if isinstance(getattr(value, name), (str, int))
        and name not in ("name", "type", "key", "reason", "underlying_cause", "uid")
    ]
    if not scalars:
        return value
    name = draw(st.sampled_from(scalars))
    held = getattr(value, name)
    return msgspec.structs.replace(value, **{name: not held if isinstance(held, bool) else held + type(held)("1")})


@settings(max_examples=400)
@given(PAIRS, st.data())
def test_one_change_anywhere_loses_no_unknown_field(pair: tuple[Any, Any], data: st.DataObject) -> None:
    before, _ = pair
    raw = sprinkled(codec.to_tree(before), type(before), data.draw)
    after = one_change(before, data.draw)
    written = codec.write_back(raw, before, after)
    assert unknown(written) == unknown(raw)
    assert differences(raw, written) <= 1


def differences(one: Any, other: Any) -> int:
    """How many leaves differ, a field that comes or goes being one of them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return sum(differences(one.get(key, UNKNOWN), other.get(key, UNKNOWN)) for key in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return sum(differences(a, b) for a, b in zip(one, other, strict=True))
    return int(one != other)
