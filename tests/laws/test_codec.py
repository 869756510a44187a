"""The law of reading and writing: what is encoded is read again."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery import codec
from pykueue.api import kube, kueue

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


@given(st.sampled_from(TYPES).flatmap(values))
def test_what_is_encoded_is_read_again(value: Any) -> None:
    assert codec.decode(codec.encode(value), type(value)) == value
    assert codec.from_tree(codec.to_tree(value), type(value)) == value
