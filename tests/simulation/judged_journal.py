"""A journal that passes every revision of a server to a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubemachinery.meta import SECOND
from kubeserver.storage.sqlite import JournalRecord, MemoryJournal
from simulation.engine.revisions import Stored


class RevisionJudge(Protocol):
    def read(self, stored: Stored, now: int, /) -> None:
        """Read one revision, which was stored at a time in seconds."""


class JudgedJournal(MemoryJournal):
    def __init__(self, judge: RevisionJudge) -> None:
        self._judge = judge

    def commit(self, records: Sequence[JournalRecord]) -> None:
        for each in records:
            key = each.key
            stored = Stored(0.0, each.revision, key.resource, key.namespace, key.name, each.op.name, each.body)
            self._judge.read(stored, each.at // SECOND)
