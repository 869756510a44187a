"""Semantic versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.library.standard import INT_MAX
from kubemachinery.cel.values import Value, declare

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_WORDS: Final = r"([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_WORDS})?(?:\+{_WORDS})?")


class Semver(msgspec.Struct, frozen=True):
    major: int
    minor: int
    patch: int
    pre_release: tuple[str, ...] = ()
    build: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of a version: a release after its pre-releases, numbers before text. The build is ignored."""
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre_release)
        return (self.major, self.minor, self.patch, not self.pre_release, pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


declare(Semver, types.SEMVER)


def _parse(text: str, normalize: bool = False) -> Semver:
    original = text
    if normalize:
        text = _normalized(text)
    match = _VERSION.fullmatch(text)
    pre = tuple(match[4].split(".")) if match and match[4] else ()
    if match is None or any(part.isdigit() and part[0] == "0" and part != "0" for part in pre) or len(text) > 256:
        raise CelError(f"cannot read {original!r} as a semantic version")
    major, minor, patch = (int(match[i]) for i in (1, 2, 3))
    if max(major, minor, patch) > INT_MAX:
        raise CelError(f"cannot read {original!r} as a semantic version")
    return Semver(major, minor, patch, pre, tuple((match[5] or "").split(".")) if match[5] else ())


def _normalized(text: str) -> str:
    match = re.fullmatch(r"v?([0-9]+(?:\.[0-9]+){0,2})([-+].*)?", text)
    if match is None:
        return text
    numbers = [part.lstrip("0") or "0" for part in match[1].split(".")]
    return ".".join(numbers + ["0"] * (3 - len(numbers))) + (match[2] or "")


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _parse(text, normalize)
    except CelError:
        return False
    return True


def _compare(left: Semver, right: Semver) -> int:
    return (left.order > right.order) - (left.order < right.order)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "semver(string) -> Semver": _parse,
    "semver(string, bool) -> Semver": _parse,
    "isSemver(string) -> bool": _is_semver,
    "isSemver(string, bool) -> bool": _is_semver,
    "Semver.major() -> int": lambda version: version.major,
    "Semver.minor() -> int": lambda version: version.minor,
    "Semver.patch() -> int": lambda version: version.patch,
    "Semver.isGreaterThan(Semver) -> bool": lambda left, right: _compare(left, right) > 0,
    "Semver.isLessThan(Semver) -> bool": lambda left, right: _compare(left, right) < 0,
    "Semver.compareTo(Semver) -> int": _compare,
}
