"""The kinds of `pykueue.io`: their schemas, their rules, and the round trip of their types."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from kubemachinery import codec, unstructured
from pykueue import calendars
from pykueue.api import defaults, extensions, registry, schema, validation

Tree = dict[str, Any]

SCHEDULE: Tree = {
    "apiVersion": extensions.API_VERSION,
    "kind": "QuotaSchedule",
    "metadata": {"name": "class-101"},
    "spec": {
        "timeZone": "Europe/Berlin",
        "windows": [
            {"name": "tuesdays", "cron": "0 14 * * 2", "duration": "2h"},
            {"name": "exam", "start": "2026-12-18T09:00:00Z", "end": "2026-12-18T12:00:00Z"},
        ],
        "targets": [
            {
                "clusterQueue": "research",
                "flavors": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "change": -16}]}],
            },
            {
                "clusterQueue": "class-101",
                "flavors": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 16}]}],
            },
        ],
        "approach": "EndBefore",
        "onStart": "Evict",
        "notice": "10m",
    },
}
BUDGET: Tree = {
    "apiVersion": extensions.API_VERSION,
    "kind": "Budget",
    "metadata": {"name": "gpu-weekly"},
    "spec": {
        "every": "Week",
        "timeZone": "Europe/Berlin",
        "per": "LocalQueue",
        "amounts": [{"resource": "nvidia.com/gpu", "hours": 500, "weights": {"h100": "2.5"}}],
        "overrides": [{"group": "physics/main", "amounts": [{"resource": "nvidia.com/gpu", "hours": 2000}]}],
        "rollover": {"unspentUpTo": "25%", "overdraft": "Carry"},
        "warnAt": [80, 95],
        "admit": "WhileLeft",
        "whenSpent": "LetRun",
    },
}
# A complete, valid object of each kind of the group. A new kind has its entry here.
EXAMPLES = {"Budget": BUDGET, "QuotaSchedule": SCHEDULE}


def changed(path: str, value: Any) -> Tree:
    """The example with another value at a path such as `spec.windows.0.cron`; without it if the value is None."""
    made = deepcopy(SCHEDULE)
    *parents, last = path.split(".")
    place: Any = made
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if value is None:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return made


def complaints(tree: Tree) -> list[str]:
    """The errors of schema, rules and calendar for an object, as a server with the webhook returns them."""
    return [str(error) for error in validation.validate(tree) or list(calendars.problems(tree))]


def test_every_kind_has_an_example_that_is_valid_and_keeps_its_values() -> None:
    assert {row.kind for row in registry.EXTENSIONS} == EXAMPLES.keys()
    for row in registry.EXTENSIONS:
        tree = defaults.apply(EXAMPLES[row.kind])
        assert complaints(tree) == []
        written = codec.encode(codec.from_tree(tree, row.type))
        spec = unstructured.mapping(msgspec.json.decode(written)["spec"])
        assert spec == tree["spec"]


def test_kinds_are_cluster_scoped_with_a_status_and_one_version() -> None:
    for row in registry.EXTENSIONS:
        made = schema.crd(row)["spec"]
        assert (made["group"], made["scope"]) == (extensions.GROUP, "Cluster")
        (version,) = made["versions"]
        assert version["name"] == extensions.VERSION
        assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.timeZone", "Europe/Belrin", "spec.timeZone: Invalid value"),
        ("spec.timeZone", "../etc/passwd", "spec.timeZone: Invalid value"),
        ("spec.windows", [], "spec.windows: Invalid value"),
        ("spec.notice", "745h", 'spec.notice: Invalid value: "745h": must be at most 744h'),
        ("spec.windows.0.cron", "0 14 * *", "does not have the five fields of cron"),
        ("spec.windows.0.cron", "0 14 * * 2 *", "does not have the five fields of cron"),
        ("spec.windows.0.cron", "0 25 * * *", "is not a cron expression"),
        ("spec.windows.0.cron", "0 0 30 2 *", "is not a cron expression"),
        ("spec.windows.0.cron", "*/5 * * * *", "is due 288 times a day, at most 96 are supported"),
        ("spec.windows.0.duration", "-2h", "spec.windows[0].duration: Invalid value"),
        ("spec.windows.0.duration", "0s", "must be longer than 0s"),
        ("spec.windows.0.duration", "745h", "must be at most 744h"),
        ("spec.windows.0.duration", None, "a window has either cron and duration, or start and end"),
        ("spec.windows.0.start", "2026-12-18T09:00:00Z", "a window has either cron and duration, or start and end"),
        ("spec.windows.1.end", "2026-12-18T09:00:00Z", "must be after start"),
        ("spec.windows.1.end", "tomorrow", "spec.windows[1].end: Invalid value"),
        ("spec.windows.1.name", "tuesdays", "spec.windows[1]: Duplicate value"),
        ("spec.targets.0.cohort", "all", "needs either clusterQueue or cohort"),
        ("spec.targets.0.clusterQueue", None, "needs either clusterQueue or cohort"),
        ("spec.targets.0.clusterQueue", "class-101", "Duplicate value"),
        ("spec.targets.1.flavors.0.resources.0.nominalQuota", -1, "must not be negative"),
        ("spec.targets.1.flavors.0.resources.0.name", "nvidia.com/gpu!", "resources[0].name: Invalid value"),
        ("spec.targets.1.flavors.0.resources.0.change", 2, "nominalQuota and change exclude each other"),
        ("spec.targets.1.flavors.0.resources.0.nominalQuota", None, "needs nominalQuota, change, borrowingLimit"),
        ("spec.targets.0.flavors.0.resources.0.change", "many", "spec.targets[0].flavors[0].resources[0].change"),
        ("spec.approach", "Later", "spec.approach: Unsupported value"),
        ("spec.onStart", "Kill", "spec.onStart: Unsupported value"),
    ],
)
def test_a_schedule_that_cannot_be_applied_is_refused_with_the_field(path: str, value: Any, message: str) -> None:
    found = complaints(changed(path, value))
    assert any(message in sentence for sentence in found), found
