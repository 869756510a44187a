"""Amounts: what quota is counted in. Signed 64-bit integers that saturate, the highest of which means *unlimited*.

`cpu` counts in thousandths of a core, every other resource in whole units; a fraction rounds away from zero, so that a
small request is never counted as nothing. A *request* is clamped to the range. A *quota* that reaches the
top of the range has no limit. Both ends meet in one number: a request so large that it was clamped exceeds every finite
quota and fits exactly an unlimited one.

Amounts are plain integers. They compare with `<` and `==`, because unlimited is the highest of them; they are added and
subtracted here, because plain `+` would make something finite of it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from kubemachinery import quantity
from kubemachinery.quantity import Quantity, QuantityFormat

Amount: TypeAlias = int
Resource: TypeAlias = str

UNLIMITED: Final[Amount] = 2**63 - 1
NOTHING_LEFT: Final[Amount] = -(2**63)
"""A finite amount less an unlimited one."""

CPU: Final[Resource] = "cpu"
PODS: Final[Resource] = "pods"

_BYTES: Final = frozenset({"memory", "ephemeral-storage"})
_BYTES_PREFIX: Final = "hugepages-"

# The number of cores, not of thousandths, that counts as unlimited: a fraction above it in thousandths is still finite.
_UNLIMITED_CORES: Final = Quantity(UNLIMITED // 1000)
_UNLIMITED_UNITS: Final = Quantity(UNLIMITED)


def of_request(resource: Resource, requested: Quantity) -> Amount:
    """The amount of a request, clamped to the range."""
    return clamp(requested.rounded(-3 if resource == CPU else 0))


def of_quota(resource: Resource, quota: Quantity) -> Amount:
    """The amount of a quota, borrowing limit or lending limit; unlimited from the top of the range on."""
    if quota >= (_UNLIMITED_CORES if resource == CPU else _UNLIMITED_UNITS):
        return UNLIMITED
    return of_request(resource, quota)


def clamp(number: int) -> Amount:
    """The nearest amount."""
    return UNLIMITED if number > UNLIMITED else NOTHING_LEFT if number < NOTHING_LEFT else number


def add(a: Amount, b: Amount) -> Amount:
    """a + b: unlimited if either is."""
    if a == UNLIMITED or b == UNLIMITED:
        return UNLIMITED
    total = a + b
    return total if NOTHING_LEFT <= total <= UNLIMITED else clamp(total)


def subtract(a: Amount, b: Amount) -> Amount:
    """a - b: unlimited less anything finite stays unlimited, and two unlimited ones cancel out."""
    if a == UNLIMITED:
        return 0 if b == UNLIMITED else UNLIMITED
    if b == UNLIMITED:
        return NOTHING_LEFT
    rest = a - b
    return rest if NOTHING_LEFT <= rest <= UNLIMITED else clamp(rest)


def multiply(amount: Amount, count: int) -> Amount:
    """`count` times the amount, clamped to the range."""
    return clamp(amount * count)


def is_in_bytes(resource: Resource) -> bool:
    """Whether amounts of a resource are numbers of bytes."""
    return resource in _BYTES or resource.startswith(_BYTES_PREFIX)


def as_quantity(resource: Resource, amount: Amount) -> Quantity:
    """The amount as the API writes it: bytes with binary suffixes, everything else with decimal ones."""
    if resource == CPU:
        return Quantity(amount, -3)
    if is_in_bytes(resource):
        # Read once more, because a number of bytes without a power of 1024 in it is then a plain decimal: 5000 is 5k.
        return quantity.parse(Quantity(amount, format=QuantityFormat.BINARY).canonical)
    return Quantity(amount)


def text(resource: Resource, amount: Amount) -> str:
    """The amount as messages show it."""
    return "<unlimited>" if amount == UNLIMITED else as_quantity(resource, amount).canonical
