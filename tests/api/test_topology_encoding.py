"""How domains become slices, and how an unreadable assignment is distinguished from a readable one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pykueue.api import kueue, topology_encoding
from pykueue.api.labels import HOSTNAME
from pykueue.api.topology_encoding import EncodedDomain

RACKS = ("block", "rack")
HOSTS = ("block", HOSTNAME)


def hosts(*names: str, pods: int = 1) -> list[EncodedDomain]:
    return [EncodedDomain(("b1", name), pods) for name in names]


def column(assignment: dict[str, Any], level: int, piece: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = assignment["slices"][piece]["valuesPerLevel"][level]
    return found


def test_no_domains_are_no_slices() -> None:
    assert topology_encoding.encode(RACKS, []) == {"levels": ["block", "rack"], "slices": []}
    assert topology_encoding.encode(RACKS, [], by_hostname_prefix=False)["slices"] == []


def test_what_all_domains_share_is_written_once() -> None:
    assignment = topology_encoding.encode(RACKS, [EncodedDomain(("b1", "r1"), 4), EncodedDomain(("b1", "r2"), 4)])
    assert assignment["slices"] == [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "b1"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}],
            "podCounts": {"universal": 4},
        }
    ]


def test_counts_that_differ_stand_one_by_one() -> None:
    assignment = topology_encoding.encode(RACKS, [EncodedDomain(("b1", "r1"), 4), EncodedDomain(("b1", "r2"), 3)])
    assert assignment["slices"][0]["podCounts"] == {"individual": [4, 3]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a-1.dc", "a-2.dc"], {"prefix": "a-", "suffix": ".dc", "roots": ["1", "2"]}),
        (["x1", "y2"], {"roots": ["x1", "y2"]}),
        (["", "a"], {"roots": ["", "a"]}),
        # Both ends of "aba" are "aba": the ends must not use the same letters twice.
        (["aba", "ababa"], {"suffix": "aba", "roots": ["", "ab"]}),
    ],
)
def test_a_column_keeps_what_differs_between_a_prefix_and_a_suffix(values: list[str], expected: dict[str, Any]) -> None:
    assignment = topology_encoding.encode(("rack",), [EncodedDomain((value,), 1) for value in values])
    assert column(assignment, 0) == {"individual": expected}


def pool(name: str, size: int) -> list[str]:
    return [f"gke-cluster-{name}-node-{number:04}" for number in range(size)]


def test_host_names_of_one_pool_have_a_slice_of_their_own() -> None:
    first, second = "a-rather-long-name", "another-quite-different-name"
    assignment = topology_encoding.encode(HOSTS, hosts(*pool(first, 40), *pool(second, 40)))
    prefixes = [column(assignment, 1, piece)["individual"]["prefix"] for piece in (0, 1)]
    # Beyond the dash the digits that all names share join the prefix.
    assert prefixes == [f"gke-cluster-{first}-node-00", f"gke-cluster-{second}-node-00"]
    assert [piece["domainCount"] for piece in assignment["slices"]] == [40, 40]


def test_slices_that_make_nothing_shorter_are_not_made() -> None:
    assignment = topology_encoding.encode(HOSTS, hosts("a-1", "a-2", "b-1", "b-2"))
    assert len(assignment["slices"]) == 1


def test_only_host_names_are_grouped() -> None:
    names = [*pool("a-rather-long-name", 40), *pool("another-quite-different-name", 40)]
    assert len(topology_encoding.encode(RACKS, hosts(*names))["slices"]) == 1
    assert len(topology_encoding.encode(HOSTS, hosts(*names), by_hostname_prefix=False)["slices"]) == 1


def test_more_groups_than_an_assignment_may_have_fall_back_to_shorter_prefixes() -> None:
    long = "x" * 40
    names = [f"{zone}{long}-{group}-{host}" for zone in "ab" for group in range(600) for host in range(2)]
    assignment = topology_encoding.encode(HOSTS, hosts(*names))
    assert [piece["domainCount"] for piece in assignment["slices"]] == [1200, 1200]


def test_a_slice_is_cut_where_its_limit_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_encoding, "DOMAINS_PER_SLICE_MAX", 3)
    domains = hosts(*(f"n{number}" for number in range(7)))
    assignment = topology_encoding.encode(HOSTS, domains)
    assert [piece["domainCount"] for piece in assignment["slices"]] == [3, 3, 1]
    assert topology_encoding.decode(assignment) == domains


SOUND: dict[str, Any] = {
    "levels": ["rack"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"prefix": "r", "roots": ["1", "2"]}}],
            "podCounts": {"universal": 1},
        }
    ],
}


def broken(**changes: object) -> dict[str, Any]:
    return {**SOUND, "slices": [{**SOUND["slices"][0], **changes}]}


def test_a_sound_assignment_reads_in_order() -> None:
    assert topology_encoding.decode(SOUND) == [EncodedDomain(("r1",), 1), EncodedDomain(("r2",), 1)]


@pytest.mark.parametrize(
    "assignment",
    [
        None,
        [],
        {"levels": ["rack"]},
        {"slices": []},
        broken(domainCount=3),
        broken(domainCount=0),
        broken(domainCount="2"),
        # A small object must not make the reader fill the memory.
        broken(domainCount=2**31 - 1, valuesPerLevel=[{"universal": "r"}]),
        broken(valuesPerLevel=[]),
        broken(valuesPerLevel=[{}]),
        broken(valuesPerLevel=[{"individual": {"roots": [1, 2]}}]),
        broken(podCounts={}),
        broken(podCounts={"individual": [1]}),
        broken(podCounts={"individual": [1, "1"]}),
    ],
)
def test_parts_that_do_not_add_up_read_as_none(assignment: object) -> None:
    assert topology_encoding.decode(assignment) is None


def test_domains_of_a_value_are_those_of_its_json() -> None:
    encoded = topology_encoding.encode(HOSTS, hosts("a-1", "a-2", "b-7"))
    value = msgspec.convert(encoded, kueue.TopologyAssignment)
    assert list(topology_encoding.domains_of(value)) == hosts("a-1", "a-2", "b-7") == topology_encoding.decode(encoded)
    slices = (replace(value.slices[0], domain_count=5), *value.slices[1:])
    assert topology_encoding.domains_of(replace(value, slices=slices)) == ()
