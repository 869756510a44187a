"""One Workload's record: what its states make of it."""

from __future__ import annotations

from datetime import UTC

from msgspec.structs import replace

from history.lives import START, Life
from kubemachinery import meta
from pykueue.api import kueue, labels
from pykueue.api.budget import BudgetEvery, BudgetPer
from pykueue.history import budget_accounts, queries, records, rollups
from pykueue.history.budget_accounts import ChargeCounter, ChargingRules
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Outcome, WorkloadRecord


def fold(*states: tuple[object, int], record: WorkloadRecord | None = None) -> WorkloadRecord:
    """The record after states, each with the time at which it was seen."""
    for workload, seen in states:
        record = records.observe(record, workload, START + seen)  # type: ignore[arg-type]
    assert record is not None
    return record


def spans(record: WorkloadRecord) -> list[tuple[int, int | None, int]]:
    """The segments: start and end after START, and the amount of cpu."""
    return [
        (s.start - START, None if s.end is None else s.end - START, s.amounts[0][2])
        for a in record.attempts
        for s in a.segments
    ]


def test_a_job_that_waits_runs_and_succeeds() -> None:
    life = Life()
    record = fold((life.workload, 0), (life.started(40), 40), (life.finished(100), 101))
    assert (record.job, record.job_kind, record.queue, record.cluster_queue) == (
        "train", "job.batch", "research", "physics",
    )  # fmt: skip
    assert (record.waited(0), record.ran(0), record.outcome) == (40, 60, Outcome.SUCCEEDED)
    assert record.ended == START + 100
    assert spans(record) == [(40, 100, 4000)]
    assert record.resource_seconds(0) == {"cpu": 4000 * 60}


def test_a_preempted_workload_has_two_attempts_and_names_its_preemptor() -> None:
    life = Life()
    states = [
        (life.started(0), 0), (life.evicted(30), 30), (life.released(35), 35), (life.started(50), 50),
        (life.finished(150), 150),
    ]  # fmt: skip
    record = fold(*states)
    first, second = record.attempts
    assert (first.reason, first.preemptor, second.reason) == ("Preempted", "big", "Finished")
    assert (record.ran(0), record.waited(0), record.evictions) == (135, 15, 1)


def test_a_workload_has_lasted_as_long_as_its_longest_attempt() -> None:
    life = Life()
    states = [
        (life.workload, 0), (life.started(0), 0), (life.evicted(30), 30), (life.released(35), 35), (life.started(50), 50),
    ]  # fmt: skip
    assert records.lasted_seconds(fold(*states[:1]), START + 10) == 0
    assert records.lasted_seconds(fold(*states[:2]), START + 10) == 10
    assert records.lasted_seconds(fold(*states[:4]), START + 40) == 35
    assert records.lasted_seconds(fold(*states), START + 60) == 35
    assert records.lasted_seconds(fold(*states), START + 90) == 40


def test_quota_that_is_only_reserved_is_recorded_and_not_charged() -> None:
    life = Life()
    record = fold((life.reserved(10), 10), (life.admitted(25), 25), (life.finished(85), 85))
    assert spans(record) == [(10, 25, 4000), (25, 85, 4000)]
    assert record.resource_seconds(0) == {"cpu": 4000 * 60}
    assert record.waited(0) == 25


def test_reclaimable_pods_end_a_segment() -> None:
    life = Life()
    record = fold((life.started(0), 0), (life.reclaimable(2), 40), (life.finished(100), 100))
    assert spans(record) == [(0, 40, 4000), (40, 100, 2000)]


def test_a_partly_admitted_workload_is_charged_for_its_admitted_pods() -> None:
    life = Life(pods=4)
    life.reserved(0, count=3)
    record = fold((life.admitted(0), 0), (life.finished(10), 10))
    assert spans(record) == [(0, 10, 3000)]


def test_pod_sets_that_change_without_quota_are_those_of_the_record() -> None:
    life = Life(pods=4)
    record = fold((life.workload, 0), (life.resized(3), 5))
    assert (record.pods, queries.requested(record)) == (3, {"cpu": 3000})
    # With quota they stay as they were submitted, and the usage follows; without it they change again.
    record = fold((life.started(10), 10), (life.resized(2), 20), (life.evicted(30), 30), record=record)
    assert (record.pods, queries.requested(record)) == (3, {"cpu": 3000})
    record = fold((life.released(31), 31), (life.touched(), 32), record=record)
    assert (record.pods, queries.requested(record)) == (2, {"cpu": 2000})


def test_pod_sets_that_were_never_changed_are_not_read_again() -> None:
    life = Life(pods=4)
    life.workload = replace(life.workload, metadata=replace(life.workload.metadata, generation=1))
    record = fold((life.workload, 0))
    assert fold((life.touched(), 1), record=record).shape is record.shape


def test_usage_of_a_workload_that_is_moved_stays_with_the_queue_that_it_had() -> None:
    life = Life()
    states = [
        (life.started(0), 0), (life.evicted(30), 30), (life.released(30), 30), (life.moved("teaching"), 40),
        (life.started(50), 50), (life.finished(60), 60),
    ]  # fmt: skip
    record = fold(*states)
    assert record.queue == "teaching"
    assert {key.queue: amount for key, amount in rollups.closed(record).items()} == {
        "research": 30 * 4000,
        "teaching": 10 * 4000,
    }
    rules = ChargingRules(BudgetPer.LOCAL_QUEUE, {"cpu": {}}, {"physics": None})
    charged = {span.key[0]: (span.end or 0) - span.start for span in budget_accounts.spans(record, rules)}
    assert charged == {"ns/research": 30, "ns/teaching": 10}
    counter = ChargeCounter(rules, BudgetCalendar(BudgetEvery.DAY, UTC), START)
    counter.count(record.attempts, record.namespace, record.queue, record.user)
    assert {group for group, _, _ in counter.sums} == set(charged)


def group(*pods: str) -> kueue.Workload:
    owners = tuple(meta.OwnerReference(api_version="v1", kind="Pod", name=name, uid=f"uid-{name}") for name in pods)
    found = Life(name="trainers").workload
    return replace(found, metadata=replace(found.metadata, owner_references=owners))


def test_the_record_of_a_group_of_pods_has_the_name_of_the_group() -> None:
    record = fold((group("a", "b"), 0))
    assert (record.job, record.job_kind) == ("trainers", "pod")


def test_the_record_of_a_job_whose_pods_own_the_workload_has_the_name_of_the_job() -> None:
    found = group("web-0", "web-1")
    owner = {labels.JOB_OWNER_GVK: "apps/v1, Kind=StatefulSet", labels.JOB_OWNER_NAME: "web"}
    record = fold((replace(found, metadata=replace(found.metadata, annotations=owner)), 0))
    assert (record.job, record.job_kind) == ("web", "statefulset.apps")


def test_a_workload_deleted_while_it_waits_has_waited_until_then() -> None:
    life = Life()
    record = fold((life.workload, 0), (life.deleting(70), 71))
    record = records.gone(record, life.workload, START + 75)
    assert (record.outcome, record.waited(0), record.attempts) == (Outcome.CANCELLED, 70, ())


def test_a_running_workload_that_is_deleted_ends_when_the_deletion_was_requested() -> None:
    life = Life()
    record = fold((life.started(0), 0), (life.deleting(70), 71))
    record = records.gone(record, life.workload, START + 90)
    assert (record.outcome, record.ran(0), record.attempts[0].reason) == (Outcome.CANCELLED, 70, "Deleted")


def test_a_workload_whose_deletion_is_refused_goes_on() -> None:
    """[HI6] Its record ends before the manager deletes it; the API server may refuse that, and the job be changed."""
    life = Life()
    held = replace(life.workload.metadata, finalizers=(labels.RESOURCE_IN_USE_FINALIZER,))
    life.workload = replace(life.workload, metadata=held)
    record = records.gone(fold((life.started(0), 0)), life.workload, START + 40)
    assert (record.outcome, record.ran(0)) == (Outcome.CANCELLED, 40)
    assert fold((life.workload, 50), record=record) is record, "the state in which it was to be deleted"
    record = fold((life.reclaimable(1), 60), (life.finished(100), 100), record=record)
    assert (record.outcome, record.ran(0), len(record.attempts)) == (Outcome.SUCCEEDED, 100, 1)
    assert spans(record) == [(0, 60, 4000), (60, 100, 3000)]


def test_a_workload_whose_deletion_is_refused_while_it_waits_goes_on() -> None:
    life = Life()
    held = replace(life.workload.metadata, finalizers=(labels.RESOURCE_IN_USE_FINALIZER,))
    life.workload = replace(life.workload, metadata=held)
    states = [(life.started(0), 0), (life.evicted(30), 30), (life.released(35), 35)]
    record = records.gone(fold(*states), life.workload, START + 40)
    record = fold((life.started(50), 50), (life.finished(150), 150), record=record)
    assert (record.outcome, record.ran(0), record.waited(0)) == (Outcome.SUCCEEDED, 135, 15)
    assert [each.reason for each in record.attempts] == ["Preempted", "Finished"]


def test_a_workload_whose_deletion_is_refused_and_that_is_seen_after_its_end_has_that_end() -> None:
    life = Life()
    held = replace(life.workload.metadata, finalizers=(labels.RESOURCE_IN_USE_FINALIZER,))
    life.workload = replace(life.workload, metadata=held)
    record = records.gone(fold((life.started(0), 0)), life.workload, START + 40)
    record = fold((life.finished(100), 100), record=record)
    assert (record.outcome, record.ran(0)) == (Outcome.SUCCEEDED, 100)


def test_a_workload_that_is_being_deleted_or_is_over_does_not_go_on() -> None:
    for state in (Life.touched, lambda life: life.deleting(50), lambda life: life.finished(50, "OwnerNotFound")):
        life = Life()
        if state is not Life.touched:  # which our finalizer does not hold any more
            held = replace(life.workload.metadata, finalizers=(labels.RESOURCE_IN_USE_FINALIZER,))
            life.workload = replace(life.workload, metadata=held)
        record = records.gone(fold((life.started(0), 0)), life.workload, START + 40)
        assert fold((state(life), 60), record=record) is record


def test_the_end_is_that_of_the_condition_and_not_of_the_observation() -> None:
    life = Life()
    record = fold((life.started(0), 0), (life.finished(60), 4000))
    assert record.ran(0) == 60


def test_a_workload_first_seen_after_its_end_has_the_same_record() -> None:
    life = Life()
    states = [(life.workload, 0), (life.started(40), 40), (life.finished(100), 100)]
    late = fold(states[-1])
    assert late.attempts == fold(*states).attempts
    assert (late.waited(0), late.ran(0)) == (40, 60)


def test_older_and_repeated_states_change_nothing() -> None:
    life = Life()
    first, second = life.started(0), life.reclaimable(1)
    record = fold((first, 0), (second, 10))
    assert records.observe(record, first, START + 20) is record
    assert records.observe(record, second, START + 20) is record


def test_a_missed_release_ends_no_later_than_the_next_reservation_and_is_inexact() -> None:
    life = Life()
    first = life.started(0)
    life.evicted(30)
    life.released(35)
    record = fold((first, 0), (life.started(50), 51), (life.finished(60), 60))
    assert [(a.reserved - START, (a.released or 0) - START) for a in record.attempts] == [(0, 50), (50, 60)]
    assert record.inexact


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
    life = Life()
    states = [
        (life.started(3600), 3600), (life.evicted(3700), 3700), (life.released(100), 100), (life.started(110), 110),
        (life.finished(200), 200),
    ]  # fmt: skip
    record = fold(*states)
    times = [time for a in record.attempts for time in (a.reserved, a.admitted, a.released)]
    assert times == sorted(t for t in times if t is not None)
    assert all((s.end or 0) >= s.start for a in record.attempts for s in a.segments)
    assert record.ended is not None
    assert record.ended >= (record.attempts[-1].released or 0)


def test_a_job_that_ends_while_it_is_evicted_has_a_known_duration() -> None:
    """[HI17] Its end is earlier than the release of its quota, which waited for its pods, and the clock is right."""
    life = Life()
    states = [(life.started(0), 0), (life.evicted(30), 30), (life.released(60), 60), (life.finished(40), 61)]
    record = fold(*states)
    assert (record.ran(0), record.waited(0), record.ended, record.inexact) == (60, 0, START + 60, False)


def test_a_job_that_is_deleted_while_it_is_evicted_has_a_known_duration() -> None:
    life = Life()
    states = [(life.started(0), 0), (life.evicted(30), 30), (life.deleting(40), 40), (life.released(60), 60)]
    record = records.gone(fold(*states), life.workload, START + 61)
    assert (record.ran(0), record.waited(0), record.ended, record.inexact) == (60, 0, START + 60, False)


def test_a_job_whose_end_is_seen_after_its_next_reservation_has_a_known_duration() -> None:
    """It is not admitted again."""
    life = Life()
    life.started(0)
    states = [(life.evicted(30), 30), (life.released(60), 60), (life.reserved(80), 80), (life.finished(40), 81)]
    record = fold(*states)
    assert (record.ran(0), record.ended, record.inexact) == (60, START + 80, False)


def test_an_end_before_the_last_admission_shows_that_the_clock_was_set_back() -> None:
    life = Life()
    states = [(life.started(0), 0), (life.evicted(30), 30), (life.released(60), 60), (life.started(80), 80)]
    assert fold(*states, (life.finished(20), 81)).inexact


def test_a_second_reservation_in_the_same_second_is_another_attempt() -> None:
    life = Life()
    states = [(life.started(5), 5), (life.evicted(5), 5), (life.released(5), 5), (life.started(5), 5)]
    assert len(fold(*states).attempts) == 2


def test_a_slice_that_was_replaced_is_neither_a_failure_nor_a_success() -> None:
    life = Life()
    record = fold((life.started(0), 0), (life.finished(30, "WorkloadSliceReplaced"), 30))
    assert (record.outcome, record.ran(0)) == (Outcome.REPLACED, 30)


def test_a_lost_workload_ends_at_its_last_recorded_change_with_an_unknown_outcome() -> None:
    life = Life()
    record = records.lost(fold((life.started(0), 0), (life.touched(), 50)))
    assert (record.outcome, record.ran(0), record.inexact) == (Outcome.UNKNOWN, 50, True)


def test_hints_become_limit_expected_time_and_user() -> None:
    life = Life()
    record = fold((life.annotated(submitted_by="ana", expected_time="90m", active_deadline_seconds="7200"), 0))
    assert (record.user, record.expected_seconds, record.limit_seconds) == ("ana", 5400, 7200)
    odd = fold((Life().annotated(expected_time="soon", active_deadline_seconds="-1"), 0))
    assert (odd.expected_seconds, odd.limit_seconds) == (None, None)


def test_the_first_exit_code_is_kept() -> None:
    record = records.with_exit_code(fold((Life().workload, 0)), 3)
    assert records.with_exit_code(record, 0).exit_code == 3
    assert records.with_exit_code(record, None).exit_code == 3
