"""Options of a command line become an object, or one sentence of error."""

from __future__ import annotations

import pytest

from kubemachinery.errors import UsageError
from pykueue.client import object_creation


def test_flavors_with_the_same_resources_share_a_group() -> None:
    groups = object_creation.resource_groups({"nominal-quota": ["a:cpu=9;memory=36Gi,b:cpu=1;memory=1Gi", "c:gpu=2"]})
    assert [(group["coveredResources"], [flavor["name"] for flavor in group["flavors"]]) for group in groups] == [
        (["cpu", "memory"], ["a", "b"]),
        (["gpu"], ["c"]),
    ]


def test_quotas_and_limits_of_a_flavor_come_together() -> None:
    [group] = object_creation.resource_groups(
        {"nominal-quota": ["a:cpu=9"], "borrowing-limit": ["a:cpu=1"], "lending-limit": ["a:cpu=2"]}
    )
    assert group["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1", "lendingLimit": "2"}
    ]


BAD_LIMITS = {
    "no flavor": ({"nominal-quota": ["cpu=9"]}, "--nominal-quota cpu=9: must be FLAVOR:RESOURCE=AMOUNT"),
    "no amount": ({"nominal-quota": ["a:cpu=lots"]}, "--nominal-quota a:cpu=lots: cpu=lots is not a quantity"),
    "a flavor twice": (
        {"nominal-quota": ["a:cpu=1", "a:cpu=2"]},
        "--nominal-quota a:cpu=2: flavor a is given twice",
    ),
    "a resource twice": (
        {"nominal-quota": ["a:cpu=1;cpu=2"]},
        "--nominal-quota a:cpu=1;cpu=2: resource cpu is given twice",
    ),
    "a limit for something else": (
        {"nominal-quota": ["a:cpu=9"], "lending-limit": ["a:memory=1Gi"]},
        "--lending-limit: flavor a must have the resources cpu",
    ),
    "half a group": (
        {"nominal-quota": ["a:cpu=9;memory=1Gi,b:cpu=1"]},
        "flavor b shares some of its resources, and not all, with an earlier flavor",
    ),
}


@pytest.mark.parametrize("name", BAD_LIMITS)
def test_a_quota_that_means_nothing_is_one_sentence(name: str) -> None:
    limits, sentence = BAD_LIMITS[name]
    with pytest.raises(UsageError) as refused:
        object_creation.resource_groups(limits)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("taint", "sentence"),
    [
        ("key", "--node-taints key: must be KEY=VALUE:EFFECT or KEY:EFFECT"),
        ("key:Never", "--node-taints key:Never: the effect must be one of"),
        ("key=a:NoExecute,key=b:NoExecute", "--node-taints key=b:NoExecute: duplicate key and effect"),
    ],
)
def test_a_taint_that_means_nothing_is_one_sentence(taint: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        object_creation.resource_flavor("f", labels={}, taints=[taint])
    assert str(refused.value).startswith(sentence)
