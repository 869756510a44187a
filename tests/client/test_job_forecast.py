"""Start forecasts as a client reads them."""

from __future__ import annotations

import json
import random
from typing import Any

from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.http_messages import Request, Response
from pykueue.client import job_forecast

MADE = "2026-11-18T09:00:00Z"


async def _answered(request: Request) -> Response:
    """A server that has the forecast of one LocalQueue, knows no second, and cannot compute a third."""
    match request.path.split("/")[-2]:
        case "works":
            items = [{"workload": "ns/w1", "p50": MADE, "p90": MADE}]
            document: dict[str, Any] = {"made": MADE, "samples": 9, "complete": True, "items": items}
            return Response(200, json.dumps(document).encode())
        case "unknown":
            return Response(404, b"{}")
    status = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "the worker does not answer"}
    return Response(503, json.dumps(status).encode())


async def test_failed_forecast_of_a_local_queue_leaves_those_of_others() -> None:
    client = ApiClient(LocalTransport(_answered), random.Random(1))
    queues = [("ns", "fails"), ("ns", "unknown"), ("ns", "works"), ("ns", "works")]
    found = await job_forecast.of_local_queues(client, queues)
    assert list(found.items) == ["ns/w1"]
    assert found.problems == {"ns/fails": "the worker does not answer"}
