"""The YAML that kubectl reads and writes: which unquoted scalars are numbers, truth values and null.

kubectl and kube-apiserver convert YAML to JSON by the rules of `sigs.k8s.io/yaml`: YAML 1.1 booleans (`yes`, `off`),
Go's spelling of integers (`017`, `0o17`, `0x1F`, `0b11`, `1_000`), decimal fractions with or without an exponent. There
are no base-60 numbers (`22:22` is text), and a timestamp is text. PyYAML follows other rules, and builds a base-60
number in quadratic time, so neither its resolvers nor its constructors are used here.

`Loader` is the only loader of the project for text that users wrote: the API server and the CLI read the same value
from the same text. `Dumper` quotes every text that `Loader` would read as something else.
"""

from __future__ import annotations

import decimal
import math
import re
import struct
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import yaml

Scalar: TypeAlias = str | int | float | bool | None

# A longer plain scalar is text. Go reads numbers of any length; no number of a Kubernetes object needs more characters,
# and conversion of a long one takes more than linear time.
NUMBER_CHARACTERS_MAX: Final = 1024

_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_WORDS_BEGIN: Final = frozenset(word[:1] for word in _WORDS)
_NUMBERS_BEGIN: Final = frozenset("+-.0123456789")

_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
_FRACTION: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# In a scalar that begins with a point, an underscore separates two digits; in others it is skipped anywhere.
_POINT_FIRST: Final = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_BASES: Final = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = range(2**64)
# From here on Go writes a number with an exponent, which JSON readers parse as a fraction.
_EXPONENT_FROM: Final = 1e21


@lru_cache(maxsize=4096)
def scalar(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar."""
    first = text[:1]
    if first in _WORDS_BEGIN and text in _WORDS:
        return _WORDS[text]
    if first not in _NUMBERS_BEGIN or len(text) > NUMBER_CHARACTERS_MAX:
        return text
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    """The number that a text spells; None where it spells none, or one that no 64-bit number is near to."""
    if text.startswith("."):
        return _fraction(text.replace("_", "")) if _POINT_FIRST.fullmatch(text) else None
    plain = text.replace("_", "")
    if found := _INTEGER.fullmatch(plain):
        base = next(name for name in _BASES if found[name] is not None)
        value = int(found[base], _BASES[base])
        value = -value if found["sign"] == "-" else value
        if value in _INT64 or (value in _UINT64 and not found["sign"]):
            return value
    return _fraction(plain) if _FRACTION.fullmatch(plain) else None


def _fraction(plain: str) -> int | float | None:
    value = float(plain)
    if math.isinf(value):
        return None
    # JSON has one number type: `1e3` becomes 1000, written with the shortest digits that keep the value.
    if value.is_integer() and abs(value) < _EXPONENT_FROM and (whole := int(decimal.Decimal(repr(value)))) in _INT64:
        return whole
    return value


def key_text(key: Hashable) -> str | None:
    """A key as JSON has it; None for one that is no text, number or truth value."""
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int():
            return str(key)
        case float():
            return _float32_text(key)
    return None


def _float32_text(value: float) -> str:
    """The shortest digits that keep a 32-bit number, with an exponent below 1e-4 and from 1e21 on: Go's spelling of the
    key of a map."""
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return "+Inf" if value > 0 else "-Inf"
    for digits in range(9):
        written = f"{single:.{digits}e}"
        if struct.pack("<f", float(written)) == struct.pack("<f", single):
            break
    mantissa, _, exponent = written.partition("e")
    if -4 <= int(exponent) < 21:
        return f"{float(written):.{max(0, digits - int(exponent))}f}"
    return f"{mantissa}e{int(exponent):+03d}"


# --- Loading ----------------------------------------------------------------------------------------------------------

_TAG: Final = "tag:yaml.org,2002:"
MERGE: Final = f"{_TAG}merge"
_TEXT: Final = f"{_TAG}str"


def _tag(text: str) -> str:
    if text == "<<":
        return MERGE
    match scalar(text):
        case None:
            return f"{_TAG}null"
        case bool():
            return f"{_TAG}bool"
        case int():
            return f"{_TAG}int"
        case float():
            return f"{_TAG}float"
    return _TEXT


def _resolve(self: Any, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
    """The tag of a node without one, instead of PyYAML's search through regular expressions."""
    if kind is yaml.ScalarNode:
        return _tag(value) if implicit[0] else _TEXT
    return f"{_TAG}seq" if kind is yaml.SequenceNode else f"{_TAG}map"


class Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """Reads JSON's values only. Tags such as `!!binary` and `!!set`, which JSON has no value for, are errors."""

    yaml_constructors: dict[Any, Any] = {}
    resolve = _resolve


def _construct_scalar(loader: Any, node: yaml.Node) -> Scalar:
    """The value of a scalar whose tag was resolved, or written out: `!!int 5`, `!!int "5"`."""
    text: str = loader.construct_scalar(node)
    value = scalar(text)
    wanted = node.tag.removeprefix(_TAG)
    if isinstance(value, float) and not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, "JSON has no such number", node.start_mark)
    if _tag(text) == node.tag or (wanted == "float" and isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise yaml.constructor.ConstructorError(None, None, f"this is no {wanted}", node.start_mark)


def _construct_text(loader: Any, node: yaml.Node) -> str:
    text: str = loader.construct_scalar(node)
    return text


def _refuse(loader: Any, node: yaml.Node) -> None:
    raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag!r} is not supported", node.start_mark)


for _name in ("null", "bool", "int", "float"):
    Loader.add_constructor(f"{_TAG}{_name}", _construct_scalar)
for _name in ("str", "timestamp", "merge"):
    Loader.add_constructor(f"{_TAG}{_name}", _construct_text)
Loader.add_constructor(f"{_TAG}seq", yaml.SafeLoader.construct_yaml_seq)
Loader.add_constructor(f"{_TAG}map", yaml.SafeLoader.construct_yaml_map)
Loader.add_constructor(None, _refuse)


class Dumper(yaml.CSafeDumper if hasattr(yaml, "CSafeDumper") else yaml.SafeDumper):  # type: ignore[misc]
    """Writes text in quotes where `Loader`, and with it kubectl, would read it as something else."""

    resolve = _resolve


def dump(tree: Any, *, sort_keys: bool = False, **options: Any) -> str:
    """One document."""
    text: str = yaml.dump(tree, Dumper=Dumper, sort_keys=sort_keys, allow_unicode=True, **options)
    return text
