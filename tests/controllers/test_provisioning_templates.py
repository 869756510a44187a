"""The PodTemplates of a ProvisioningRequest belong to it, whatever answers are lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager

import pytest

from controllers.test_clock import kind, leading
from controllers.test_quota_schedules import site
from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Unanswered
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from pykueue.api import kueue
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.controllers.checks.provisioning_requests import ProvisioningRequestClient
from pykueue.lifecycle.provisioning import ProvisioningAttempt
from virtual import virtual_time


class LosesAnswers:
    """Carries out the creation of a ProvisioningRequest and loses the answer, while `is_losing`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.is_losing = False

    async def send(self, request: ApiRequest) -> ApiResponse:
        response = await self._inner.send(request)
        if self.is_losing and request.method == "POST" and request.path.endswith("/provisioningrequests"):
            raise Unanswered("the connection broke")
        return response

    def stream(self, request: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


@virtual_time
async def test_templates_that_are_made_again_are_handed_over_again() -> None:
    """The watch has not shown the request yet, so it is made once more, and this time the answer is lost."""
    async with site(cpu=1) as made:
        async with leading(made.client, made.clock):
            await made.workload("w")
            await asyncio.sleep(5)
        workload = codec.from_tree(await made.client.get(kind("Workload"), "w", "default"), kueue.Workload)
        transport = LosesAnswers(made.client._transport)
        flavors = {"plain": kueue.ResourceFlavor()}
        requests = ProvisioningRequestClient(ApiClient(transport, random.Random(1)), lambda: flavors)
        config = kueue.ProvisioningRequestConfigSpec(provisioning_class_name="check")
        attempt = ProvisioningAttempt("nodes", "w-nodes-1", config, {})
        assert await requests.make(workload, attempt)
        transport.is_losing = True
        with pytest.raises(Unanswered):
            await requests.make(workload, attempt)
        stored = await made.client.get(kind("ProvisioningRequest"), "w-nodes-1", "default")
        await requests.hand_over(codec.from_tree(stored, ProvisioningRequest))
        template = await made.client.get(kind("PodTemplate"), "ppt-w-nodes-1-main", "default")
        assert [owner["uid"] for owner in template["metadata"]["ownerReferences"]] == [stored["metadata"]["uid"]]
