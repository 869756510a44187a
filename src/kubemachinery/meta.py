"""Types of every Kubernetes object: metadata, owner references, conditions, selectors; the formats of times and names.

The types are for reading: every field has a default that means *absent*, so that a partial object always decodes. Times
and durations are text, and integers of nanoseconds in calculations. Checks of names return messages, one per violation,
and none for a valid name.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

import msgspec

from kubemachinery.fields import QUALIFIED_PATTERN, Field, Int64, Time, required

Nanoseconds: TypeAlias = int
TimeText: TypeAlias = str
DurationText: TypeAlias = str

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all API types: immutable, camelCase in JSON, absent fields omitted.

    API objects are trees without cycles, so they are excluded from garbage collection, which would otherwise traverse
    every field of every cached object repeatedly.
    """


# --- Types ------------------------------------------------------------------------------------------------------------


class OwnerReference(ApiStruct, frozen=True):
    """The object that owns this one; this one is deleted with it."""

    api_version: Annotated[str, Field("The owner's API version, as `group/version`.")] = required(str)
    kind: Annotated[str, Field("The owner's kind.")] = required(str)
    name: Annotated[str, Field("The owner's name.")] = required(str)
    uid: Annotated[str, Field("The owner's UID; a namesake with another UID is not the owner.")] = required(str)
    controller: Annotated[bool | None, Field("Whether this owner is the one that steers the object.")] = None
    block_owner_deletion: Annotated[
        bool | None, Field("Whether a foreground deletion of the owner waits for this object.")
    ] = None


class ObjectMeta(ApiStruct, frozen=True):
    """Metadata of an object: name and namespace, revision, labels, owners."""

    # The managedFields, half of many an object, are not decoded: a write without them leaves them as they are.

    name: Annotated[str, Field("The name, one of a kind in its namespace.")] = ""
    generate_name: Annotated[str, Field("The start of a name that the server completes.")] = ""
    namespace: Annotated[str, Field("The namespace; empty for kinds of the whole cluster.")] = ""
    uid: Annotated[str, Field("Unique identifier; a later object of the same name has another one.")] = ""
    resource_version: Annotated[str, Field("The revision of the store at which this object last changed.")] = ""
    generation: Annotated[Int64, Field("Counts changes of the specification.")] = 0
    creation_timestamp: Annotated[Time | None, Field("When it was created.")] = None
    deletion_timestamp: Annotated[Time | None, Field("Since when, or until when, it is being deleted.")] = None
    deletion_grace_period_seconds: Annotated[Int64 | None, Field("Grace period of the deletion, in seconds.")] = None
    labels: Annotated[dict[str, str], Field("Keys and values to select by.")] = {}
    annotations: Annotated[dict[str, str], Field("Keys and values that are not used in selectors.")] = {}
    owner_references: Annotated[
        tuple[OwnerReference, ...], Field("The objects it belongs to.", list_type="map", list_map_keys=("uid",))
    ] = ()
    finalizers: Annotated[
        tuple[str, ...], Field("Finalizers that must be removed before the object is deleted.", list_type="set")
    ] = ()
    self_link: Annotated[str, Field("No longer filled in.")] = ""

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(ApiStruct, frozen=True):
    """One aspect of the state of an object: true, false or unknown, since when, and why."""

    type: Annotated[str, Field("What it is about.", max_length=316, pattern=QUALIFIED_PATTERN)] = required(str)
    status: Annotated[str, Field("True, False or Unknown.", enum=("True", "False", "Unknown"))] = required(str)
    observed_generation: Annotated[
        Int64, Field("The generation of the object that the condition was set for.", minimum=0)
    ] = 0
    last_transition_time: Annotated[Time, Field("When the status last changed.")] = required(str)
    reason: Annotated[
        str,
        Field(
            "Why, as one word for programs.",
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ] = required(str)
    message: Annotated[str, Field("Why, as text for users.", max_length=32768)] = required(str)


class LabelSelectorRequirement(ApiStruct, frozen=True):
    """One requirement on one label."""

    key: Annotated[str, Field("The label's key.")] = required(str)
    operator: Annotated[str, Field("In, NotIn, Exists or DoesNotExist.")] = required(str)
    values: Annotated[
        tuple[str, ...],
        Field("The values that In and NotIn compare with; none for Exists and DoesNotExist.", list_type="atomic"),
    ] = ()


class LabelSelector(ApiStruct, frozen=True):
    """All of `matchLabels` and all of `matchExpressions`. An empty selector matches all, an absent one nothing."""

    match_labels: Annotated[dict[str, str], Field("Labels that must be there with these values.")] = {}
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], Field("Further demands, all of which must hold.", list_type="atomic")
    ] = ()


# --- Times ------------------------------------------------------------------------------------------------------------


class TimeError(ValueError):
    """A text that is not a valid time or duration."""


_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_SECONDS: Final = 86_400
# The last second that a timestamp can have: years have four digits.
LATEST_TIME: Final[Nanoseconds] = ((date.max.toordinal() - _EPOCH + 1) * _DAY_SECONDS - 1) * SECOND


# The same second is parsed many times (creation times, transition times of one pass), so results are cached. Few are
# enough: times with a fraction of a second do not recur, and each takes 200 bytes.
@lru_cache(maxsize=1 << 12)
def parse_time(text: TimeText) -> Nanoseconds:
    """Nanoseconds since 1970 of an RFC 3339 time, with any fraction (cut at nanoseconds) and any offset."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise TimeError(f"{text!r} is not an RFC 3339 time such as 2025-01-31T09:30:00Z")
    year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
    fraction, sign, offset_hours, offset_minutes = found.group(7, 8, 9, 10)
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError as error:
        raise TimeError(f"{text!r} is not a day of the calendar: {error}") from None
    if hour > 23 or minute > 59 or second > 59:
        raise TimeError(f"{text!r} is not a time of the day")
    seconds = days * _DAY_SECONDS + hour * 3600 + minute * 60 + second
    if sign is not None:
        if int(offset_hours) > 24 or int(offset_minutes) > 59:
            raise TimeError(f"{text!r} has an offset that no place on earth has")
        offset = int(offset_hours) * 3600 + int(offset_minutes) * 60
        seconds += offset if sign == "-" else -offset
    nanoseconds = int(fraction[:9].ljust(9, "0")) if fraction else 0
    return seconds * SECOND + nanoseconds


# Times are formatted when they are now, so few different seconds are asked for.
@lru_cache(maxsize=1 << 10)
def _format_seconds(time: int) -> TimeText:
    days, seconds = divmod(time, _DAY_SECONDS)
    try:
        day = date.fromordinal(days + _EPOCH)
    except (ValueError, OverflowError):
        raise TimeError(f"{time} seconds since 1970 is not in a year of four digits") from None
    return f"{day.isoformat()}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def format_time(time: Nanoseconds) -> TimeText:
    """RFC 3339 in UTC, cut to whole seconds, as every timestamp of an object's metadata and conditions is kept."""
    return _format_seconds(time // SECOND)


def format_micro_time(time: Nanoseconds) -> TimeText:
    """RFC 3339 in UTC with six digits of a second, as Leases and Events keep theirs."""
    return f"{_format_seconds(time // SECOND)[:-1]}.{time % SECOND // MICROSECOND:06}Z"


# --- Durations --------------------------------------------------------------------------------------------------------

_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "μs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
# The digits are bounded so that hostile text is refused here and never reaches int().
_DURATION: Final = re.compile(r"([+-]?)((?:(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:ns|[uµμ]s|ms|s|m|h))+)", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d*)\.?(\d*)(ns|[uµμ]s|ms|s|m|h)", re.ASCII)
_LONGEST_DURATION: Final = 2**63 - 1


def parse_duration(text: DurationText) -> Nanoseconds:
    """Nanoseconds of a duration such as `1h30m`, `500ms` or `-1.5s`."""
    if text in ("0", "+0", "-0"):
        return 0
    found = _DURATION.fullmatch(text)
    if found is None:
        raise TimeError(f"{text!r} is not a duration such as 1h30m or 500ms")
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(found[2]):
        size = _UNITS[unit]
        total += int(whole or 0) * size + int(fraction or 0) * size // 10 ** len(fraction)
    if total > _LONGEST_DURATION:
        raise TimeError(f"{text!r} is longer than the 292 years that a duration can hold")
    return -total if found[1] == "-" else total


def format_duration(duration: Nanoseconds) -> DurationText:
    """A duration as the API writes it: `1h30m0s`, `1.5s`, `500ms`, `0s`."""
    if duration == 0:
        return "0s"
    sign, rest = ("-", -duration) if duration < 0 else ("", duration)
    for unit, size in (("ns", 1), ("µs", MICROSECOND), ("ms", MILLISECOND)):
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    shown = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{shown}{_decimal(rest, SECOND)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if rest == 0:
        return str(whole)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}"


# --- Names ------------------------------------------------------------------------------------------------------------

LABEL_LENGTH: Final = 63
SUBDOMAIN_LENGTH: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_LABEL_RULE: Final = "must be lower case letters, digits and '-', with a letter or digit first and last"
_LABEL_1035_RULE: Final = "must be lower case letters, digits and '-', with a letter first and a letter or digit last"
_SUBDOMAIN_RULE: Final = "must be lower case letters, digits, '-' and '.', with a letter or digit around every '.'"
_QUALIFIED_RULE: Final = "must be letters, digits, '-', '_' and '.', with a letter or digit first and last"

Messages: TypeAlias = tuple[str, ...]


def _check(text: str, length: int, pattern: re.Pattern[str], rule: str) -> Messages:
    too_long = (f"must be no more than {length} characters",) if len(text) > length else ()
    return too_long if pattern.fullmatch(text) else (*too_long, rule)


def check_label_name(text: str) -> Messages:
    """Why `text` is not an RFC 1123 label, the form of a namespace's name; empty if it is one."""
    return _check(text, LABEL_LENGTH, _LABEL, _LABEL_RULE)


def check_label_1035_name(text: str) -> Messages:
    """Why `text` is not an RFC 1035 label, the form of a service's name; empty if it is one."""
    return _check(text, LABEL_LENGTH, _LABEL_1035, _LABEL_1035_RULE)


def check_subdomain_name(text: str) -> Messages:
    """Why `text` is not an RFC 1123 subdomain, the form of most objects' names; empty if it is one."""
    return _check(text, SUBDOMAIN_LENGTH, _SUBDOMAIN, _SUBDOMAIN_RULE)


def check_qualified_name(text: str) -> Messages:
    """Why `text` is not `name` or `domain/name`, the form of label keys, resources and finalizers."""
    prefix, slash, name = text.rpartition("/")
    messages: Messages = ()
    if "/" in prefix:
        return (f"must be a name or a domain and a name around one '/', and each name {_QUALIFIED_RULE}",)
    if slash and not prefix:
        messages = ("the part before '/' must not be empty",)
    elif slash:
        messages = tuple(f"the part before '/' {message}" for message in check_subdomain_name(prefix))
    if not name:
        return (*messages, "the name must not be empty")
    return (*messages, *(f"the name {c}" for c in _check(name, LABEL_LENGTH, _QUALIFIED, _QUALIFIED_RULE)))


def check_label_value(text: str) -> Messages:
    """Why `text` is not a label value; an empty text is one."""
    return _check(text, LABEL_LENGTH, _QUALIFIED, f"{_QUALIFIED_RULE}, or be empty") if text else ()
