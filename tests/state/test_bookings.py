"""A reservation on its way is never forgotten and never counted twice."""

from __future__ import annotations

import pytest

from pykueue.state.bookings import Bookings, Standing


@pytest.fixture
def bookings() -> Bookings:
    bookings = Bookings()
    bookings.assume("ns/a", "uid-a", based_on=10)
    return bookings


def test_news_from_before_the_answer_is_held_back(bookings: Bookings) -> None:
    assert not bookings.may_pass("ns/a", "uid-a", 10)
    assert not bookings.may_pass("ns/a", "uid-a", 12)
    assert bookings.standing("ns/a") is Standing.ASSUMED


def test_once_answered_news_passes_from_that_revision_on(bookings: Bookings) -> None:
    bookings.answered("ns/a", 15)
    assert not bookings.may_pass("ns/a", "uid-a", 14), "a watch that lags behind takes nothing away"
    assert bookings.may_pass("ns/a", "uid-a", 15)
    assert "ns/a" not in bookings


def test_a_lost_answer_frees_nothing(bookings: Bookings) -> None:
    bookings.lost("ns/a")
    assert not bookings.may_pass("ns/a", "uid-a", 99)
    assert bookings.standing("ns/a") is Standing.UNKNOWN


def test_an_unknown_booking_is_settled_by_the_answer_to_the_same_write_sent_again(bookings: Bookings) -> None:
    bookings.lost("ns/a")
    bookings.answered("ns/a", 20)
    assert bookings.may_pass("ns/a", "uid-a", 20)


def test_a_refusal_frees(bookings: Bookings) -> None:
    bookings.lost("ns/a")
    bookings.refused("ns/a")
    assert bookings.may_pass("ns/a", "uid-a", 11)


def test_an_object_made_again_under_the_name_has_nothing_booked(bookings: Bookings) -> None:
    assert bookings.may_pass("ns/a", "uid-b", 11)
    assert "ns/a" not in bookings


def test_a_deleted_object_has_nothing_booked(bookings: Bookings) -> None:
    bookings.gone("ns/a")
    bookings.gone("ns/never")
    assert len(bookings) == 0


def test_nothing_is_booked_twice(bookings: Bookings) -> None:
    with pytest.raises(ValueError, match="ns/a is assumed already"):
        bookings.assume("ns/a", "uid-a", 11)


def test_what_is_not_booked_passes(bookings: Bookings) -> None:
    assert bookings.may_pass("ns/other", "uid", 1)
