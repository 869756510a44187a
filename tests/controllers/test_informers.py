"""What the copies keep."""

from __future__ import annotations

import random

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


def test_workloads_that_look_alike_share_their_pod_sets_and_read_as_ever() -> None:
    read = Informers(
        ApiClient(LocalTransport(_no_server), random.Random(1)), random.Random(1), topology=False
    ).workloads._decode
    a, b, other = read(_json("a", "1")), read(_json("b", "1")), read(_json("other", "2"))
    assert a.spec.pod_sets is b.spec.pod_sets
    assert b == codec.decode(_json("b", "1"), kueue.Workload)
    assert other == codec.decode(_json("other", "2"), kueue.Workload)
