"""Exact Kubernetes quantities: `100m`, `1.5Gi`, `3e6`.

A quantity is an integer times a power of ten, with the family of suffix that it was written in; nothing is ever a
float. Parsing keeps all digits down to nano and rounds what is finer away from zero. Equality, order and hash look at
the number alone: `1000m` is `1`.

Kubernetes' own type (`resource.Quantity`) keeps up to eighteen digits in a 64-bit integer and longer ones in a big
decimal, and its 64-bit values of numbers that do not fit depend on which of the two it was. `value` and `milli_value`
repeat that, because two programs that read one object must get one number. Decisions about amounts use `rounded`,
which is exact at any size.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

QuantityText: TypeAlias = str | int | float

_INT64_MAX: Final = 2**63 - 1
_NANO: Final = -9

# Beyond these, a text is refused rather than turned into a number that costs megabytes.
_LONGEST_TEXT: Final = 256
_LARGEST_EXPONENT: Final = 2000

# The powers of ten by which Kubernetes' type multiplies in one step, and so wraps; by others it goes digit by digit and
# returns 0 as soon as a step overflows.
_ONE_STEP: Final = frozenset({0, 1, 2, 3, 6, 9})


class QuantityError(ValueError):
    """A text that is not a quantity; the message has the text and the reason."""


class QuantityFormat(Enum):
    """The family of suffix in which a quantity is written back."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class _Suffix(NamedTuple):
    format: QuantityFormat
    exponent: int
    """Of ten for decimal suffixes, of two for binary ones."""


_DECIMAL_SUFFIXES: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SUFFIXES: Final[dict[str, _Suffix]] = {
    **{text: _Suffix(QuantityFormat.DECIMAL, exponent) for exponent, text in _DECIMAL_SUFFIXES.items()},
    **{text: _Suffix(QuantityFormat.BINARY, 10 * times) for times, text in enumerate(_BINARY_SUFFIXES) if text},
}

_TEXT: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([A-Za-z]*)([+-]?[0-9]*)")


class Quantity:
    """An exact amount: `unscaled` × 10^`scale`, written in the suffixes of `format`. Immutable."""

    __slots__ = ("_nano", "_text", "format", "scale", "unscaled", "wide")

    unscaled: Final[int]
    scale: Final[int]
    format: Final[QuantityFormat]
    wide: Final[bool]
    """Whether Kubernetes' type keeps it outside its 64-bit form; only the 64-bit values depend on it."""
    _nano: Final[int]
    _text: str | None

    def __init__(
        self,
        unscaled: int,
        scale: int = 0,
        format: QuantityFormat = QuantityFormat.DECIMAL,
        *,
        wide: bool | None = None,
        text: str | None = None,
    ) -> None:
        if scale < _NANO:
            unscaled, scale = _away_from_zero(unscaled, 10 ** (_NANO - scale)), _NANO
        self.unscaled = unscaled
        self.scale = scale
        self.format = format
        self.wide = abs(unscaled) > _INT64_MAX if wide is None else wide
        self._text = text
        self._nano = unscaled * 10 ** (scale - _NANO)

    # Numeric values.

    @property
    def sign(self) -> int:
        return (self._nano > 0) - (self._nano < 0)

    def rounded(self, scale: int = 0) -> int:
        """The exact number of 10^`scale`, a fraction rounded away from zero; as large as it needs to be."""
        return _away_from_zero(self._nano, 10 ** (scale - _NANO))

    def value(self) -> int:
        """Whole units in 64 bits, as Kubernetes' type computes them; see the module docstring for overflow."""
        return self._in_64_bits(0)

    def milli_value(self) -> int:
        """Thousandths in 64 bits, as Kubernetes' type computes them; see the module docstring for overflow."""
        return self._in_64_bits(-3)

    def _in_64_bits(self, power: int) -> int:
        shift = self.scale - power
        if not self.wide:
            if shift < 0:
                return _away_from_zero(self.unscaled, 10**-shift)
            exact: int = self.unscaled * 10**shift
            return exact if abs(exact) <= _INT64_MAX else _wrap(exact) if shift in _ONE_STEP else 0
        if shift >= 0:
            return _wrap(self.unscaled * 10**shift)
        divisor: int = 10**-shift
        if self.unscaled < _INT64_MAX and shift > -19:
            # Every negative number takes this branch, however large, and is rounded up instead of away from zero.
            low = _wrap(self.unscaled)
            return (low // divisor if low >= 0 else -(-low // divisor)) + (low % divisor != 0)
        return _wrap(-(-self.unscaled // divisor))

    # Formatting.

    @property
    def canonical(self) -> str:
        """The text that the API shows: no fraction, the largest suffix that loses nothing, its own family of suffix."""
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        if self._nano == 0:
            return "0"
        units, fraction = divmod(self._nano, 10**-_NANO)
        if self.format is QuantityFormat.BINARY and not fraction and abs(units) >= 1024:
            times = 0
            while times < len(_BINARY_SUFFIXES) - 1 and units % 1024 == 0:
                units //= 1024
                times += 1
            return f"{units}{_BINARY_SUFFIXES[times]}"
        # In whole thousands of a thousand: the exponents that suffixes exist for.
        number, exponent = self._nano, _NANO
        while number % 1000 == 0:
            number //= 1000
            exponent += 3
        if self.format is not QuantityFormat.EXPONENT:
            # A thousand E and more has no suffix and is written without one, as Kubernetes does.
            return f"{number}{_DECIMAL_SUFFIXES.get(exponent, '')}"
        return f"{number}e{exponent}" if exponent else str(number)

    def __str__(self) -> str:
        return self.canonical

    def __repr__(self) -> str:
        return f"Quantity({self.canonical!r})"

    # Comparison and arithmetic. A result has the suffix family of its left operand, unless that is zero.

    def __eq__(self, other: object) -> bool:
        return self._nano == other._nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._nano)

    def __lt__(self, other: Quantity) -> bool:
        return self._nano < other._nano

    def __le__(self, other: Quantity) -> bool:
        return self._nano <= other._nano

    def __gt__(self, other: Quantity) -> bool:
        return self._nano > other._nano

    def __ge__(self, other: Quantity) -> bool:
        return self._nano >= other._nano

    def __bool__(self) -> bool:
        return self._nano != 0

    def __neg__(self) -> Quantity:
        return Quantity(-self.unscaled, self.scale, self.format, wide=self.wide)

    def __add__(self, other: Quantity) -> Quantity:
        scale = min(self.scale, other.scale)
        total = self.unscaled * 10 ** (self.scale - scale) + other.unscaled * 10 ** (other.scale - scale)
        wide = self.wide or other.wide or abs(total) > _INT64_MAX
        return Quantity(total, scale, self.format if self._nano else other.format, wide=wide)

    def __sub__(self, other: Quantity) -> Quantity:
        return self + -other

    def __mul__(self, factor: int) -> Quantity:
        product = self.unscaled * factor
        return Quantity(product, self.scale, self.format, wide=self.wide or abs(product) > _INT64_MAX)

    def times(self, factor: Quantity) -> Quantity:
        """The product of two quantities, finer than nano rounded away from zero, written as the left one."""
        return Quantity(self._nano * factor._nano, 2 * _NANO, self.format)


ZERO: Final = Quantity(0, text="0")


def _away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number > 0 else number // divisor


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


# A cluster has few different texts, so nearly every call is answered by the cache; the bound limits hostile input.
@lru_cache(maxsize=1 << 14)
def parse(text: QuantityText) -> Quantity:
    """The quantity that a text or a JSON number spells; raises `QuantityError` when it spells none."""
    spelling = text if isinstance(text, str) else repr(text)
    if not spelling:
        raise QuantityError("an empty text is not a quantity")
    if len(spelling) > _LONGEST_TEXT:
        raise QuantityError(f"{spelling[:20]!r}… is too long to be a quantity: {len(spelling)} characters")
    found = _TEXT.fullmatch(spelling)
    if found is None:
        raise QuantityError(f"{spelling!r} is not a quantity such as 100m, 1.5Gi or 2e3")
    sign, whole, fraction, letters, exponent = found.groups("")
    suffix = _suffix(spelling, letters, exponent)
    digits = whole.lstrip("0") or "0"
    shifted = digits + fraction
    number = int(shifted) if sign != "-" else -int(shifted)

    if suffix.format is QuantityFormat.BINARY:
        # Kubernetes' type's estimate of how many digits times this power of two still fit in 64 bits.
        if not fraction and len(digits) <= 14 - suffix.exponent // 10 * 3:
            kept = spelling if number % 8 else None
            return Quantity(number << suffix.exponent, 0, QuantityFormat.BINARY, wide=False, text=kept)
        if not (whole or fraction):
            raise QuantityError(f"{spelling!r} has a suffix and no number")
        return _wide_binary(number << suffix.exponent, len(fraction))

    scale = suffix.exponent - len(fraction)
    if len(shifted) <= 18 and scale >= _NANO:
        # A text that already looks canonical is kept unchanged, sign and fraction included.
        kept = spelling if scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0" else None
        return Quantity(number, scale, suffix.format, wide=False, text=kept)
    if not (whole or fraction):
        raise QuantityError(f"{spelling!r} has a suffix and no number")
    # Kubernetes' type brings a long number to nano, whatever its exponent, and reads it from there.
    if scale > _NANO:
        number, scale = number * 10 ** (scale - _NANO), _NANO
    return Quantity(number, scale, suffix.format, wide=True)


def _suffix(spelling: str, letters: str, exponent: str) -> _Suffix:
    if not exponent and (known := _SUFFIXES.get(letters)):
        return known
    if letters not in ("e", "E") or not exponent.lstrip("+-"):
        raise QuantityError(f"{spelling!r} is not a quantity; use 2 or 500m")
    power = int(exponent)
    if abs(power) > _LARGEST_EXPONENT:
        raise QuantityError(f"{spelling!r} has an exponent beyond {_LARGEST_EXPONENT}")
    return _Suffix(QuantityFormat.EXPONENT, power)


def _wide_binary(number: int, places: int) -> Quantity:
    """A large or fractional binary quantity: capped at 2^63 - 1, and decimal when it is less than one."""
    nano = _away_from_zero(number * 10**-_NANO, 10**places)
    if abs(nano) > _INT64_MAX * 10**-_NANO:
        return Quantity(_INT64_MAX if nano > 0 else -_INT64_MAX, 0, QuantityFormat.BINARY, wide=True)
    return Quantity(
        nano, _NANO, QuantityFormat.BINARY if abs(nano) >= 10**-_NANO else QuantityFormat.DECIMAL, wide=True
    )
