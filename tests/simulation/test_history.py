"""The history in runs from seeds: records equal what all stored revisions show, also after restarts, lost watches and a
full disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.history import records
from simulation import history_run
from simulation.engine.revisions import Violation
from virtual import virtual_time

SEEDS = range(4)


def play(seed: int, path: Path) -> tuple[list[Violation], Counter[str]]:
    found: list[Any] = []

    @virtual_time
    async def whole() -> None:
        found.append(await history_run.run(seed, path))

    whole()
    return found[0]  # type: ignore[no-any-return]


def test_records_are_those_of_the_judge(tmp_path: Path) -> None:
    """[HI-L1] And what they are about happens."""
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        violations, more = play(seed, tmp_path)
        assert not violations, f"seed {seed}: " + "\n".join(map(str, violations))
        happened += more
    assert happened["compared"] > 40
    assert happened["attempts"] > 30
    for what in ("evicted", "kill", "restart", "disk", "watches", "cancel", "delete", "deactivate", "vanish"):
        assert happened[what] > 0, what
    assert happened["inexact"] * 20 < happened["compared"]


# --- Planted bugs -----------------------------------------------------------------------------------------------------


def _releases_when_it_is_seen(patch: pytest.MonkeyPatch) -> None:
    """The end of an attempt is the time of the observation, not of the object."""
    attempts = records._attempts

    def late(known: Any, workload: Any, submitted: int, seen: int) -> Any:
        found, inexact = attempts(known, workload, submitted, seen)
        if known and found and known[-1].released is None and found[-1].released is not None:
            found = (*found[:-1], replace(found[-1], released=max(seen, found[-1].released) + 1))
        return found, inexact

    patch.setattr(records, "_attempts", late)


def _does_not_wait_for_the_commit(patch: pytest.MonkeyPatch) -> None:
    async def commit(self: HistoryRecorder, workload: Any, *, is_deleted: bool) -> None:
        self.observe(workload)

    patch.setattr(HistoryRecorder, "commit", commit)


def _forgets_what_a_full_disk_refused(patch: pytest.MonkeyPatch) -> None:
    failed = HistoryRecorder._failed

    def forgetting(self: HistoryRecorder, error: Any, batch: Any) -> None:
        failed(self, error, {})

    patch.setattr(HistoryRecorder, "_failed", forgetting)


def _ends_deleted_workloads_now(patch: pytest.MonkeyPatch) -> None:
    gone = records.gone
    patch.setattr(records, "gone", lambda record, last, seen: gone(record, None, seen + 1))


def _joins_two_attempts(patch: pytest.MonkeyPatch) -> None:
    """A reservation after a release continues the attempt before it."""
    opened = records._opened

    def joined(attempts: Any, workload: Any, mark: int, submitted: int, seen: int) -> Any:
        new = opened(attempts, workload, mark, submitted, seen)
        return replace(new, reserved=attempts[-1].reserved) if attempts else new

    patch.setattr(records, "_opened", joined)


# The bug, and the first seed of the search.
PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], int]] = [
    (_releases_when_it_is_seen, 0),
    (_does_not_wait_for_the_commit, 1),
    (_forgets_what_a_full_disk_refused, 0),
    (_ends_deleted_workloads_now, 0),
    (_joins_two_attempts, 0),
]


@pytest.mark.parametrize(("plant", "first"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + len(SEEDS)):
        violations, _ = play(seed, tmp_path)
        if violations:
            return
    pytest.fail(f"{len(SEEDS)} runs without a violation")
