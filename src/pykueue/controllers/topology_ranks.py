"""Which pod of a pod set goes to which domain of its topology assignment. Pure.

Where every pod has an index, that is its rank: the first domain takes the first ranks, so that neighbours in the
job are neighbours in the network. Where an index is missing, used twice or out of bounds, or a pod already sits
in another domain than that of its rank, pods are assigned to domains in their order, as capacity allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from pykueue.api import kube, kueue, labels, topology_encoding
from pykueue.api.topology_encoding import EncodedDomain

Place = Mapping[str, str]


def places(
    pods: Sequence[kube.Pod], pod_set: kueue.PodSet, assignment: kueue.TopologyAssignment, *, offset: int = 0
) -> list[tuple[kube.Pod, Place]]:
    """Return the gated pods, each with the node labels of its domain; a pod without a domain is left out."""
    if not pods:
        return []
    levels, domains = assignment.levels, topology_encoding.domains_of(assignment)
    found = _by_rank(pods, pod_set, levels, domains, offset)
    if found is None:
        found = _in_order(pods, levels, domains)
    return [(pod, dict(zip(levels, domain.values, strict=True))) for pod, domain in found]


def offset_of(pod_set: kueue.PodSet, pod_sets: Sequence[kueue.PodSet]) -> int:
    """Return the first rank of a pod set: its own offset, or behind the smaller set of its group."""
    index = pod_set.template.metadata.annotations.get(labels.POD_INDEX_OFFSET, "")
    if index.isdecimal():
        return int(index)
    group = _group(pod_set)
    others = [other for other in pod_sets if other is not pod_set and group and _group(other) == group]
    return others[0].count if len(others) == 1 and others[0].count < pod_set.count else 0


def is_gated(pod: kube.Pod) -> bool:
    return any(gate.name == labels.TOPOLOGY_GATE for gate in pod.spec.scheduling_gates)


def _group(pod_set: kueue.PodSet) -> str:
    request = pod_set.topology_request
    return (request.pod_set_group_name or "") if request is not None else ""


def _by_rank(
    pods: Sequence[kube.Pod],
    pod_set: kueue.PodSet,
    levels: tuple[str, ...],
    domains: Sequence[EncodedDomain],
    offset: int,
) -> list[tuple[kube.Pod, EncodedDomain]] | None:
    ends = list(accumulate(domain.pods for domain in domains))
    at: dict[int, kube.Pod] = {}
    found: list[tuple[kube.Pod, EncodedDomain]] = []
    for pod in pods:
        rank = _rank(pod, pod_set, offset)
        if rank is None or rank in at or not 0 <= rank < min(pod_set.count, ends[-1] if ends else 0):
            return None
        at[rank] = pod
        domain = domains[next(place for place, end in enumerate(ends) if rank < end)]
        if is_gated(pod):
            found.append((pod, domain))
        elif not _sits_in(pod, levels, domain):
            return None
    return found


def _rank(pod: kube.Pod, pod_set: kueue.PodSet, offset: int) -> int | None:
    request = pod_set.topology_request
    if request is None or not request.pod_index_label:
        return None
    index = _index(pod, request.pod_index_label)
    if index is None or not request.sub_group_index_label:
        return None if index is None else index - offset
    job = _index(pod, request.sub_group_index_label)
    if job is None or not request.sub_group_count:
        return None
    size = pod_set.count // request.sub_group_count
    # A replica with more completions than pods at a time: its later indexes would be ranks of the next replica.
    return job * size + index - offset if index < size else None


def _index(pod: kube.Pod, label: str) -> int | None:
    index = pod.metadata.labels.get(label, "")
    return int(index) if index.isdecimal() else None


def _in_order(
    pods: Sequence[kube.Pod], levels: tuple[str, ...], domains: Sequence[EncodedDomain]
) -> list[tuple[kube.Pod, EncodedDomain]]:
    waiting = iter([pod for pod in pods if is_gated(pod)])
    placed = [pod for pod in pods if not is_gated(pod)]
    found: list[tuple[kube.Pod, EncodedDomain]] = []
    for domain in domains:
        free = domain.pods - sum(_sits_in(pod, levels, domain) for pod in placed)
        found += [(pod, domain) for _, pod in zip(range(max(0, free)), waiting, strict=False)]
    return found


def _sits_in(pod: kube.Pod, levels: tuple[str, ...], domain: EncodedDomain) -> bool:
    return all(pod.spec.node_selector.get(level) == value for level, value in zip(levels, domain.values, strict=True))
