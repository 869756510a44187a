"""What waits for a time waits by the clock, also when somebody sets it."""

from __future__ import annotations

import asyncio
import random

from controllers.conftest import pod_set
from pykueue import app, settings
from pykueue.api import registry
from pykueue.controllers.assembly import Manager
from pykueue.simulate.loop import VirtualClock
from virtual import server, virtual_time


@virtual_time
async def test_a_clock_that_is_set_is_noticed_by_whoever_waits_for_a_time() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    objects: tuple[tuple[str, str, str, dict[str, object]], ...] = (
        ("ResourceFlavor", "plain", "", {}),
        ("ClusterQueue", "cq", "", {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("LocalQueue", "lq", "default", {"clusterQueue": "cq"}),
        (
            "Workload",
            "w",
            "default",
            {"queueName": "lq", "podSets": [pod_set("1")], "maximumExecutionTimeSeconds": 600},
        ),
    )
    async with server() as client:
        for kind, name, namespace, spec in objects:
            row = registry.ALL.named(kind)
            assert row is not None
            metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
            await client.create(row, {"apiVersion": row.api_version, "kind": kind, "metadata": metadata, "spec": spec})
        manager = Manager(client, app.manager_choices(settings.defaults()), clock, random.Random(3))
        async with manager.reading():
            leading = asyncio.create_task(manager.lead())
            await asyncio.sleep(5)
            clock.wrong_by_seconds = 600
            await asyncio.sleep(20)
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
        found = await client.get(registry.ALL.named("Workload"), "w", "default")  # type: ignore[arg-type]
    assert "DeactivatedDueToMaximumExecutionTimeExceeded" in [each["reason"] for each in found["status"]["conditions"]]
