"""The table of kinds: names, paths and versions are consistent, and every way to name a kind finds it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from kubemachinery.kinds import Kind, Kinds, Scope, Version
from pykueue.api import kube, kueue, registry


@pytest.mark.parametrize("row", registry.ALL.rows, ids=lambda row: row.name)
def test_a_row_is_consistent(row: Kind) -> None:
    assert sum(version.storage for version in row.versions) == 1
    assert row.type.__name__ == row.kind
    assert row.storage.served
    assert row.plural == row.plural.lower()
    # The object itself has the same values as its row.
    assert row.type().api_version == row.api_version  # type: ignore[attr-defined]


def test_every_kind_of_the_group_is_served_in_both_versions() -> None:
    assert {row.type for row in registry.KUEUE} == set(kueue.KINDS)
    assert {tuple(version.name for version in row.versions) for row in registry.KUEUE} == {("v1beta1", "v1beta2")}


def test_no_two_kinds_of_the_group_share_a_name() -> None:
    words = Counter(word for row in registry.CUSTOM for word in (row.plural, row.singular, *row.short_names))
    assert [word for word, times in words.items() if times > 1] == []


@pytest.mark.parametrize(
    "word", ["cq", "clusterqueue", "clusterqueues", "ClusterQueue", "clusterqueues.kueue.x-k8s.io"]
)
def test_kind_is_found_by_any_of_its_names(word: str) -> None:
    found = registry.ALL.named(word)
    assert found is not None
    assert found.type is kueue.ClusterQueue


def test_unknown_name_finds_no_kind() -> None:
    assert registry.ALL.named("clusterqueuez") is None
    assert registry.ALL.find("kueue.x-k8s.io/v1beta2", "Job") is None


def test_kind_is_found_by_api_version_and_kind() -> None:
    found = registry.ALL.find("kueue.x-k8s.io/v1beta1", "Workload")
    assert found is not None
    assert (found[0].type, found[1].name, found[1].type) == (kueue.Workload, "v1beta1", None)


@pytest.mark.parametrize(
    ("row", "arguments", "path"),
    [
        (registry.ALL.of(kueue.Workload), {}, "/apis/kueue.x-k8s.io/v1beta2/workloads"),
        (registry.ALL.of(kueue.Workload), {"namespace": "a"}, "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads"),
        (
            registry.ALL.of(kueue.Workload),
            {"namespace": "a", "name": "w", "subresource": "status"},
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/w/status",
        ),
        # A namespace means nothing to a kind of the whole cluster.
        (
            registry.ALL.of(kueue.Cohort),
            {"namespace": "a", "name": "c", "version": "v1beta1"},
            "/apis/kueue.x-k8s.io/v1beta1/cohorts/c",
        ),
        (registry.ALL.of(kube.Pod), {"namespace": "a", "name": "p"}, "/api/v1/namespaces/a/pods/p"),
        (registry.ALL.of(kube.Node), {}, "/api/v1/nodes"),
    ],
)
def test_paths_are_those_of_the_kubernetes_api(row: Kind, arguments: dict[str, str], path: str) -> None:
    assert row.path(**arguments) == path


def test_a_version_that_does_not_exist_has_no_path() -> None:
    with pytest.raises(LookupError, match=r"workloads\.kueue\.x-k8s\.io has no version 'v9'"):
        registry.ALL.of(kueue.Workload).path(version="v9")


def test_shared_name_means_the_first_kind() -> None:
    first = Kind("a.example", "Thing", "things", (Version("v1", storage=True),), Scope.CLUSTER)
    second = Kind("b.example", "Thing", "things", (Version("v1", storage=True),), Scope.CLUSTER)
    table = Kinds([first, second])
    assert table.named("things") is first
    assert table.named("things.b.example") is second


def test_kinds_module_loads_nothing_of_queueing() -> None:
    """`kubemachinery` and `kubeserver` import `kinds`; neither may load pykueue through it."""
    script = "import sys, kubemachinery.kinds; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert "kubemachinery.kinds" in loaded
    assert [name for name in loaded if name.split(".")[0] == "pykueue"] == []
