"""Conditions: when a transition time moves, and the exact words that other programs match on."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from kubemachinery import conditions, meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition
from pykueue.api import conditions as condition_types
from pykueue.api.conditions import DeactivationReason, EvictedReason, WorkloadCondition

EARLY, LATE = meta.parse_time("2024-01-01T00:00:00Z"), meta.parse_time("2024-01-01T00:05:00.9Z")
ADMITTED = WorkloadCondition.ADMITTED


def condition(
    status: ConditionStatus, reason: str, message: str, now: int, before: conditions.Conditions = ()
) -> Condition:
    after = conditions.set_condition(before, ADMITTED, status, reason, message, now=now, generation=3)
    found = conditions.find(after, ADMITTED)
    assert found is not None
    return found


def test_a_new_condition_comes_last_with_the_time_of_now_in_whole_seconds() -> None:
    other = Condition(type="Other", status="True")
    after = conditions.set_condition((other,), ADMITTED, ConditionStatus.TRUE, "Admitted", "in", now=LATE, generation=3)
    assert after == (
        other,
        Condition(
            type="Admitted",
            status="True",
            observed_generation=3,
            last_transition_time="2024-01-01T00:05:00Z",
            reason="Admitted",
            message="in",
        ),
    )


def test_the_transition_time_stays_while_the_status_does_though_reason_and_message_change() -> None:
    before = (condition(ConditionStatus.FALSE, "Waiting", "for quota", EARLY),)
    after = condition(ConditionStatus.FALSE, "Gated", "by a gate", LATE, before)
    assert (after.reason, after.message) == ("Gated", "by a gate")
    assert after.last_transition_time == "2024-01-01T00:00:00Z"


def test_the_transition_time_moves_with_the_status() -> None:
    before = (condition(ConditionStatus.FALSE, "Waiting", "for quota", EARLY),)
    assert (
        condition(ConditionStatus.TRUE, "Admitted", "in", LATE, before).last_transition_time == "2024-01-01T00:05:00Z"
    )


def test_setting_an_equal_condition_returns_the_same_tuple() -> None:
    before = (Condition(type="Other"), condition(ConditionStatus.TRUE, "Admitted", "in", EARLY))
    again = conditions.set_condition(before, ADMITTED, ConditionStatus.TRUE, "Admitted", "in", now=LATE, generation=3)
    assert again is before
    newer = conditions.set_condition(before, ADMITTED, ConditionStatus.TRUE, "Admitted", "in", now=LATE, generation=4)
    assert newer[1].observed_generation == 4
    assert newer[1].last_transition_time == before[1].last_transition_time


def test_a_changed_condition_keeps_its_place() -> None:
    before = (condition(ConditionStatus.TRUE, "Admitted", "in", EARLY), Condition(type="Other"))
    after = conditions.set_condition(before, ADMITTED, ConditionStatus.FALSE, "Evicted", "out", now=LATE)
    assert [c.type for c in after] == ["Admitted", "Other"]


def test_false_differs_from_absent() -> None:
    false = (condition(ConditionStatus.FALSE, "Waiting", "", EARLY),)
    assert conditions.is_true((condition(ConditionStatus.TRUE, "Admitted", "", EARLY),), ADMITTED)
    assert conditions.is_false(false, ADMITTED)
    assert not conditions.is_true(false, ADMITTED)
    assert not conditions.is_false((), ADMITTED)
    assert not conditions.is_true((), ADMITTED)
    assert conditions.since(false, ADMITTED) == EARLY
    assert conditions.since((), ADMITTED) is None
    assert conditions.since((Condition(type="Admitted"),), ADMITTED) is None


def test_conditions_are_taken_away_by_type() -> None:
    before = (Condition(type="Admitted"), Condition(type="Other"))
    assert conditions.without(before, ADMITTED) == before[1:]
    assert conditions.without(before, "Nothing") is before


def test_a_message_is_cut_where_the_schema_ends_and_shows_it() -> None:
    assert len(conditions.truncated("x" * 32_768)) == 32_768
    cut = condition(ConditionStatus.TRUE, "r", "x" * 40_000, EARLY).message
    assert len(cut) == 32_768
    assert cut.endswith("x ...")
    assert len(conditions.truncated("x" * 2000, conditions.MAX_EVENT_MESSAGE_LENGTH)) == 1024


def test_every_reason_for_deactivation_has_its_eviction() -> None:
    assert {r.evicted for r in DeactivationReason} == {r for r in EvictedReason if r.startswith("DeactivatedDueTo")}


def test_every_type_and_reason_of_the_public_appendix_is_an_enum_value_here() -> None:
    features = Path(__file__).parents[3] / "shared" / "reference" / "features.md"
    if not features.exists():
        pytest.skip("the public appendix of names is not beside this checkout")
    text = features.read_text()
    section = text[text.index("### 7.3 Condition types") : text.index("### 7.5 Event reasons")]
    section = section.replace("`DeactivatedDueTo{", "`").replace("}`", "`").replace(",", "` `")
    listed = set(re.findall(r"`([A-Z][A-Za-z]+)`", section))
    enums = [
        e for e in vars(condition_types).values() if isinstance(e, type) and issubclass(e, StrEnum) and e is not StrEnum
    ]
    known = {str(value) for enum in enums for value in enum}
    assert listed - known == set()
    assert len(listed) > 80
