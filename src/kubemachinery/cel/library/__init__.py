"""Every function an expression may call, as tables from signature to implementation, one module per family.

A signature has the form of its call: `string.charAt(int) -> string` on a receiver, `size(list<T>) -> int` without one,
`sets::contains(list<T>, list<T>) -> bool` in a name space. Operators are functions with underscores for their operands.
Functions that Kubernetes does not offer to rules of CRDs (`authorizer`) are not here, so they do not compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kubemachinery.cel.library import (
    formats,
    lists,
    network,
    optionals,
    quantities,
    regex,
    semver,
    sets,
    standard,
    strings,
    times,
    urls,
)
from kubemachinery.cel.types import CelType, Signature, signature
from kubemachinery.cel.values import Value

Function = Callable[..., Value]

_TABLES: Final[tuple[Mapping[str, Function], ...]] = (
    standard.FUNCTIONS,
    times.FUNCTIONS,
    strings.FUNCTIONS,
    regex.FUNCTIONS,
    lists.FUNCTIONS,
    sets.FUNCTIONS,
    optionals.FUNCTIONS,
    quantities.FUNCTIONS,
    network.FUNCTIONS,
    urls.FUNCTIONS,
    semver.FUNCTIONS,
    formats.FUNCTIONS,
)

# Their cost does not depend on their arguments.
_CONSTANT: Final = frozenset({"size", "type", "dyn", "optional.of", "value", "hasValue"})
_GROWING: Final = frozenset({"string", "bytes", "list", "map", "dyn"})


class Overload(msgspec.Struct, frozen=True):
    """One way to call a function."""

    signature: Signature
    function: Function

    @property
    def params(self) -> tuple[CelType, ...]:
        return self.signature.params

    @property
    def grows(self) -> bool:
        """Whether the work depends on the size of the arguments, so that they have to be paid for."""
        return self.signature.name not in _CONSTANT and any(param.name in _GROWING for param in self.params)


def _by_name() -> dict[tuple[str, bool], list[Overload]]:
    found: dict[tuple[str, bool], list[Overload]] = {}
    for table in _TABLES:
        for text, function in table.items():
            overload = Overload(signature(text), function)
            found.setdefault((overload.signature.name, overload.signature.member), []).append(overload)
    return found


_OVERLOADS: Final = _by_name()


def overloads(name: str, *, member: bool) -> list[Overload]:
    """The ways to call a function of this name; none if there is no such function."""
    return _OVERLOADS.get((name, member), [])
