"""Which pod goes to which node: by rank where pods have one, otherwise in order of free capacity."""

from __future__ import annotations

from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.codec import from_tree
from pykueue.api import kube, kueue, topology_encoding
from pykueue.controllers import topology_ranks

INDEX = "batch.kubernetes.io/job-completion-index"
HOST = "kubernetes.io/hostname"


def pod(name: str, index: str | None = None, node: str = "") -> kube.Pod:
    """A pod at the gate; with a node, one that has passed it."""
    gates = () if node else (kube.PodSchedulingGate(name="kueue.x-k8s.io/topology"),)
    labels = {} if index is None else {INDEX: index}
    selector = {HOST: node} if node else {}
    return kube.Pod(
        metadata=meta.ObjectMeta(name=name, labels=labels),
        spec=kube.PodSpec(scheduling_gates=gates, node_selector=selector),
    )


def pod_set(count: int, **request: object) -> kueue.PodSet:
    request_of = from_tree({"podIndexLabel": INDEX, **request}, kueue.PodSetTopologyRequest)
    return kueue.PodSet(name="main", count=count, topology_request=request_of)


def assignment(**pods_on: int) -> kueue.TopologyAssignment:
    domains = [topology_encoding.EncodedDomain((node,), pods) for node, pods in pods_on.items()]
    return from_tree(topology_encoding.encode((HOST,), domains), kueue.TopologyAssignment)


def placed(pods: list[kube.Pod], of: kueue.PodSet, where: kueue.TopologyAssignment, offset: int = 0) -> dict[str, str]:
    return {each.metadata.name: place[HOST] for each, place in topology_ranks.places(pods, of, where, offset=offset)}


def test_the_first_ranks_go_to_the_first_domain() -> None:
    pods = [pod("c", "2"), pod("a", "0"), pod("b", "1")]
    assert placed(pods, pod_set(3), assignment(x=2, y=1)) == {"a": "x", "b": "x", "c": "y"}


def test_a_late_pod_gets_the_domain_of_its_rank() -> None:
    assert placed([pod("c", "2")], pod_set(3), assignment(x=2, y=1)) == {"c": "y"}


def test_ranks_start_at_the_offset_of_the_pod_set() -> None:
    assert placed([pod("a", "1"), pod("b", "2")], pod_set(2), assignment(x=1, y=1), offset=1) == {"a": "x", "b": "y"}


JOB_INDEX = "jobset.sigs.k8s.io/job-index"


def replicated(name: str, job: str, index: str, node: str = "") -> kube.Pod:
    """A pod of one of several Jobs of a JobSet."""
    made = pod(name, index, node)
    return replace(made, metadata=replace(made.metadata, labels={**made.metadata.labels, JOB_INDEX: job}))


def test_replicated_jobs_count_on_behind_each_other() -> None:
    request_of = pod_set(4, subGroupIndexLabel=JOB_INDEX, subGroupCount=2)
    assert placed([replicated("second", "1", "0")], request_of, assignment(x=2, y=2)) == {"second": "y"}


def test_an_index_beyond_the_pods_of_a_replicated_job_is_no_rank() -> None:
    """A Job with parallelism 2 and completions 4: its third index is not the first of the next Job."""
    request_of = pod_set(4, subGroupIndexLabel=JOB_INDEX, subGroupCount=2)
    assert placed([replicated("third", "0", "2")], request_of, assignment(x=2, y=2)) == {"third": "x"}


def test_without_an_index_pods_fill_the_domains_in_order() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    assert placed(pods, pod_set(3), assignment(x=2, y=1)) == {"a": "x", "b": "x", "c": "y"}


def test_used_capacity_counts() -> None:
    pods = [pod("old", node="x"), pod("a"), pod("b")]
    assert placed(pods, pod_set(3), assignment(x=2, y=1)) == {"a": "x", "b": "y"}


def test_an_index_that_two_pods_have_is_no_rank() -> None:
    pods = [pod("a", "1"), pod("b", "1")]
    assert placed(pods, pod_set(2), assignment(x=1, y=1)) == {"a": "x", "b": "y"}


def test_a_pod_in_another_domain_than_its_rank_ends_ranking_for_all() -> None:
    pods = [pod("old", "0", node="y"), pod("new", "1")]
    assert placed(pods, pod_set(2), assignment(x=1, y=1)) == {"new": "x"}


def test_no_pod_is_placed_beyond_the_assignment() -> None:
    assert placed([pod("a"), pod("b")], pod_set(2), assignment(x=1)) == {"a": "x"}


def test_the_larger_of_two_sets_that_go_together_starts_behind_the_smaller() -> None:
    leader, workers = pod_set(1, podSetGroupName="g"), pod_set(3, podSetGroupName="g")
    assert topology_ranks.offset_of(leader, (leader, workers)) == 0
    assert topology_ranks.offset_of(workers, (leader, workers)) == 1
