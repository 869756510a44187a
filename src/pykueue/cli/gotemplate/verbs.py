"""Values as Go prints them: `%v` and its relatives.

What does not fit is told in the text, as Go does it: `%!d(string=hi)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

from pykueue.cli.gotemplate.quoting import quoted

_NIL: Final = "<nil>"
# Of a fraction: how many bits it has, and the least power of two that the last of them can stand for.
_BITS: Final = 53
_LEAST_EXPONENT: Final = -1074
# Wider than this is a mistake.
_WIDEST: Final = 1_000_000
_DIRECTIVE: Final = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\d+|\*)?(?P<point>\.(?P<precision>\d+|\*)?)?(?:\[(?P<place>\d+)\])?(?P<verb>.)?",
    re.DOTALL,
)


class Spec(NamedTuple):
    """One directive of a format: `%-10s`."""

    verb: str = "v"
    flags: str = ""
    width: int = 0
    precision: int | None = None

    @property
    def fills_with_zeros(self) -> bool:
        return "0" in self.flags and "-" not in self.flags

    def padded(self, text: str) -> str:
        if "-" in self.flags:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if self.fills_with_zeros else " ")

    def signed(self, is_negative: bool, digits: str, prefix: str = "") -> str:
        """A number; what fills it up stands between its sign and its digits if it is zeros, and else before both."""
        sign = "-" if is_negative else "+" if "+" in self.flags else " " if " " in self.flags else ""
        if self.fills_with_zeros:
            digits = digits.rjust(self.width - len(sign), "0")
        return self._replace(flags=self.flags.replace("0", "")).padded(sign + prefix + digits)


# --- One value --------------------------------------------------------------------------------------------------------


def plain(value: Any) -> str:
    """As an action prints it: `%v`."""
    return shown(value, Spec())


def shown(value: Any, spec: Spec) -> str:
    """A value under a directive; that of a list or a map is asked of all that it holds."""
    match value:
        case None:
            return spec.padded(_NIL) if spec.verb == "v" else f"%!{spec.verb}({_NIL})"
        case list():
            return f"[{' '.join(_held(each, spec) for each in value)}]"
        case dict():
            return f"map[{' '.join(f'{shown(key, spec)}:{_held(value[key], spec)}' for key in sorted(value))}]"
    say = _VERBS[type(value)].get(spec.verb)
    return _misfit(value, spec) if say is None else say(value, spec)


def _held(value: Any, spec: Spec) -> str:
    """The same of what a list or a map holds; nothing is nothing there, whatever it was asked for."""
    return _NIL if value is None else shown(value, spec)


def _misfit(value: Any, spec: Spec) -> str:
    return f"%!{spec.verb}({type_name(value)}={shown(value, spec._replace(verb='v'))})"


_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): _NIL,
}


def type_name(value: Any) -> str:
    return _TYPES[type(value)]


def _as_written(value: Any) -> str:
    """As a program in Go would write it: `%#v`."""
    match value:
        case list():
            return f"{type_name(value)}{{{', '.join(map(_as_written, value))}}}"
        case dict():
            held = ", ".join(f"{_as_written(key)}:{_as_written(value[key])}" for key in sorted(value))
            return f"{type_name(value)}{{{held}}}"
        case str():
            return quoted(value)
    return "interface {}(nil)" if value is None else plain(value)


Say: TypeAlias = Callable[[Any, Spec], str]


def _text(value: str, spec: Spec) -> str:
    return spec.padded(value[: spec.precision])


def _quoted(value: str, spec: Spec) -> str:
    cut = value[: spec.precision]
    if "#" in spec.flags and "`" not in cut and all(letter.isprintable() or letter == "\t" for letter in cut):
        return spec.padded(f"`{cut}`")
    return spec.padded(quoted(cut, only_ascii="+" in spec.flags))


def _hexadecimal(value: str, spec: Spec) -> str:
    bytes_ = value.encode("utf-8", "surrogateescape")[: spec.precision]
    prefix = f"0{spec.verb}" if "#" in spec.flags else ""
    if " " in spec.flags:
        found = " ".join(f"{prefix}{byte:02x}" for byte in bytes_)
    else:
        found = f"{prefix}{bytes_.hex()}" if bytes_ else ""
    return spec.padded(found.upper() if spec.verb == "X" else found)


def _boolean(value: bool, spec: Spec) -> str:
    return spec.padded(str(value).lower())


def _in_base(letter: str, prefix: str = "", asked_prefix: str = "") -> Say:
    def say(value: int, spec: Spec) -> str:
        digits = format(abs(value), letter).rjust(spec.precision or 0, "0")
        if spec.precision is not None:
            spec = spec._replace(flags=spec.flags.replace("0", ""))  # the precision says how many there are
            if not spec.precision and not value:
                return spec.padded("")
        return spec.signed(value < 0, digits, asked_prefix if "#" in spec.flags else prefix)

    return say


def _letter(value: int, spec: Spec) -> str:
    return spec.padded(_character(value))


def _quoted_letter(value: int, spec: Spec) -> str:
    return spec.padded(quoted(_character(value), "'", only_ascii="+" in spec.flags))


def _character(code: int) -> str:
    return chr(code) if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "\ufffd"


def _code_point(value: int, spec: Spec) -> str:
    letter = _character(value)
    seen = f" '{letter}'" if "#" in spec.flags and letter.isprintable() else ""
    return spec.padded(f"U+{value % 2**64:0{max(4, spec.precision or 0)}X}{seen}")


def _fraction(value: float, spec: Spec) -> str:
    verb = "g" if spec.verb == "v" else spec.verb
    is_negative, size = math.copysign(1, value) < 0, abs(value)
    if verb in "gG" and spec.precision is None:
        digits = _shortest(size).upper() if verb == "G" else _shortest(size)
    else:
        digits = format(
            size, f"{'#' if '#' in spec.flags else ''}.{6 if spec.precision is None else spec.precision}{verb}"
        )
    return spec.signed(is_negative, digits)


def _binary_fraction(value: float, spec: Spec) -> str:
    """As bits: `%b` has all of them before the point, `%x` one, and the others as digits of 16."""
    if "#" in spec.flags and spec.verb != "b":
        raise ValueError(f"%#{spec.verb} of a fraction is not offered")
    is_negative, size = math.copysign(1, value) < 0, abs(value)
    if spec.verb == "b":
        exponent = max(math.frexp(size)[1] - _BITS, _LEAST_EXPONENT) if size else _LEAST_EXPONENT
        return spec.signed(is_negative, f"{int(math.ldexp(size, -exponent))}p{exponent:+d}")
    half, exponent = math.frexp(size)
    bits, digits = int(half * 2**_BITS), (_BITS - 1) // 4
    wanted = digits if spec.precision is None else min(spec.precision, digits)
    bits = round(Fraction(bits, 16 ** (digits - wanted)))  # a half goes to the even side
    first, rest = divmod(bits, 16**wanted)
    exponent = exponent - 1 if size else 0
    if first == 2:  # rounded up to the next power
        first, exponent = 1, exponent + 1
    after = f"{rest:0{wanted}x}" if wanted else ""
    after = after.rstrip("0") if spec.precision is None else after.ljust(spec.precision, "0")
    said = f"0x{first}{'.' if after else ''}{after}p{exponent:+03d}"
    return spec.signed(is_negative, said.upper() if spec.verb == "X" else said)


def _shortest(value: float) -> str:
    """The fewest digits that mean this very number; with an exponent where it is small, or has many digits before the
    point."""
    number = Decimal(repr(value)).normalize()
    exponent = number.adjusted() if number else 0
    if -4 <= exponent < 6:
        return format(number, "f")
    digits = "".join(map(str, number.as_tuple().digits))
    return f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{exponent:+03d}"


_VERBS: Final[dict[type, dict[str, Say]]] = {
    str: {"s": _text, "v": _text, "q": _quoted, "x": _hexadecimal, "X": _hexadecimal},
    bool: {"t": _boolean, "v": _boolean},
    int: {
        **dict.fromkeys("dv", _in_base("d")),
        "b": _in_base("b", asked_prefix="0b"),
        "o": _in_base("o", asked_prefix="0"),
        "O": _in_base("o", "0o", "0o0"),
        "x": _in_base("x", asked_prefix="0x"),
        "X": _in_base("X", asked_prefix="0X"),
        "c": _letter,
        "q": _quoted_letter,
        "U": _code_point,
    },
    float: {**dict.fromkeys("vgGeEfF", _fraction), **dict.fromkeys("bxX", _binary_fraction)},
}


# --- Several ----------------------------------------------------------------------------------------------------------


def joined(values: Sequence[Any]) -> str:
    """`print`: with a space between two of which neither is a text."""
    found: list[str] = []
    for place, value in enumerate(values):
        if place and not isinstance(value, str) and not isinstance(values[place - 1], str):
            found.append(" ")
        found.append(plain(value))
    return "".join(found)


_BAD_WIDTH: Final = "%!(BADWIDTH)"
_BAD_PRECISION: Final = "%!(BADPREC)"


def formatted(template: str, values: Sequence[Any]) -> str:
    """`printf`. Raises ValueError for a width that nobody can mean."""
    return _Format(values).filled(template)


def _directed(value: Any, spec: Spec) -> str:
    """A value under a directive that is written out: two verbs are for values of all types."""
    if spec.verb == "T":
        return spec.padded(type_name(value)[: spec.precision])
    if spec.verb == "v" and "#" in spec.flags and value is not None:
        return spec.padded(_as_written(value))
    return shown(value, spec._replace(flags=spec.flags.replace("+", "")) if spec.verb == "v" else spec)


class _Format:
    """Values that directives take one after the other."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        self._place = 0
        self._is_reordered = False

    def filled(self, template: str) -> str:
        text = _DIRECTIVE.sub(self._said, template)
        more = [] if self._is_reordered else self._values[self._place :]
        told = ", ".join(_NIL if value is None else f"{type_name(value)}={plain(value)}" for value in more)
        return f"{text}%!(EXTRA {told})" if more else text

    def _said(self, found: re.Match[str]) -> str:
        width, bad_width = self._number(found["width"], _BAD_WIDTH)
        precision, bad_precision = self._number(found["precision"], _BAD_PRECISION)
        verb, wrong = found["verb"], bad_width + bad_precision
        if verb is None or verb == "%":
            return wrong + ("%" if verb else "%!(NOVERB)")
        if found["place"]:
            self._place, self._is_reordered = int(found["place"]) - 1, True
            if not 0 <= self._place < len(self._values):
                return f"{wrong}%!{verb}(BADINDEX)"
        if self._place >= len(self._values):
            return f"{wrong}%!{verb}(MISSING)"
        if found["point"] == ".":
            precision = 0
        flags = found["flags"] + ("-" if width is not None and width < 0 else "")
        return wrong + _directed(self._taken(), Spec(verb, flags, abs(width or 0), precision))

    def _number(self, text: str | None, bad: str) -> tuple[int | None, str]:
        """A width or a precision, and what is said where it is to be taken from a value that is no number."""
        if not text:
            return None, ""
        value = self._taken() if text == "*" else int(text)
        if type(value) is not int or (value < 0 and bad == _BAD_PRECISION):
            return None, bad
        if abs(value) > _WIDEST:
            raise ValueError(f"{value} is too wide")
        return value, ""

    def _taken(self) -> Any:
        self._place += 1
        return self._values[self._place - 1] if self._place <= len(self._values) else None
