"""Start forecasts as a client reads them."""

from __future__ import annotations

import json
import random
from typing import Any

from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.http_messages import Request, Response
from pykueue.client import job_forecast

MADE = "2026-11-18T09:00:00Z"


def _status(code: int, reason: str, message: str, name: str = "") -> Response:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"name": name}}
    return Response(code, json.dumps(status).encode())


async def _answered(request: Request) -> Response:
    """A server that has the forecasts of two LocalQueues, one of them an old one, and none of others."""
    items = [{"workload": "ns/w1", "p50": MADE, "p90": MADE}]
    document: dict[str, Any] = {"made": MADE, "samples": 9, "complete": True, "items": items}
    match request.path.split("/")[-2]:
        case "works":
            return Response(200, json.dumps(document).encode())
        case "is-old":
            document["items"] = [{"workload": "ns/w2", "p50": MADE, "p90": MADE}]
            return Response(200, json.dumps({**document, "warning": "the forecast took longer than 60 s"}).encode())
        case "unknown":
            return _status(404, "NotFound", "not found", "unknown")
        case "has-no-gate":
            return Response(404, b"404 page not found")
        case "is-garbled":
            return Response(200, b"<html>")
        case "hangs" | "hangs-too" | "is-after-them":
            raise errors.Unanswered("no response within 90 s")
    return _status(500, "InternalError", "there is no forecast: the worker does not answer")


async def test_failed_forecast_of_a_local_queue_leaves_those_of_others() -> None:
    client = ApiClient(LocalTransport(_answered), random.Random(1))
    names = ["fails", "unknown", "works", "works", "is-old", "has-no-gate", "is-garbled"]
    found = await job_forecast.of_local_queues(client, [("ns", name) for name in names])
    assert sorted(found.items) == ["ns/w1", "ns/w2"]
    assert found.problems == {
        "ns/fails": "the worker does not answer",
        "ns/has-no-gate": "the server has no forecasts (feature gate StartForecast)",
        "ns/is-garbled": "not JSON: JSON is malformed: invalid character (byte 0)",
    }
    assert found.warnings == {"ns/is-old": f"the forecast took longer than 60 s; made at {MADE}"}


async def test_a_server_that_does_not_answer_is_not_asked_for_every_local_queue() -> None:
    asked: list[str] = []

    async def counted(request: Request) -> Response:
        asked.append(request.path.split("/")[-2])
        return await _answered(request)

    client = ApiClient(LocalTransport(counted), random.Random(1))
    names = ["hangs", "hangs-too", "is-after-them", "works"]
    found = await job_forecast.of_local_queues(client, [("ns", name) for name in names])
    assert asked == ["hangs", "hangs-too"]
    assert set(found.problems) == {f"ns/{name}" for name in names}
    assert found.problems["ns/works"] == "not asked for: the server has not answered for other LocalQueues"


async def test_forecast_of_a_job_has_the_time_and_the_warning_of_its_computation() -> None:
    warning = "the forecast took longer than 60 s"

    async def old(request: Request) -> Response:
        items = [{"workload": "ns/w1", "p50": MADE, "beyond": MADE}]
        document = {"made": MADE, "samples": 9, "complete": True, "items": items, "warning": warning}
        return Response(200, json.dumps(document).encode())

    client = ApiClient(LocalTransport(old), random.Random(1))
    found = await job_forecast.of_job(client, "ns", "w1")
    assert found == job_forecast.JobForecast("ns/w1", p50=MADE, beyond=MADE, made=MADE, warning=warning)
