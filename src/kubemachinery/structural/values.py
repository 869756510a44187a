"""Validation of values: every keyword of a schema that can refuse a value, compiled once to small checks.

A compiled node is a table from Python type to the checks of values of that type, so validating a value is one look-up
and a few calls. A check without findings returns None and allocates nothing; findings get their path on the way out,
from the innermost step to the outermost. Each check also gets the old value (ABSENT on create, or without a correlated
one): findings on a value that the update did not change are dropped, and an identical object is not checked at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

import msgspec

from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.structural import formats
from kubemachinery.structural.correlation import old_items, same, unchanged
from kubemachinery.structural.node import ABSENT, NUMBER_TYPES, Json, SchemaNode


class Finding(msgspec.Struct):
    """An error at the path of `steps` (innermost first); `whole` if it concerns the whole object."""

    error_type: ErrorType
    message: str
    value: object = msgspec.UNSET
    steps: list[str] = msgspec.field(default_factory=list)
    whole: bool = False

    def error(self) -> FieldError:
        path = "".join(reversed(self.steps)).removeprefix(".")
        if not self.whole:
            return FieldError(path, self.error_type, self.message, self.value)
        # kube-apiserver reports such errors without a field; the message names the path.
        return FieldError("", self.error_type, f"{path or 'the object'} {self.message}", self.value)


Findings = list[Finding] | None
Check = Callable[[Json, Json], Findings]

_JSON_TYPES: Final[dict[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_NUMBER_RANGES: Final[dict[str, tuple[float, float]]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "float": (-3.4028235e38, 3.4028235e38),
}


def compile_values(node: SchemaNode, *, root: bool = False) -> Check:
    """The check of one node and all nodes below it."""
    return _check(node, _tests(node, root))


def _tests(node: SchemaNode, root: bool = False) -> dict[type, tuple[Check, ...]]:
    """The checks of a value, by its Python type."""
    composition = _composition_tests(node)
    enum = [_enum(node.enum)] if node.enum else []
    numbers = _number_tests(node)
    specific: dict[type, list[Check]] = {
        dict: _object_tests(node, root),
        list: _list_tests(node),
        str: _string_tests(node),
        int: numbers,
        float: numbers,
    }
    tests_by_type: dict[type, tuple[Check, ...]] = {}
    for python_type in _JSON_TYPES:
        tests = [*_type_tests(node, python_type)]
        if python_type is not type(None):  # of a null, only its type and its enum are checked
            tests += composition + specific.get(python_type, [])
        tests_by_type[python_type] = (*tests, *enum)
    return tests_by_type


def _check(node: SchemaNode, tests_by_type: dict[type, tuple[Check, ...]]) -> Check:
    def check(value: Json, old: Json) -> Findings:
        found: Findings = None
        for test in tests_by_type[type(value)]:
            more = test(value, old)
            if more:
                found = found + more if found else more
        if found and old is not ABSENT and unchanged(node, value, old):
            return None
        return found

    return check


def _one(error_type: ErrorType, message: str, value: object = msgspec.UNSET, *, whole: bool = False) -> list[Finding]:
    return [Finding(error_type, message, value, whole=whole)]


def within(step: str, findings: list[Finding]) -> list[Finding]:
    for finding in findings:
        finding.steps.append(step)
    return findings


# --- Type ---------------------------------------------------------------------------------------------------------


def _type_tests(node: SchemaNode, python_type: type) -> Iterable[Check]:
    """The check that a value of this Python type has the node's type; none when it always has."""
    actual = _JSON_TYPES[python_type]
    expected = node.types
    if not expected or actual in expected or (actual == "null" and node.nullable):
        return
    if actual == "integer" and "number" in expected:
        return
    message = f"must be of type {' or '.join(expected)}, not {actual}"

    def wrong_type(value: Json, old: Json) -> Findings:
        return _one(ErrorType.TYPE_INVALID, message, actual)

    def fractional(value: Json, old: Json) -> Findings:
        return None if value.is_integer() else wrong_type(value, old)

    yield fractional if actual == "number" and "integer" in expected else wrong_type


# --- Strings ------------------------------------------------------------------------------------------------------


def _string_tests(node: SchemaNode) -> list[Check]:
    tests: list[Check] = []
    if node.max_length is not None or node.min_length is not None or node.pattern:
        tests.append(_length_and_pattern(node))
    if node.format and node.type in ("", "string"):
        known = formats.checker(node.format)
        if known is not None:
            tests.append(_format(node.format, known))
    return tests


def _length_and_pattern(node: SchemaNode) -> Check:
    least, most = node.min_length or 0, math.inf if node.max_length is None else node.max_length
    pattern = _pattern(node.pattern) if node.pattern else None

    def check(value: str, old: Json) -> Findings:
        if len(value) > most:
            return _one(ErrorType.TOO_LONG, f"may not be more than {most} characters long")
        if len(value) < least:
            return _one(ErrorType.INVALID, f"must be at least {least} characters long", value)
        return None if pattern is None else pattern(value, old)

    return check


def _pattern(text: str) -> Check:
    # Compiled for the first value: most objects have few of the fields with a pattern.
    @cache
    def compiled() -> Check:
        return _compiled_pattern(text)

    return lambda value, old: compiled()(value, old)


def _compiled_pattern(text: str) -> Check:
    from kubemachinery.cel import re2  # only here: a program without patterns does not need it in memory

    try:
        pattern = re2.compile(text)
    except re2.PatternError as error:
        message = f"cannot be checked, the pattern {text!r} is not valid: {error}"
        return lambda value, old: _one(ErrorType.INVALID, message, value)

    def check(value: str, old: Json) -> Findings:
        try:
            if pattern.search(value):
                return None
        except re2.TooCostly as error:
            return _one(ErrorType.INVALID, str(error))
        return _one(ErrorType.INVALID, f"must match the pattern {text}", value)

    return check


def _format(name: str, is_valid: formats.Test) -> Check:
    def check(value: str, old: Json) -> Findings:
        return None if is_valid(value) else _one(ErrorType.TYPE_INVALID, f"must have the format {name}", value)

    return check


# --- Numbers ------------------------------------------------------------------------------------------------------


def _number_tests(node: SchemaNode) -> list[Check]:
    tests: list[Check] = []
    if node.type in NUMBER_TYPES:
        tests += _number_range(node.type, node.format)
    if node.multiple_of is not None:
        tests.append(_multiple_of(node.multiple_of))
    if node.minimum is not None:
        tests.append(_minimum(node.minimum, node.exclusive_minimum))
    if node.maximum is not None:
        tests.append(_maximum(node.maximum, node.exclusive_maximum))
    return tests


def _number_range(type_name: str, format_name: str) -> list[Check]:
    if type_name == "integer":
        low, high = _NUMBER_RANGES.get(format_name, _NUMBER_RANGES["int64"])
    elif format_name == "float":
        low, high = _NUMBER_RANGES["float"]
    else:
        return []
    message = f"is beyond the numbers of type {type_name} with format {format_name or 'int64'}"

    def check(value: float, old: Json) -> Findings:
        return None if low <= value <= high else _one(ErrorType.INVALID, message, whole=True)

    return [check]


def _minimum(limit: float, exclusive: bool) -> Check:
    message = f"must be greater than {limit}" if exclusive else f"must be greater than or equal to {limit}"

    def check(value: float, old: Json) -> Findings:
        return None if value > limit or (value == limit and not exclusive) else _one(ErrorType.INVALID, message, value)

    return check


def _maximum(limit: float, exclusive: bool) -> Check:
    message = f"must be less than {limit}" if exclusive else f"must be less than or equal to {limit}"

    def check(value: float, old: Json) -> Findings:
        return None if value < limit or (value == limit and not exclusive) else _one(ErrorType.INVALID, message, value)

    return check


def _multiple_of(factor: float) -> Check:
    message = f"must be a multiple of {factor}"

    def is_multiple(value: float) -> bool:
        if factor <= 0 or not math.isfinite(value):
            return False
        if isinstance(value, int) and factor == int(factor):
            return value % int(factor) == 0
        quotient = 1 / factor * value if factor < 1 else value / factor
        return math.isclose(quotient, round(quotient), rel_tol=1e-9, abs_tol=1e-9)

    def check(value: float, old: Json) -> Findings:
        return None if is_multiple(value) else _one(ErrorType.INVALID, message, value)

    return check


# --- Lists --------------------------------------------------------------------------------------------------------


def _list_tests(node: SchemaNode) -> list[Check]:
    tests: list[Check] = []
    if node.items is not None:
        tests.append(_items(node, compile_values(node.items)))
    if node.min_items is not None:
        tests.append(_min_items(node.min_items))
    if node.max_items is not None:
        tests.append(_max_items(node.max_items))
    if node.unique_items:
        tests.append(_unique_items)
    return tests


def _items(node: SchemaNode, check_item: Check) -> Check:
    def check(value: list[Json], old: Json) -> Findings:
        found: Findings = None
        find_old = None if old is ABSENT else old_items(node, old)
        for index, item in enumerate(value):
            more = check_item(item, ABSENT if find_old is None else find_old(item))
            if more:
                within(f"[{index}]", more)
                found = found + more if found else more
        return found

    return check


def _min_items(least: int) -> Check:
    def check(value: list[Json], old: Json) -> Findings:
        if len(value) >= least:
            return None
        return _one(ErrorType.INVALID, f"must have at least {least} items", len(value))

    return check


def _max_items(most: int) -> Check:
    def check(value: list[Json], old: Json) -> Findings:
        return None if len(value) <= most else _one(ErrorType.TOO_MANY, f"must have at most {most} items", len(value))

    return check


def _unique_items(value: list[Json], old: Json) -> Findings:
    seen = set()
    for item in value:
        identity = identity_of(item)
        if identity in seen:
            return _one(ErrorType.INVALID, "must not contain duplicates", "")
        seen.add(identity)
    return None


def identity_of(value: Json) -> object:
    """A hashable key that is equal for equal JSON values only."""
    if type(value) is dict:
        return (dict, frozenset((name, identity_of(item)) for name, item in value.items()))
    if type(value) is list:
        return (list, tuple(identity_of(item) for item in value))
    return (type(value), value)


# --- Objects ------------------------------------------------------------------------------------------------------


def _object_tests(node: SchemaNode, root: bool) -> list[Check]:
    tests: list[Check] = []
    if node.min_properties is not None:
        tests.append(_min_properties(node.min_properties))
    if node.max_properties is not None:
        tests.append(_max_properties(node.max_properties))
    if node.additional_forbidden:
        tests.append(_only_known(frozenset(node.fields)))
    if node.properties or node.additional is not None:
        tests.append(_properties(node, root))
    if node.required:
        tests.append(_required(node.required))
    return tests


def _min_properties(least: int) -> Check:
    def check(value: dict[str, Json], old: Json) -> Findings:
        if len(value) >= least:
            return None
        return _one(ErrorType.INVALID, f"must have at least {least} properties", len(value))

    return check


def _max_properties(most: int) -> Check:
    def check(value: dict[str, Json], old: Json) -> Findings:
        if len(value) <= most:
            return None
        return _one(ErrorType.TOO_MANY, f"must have at most {most} properties", len(value))

    return check


def _only_known(names: frozenset[str]) -> Check:
    def check(value: dict[str, Json], old: Json) -> Findings:
        return [
            Finding(ErrorType.INVALID, f"the property {name!r} is not allowed", name)
            for name in value
            if name not in names
        ]

    return check


def _properties(node: SchemaNode, root: bool) -> Check:
    tests = {name: _tests(child) for name, child in node.fields.items()}
    children = {name: _check(child, tests[name]) for name, child in node.fields.items()}
    # A property of this Python type has no checks, so most values cost one look-up.
    quiet = {name: kind for name in children for kind in (str, int, bool) if not tests[name][kind]}
    additional = compile_values(node.additional) if node.additional is not None else None

    def check(value: dict[str, Json], old: Json) -> Findings:
        found: Findings = None
        olds = old if type(old) is dict else {}
        for name, item in value.items():
            if quiet.get(name) is type(item):
                continue
            check_child = children.get(name, additional)
            if check_child is None:
                continue
            if not olds:
                more = check_child(item, ABSENT)
            else:
                # apiVersion and kind of the root differ between versions of one object: they never count as unchanged.
                before = ABSENT if root and name in ("apiVersion", "kind") else olds.get(name, ABSENT)
                more = None if before is item else check_child(item, before)
            if more:
                within(f".{name}", more)
                found = found + more if found else more
        return found

    return check


def _required(names: tuple[str, ...]) -> Check:
    def check(value: dict[str, Json], old: Json) -> Findings:
        for name in names:
            if name not in value:
                break
        else:
            return None
        return [Finding(ErrorType.REQUIRED, "", steps=[f".{name}"]) for name in names if name not in value]

    return check


# --- Any type -----------------------------------------------------------------------------------------------------


def _enum(options: tuple[Json, ...]) -> Check:
    texts = [option if isinstance(option, str) else msgspec.json.encode(option).decode() for option in options]
    message = "supported values: " + ", ".join(msgspec.json.encode(text).decode() for text in texts)
    scalars = frozenset((type(option) is bool, option) for option in options if isinstance(option, str | int | float))
    compounds = [option for option in options if isinstance(option, dict | list)]

    def check(value: Json, old: Json) -> Findings:
        if type(value) is dict or type(value) is list:
            hit = any(same(value, option) for option in compounds)
        else:
            hit = (type(value) is bool, value) in scalars
        return None if hit else _one(ErrorType.NOT_SUPPORTED, message, value)

    return check


def _composition_tests(node: SchemaNode) -> list[Check]:
    tests: list[Check] = []
    # With x-kubernetes-int-or-string the two alternatives repeat the type.
    if node.any_of and not (node.int_or_string and node.any_of == _INT_OR_STRING):
        tests.append(_any_of(node.any_of))
    if node.one_of:
        tests.append(_one_of(node.one_of))
    if node.all_of:
        tests.append(_all_of(node.all_of))
    if node.not_ is not None:
        tests.append(_not(node.not_))
    return tests


_INT_OR_STRING: Final = (SchemaNode(type="integer"), SchemaNode(type="string"))


def _any_of(options: tuple[SchemaNode, ...]) -> Check:
    checks = [compile_values(option) for option in options]

    def check(value: Json, old: Json) -> Findings:
        failures: list[list[Finding]] = []
        for check_option in checks:
            found = check_option(value, old)
            if not found:
                return None
            failures.append(found)
        summary = _one(ErrorType.INVALID, "must match at least one of the schemas under anyOf", "", whole=True)
        return summary + _nearest(options, failures, value)

    return check


def _one_of(options: tuple[SchemaNode, ...]) -> Check:
    checks = [compile_values(option) for option in options]

    def check(value: Json, old: Json) -> Findings:
        results = [check_option(value, old) for check_option in checks]
        matching = sum(1 for found in results if not found)
        if matching == 1:
            return None
        message = f"must match exactly one of the schemas under oneOf, but matches {matching or 'none'}"
        summary = _one(ErrorType.INVALID, message, "", whole=True)
        return summary if matching else summary + _nearest(options, [found for found in results if found], value)

    return check


def _nearest(options: tuple[SchemaNode, ...], failures: list[list[Finding]], value: Json) -> list[Finding]:
    """The findings of the alternative that covers most of the value; of several, the first."""
    return max(zip(options, failures, strict=True), key=lambda pair: _reach(pair[0], value))[1]


def _reach(node: SchemaNode, value: Json) -> int:
    """How many values below this one the schema declares."""
    if type(value) is dict:
        return sum(1 + _reach(child, item) for name, item in value.items() if (child := node.child(name)))
    if type(value) is list and node.items is not None:
        return sum(1 + _reach(node.items, item) for item in value)
    return 0


def _all_of(parts: tuple[SchemaNode, ...]) -> Check:
    checks = [compile_values(part) for part in parts]

    def check(value: Json, old: Json) -> Findings:
        found = [finding for check_part in checks for finding in check_part(value, old) or ()]
        if not found:
            return None
        return found + _one(ErrorType.INVALID, "must match all of the schemas under allOf", "", whole=True)

    return check


def _not(forbidden: SchemaNode) -> Check:
    check_forbidden = compile_values(forbidden)

    def check(value: Json, old: Json) -> Findings:
        if check_forbidden(value, old):
            return None
        return _one(ErrorType.INVALID, "must not match the schema under not", "", whole=True)

    return check
