"""What lists choose and show."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery import codec
from kubemachinery.errors import UsageError
from pykueue.api.kube import Pod
from pykueue.api.kueue import Workload
from pykueue.client import listing
from pykueue.client.listing import ListContext, WorkloadFilter, WorkloadListStatus
from pykueue.testing import Kueue


def workload(name: str, owner: str = "", admitted_by: str = "") -> Workload:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "1"}] if owner else []
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"admission": {"clusterQueue": admitted_by}, "conditions": [reserved]} if admitted_by else {}
    metadata = {"name": name, "namespace": "team", "ownerReferences": owners}
    return codec.from_tree({"metadata": metadata, "spec": {"queueName": "lq"}, "status": status}, Workload)


WAITS, RESERVED = workload("waits", owner="train"), workload("reserved", admitted_by="other")
AROUND = ListContext(leads={"team/lq": "cq"}, places={"team/waits": 3})


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        (WorkloadFilter(), [WAITS, RESERVED]),
        (WorkloadFilter(cluster_queue="cq"), [WAITS]),
        (WorkloadFilter(cluster_queue="other"), [RESERVED]),
        (WorkloadFilter(local_queue="lq"), [WAITS, RESERVED]),
        (WorkloadFilter(local_queue="no"), []),
        (WorkloadFilter(statuses=frozenset({WorkloadListStatus.PENDING})), [WAITS]),
        (WorkloadFilter(owner=("job", "train")), [WAITS]),
    ],
)
def test_workloads_are_chosen_by_their_queues_statuses_and_jobs(options: WorkloadFilter, taken: list[Workload]) -> None:
    assert [each for each in (WAITS, RESERVED) if options.takes(each, AROUND)] == taken


def test_a_workload_that_waits_has_a_place_and_the_queue_that_its_own_leads_to() -> None:
    assert (AROUND.cluster_queue(WAITS), AROUND.place(WAITS)) == ("cq", "3")
    assert (AROUND.cluster_queue(RESERVED), AROUND.place(RESERVED)) == ("other", "")


def test_places_are_those_of_the_visibility_api(kueue: Kueue) -> None:
    for name in ("runs", "first", "second"):
        kueue.submit(["sleep", "60"], name=name, cpu=8)
    found = [codec.from_tree(tree, Workload) for tree in kueue.all("Workload")]
    list_context = kueue._run(listing.list_context(kueue._client.api_client, found, "default"))
    places = {listing.job_names(each): list_context.place(each) for each in found}
    assert places == {"runs": "", "first": "0", "second": "1"}
    assert {list_context.cluster_queue(each) for each in found} == {"default"}


def test_statuses_are_words_in_letters_of_any_size() -> None:
    assert listing.statuses([]) == listing.statuses(["pending", "All"]) == frozenset()
    assert listing.statuses(["Pending", "quotareserved"]) == {
        WorkloadListStatus.PENDING,
        WorkloadListStatus.QUOTA_RESERVED,
    }
    with pytest.raises(UsageError, match="--status done: must be all, pending, quotareserved, admitted, finished"):
        listing.statuses(["done"])


def test_pods_are_chosen_by_their_job_or_by_a_pod_of_their_group() -> None:
    def pod(name: str, **metadata: Any) -> Pod:
        return codec.from_tree({"metadata": {"name": name, **metadata}}, Pod)

    group = {"kueue.x-k8s.io/pod-group-name": "g"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1"}
    pods = [pod("a", labels=group), pod("b", labels=group), pod("c"), pod("d", ownerReferences=[owner])]

    def chosen(text: str) -> list[str]:
        belongs = listing.belongs_to(listing.of_type(text), pods)
        return [each.metadata.name for each in pods if belongs(each)]

    assert chosen("") == ["a", "b", "c", "d"]
    assert chosen("pod/a") == ["a", "b"]
    assert chosen("pod/c") == ["c"]
    assert chosen("jobs.batch/train") == ["d"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (47 * 3600, "47h"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_a_span_of_time_reads_as_kubectl_shows_it(seconds: int, shown: str) -> None:
    assert listing.duration(seconds * 1_000_000_000) == shown


def test_a_job_is_named_by_any_spelling_of_its_kind() -> None:
    assert {listing.of_type(text) for text in ("job/a", "jobs/a", "job.batch/a", "Job/a")} == {("job", "a")}
    with pytest.raises(UsageError, match="must be TYPE/NAME"):
        listing.of_type("job")
