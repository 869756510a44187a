"""Label and field selectors: parse, validate, match, and compare.

A label selector comes as an object (`matchLabels`, `matchExpressions`) or as text (`app=web,tier in (a,b),!old`). Both
become one `Selector`: a tuple of requirements on single keys, all of which must hold. An absent selector object selects
nothing and an empty one everything; an empty text selects everything.

`check` reports errors of a selector object; `parse` refuses a malformed text. A malformed requirement that is compiled
anyway matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from kubemachinery import meta
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.meta import LabelSelector, Messages

Labels: TypeAlias = Mapping[str, str]


class SelectorError(ValueError):
    """A text that is not a selector; the message names the position of the error."""


class Operator(StrEnum):
    """Operators of a requirement. Label selector objects have the first four, node selectors all."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_COMPARING: Final = frozenset({Operator.GT, Operator.LT})
_OF_OBJECTS: Final = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")


def _integer(text: str) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


class Requirement(NamedTuple):
    """One requirement on one key."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Labels) -> bool:
        return self.meets(labels.get(self.key))

    def meets(self, found: str | None) -> bool:
        """Whether this value, or the absence of one, meets the requirement."""
        meets = _MEETS.get(self.operator)
        return meets is not None and meets(found, self.values)

    def messages(self) -> Messages:
        """Messages about what is invalid in this requirement."""
        return tuple(message for _, _, message in self._faults(tuple(Operator)))

    def _faults(self, operators: Iterable[str]) -> Iterator[tuple[str, ErrorType, str]]:
        """Path below this requirement, error type and message."""
        values = len(self.values)
        if self.operator not in operators:
            yield "operator", ErrorType.NOT_SUPPORTED, f"must be one of {', '.join(operators)}"
        elif self.operator in (Operator.IN, Operator.NOT_IN) and not values:
            yield "values", ErrorType.REQUIRED, f"operator {self.operator} needs at least one value"
        elif self.operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
            yield "values", ErrorType.FORBIDDEN, f"operator {self.operator} takes no values"
        elif self.operator in _COMPARING and (values != 1 or _integer(self.values[0]) is None):
            yield "values", ErrorType.INVALID, f"operator {self.operator} needs exactly one whole number"
        for message in meta.check_qualified_name(self.key):
            yield "key", ErrorType.INVALID, message
        for index, value in enumerate(self.values):
            for message in meta.check_label_value(value):
                yield f"values[{index}]", ErrorType.INVALID, message


def _compare(holds: Callable[[int, int], bool]) -> Callable[[str | None, tuple[str, ...]], bool]:
    def compared(found: str | None, values: tuple[str, ...]) -> bool:
        if found is None or len(values) != 1:
            return False
        number, bound = _integer(found), _integer(values[0])
        return number is not None and bound is not None and holds(number, bound)

    return compared


# By operator: does the value found at the key (None when there is no such label) meet the requirement?
_MEETS: Final[dict[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    Operator.IN: lambda found, values: found in values,
    Operator.NOT_IN: lambda found, values: found not in values,
    Operator.EXISTS: lambda found, values: found is not None,
    Operator.DOES_NOT_EXIST: lambda found, values: found is None,
    Operator.GT: _compare(lambda number, bound: number > bound),
    Operator.LT: _compare(lambda number, bound: number < bound),
}


class Selector(NamedTuple):
    """Requirements that must all hold; without any, everything matches. `NOTHING` matches nothing."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Labels) -> bool:
        if self.nothing:
            return False
        # A loop rather than all(): this runs for every object of every list and watch.
        for requirement in self.requirements:  # noqa: SIM110
            if not requirement.holds(labels):
                return False
        return True

    def overlaps(self, other: Selector) -> bool:
        """Whether some set of labels satisfies both. Keys are independent, so each is checked alone."""
        if self.nothing or other.nothing:
            return False
        by_key: dict[str, list[Requirement]] = {}
        for requirement in self.requirements + other.requirements:
            by_key.setdefault(requirement.key, []).append(requirement)
        return all(map(_satisfiable, by_key.values()))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def compile(selector: LabelSelector | None) -> Selector:
    """The selector to match with."""
    if selector is None:
        return NOTHING
    equal = (Requirement(key, Operator.IN, (value,)) for key, value in selector.match_labels.items())
    demanded = (Requirement(e.key, e.operator, e.values) for e in selector.match_expressions)
    return Selector((*equal, *demanded))


_SPELLINGS: Final = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}"}


def spelt(tree: Mapping[str, Any]) -> str:
    """A label selector, given as a JSON tree, in the syntax of `labelSelector=`: `a=b,c in (d,e)`, ordered by key."""
    parts = [(key, f"{key}={value}") for key, value in (tree.get("matchLabels") or {}).items()]
    for row in tree.get("matchExpressions") or ():
        key = row.get("key", "")
        values = ",".join(sorted(row.get("values") or ()))
        parts.append((key, _SPELLINGS.get(row.get("operator"), "!{key}").format(key=key, values=values)))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def exactly(labels: Labels) -> Selector:
    """The selector for exactly these labels and values, such as a pod's `nodeSelector`."""
    return Selector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in labels.items()))


def overlaps(a: LabelSelector | None, b: LabelSelector | None) -> bool:
    """Whether some set of labels satisfies both selectors."""
    return compile(a).overlaps(compile(b))


def _satisfiable(requirements: list[Requirement]) -> bool:
    """Whether one label (or its absence) can meet all these requirements on its key.

    Finitely many candidates decide it: no label, each value that a requirement names, and one value that none names.
    Any other unnamed value behaves like that one, except with Gt and Lt, so the numbers next to their bounds are added.
    """

    def met(found: str | None) -> bool:
        return all(r.meets(found) for r in requirements)

    named = {value for r in requirements for value in r.values}
    unnamed = next(value for value in map(str, count()) if value not in named)
    return met(None) or any(map(met, named)) or met(unnamed) or any(map(met, _between(requirements, named)))


def _between(requirements: list[Requirement], named: set[str]) -> Iterator[str]:
    """Unnamed texts of the lowest numbers that Gt and Lt allow: one more than all of them could exclude."""
    if not any(r.operator in _COMPARING for r in requirements):
        return
    # A label's value starts with a letter or digit, so that no number in it is negative.
    bounds = [_integer(value) for r in requirements if r.operator == Operator.GT for value in r.values]
    lowest = max(0, *(bound + 1 for bound in bounds if bound is not None), 0)
    spellings = (
        str(number).zfill(width)
        for number in range(lowest, lowest + len(named) + 1)
        for width in range(1, meta.LABEL_LENGTH + 1)
    )
    yield from (spelling for spelling in spellings if spelling not in named)


# --- Checking an object -----------------------------------------------------------------------------------------------


def check(tree: Any, path: str) -> tuple[FieldError, ...]:
    """The errors of a label selector, given as a JSON tree; an absent one is valid."""
    return tuple(_check(tree, path))


def _check(tree: Any, path: str) -> Iterator[FieldError]:
    if tree is None:
        return
    if not isinstance(tree, dict):
        yield FieldError(path, ErrorType.TYPE_INVALID, "must be an object", tree)
        return
    equal, demanded = tree.get("matchLabels"), tree.get("matchExpressions")
    if isinstance(equal, dict):
        yield from _check_match_labels(equal, f"{path}.matchLabels")
    elif equal is not None:
        yield FieldError(f"{path}.matchLabels", ErrorType.TYPE_INVALID, "must be an object", equal)
    if isinstance(demanded, list):
        for index, expression in enumerate(demanded):
            yield from _check_expression(expression, f"{path}.matchExpressions[{index}]")
    elif demanded is not None:
        yield FieldError(f"{path}.matchExpressions", ErrorType.TYPE_INVALID, "must be a list", demanded)


def _check_match_labels(labels: dict[str, Any], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        for message in meta.check_qualified_name(key):
            yield FieldError(path, ErrorType.INVALID, message, key)
        if not isinstance(value, str):
            yield FieldError(f"{path}[{key}]", ErrorType.TYPE_INVALID, "must be a text", value)
            continue
        for message in meta.check_label_value(value):
            yield FieldError(f"{path}[{key}]", ErrorType.INVALID, message, value)


def _check_expression(tree: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(tree, dict):
        yield FieldError(path, ErrorType.TYPE_INVALID, "must be an object", tree)
        return
    key, operator, values = tree.get("key", ""), tree.get("operator", ""), tree.get("values") or []
    if not (isinstance(key, str) and isinstance(operator, str)):
        yield FieldError(path, ErrorType.TYPE_INVALID, "key and operator must be texts", tree)
    elif not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
        yield FieldError(f"{path}.values", ErrorType.TYPE_INVALID, "must be a list of texts", values)
    else:
        found = {"key": key, "operator": operator, "values": values}
        for place, sort, message in Requirement(key, operator, tuple(values))._faults(_OF_OBJECTS):
            value = values[int(place[7:-1])] if place.startswith("values[") else found[place]
            yield FieldError(f"{path}.{place}", sort, message, value)


# --- The text form ----------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"\s*(?:(==|!=|[=!(),<>])|([^\s=!(),<>]+)|$)")
_ENDS: Final = ("", ",")
# The operators of a text: before a single value, and before a list of them.
_SINGLE: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
}
_LISTED: Final = {"in": Operator.IN, "notin": Operator.NOT_IN}


class _Token(NamedTuple):
    symbol: str
    word: str
    place: int


def parse(text: str) -> Selector:
    """The selector that a text such as `a=b,c!=d,e in (x,y),!f,g>1` spells; raises `SelectorError`."""
    return Selector(tuple(_Reader(text).requirements()))


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    @staticmethod
    def _split(text: str) -> list[_Token]:
        tokens = []
        place = 0
        while found := _TOKEN.match(text, place):
            tokens.append(_Token(found[1] or "", found[2] or "", found.end() - len(found[1] or found[2] or "")))
            place = found.end()
            if not (found[1] or found[2]):
                break
        return tokens

    def requirements(self) -> Iterator[Requirement]:
        if not self._peek.symbol and not self._peek.word:
            return
        while True:
            requirement = self._requirement()
            messages = requirement.messages()
            if messages:
                raise SelectorError(f"in the selector {self._text!r}, {requirement.key!r}: {'; '.join(messages)}")
            yield requirement
            token = self._next()
            if token.symbol == ",":
                continue
            if token.symbol or token.word:
                raise self._refusal(token, "',' or the end")
            return

    def _requirement(self) -> Requirement:
        if self._peek.symbol == "!":
            self._next()
            return Requirement(self._word("a key"), Operator.DOES_NOT_EXIST)
        key = self._word("a key or '!'")
        token = self._peek
        if token.word in _LISTED:
            self._next()
            return Requirement(key, _LISTED[token.word], self._values())
        if token.symbol in _SINGLE:
            self._next()
            return Requirement(key, _SINGLE[token.symbol], (self._value(),))
        if token.word or token.symbol not in _ENDS:
            raise self._refusal(token, "an operator")
        return Requirement(key, Operator.EXISTS)

    def _values(self) -> tuple[str, ...]:
        token = self._next()
        if token.symbol != "(":
            raise self._refusal(token, "'('")
        values = [self._value()]
        while (token := self._next()).symbol == ",":
            values.append(self._value())
        if token.symbol != ")":
            raise self._refusal(token, "',' or ')'")
        return tuple(dict.fromkeys(values))

    def _value(self) -> str:
        """A value, which may be empty: `a=` and `a in (,x)` require an empty value."""
        return self._next().word if self._peek.word else ""

    def _word(self, expected: str) -> str:
        token = self._next()
        if not token.word or token.word in _LISTED:
            raise self._refusal(token, expected)
        return token.word

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _refusal(self, token: _Token, expected: str) -> SelectorError:
        found = repr(token.symbol or token.word) if token.symbol or token.word else "the end"
        return SelectorError(
            f"in the selector {self._text!r}, at character {token.place + 1}: found {found} instead of {expected}"
        )


# --- Field selectors --------------------------------------------------------------------------------------------------


class FieldRequirement(NamedTuple):
    """A field that must, or must not, have a value. An absent field has the empty value."""

    path: str
    value: str
    equal: bool = True

    def holds(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.path, "") == self.value) is self.equal


class FieldSelector(NamedTuple):
    """Requirements on fields that must all hold."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all(requirement.holds(fields) for requirement in self.requirements)

    def exact(self, path: str) -> str | None:
        """The one value that the selector requires at `path`, if any: a list can then use an index."""
        return next((r.value for r in self.requirements if r.path == path and r.equal), None)


_TERM: Final = re.compile(r"(?:[^,\\]|\\.)+", re.DOTALL)
_FIELD: Final = re.compile(r"(?P<path>[^=!\\]*)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)|([=,])", re.DOTALL)


def parse_fields(text: str) -> FieldSelector:
    r"""The selector that `a.b=c,d!=e` spells; `\,`, `\=` and `\\` are escapes. Raises `SelectorError`."""
    if (len(text) - len(text.rstrip("\\"))) % 2:
        raise SelectorError(f"the field selector {text!r} ends in a lone '\\'")
    return FieldSelector(tuple(_field(term, text) for term in _TERM.findall(text)))


def _field(term: str, text: str) -> FieldRequirement:
    found = _FIELD.fullmatch(term)
    if found is None:
        raise SelectorError(f"in the field selector {text!r}, {term!r} has no '=', '==' or '!='")

    def unescaped(escape: re.Match[str]) -> str:
        if escape[1] not in ("\\", ",", "="):
            raise SelectorError(f"in the field selector {text!r}, {escape[0]!r} needs a '\\' of its own")
        return escape[1]

    value = _ESCAPED.sub(unescaped, found["value"])
    return FieldRequirement(found["path"], value, equal=found["operator"] != "!=")
