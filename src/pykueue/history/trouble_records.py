"""The troubles of Workloads as records: when each was found, until when it was found, and its last message [LG9].

A trouble is a fact of the moment; its record is what is left afterwards. `TroubleLog` compares what is found now with
what was found before, and returns the records that begin, and those that end. It reads no clock and stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pykueue.history.records import Seconds

# A trouble that is found again within this time goes on: a loop in spite of an arrival in its cohort, or while a pod
# that was evicted is not created again yet.
GONE_SECONDS: Final = 60


class TroubleKey(NamedTuple):
    """What a trouble is of: one Workload has at most one of each type at a time."""

    type: str
    namespace: str
    name: str


class TroubleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One trouble of one Workload. Of pods that replace each other in a loop, the Workload is the first one."""

    type: str
    namespace: str
    name: str
    job: str = ""
    queue: str = ""
    cluster_queue: str = ""
    since: Seconds  # as in the list of troubles: a Workload starves since it was queued
    found: Seconds  # when the manager found it first
    ended: Seconds | None = None  # when the manager did not find it any more
    message: str = ""

    @property
    def key(self) -> TroubleKey:
        return TroubleKey(self.type, self.namespace, self.name)


class TroubleLog:
    """The records of the troubles that have not ended."""

    def __init__(self) -> None:
        self._open: dict[TroubleKey, TroubleRecord] = {}
        self._missed: dict[TroubleKey, Seconds] = {}  # since when an open one is not found

    def resume(self, stored: Iterable[TroubleRecord]) -> list[TroubleRecord]:
        """Continue the open records of an earlier manager, and return those that end with it: of a trouble that this
        manager has found already, the earlier record ends where the new one begins."""
        replaced = []
        for record in stored:
            known = self._open.setdefault(record.key, record)
            if known.found != record.found:
                replaced.append(replace(record, ended=max(record.found, known.found)))
        return replaced

    def begin(self, found: Iterable[TroubleRecord]) -> list[TroubleRecord]:
        """Return the records that begin. One that is open already keeps its times, and gets the message of now."""
        begun = []
        for record in found:
            self._missed.pop(record.key, None)
            known = self._open.get(record.key)
            if known is None:
                begun.append(record)
                self._open[record.key] = record
            else:
                self._open[record.key] = replace(known, message=record.message)
        return begun

    def open_record(self, key: TroubleKey) -> TroubleRecord | None:
        """Return the record of a trouble that has not ended, with its last message."""
        return self._open.get(key)

    def compare(self, found: Iterable[TroubleRecord], now: Seconds) -> list[TroubleRecord]:
        """Return the records that changed, given all troubles that exist now: those that begin, and those that were
        not found for GONE_SECONDS, with the first of these moments as their end.

        A clock that was set back gives no record an end before its beginning, and keeps none open for longer."""
        begun = self.begin(present := list(found))
        keys = {record.key for record in present}
        ended = []
        for record in [record for key, record in self._open.items() if key not in keys]:
            missed = self._missed[record.key] = min(self._missed.get(record.key, now), now)
            if now - missed >= GONE_SECONDS:
                del self._open[record.key], self._missed[record.key]
                ended.append(replace(record, ended=max(missed, record.found)))
        return [*begun, *ended]
