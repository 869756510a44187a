"""Assumed reservations: quota that was given is not given again until a read settles it."""

from __future__ import annotations

import pytest

from pykueue.state.assumed import AssumedReservations, ReadOutcome, WriteStage


@pytest.fixture
def assumed() -> AssumedReservations:
    assumed = AssumedReservations()
    assumed.assume("ns/w", "10")
    return assumed


def test_while_the_write_is_on_its_way_no_read_frees_the_quota(assumed: AssumedReservations) -> None:
    for revision in ("9", "10", "11"):
        assert assumed.read("ns/w", revision, shows_it=False) is ReadOutcome.KEEP
    assert assumed.stage("ns/w") is WriteStage.ASSUMED


def test_a_read_that_shows_the_reservation_books_it(assumed: AssumedReservations) -> None:
    assert assumed.read("ns/w", "11", shows_it=True) is ReadOutcome.CONFIRMED
    assert "ns/w" not in assumed


@pytest.mark.parametrize("written", [False, True])
def test_a_read_that_shows_the_reservation_before_a_second_pass_settles_nothing(
    assumed: AssumedReservations, written: bool
) -> None:
    """The placement of the second pass is in the write; the object has quota before it, too."""
    if written:
        assumed.written("ns/w", "11")
    assert assumed.read("ns/w", "10", shows_it=True) is ReadOutcome.KEEP
    assert assumed.read("ns/w", "11", shows_it=True) is ReadOutcome.CONFIRMED


def test_after_the_answer_only_a_read_at_or_above_its_revision_counts(assumed: AssumedReservations) -> None:
    assumed.written("ns/w", "12")
    assert assumed.read("ns/w", "11", shows_it=False) is ReadOutcome.KEEP
    assert assumed.read("ns/w", "12", shows_it=False) is ReadOutcome.FREE
    assert len(assumed) == 0


def test_a_lost_answer_frees_nothing_while_the_write_may_still_arrive(assumed: AssumedReservations) -> None:
    assumed.lost("ns/w")
    assert assumed.stage("ns/w") is WriteStage.UNKNOWN
    assert assumed.read("ns/w", "10", shows_it=False) is ReadOutcome.KEEP


def test_a_lost_answer_is_settled_by_a_later_revision_without_the_reservation(assumed: AssumedReservations) -> None:
    """The write names revision 10; once the object is at another, it can never be applied."""
    assumed.lost("ns/w")
    assert assumed.read("ns/w", "11", shows_it=False) is ReadOutcome.FREE


def test_an_answer_that_arrives_after_all_counts(assumed: AssumedReservations) -> None:
    assumed.lost("ns/w")
    assumed.written("ns/w", "11")
    assert assumed.read("ns/w", "10", shows_it=False) is ReadOutcome.KEEP


def test_a_refused_write_is_over_at_once(assumed: AssumedReservations) -> None:
    assumed.end("ns/w")
    assert assumed.read("ns/w", "10", shows_it=False) is ReadOutcome.FREE
