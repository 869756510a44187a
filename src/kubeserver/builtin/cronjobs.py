"""CronJobs: stored and validated; no controller here creates their Jobs."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache
from typing import Final

import msgspec

from kubemachinery import meta
from kubeserver.builtin import checks, decoding, jobs
from kubeserver.builtin.checks import Errors, Tree, invalid, not_supported, required

_NAME_LENGTH: Final = 52  # of a Job's 63; a dash and the time make the rest
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

# The fields of a schedule: name, least and greatest value, and the names that stand for values from the least on.
_FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_DESCRIPTORS: Final = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY: Final = "@every "
_ZONE_PREFIX: Final = re.compile(r"(?:CRON_)?TZ=(\S*)\s+")
_ZONE_PART: Final = re.compile(r"[A-Za-z._0-9+][A-Za-z.\-_0-9+]{0,13}")


def on_create(tree: Tree) -> None:
    tree["status"] = decoding.zero("batch.v1.CronJobStatus")


def on_update(new: Tree, old: Tree) -> None:
    new["status"] = old["status"]


def validate(new: Tree, old: Tree | None, subresource: str) -> Errors:
    if subresource == "status":
        return
    yield from checks.enums("batch.v1.CronJob", new)
    spec = new["spec"]
    before = old["spec"] if old is not None else None
    if old is None and len(new["metadata"].get("name", "")) > _NAME_LENGTH:
        yield invalid("metadata.name", new["metadata"]["name"], f"must be no more than {_NAME_LENGTH} characters")
    yield from _validate_schedule(spec, before)
    if before is None or before.get("timeZone") != spec.get("timeZone"):
        yield from _validate_zone(spec.get("timeZone"))
    limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    yield from checks.not_negative(spec, "spec", *limits)
    template = spec["jobTemplate"]["spec"]
    path = "spec.jobTemplate"
    for error in jobs.validate_spec(template):
        yield msgspec.structs.replace(error, path=f"{path}.{error.path}")
    if "selector" in template:
        yield invalid(f"{path}.spec.selector", template["selector"], "is made by the server")
    if template.get("manualSelector"):
        yield not_supported(f"{path}.spec.manualSelector", True, ("nil", "false"))


def _validate_schedule(spec: Tree, before: Tree | None) -> Errors:
    schedule, path = spec.get("schedule", ""), "spec.schedule"
    if not schedule:
        yield required(path)
        return
    if why := complaint(schedule):
        yield invalid(path, schedule, why)
    tolerated = before is not None and "TZ" in before.get("schedule", "")
    if "TZ" in schedule and not tolerated:
        yield invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif "TZ" in schedule and "timeZone" in spec:
        yield invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _validate_zone(zone: str | None) -> Errors:
    path = "spec.timeZone"
    if zone is None:
        return
    if not zone:
        yield invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    if any(part in (".", "..") or not _ZONE_PART.fullmatch(part) for part in zone.split("/")):
        yield invalid(path, zone, f"unknown time zone {zone}")
        return
    if zone.lower() == "local":
        yield invalid(path, zone, "must be an explicit time zone")
    elif (known := _zones()) and zone not in known:
        yield invalid(path, zone, f"unknown time zone {zone}")


@cache
def _zones() -> frozenset[str]:
    """The time zones of this machine; none where it has no database of them, and then any name passes."""
    return frozenset(zoneinfo.available_timezones())


# --- the schedule -----------------------------------------------------------------------------------------------------


def complaint(schedule: str) -> str:
    """Why a schedule cannot be read; "" where it can. Five fields, or a descriptor such as `@daily` or `@every 1h`."""
    text = schedule
    if zone := _ZONE_PREFIX.match(text):
        text = text[zone.end() :]
    if text.startswith("@"):
        return _descriptor(text)
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {fields}"
    for text, row in zip(fields, _FIELDS, strict=True):
        for part in text.split(","):
            if why := _part(part, *row):
                return why
    return ""


def _descriptor(text: str) -> str:
    if text in _DESCRIPTORS:
        return ""
    if text.startswith(_EVERY):
        try:
            meta.parse_duration(text.removeprefix(_EVERY))
        except meta.TimeError as wrong:
            return f"failed to parse duration {text}: {wrong}"
        return ""
    return f"unrecognized descriptor: {text}"


def _part(text: str, field: str, low: int, high: int, names: tuple[str, ...]) -> str:
    """Why one range of a field (`*`, `2`, `1-5`, `*/15`, `mon-fri`) cannot be read."""
    bounds, *steps = text.split("/")
    first, *last = bounds.split("-")
    if len(steps) > 1:
        return f"too many slashes: {text}"
    if len(last) > 1:
        return f"too many hyphens: {text}"
    step = 1
    if steps:
        if not re.fullmatch(r"[0-9]{1,9}", steps[0]):
            return f"failed to parse int from {steps[0]}: {text}"
        step = int(steps[0])
    if first in ("*", "?"):
        begin, end = low, high
    else:
        values = [_value(one, low, names) for one in (first, *last)]
        if None in values:
            return f"failed to parse int from {text}"
        begin = values[0] or 0
        end = (values[1] or 0) if last else high if steps else begin
    if begin < low:
        return f"beginning of range ({begin}) below minimum ({low}) of {field}: {text}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}) of {field}: {text}"
    if begin > end:
        return f"beginning of range ({begin}) beyond end of range ({end}): {text}"
    return "" if step else f"step of range should be a positive number: {text}"


def _value(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text.lower() in names:
        return names.index(text.lower()) + low
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
