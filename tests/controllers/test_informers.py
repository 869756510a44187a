"""What the caches of informers keep."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable

import msgspec

from controllers.conftest import pod_set
from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.http_messages import Request, Response
from pykueue.api import kueue
from pykueue.controllers.informers import Informers


async def _no_server(request: Request) -> Response:
    raise AssertionError(f"nothing is asked here, not even {request.path}")


def _json(name: str, cpu: str) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"queueName": "lq", "podSets": [pod_set(cpu)]},
        }
    )


def _reader() -> Callable[[bytes], kueue.Workload]:
    client = ApiClient(LocalTransport(_no_server), random.Random(1))
    return Informers(client, random.Random(1), topology=False).workloads._decode


def test_workloads_that_look_alike_share_their_pod_sets_and_read_as_ever() -> None:
    read = _reader()
    a, b, other = read(_json("a", "1")), read(_json("b", "1")), read(_json("other", "2"))
    assert a.spec.pod_sets[0] is b.spec.pod_sets[0]
    assert b == codec.decode(_json("b", "1"), kueue.Workload)
    assert other == codec.decode(_json("other", "2"), kueue.Workload)
    assert codec.encode(b) == codec.encode(codec.decode(_json("b", "1"), kueue.Workload))


def test_pod_sets_are_kept_no_longer_than_the_workloads_that_have_them() -> None:
    read = _reader()
    first, second = read(_json("first", "1")), read(_json("second", "1"))
    kept = weakref.ref(first.spec.pod_sets[0])
    del first
    assert kept() is second.spec.pod_sets[0]
    del second
    assert kept() is None
    assert not read._then.__self__._recent, "nor is anything else of them"  # type: ignore[attr-defined]
    assert read(_json("third", "1")) == codec.decode(_json("third", "1"), kueue.Workload)
