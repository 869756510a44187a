"""The entries of `metadata.managedFields`: decoded, sorted, folded and encoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubeserver.apply import paths
from kubeserver.apply.paths import PathSet

APPLY: Final = "Apply"
UPDATE: Final = "Update"

# Beyond this many managers with operation Update, the oldest are merged into one entry, as kube-apiserver does.
UPDATERS_MAX: Final = 10
_FOLDED: Final = "ancient-changes"

# The key of an entry. An applier has one entry whatever version it applies in; an updater has one per version.
Identity: TypeAlias = tuple[str, str, str, str]  # manager, operation, version ("" for Apply), subresource
Managers: TypeAlias = dict[Identity, "FieldManagerEntry"]


class FieldManagerEntry(msgspec.Struct, frozen=True):
    """The fields of one manager, named in the version in which it wrote them."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    fields: PathSet
    time: str = ""

    @property
    def identity(self) -> Identity:
        version = "" if self.operation == APPLY else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def owning(self, fields: PathSet) -> FieldManagerEntry:
        return self if fields is self.fields else replace(self, fields=fields)

    def spelt(self) -> str:
        """Return the manager as a conflict message names it."""
        out = f'"{self.manager}"'
        if self.subresource:
            out += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            out += f" using {self.api_version}"
        return out


def read(entries: object, *, trusted: bool) -> Managers | None:
    """Decode the managers of an object; None where an entry is invalid. Stored entries are `trusted`, not checked."""
    managers: Managers = {}
    if entries is None:
        return managers
    if not isinstance(entries, list):
        return None
    for raw in entries:
        entry = _read_entry(raw, trusted=trusted)
        if entry is None:
            return None
        managers[entry.identity] = entry
    return managers


def _read_entry(raw: Any, *, trusted: bool) -> FieldManagerEntry | None:
    if not isinstance(raw, dict):
        return None
    entry = FieldManagerEntry(
        manager=raw.get("manager", ""),
        operation=raw.get("operation", ""),
        api_version=raw.get("apiVersion", ""),
        subresource=raw.get("subresource", ""),
        fields=raw.get("fieldsV1") or {},
        time=raw.get("time") or "",
    )
    if trusted:
        return entry
    texts = (entry.manager, entry.operation, entry.api_version, entry.subresource, entry.time)
    understood = (
        all(isinstance(text, str) for text in texts)
        and entry.operation in (APPLY, UPDATE)
        and bool(entry.api_version)
        and raw.get("fieldsType") == "FieldsV1"
        and paths.is_path_set(entry.fields)
    )
    return entry if understood else None


def write(managers: Managers) -> list[dict[str, Any]]:
    """Encode the entries in the order of kube-apiserver: by operation (Apply first), then time, then manager."""
    return [_written(entry) for entry in sorted(managers.values(), key=_order)]


def _order(entry: FieldManagerEntry) -> tuple[str, ...]:
    return (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource)


def _written(entry: FieldManagerEntry) -> dict[str, Any]:
    out: dict[str, Any] = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields,
        "subresource": entry.subresource,
    }
    for optional in ("time", "subresource"):
        if not out[optional]:
            del out[optional]
    return out


def folded(managers: Managers) -> Managers:
    """Return the managers with the oldest updaters merged into one entry per version, where there are too many."""
    updaters = [entry for entry in managers.values() if entry.operation == UPDATE]
    excess = len(updaters) - UPDATERS_MAX
    if excess <= 0:
        return managers
    out = dict(managers)
    first_of: dict[str, FieldManagerEntry] = {}
    for entry in _oldest_first(updaters):
        if excess <= 0:
            break
        first = first_of.setdefault(entry.api_version, entry)
        if first is entry:
            continue  # a single entry of its version stays as it is until a second one joins it
        bucket = FieldManagerEntry(_FOLDED, UPDATE, entry.api_version, "", {}, entry.time)
        present = out.get(bucket.identity)
        if present is None:
            present = out.pop(first.identity)
        del out[entry.identity]
        out[bucket.identity] = replace(bucket, fields=paths.union(entry.fields, present.fields))
        excess -= 1
    return out


def _oldest_first(entries: Iterable[FieldManagerEntry]) -> list[FieldManagerEntry]:
    return sorted(entries, key=lambda entry: (entry.time, entry.manager, entry.api_version, entry.subresource))
