"""String formats that are validated; any other `format` is ignored.

The table is that of kube-apiserver. Where it is more lenient than the name suggests (`duration` accepts "about 5
minutes"), so is this one: an object that a real cluster accepts must not be refused here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

Test = Callable[[str], bool]


def checker(name: str) -> Test | None:
    """The check of a format; None for a format that is not validated. Dashes in the name are ignored."""
    return _FORMATS.get(name.replace("-", ""))


def _matches(pattern: str) -> Test:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= month <= 12 and 1 <= day <= (28 if month == 2 and not leap else _DAYS[month - 1])


def is_date_time(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    match = _TIME.fullmatch(rest.split("t")[0])
    return (
        match is not None and is_date(day) and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"
    )  # no leap second


def _ip_version(text: str) -> int:
    """4, 6 or 0; leading zeros in an IPv4 address are tolerated, and a zone is not."""
    if "%" in text or not text.isascii():
        return 0
    head, _, tail = text.rpartition(":")
    if "." in tail:
        tail = ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in tail.split("."))
    try:
        return ipaddress.ip_address(f"{head}:{tail}" if head or ":" in text else tail).version
    except ValueError:
        return 0


def _is_ipv4(text: str) -> bool:
    return _ip_version(text) != 0 and "." in text


def _is_ipv6(text: str) -> bool:
    return _ip_version(text) == 6


def _is_cidr(text: str) -> bool:
    address, slash, prefix = text.partition("/")
    version = _ip_version(address)
    if not (slash and version and prefix.isascii() and prefix.isdigit() and len(prefix) <= 3):
        return False
    return int(prefix) <= (32 if version == 4 else 128) and prefix == str(int(prefix))


def _is_uri(text: str) -> bool:
    """An absolute URI or an absolute path, as in a request."""
    return is_request_uri(text)


_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+[^\]]*\]|[^\s\[\]<>\"`{}|\\^:/?#@]*)(:[0-9]*)?")


def is_request_uri(text: str) -> bool:
    """Whether the text is an absolute URI, or a path that begins with a slash."""
    if not text or any(char < " " or char == "\x7f" for char in text):
        return False
    path = text.split("?", 1)[0]
    if _BAD_ESCAPE.search(path):
        return False
    if text.startswith("/") and not text.startswith("//"):
        return True
    if not _SCHEME.match(text) and not text.startswith("//"):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    host = parts.netloc.rpartition("@")[2]
    return _HOST.fullmatch(host) is not None


_EMAIL_ADDRESS: Final = re.compile(
    r"(?:[^\s<>@\"(),:;\[\]\\.]+(?:\.[^\s<>@\"(),:;\[\]\\.]+)*|\"(?:[^\"\\]|\\.)+\")@"
    r"(?:[^\s<>@\"(),:;\[\]\\.]+(?:\.[^\s<>@\"(),:;\[\]\\.]+)*|\[[^\]\s]+\])"
)
_EMAIL_NAMED: Final = re.compile(r"[^<>@]*<([^<>]+)>")


def _is_email(text: str) -> bool:
    named = _EMAIL_NAMED.fullmatch(text.strip(" "))
    return _EMAIL_ADDRESS.fullmatch(named[1].strip(" ") if named else text.strip(" ")) is not None


_HOSTNAME_LABEL: Final = re.compile(r"[^\W_](?:[^\W_]|-)*", re.UNICODE)


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    if len(text.encode("utf-8", "surrogatepass")) > 255:
        return False
    for label in labels:
        if not _HOSTNAME_LABEL.fullmatch(label) or label.endswith("-") or len(label.encode()) > 63:
            return False
    return len(labels) == 1 or (len(labels[-1]) >= 2 and labels[-1].isalpha())


_GO_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_WORDED_DURATION: Final = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)")
_DURATION_UNITS: Final = frozenset({"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"})
_DURATION_WORDS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _is_duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    pairs = _WORDED_DURATION.findall(text)
    units = [unit.lower() for count, unit in pairs if len(count) < 19]
    return len(units) == len(pairs) and any(
        unit in _DURATION_UNITS or unit.startswith(_DURATION_WORDS) for unit in units
    )


def _is_isbn10(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 - i) * (10 if digit == "X" else int(digit)) for i, digit in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = text.replace("-", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((3 if i % 2 else 1) * int(digit) for i, digit in enumerate(digits)) % 10 == 0


_CARD: Final = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|"
    r"6(?:011|5[0-9]{2})[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(digit) * 2 if i % 2 else int(digit) for i, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


_HEX: Final = "[0-9A-Fa-f]"
_COLOR_PART: Final = r"(?:[01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])"
_SHORT_NAME: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"


def _uuid(version: str, variant: str) -> Test:
    return _matches(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{version}-?{variant}-?{_HEX}{{12}}")


def _named(pattern: str, length_max: int) -> Test:
    matches = _matches(pattern)
    return lambda text: len(text) <= length_max and matches(text)


_FORMATS: Final[dict[str, Test]] = {
    "bsonobjectid": _matches(f"{_HEX}{{24}}"),
    "byte": _matches(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": _is_cidr,
    "creditcard": _is_credit_card,
    "date": is_date,
    "datetime": is_date_time,
    "duration": _is_duration,
    "email": _is_email,
    "hexcolor": _matches(f"#?(?:{_HEX}{{3}}|{_HEX}{{6}})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": _named(rf"{_SHORT_NAME}(?:\.{_SHORT_NAME})*", 253),
    "k8sshortname": _named(_SHORT_NAME, 63),
    "mac": _matches(
        rf"{_HEX}{{2}}(?:(?::{_HEX}{{2}}){{5}}|(?:-{_HEX}{{2}}){{5}}|(?::{_HEX}{{2}}){{7}}|(?:-{_HEX}{{2}}){{7}}|"
        rf"(?::{_HEX}{{2}}){{19}}|(?:-{_HEX}{{2}}){{19}})|{_HEX}{{4}}(?:(?:\.{_HEX}{{4}}){{2}}|(?:\.{_HEX}{{4}}){{3}}|"
        rf"(?:\.{_HEX}{{4}}){{9}})"
    ),
    "password": lambda text: True,
    "rgbcolor": _matches(rf"rgb\(\s*{_COLOR_PART}\s*,\s*{_COLOR_PART}\s*,\s*{_COLOR_PART}\s*\)"),
    "ssn": _matches(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "uri": _is_uri,
    "uuid": _uuid(f"{_HEX}{{4}}", f"{_HEX}{{4}}"),
    "uuid3": _uuid(f"3{_HEX}{{3}}", f"{_HEX}{{4}}"),
    "uuid4": _uuid(f"4{_HEX}{{3}}", f"[89ABab]{_HEX}{{3}}"),
    "uuid5": _uuid(f"5{_HEX}{{3}}", f"[89ABab]{_HEX}{{3}}"),
}
