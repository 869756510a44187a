"""Budgets that cannot be applied are refused with the field and the reason."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from api.test_extensions import BUDGET, Tree, complaints


def changed(path: str, value: Any) -> Tree:
    """The example with another value at a path; without it if the value is None."""
    made = deepcopy(BUDGET)
    *parents, last = path.split(".")
    place: Any = made
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return made


DOUBLE = [{"resource": "nvidia.com/gpu", "hours": 1}, {"resource": "nvidia.com/gpu", "hours": 2}]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.every", "Fortnight", "spec.every: Unsupported value"),
        ("spec.every", None, "spec.every: Required value"),
        ("spec.timeZone", "Europe/Belrin", "spec.timeZone: Invalid value"),
        ("spec.per", "Cohort", "spec.per: Unsupported value"),
        ("spec.amounts", [], "spec.amounts: Invalid value"),
        ("spec.amounts.0.resource", "nvidia.com/gpu!", "spec.amounts[0].resource: Invalid value"),
        ("spec.amounts", DOUBLE, "spec.amounts[1]: Duplicate value"),
        ("spec.amounts.0.hours", -1, "spec.amounts[0].hours: Invalid value"),
        ("spec.amounts.0.hours", "1e19", "must be at most 1e18"),
        ("spec.amounts.0.hours", "0.0001", "must have at most three decimals"),
        ("spec.amounts.0.hours", "many", "spec.amounts[0].hours: Invalid value"),
        ("spec.amounts.0.weights", {"h100": "-1"}, "spec.amounts[0].weights"),
        ("spec.amounts.0.weights", {"h100": "1.2345"}, "spec.amounts[0].weights"),
        ("spec.amounts.0.weights", {"h100": "1000000000"}, "spec.amounts[0].weights"),
        ("spec.overrides.0.group", "physics", "must be NAMESPACE/LOCALQUEUE, because spec.per is LocalQueue"),
        ("spec.overrides.0.group", "physics//main", "must be NAMESPACE/LOCALQUEUE, because spec.per is LocalQueue"),
        ("spec.overrides.0.amounts.0.resource", "cpu", "is not a resource of spec.amounts"),
        ("spec.overrides.0.amounts.0.hours", -5, "spec.overrides[0].amounts[0].hours: Invalid value"),
        ("spec.overrides", [BUDGET["spec"]["overrides"][0]] * 2, "spec.overrides[1]: Duplicate value"),
        ("spec.rollover.unspentUpTo", "101%", "must be at most 100%"),
        ("spec.rollover.unspentUpTo", "a lot", "spec.rollover.unspentUpTo: Invalid value"),
        ("spec.rollover.overdraft", "Ignore", "spec.rollover.overdraft: Unsupported value"),
        ("spec.warnAt", [0], "spec.warnAt[0]: Invalid value"),
        ("spec.warnAt", [100], "spec.warnAt[0]: Invalid value"),
        ("spec.admit", "Never", "spec.admit: Unsupported value"),
        ("spec.whenSpent", "Kill", "spec.whenSpent: Unsupported value"),
    ],
)
def test_a_budget_that_cannot_be_applied_is_refused_with_the_field(path: str, value: Any, message: str) -> None:
    found = complaints(changed(path, value))
    assert any(message in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("per", "group", "is_valid"),
    [
        ("Total", "total", True),
        ("Total", "physics", False),
        ("ClusterQueue", "physics", True),
        ("ClusterQueue", "physics/main", False),
        ("Namespace", "a/b", False),
        ("User", "ana@example.com", True),
        ("User", "(unknown)", True),
        ("LocalQueue", "a/b", True),
        ("LocalQueue", "a/b/c", False),
    ],
)
def test_the_group_of_an_override_has_the_form_of_its_grouping(per: str, group: str, is_valid: bool) -> None:
    tree = changed("spec.per", per)
    tree["spec"]["overrides"][0]["group"] = group
    assert (complaints(tree) == []) is is_valid
