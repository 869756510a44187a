"""Bugs planted in the history: each breaks a law or a scenario, so those guard something."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from history import test_recorder
from laws import test_history
from pykueue.api import kueue
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.history import records
from pykueue.history.records import Attempt, Seconds, WorkloadRecord

FOUND = (AssertionError, ExceptionGroup)


def test_segment_that_is_not_closed_at_an_eviction_breaks_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(attempt: Attempt, at: Seconds, reason: str, preemptor: str = "") -> Attempt:
        return replace(attempt, released=max(at, attempt.segments[-1].start), reason=reason)

    monkeypatch.setattr(records, "_closed", closed)
    with pytest.raises(FOUND):
        test_history.test_segments_sum_to_the_usage_that_the_api_showed()


def test_waiting_that_is_counted_twice_after_a_requeue_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def waited(self: WorkloadRecord, now: Seconds) -> int:
        admitted = [each.admitted for each in self.attempts if each.admitted is not None]
        if self.attempts and self.attempts[-1].released is None and admitted:
            return sum(at - self.submitted for at in admitted)
        return sum(at - self.submitted for at in admitted) + (self.ended or now) - self.submitted

    monkeypatch.setattr(WorkloadRecord, "waited", waited)
    with pytest.raises(FOUND):
        test_history.test_waiting_and_running_equal_those_of_the_states()


def test_finalizer_that_is_removed_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def commit(self: HistoryRecorder, written: kueue.Workload, *, is_deleted: bool) -> None:
        self.observe(written)

    monkeypatch.setattr(HistoryRecorder, "commit", commit)
    with pytest.raises(FOUND):
        test_recorder.test_the_record_is_stored_before_the_finalizer_is_removed(tmp_path)
