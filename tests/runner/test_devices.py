"""Devices are handed out by number, and no number twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykueue.runner import devices

GPU = "nvidia.com/gpu"


def pod(*counts: int, inits: tuple[int, ...] = ()) -> dict[str, Any]:
    def containers(prefix: str, wanted: tuple[int, ...]) -> list[Any]:
        return [
            {"name": f"{prefix}{n}", "resources": {"limits": {GPU: str(count), "cpu": "1"}}}
            for n, count in enumerate(wanted)
        ]

    return {"spec": {"containers": containers("c", counts), "initContainers": containers("i", inits)}}


def test_cpu_and_memory_are_not_devices() -> None:
    assert devices.counts({"cpu": "4", "memory": "1Gi", "pods": "110", "hugepages-2Mi": "0", GPU: "2"}) == {GPU: 2}


def test_pod_requests_the_sum_of_its_containers() -> None:
    assert devices.requested(pod(1, 2, inits=(4,))) == {GPU: 4}
    assert devices.requested(pod(1, 2, inits=(1,))) == {GPU: 3}


def test_the_lowest_free_numbers_are_given() -> None:
    assert devices.assign({GPU: 2}, {GPU: 4}, [{GPU: (0, 2)}]) == {GPU: (1, 3)}
    assert devices.assign({GPU: 3}, {GPU: 4}, [{GPU: (0, 2)}]) is None
    assert devices.assign({GPU: 1}, {}, []) is None


def test_containers_share_what_their_pod_has() -> None:
    tree = pod(1, 2, inits=(1,))
    share = {GPU: (3, 5, 7)}
    first, second = tree["spec"]["containers"]
    assert devices.part(tree, first, share) == {GPU: (3,)}
    assert devices.part(tree, second, share) == {GPU: (5, 7)}
    assert devices.part(tree, tree["spec"]["initContainers"][0], share) == {GPU: (3,)}


def test_environment_names_the_devices() -> None:
    assert devices.environment({GPU: (1, 3)}, {GPU: 4}) == {
        "CUDA_VISIBLE_DEVICES": "1,3",
        "PYKUEUE_DEVICES_NVIDIA_COM_GPU": "1,3",
    }
    assert devices.environment({"example.com/fpga": (0,)}, {}) == {"PYKUEUE_DEVICES_EXAMPLE_COM_FPGA": "0"}


def test_process_without_devices_gets_an_empty_list() -> None:
    assert devices.environment({}, {GPU: 4}) == {"CUDA_VISIBLE_DEVICES": ""}
    assert devices.environment({}, {}) == {}


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(0, 6))
def test_no_device_is_assigned_twice(asked: list[int], present: int) -> None:
    taken: list[dict[str, tuple[int, ...]]] = []
    for count in asked:
        share = devices.assign({GPU: count}, {GPU: present}, taken)
        left = present - sum(len(each[GPU]) for each in taken)
        assert (share is None) == (count > left)
        if share is not None:
            taken.append(share)
    given_out = [number for each in taken for number in each[GPU]]
    assert len(given_out) == len(set(given_out))
    assert all(0 <= number < present for number in given_out)
