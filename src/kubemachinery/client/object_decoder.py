"""Decoding of the objects of one kind to a type, for informers.

An event of a watch is decoded in one pass. If it leaves the generation of the object as it was, the specification is
not decoded: that of the cached object is the same. Most events of a Workload are such, and pod templates may be most
of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import FieldInfo, replace

from kubemachinery import codec
from kubemachinery.meta import ObjectMeta

S = TypeVar("S", bound=msgspec.Struct)

_Read: TypeAlias = Callable[[bytes], Any]

_ADDED: Final = b'{"type":"ADDED",'
_MODIFIED: Final = b'{"type":"MODIFIED",'
# What is decoded at every event, and the fields of an object whose specification is known by its generation.
_PARTS: Final = ("metadata", "status")
_FIELDS: Final = frozenset({"api_version", "kind", "metadata", "spec", "status"})


class DecodedEvent(NamedTuple, Generic[S]):
    metadata: ObjectMeta
    value: S


class ObjectDecoder(Generic[S]):
    """A function that decodes the JSON of an object to `type_`.

    `counts_generations` states that every change of the specification changes `metadata.generation`. That is so for
    custom resources with a status subresource.
    """

    def __init__(
        self, type_: type[S], *, counts_generations: bool = False, then: Callable[[S], S] | None = None
    ) -> None:
        """`then` gets every value whose specification was decoded, and returns the value to keep."""
        self._type = type_
        self._counts_generations = counts_generations
        self._then = then

    def __call__(self, data: bytes) -> S:
        return self._kept(codec.decode(data, self._type))

    def event(self, line: bytes, cached: Callable[[ObjectMeta], S | None]) -> DecodedEvent[S] | None:
        """The object of an event that adds or changes it. None for other events, and for an object that does not
        decode at once, such as one with null in place of a list. `cached` returns the present value of the object with
        this metadata."""
        try:
            if line.startswith(_MODIFIED):
                return self._with_cached_spec(line, cached) or self._whole(line)
            return self._whole(line) if line.startswith(_ADDED) else None
        except msgspec.DecodeError:
            return None

    def _whole(self, line: bytes) -> DecodedEvent[S]:
        value = self._kept(self._read_event(line).object)
        return DecodedEvent(cast(Any, value).metadata, value)

    def _with_cached_spec(self, line: bytes, cached: Callable[[ObjectMeta], S | None]) -> DecodedEvent[S] | None:
        if self._read_parts is None:
            return None
        parts = self._read_parts(line).object
        metadata: ObjectMeta = parts.metadata
        found = cached(metadata) if metadata.generation else None
        if found is None:
            return None
        before: ObjectMeta = cast(Any, found).metadata
        if before.generation != metadata.generation or before.uid != metadata.uid:
            return None
        return DecodedEvent(metadata, replace(found, **msgspec.structs.asdict(parts)))

    def _kept(self, value: S) -> S:
        return self._then(value) if self._then is not None else value

    @cached_property
    def _read_event(self) -> _Read:
        return _event_decoder(self._type)

    @cached_property
    def _read_parts(self) -> _Read | None:
        return _parts_decoder(self._type) if self._counts_generations else None


# One for each type: a process may have many informers of one kind, and each decoder has classes of its own.
@cache
def _event_decoder(type_: type[Any]) -> _Read:
    return msgspec.json.Decoder(msgspec.defstruct("Event", [("object", type_)], gc=False)).decode


@cache
def _parts_decoder(type_: type[Any]) -> _Read | None:
    """Reads all but the specification, for a type that has nothing else."""
    fields = msgspec.structs.fields(type_)
    if not _FIELDS.issuperset(field.name for field in fields):
        return None
    parts = [(field.name, field.type, _default(field)) for field in fields if field.name in _PARTS]
    return _event_decoder(msgspec.defstruct(f"{type_.__name__}Parts", parts, rename="camel", gc=False))


def _default(field: FieldInfo) -> Any:
    return msgspec.field(default_factory=field.default_factory) if field.default is msgspec.NODEFAULT else field.default
