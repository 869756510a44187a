"""Named formats of Kubernetes: `format.dns1123Label().validate(self.name)`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final

import msgspec

from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.library.times import parse_timestamp
from kubemachinery.cel.library.urls import is_url
from kubemachinery.cel.values import NONE, Optional, Value, declare, some

_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_1035: Final = "[a-z](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_QUALIFIED: Final = "(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


class NamedFormat(msgspec.Struct, frozen=True):
    """A named format; `message` returns the error of a text, empty when it is valid."""

    name: str
    message: Callable[[str], str]


declare(NamedFormat, types.FORMAT)


def _shape(pattern: str, length_max: int, words: str, *, prefix: bool = False) -> Callable[[str], str]:
    compiled = re.compile(pattern)

    def message(text: str) -> str:
        # A prefix may end in the dash that the generated part will follow.
        whole = f"{text[:-2]}a" if prefix and len(text) > 1 and text.endswith("-") else text
        if len(text) > length_max:
            return f"must be no more than {length_max} characters"
        return "" if compiled.fullmatch(whole) else f"must be {words}"

    return message


def _qualified_name(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not re.fullmatch(_SUBDOMAIN, prefix)):
        return "must have a DNS subdomain before the slash"
    if len(name) > 63 or not re.fullmatch(_QUALIFIED, name):
        return "must have a name of letters, digits, '-', '_' and '.', which begins and ends with a letter or digit"
    return ""


def _readable(words: str, is_valid: Callable[[str], bool]) -> Callable[[str], str]:
    return lambda text: "" if is_valid(text) else f"must be {words}"


def _is_base64(text: str) -> bool:
    if not text:
        return False
    try:
        base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_moment(text: str) -> bool:
    try:
        parse_timestamp(text)
    except CelError:
        return False
    return True


def _is_date(text: str) -> bool:
    return len(text) == 10 and _is_moment(f"{text}T00:00:00Z")


def _is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", text, re.I) is not None


_FORMATS: Final = {
    name: NamedFormat(name, message)
    for name, message in {
        "dns1123Label": _shape(_LABEL, 63, "a DNS label"),
        "dns1123Subdomain": _shape(_SUBDOMAIN, 253, "a DNS subdomain"),
        "dns1035Label": _shape(_LABEL_1035, 63, "a DNS label that begins with a letter"),
        "dns1123LabelPrefix": _shape(_LABEL, 63, "the beginning of a DNS label", prefix=True),
        "dns1123SubdomainPrefix": _shape(_SUBDOMAIN, 253, "the beginning of a DNS subdomain", prefix=True),
        "dns1035LabelPrefix": _shape(_LABEL_1035, 63, "the beginning of a DNS label", prefix=True),
        "qualifiedName": _qualified_name,
        "labelValue": _shape(f"(?:{_QUALIFIED})?", 63, "a label value"),
        "uri": _readable("a URI", is_url),
        "uuid": _readable("a UUID", _is_uuid),
        "byte": _readable("base64", _is_base64),
        "date": _readable("a date", _is_date),
        "datetime": _readable("a time as in RFC 3339", _is_moment),
    }.items()
}


def _named(name: str) -> Optional:
    return some(_FORMATS[name]) if name in _FORMATS else NONE


def _validate(format_: NamedFormat, text: str) -> Optional:
    message = format_.message(text)
    return some([message]) if message else NONE


def _constant(format_: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: format_


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "format::named(string) -> optional<Format>": _named,
    **{f"format::{name}() -> Format": _constant(format_) for name, format_ in _FORMATS.items()},
    "Format.validate(string) -> optional<list<string>>": _validate,
}
