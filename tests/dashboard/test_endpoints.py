"""The dashboard over real sockets: authorization, documents, and requests that are refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dashboard import system
from dashboard.system import System
from kubemachinery import http_messages, http_server
from kubemachinery.client.client import ApiClient
from kubemachinery.client.delegated_auth import DelegatedAuthorizer
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.http_messages import Request, Response
from kubemachinery.meta import HOUR
from kubeserver.protocol import authentication
from pykueue.analysis import explanation
from pykueue.api import kube, kueue, registry
from pykueue.controllers.forecast_question import ForecastAnswer, ForecastQuestion
from pykueue.controllers.forecaster import ForecastFailed
from pykueue.dashboard import assets, expected_starts, workload_history
from pykueue.dashboard.endpoints import DashboardEndpoints
from pykueue.dashboard.summaries import DashboardSources, DashboardSummaries
from pykueue.projection.forecast import StartForecast
from pykueue.settings import defaults
from waiting import PATIENCE_SECONDS, eventually

Tree = dict[str, Any]

DATA = ("me", "overview", "queues", "queues/a", "flavors/default", "workloads", "workloads/default/w",
        "workloads/default/w/explanation", "overtime", "budgets", "stream")  # fmt: skip


# --- Files ------------------------------------------------------------------------------------------------------------


async def test_files_need_no_token_and_have_a_strict_policy(shown: System) -> None:
    for name in ("", *sorted(assets.files())):
        async with shown.session.get(shown.url + name) as answer:
            assert answer.status == 200, name
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            tag = answer.headers["ETag"]
        async with shown.session.get(shown.url + name, headers={"If-None-Match": tag}) as again:
            assert (again.status, await again.read()) == (304, b"")


async def test_large_bodies_are_compressed_if_accepted(shown: System) -> None:
    url = shown.url + "app.js"
    async with shown.session.get(url, headers={"Accept-Encoding": "gzip"}) as packed:
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["Vary"] == "Accept-Encoding"
        assert int(packed.headers["Content-Length"]) < len(assets.files()["app.js"].body) / 2
        assert await packed.read() == assets.files()["app.js"].body
    async with shown.session.get(url, headers={"Accept-Encoding": "identity"}) as plain:
        assert "Content-Encoding" not in plain.headers
        assert await plain.read() == assets.files()["app.js"].body


def test_files_refer_to_no_other_host() -> None:
    """No address of another host, nothing inline that the policy would forbid."""
    for name, asset in assets.files().items():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, name
        assert "innerHTML" not in text, name
        if name.endswith(".html"):
            assert "style=" not in text
            assert " on" + "click" not in text


ASTRAY = (
    "../app.py",
    "..%2f..%2fapp.py",
    "%2e%2e/summaries.py",
    "static/app.js",
    "app.js/",
    "%00",
    "index.html%00.js",
    "x",
)


async def test_other_paths_are_not_found(shown: System) -> None:
    """As it is written: a browser, or another client, would tidy the path up first."""
    host, _, port = shown.serving.url.removeprefix("https://").partition(":")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    for path in ASTRAY:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        writer.write(f"GET /dashboard/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.close()
        assert head.split()[1] == "404", (path, head)


async def test_address_without_a_slash_redirects(shown: System) -> None:
    async with shown.session.get(shown.url.rstrip("/"), allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (308, "/dashboard/")


# --- Who may look -----------------------------------------------------------------------------------------------------


async def test_data_requires_a_valid_token(shown: System) -> None:
    for path in DATA:
        for token in ("", "wrong"):
            status, answered = await shown.query(f"api/{path}", token=token)
            assert (status, set(answered)) == (401, {"message"}), path


async def test_dashboard_is_read_only(shown: System) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for path in ("", "api/overview"):
            assert (await shown.query(path, method=method))[0] == 405


NONSENSE = {
    ("limit", "201"): "limit: must be a number from 0 to 200",
    ("limit", "-1"): "limit: must be a number from 0 to 200",
    ("offset", "٣"): "offset: must be a number from 0 to 1000000000",
    ("sort", "__class__"): "sort: must be one of created, name, queue, priority, state",
    ("state", "Lost"): "state: must be one of Pending, QuotaReserved, Admitted, Evicted, Inactive, Finished",
    ("q", "x" * 201): "q: is longer than 200 characters",
}


async def test_invalid_parameters_are_refused_with_the_valid_values(shown: System) -> None:
    for (name, value), answered in NONSENSE.items():
        assert await shown.query("api/workloads", **{name: value}) == (400, {"message": answered})


async def test_missing_objects_are_not_found(shown: System) -> None:
    for path in ("queues/x", "flavors/x", "workloads/default/x", "workloads/default/x/explanation"):
        status, answered = await shown.query(f"api/{path}")
        assert status == 404
        assert "does not exist" in answered["message"]


# --- What is shown ----------------------------------------------------------------------------------------------------


async def small(shown: System) -> None:
    """A queue of two CPUs: one Workload runs, another waits."""
    await shown.flavor("default")
    await shown.queue("a", cpu="2")
    await shown.workload("runs", "a", {"cpu": "2"})
    await shown.until(lambda found: found["totals"]["Admitted"] == 1, "api/overview")
    await shown.workload("waits", "a", {"cpu": "1"})
    await shown.until(lambda found: found["items"] and found["items"][0]["message"], "api/workloads", q="waits")


async def test_workload_has_its_history_and_explanation(shown: System) -> None:
    await small(shown)
    _, found = await shown.query("api/workloads/default/waits")
    assert (found["state"], found["clusterQueue"]) == ("Pending", "a")
    env = await shown.until(
        lambda answer: any(each["source"] == "event" for each in answer["history"]), "api/workloads/default/waits"
    )
    assert env["history"][0]["title"] == "Created"
    _, answered = await shown.query("api/workloads/default/waits/explanation")
    assert answered["position"] == {"inClusterQueue": 1, "inLocalQueue": 1}
    assert [held["workload"] for held in answered["holders"]] == ["default/runs"]
    assert answered["suggestions"] == []  # not requested
    _, helped = await shown.query("api/workloads/default/waits/explanation", suggestions="true")
    assert {"wait for default/runs to end"} <= {each["change"] for each in helped["suggestions"]}
    # The very same value as the command prints.
    informers = shown.manager.informers
    objects = [thing for informer in (*informers.shaping, informers.workloads) for thing in informer.values()]
    assert helped == explanation.explainer(defaults().tree)(objects, "default/waits", SystemClock().now(), True)


async def test_history_of_many_events_has_the_latest_and_a_note(shown: System) -> None:
    await shown.workload("loops", "none", {"cpu": "1"})
    found = await shown.until(lambda answer: True, "api/workloads/default/loops")
    regarding = {"kind": "Workload", "namespace": "default", "name": "loops", "uid": found["uid"]}
    row = registry.ALL.of(kube.Event)
    count = workload_history.EVENTS_MAX + 1
    for number in range(count):
        await shown.client.create(
            row,
            {
                "metadata": {"name": f"loops.{number}", "namespace": "default"},
                "eventTime": f"2026-01-01T10:{number // 60:02}:{number % 60:02}.000000Z",
                "reportingController": "example.com/test",
                "reportingInstance": "test-1",
                "action": "Preempted",
                "reason": "Preempted",
                "type": "Normal",
                "regarding": regarding,
            },
        )
    _, found = await shown.query("api/workloads/default/loops")
    shown_events = [each for each in found["history"] if each["source"] == "event"]
    assert len(shown_events) == workload_history.EVENTS_MAX
    # The manager may have written one of its own.
    assert found["note"] in {
        f"the latest {len(shown_events)} of {each} events are shown" for each in (count, count + 1)
    }


async def test_fresh_explanation_has_every_change(shown: System) -> None:
    """The pages show changes once per second, a command shows them at once."""
    await small(shown)
    path, workloads = "api/workloads/default/waits/explanation", shown.manager.informers.workloads
    await shown.until(lambda found: found["state"] == "Pending", path, fresh="true")
    await shown.finish("runs", "over")
    waits = await eventually(
        lambda: next(
            (each for _, each in workloads.items() if each.status.admission and each.metadata.name == "waits"), None
        )
    )
    _, found = await shown.query(path, fresh="true")
    assert (found["state"], found["clusterQueue"]) == (explanation.state_of(waits), "a")
    assert found["state"] != "Pending"


async def test_pages_are_disjoint_and_have_the_total(shown: System) -> None:
    await shown.flavor("default")
    await shown.queue("a", cpu="0")
    for number in range(5):
        await shown.workload(f"w{number}", "a", {"cpu": "1"})
    await shown.until(lambda found: found["total"] == 5, "api/workloads")
    pages = [
        (await shown.query("api/workloads", sort="name", limit="2", offset=offset))[1] for offset in ("0", "2", "4")
    ]
    assert [[each["name"] for each in page["items"]] for page in pages] == [["w0", "w1"], ["w2", "w3"], ["w4"]]
    assert {page["total"] for page in pages} == {5}


async def test_workload_is_counted_once_its_local_queue_exists(shown: System) -> None:
    await shown.flavor("default")
    await shown.workload("early", "a", {"cpu": "1"})
    await shown.until(lambda found: found["items"] and found["items"][0]["clusterQueue"] == "", "api/workloads")
    await shown.queue("a", cpu="0")
    await shown.until(lambda found: found["pending"] == 1, "api/queues/a")


async def test_stream_sends_changes(shown: System) -> None:
    headers = {"Authorization": f"Bearer {shown.serving.credentials.view_token}"}
    await shown.flavor("default")
    async with shown.session.get(f"{shown.url}api/stream", headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        first = await _news(answer)
        await shown.queue("a", cpu="2")
        await shown.workload("w", "a", {"cpu": "1"})
        while (answered := await _news(answer))["totals"]["Admitted"] != 1:
            assert answered["revision"] > first["revision"]


async def test_streams_end_when_the_dashboard_does(shown: System) -> None:
    headers = {"Authorization": "Bearer all"}
    async with (
        beside(shown) as (made, _, pages),
        made.session.get(f"{made.url}api/stream", headers=headers) as answer,
    ):
        await _news(answer)
        pages.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await answer.content.read() == b"\n"  # the end of the last piece of news


async def _news(answer: aiohttp.ClientResponse) -> Tree:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (line := await answer.content.readline()).startswith(b"data: "):
            assert line, "the stream ended"
    return dict(json.loads(line.removeprefix(b"data: ")))


# --- Expected starts --------------------------------------------------------------------------------------------------


async def test_a_list_asks_for_the_forecasts_of_waiting_workloads(shown: System) -> None:  # [FC8]
    await system.rendering(shown)
    found = await shown.until(
        lambda page: any(line["expectedStart"] for line in page["items"]), "api/workloads", sort="name"
    )
    film, trailer = found["items"]
    assert film["expectedStart"] is None
    expected = trailer["expectedStart"]
    assert expected.keys() == {"p50", "p90", "isBeyond", "planned", "reason"}
    assert trailer["created"] <= expected["p50"] <= expected["p90"]
    assert (expected["isBeyond"], expected["planned"], expected["reason"]) == (False, None, "")
    _, one = await shown.query("api/workloads/default/trailer")
    assert one["expectedStart"] == expected


async def test_without_forecasts_no_start_is_expected(tmp_path: Path) -> None:
    async with system.running(tmp_path, StartForecast=False) as made:
        await system.rendering(made)
        _, found = await made.query("api/workloads")
        assert [line["expectedStart"] for line in found["items"]] == [None, None]


async def test_a_forecast_that_failed_is_shown_with_its_reason(shown: System) -> None:  # [FC13]
    forecaster = shown.manager.forecaster
    assert forecaster is not None
    await forecaster.close()
    forecaster._worker = FailingWorker()
    await system.rendering(shown)
    found = await shown.until(
        lambda page: any(line["expectedStart"] for line in page["items"]), "api/workloads", sort="name"
    )
    starts = {line["name"]: line["expectedStart"] for line in found["items"]}
    assert starts["film"] is None
    nothing = {"p50": None, "p90": None, "isBeyond": False, "planned": None}
    assert starts["trailer"] == {**nothing, "reason": "the forecast took longer than 60 s"}


class FailingWorker:
    """A worker of forecasts that is always too slow."""

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer:
        raise ForecastFailed("the forecast took longer than 60 s")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("found", "planned", "expected"),
    [
        (None, None, None),
        (StartForecast("a/b", p50=HOUR, p90=2 * HOUR), None, ("01:00", "02:00", False, None)),
        (StartForecast("a/b", p50_is_beyond=True, p90_is_beyond=True), None, (None, None, True, None)),
        (None, 3 * HOUR, (None, None, False, "03:00")),
        (StartForecast("a/b", p50=HOUR, p90=HOUR), 3 * HOUR, ("01:00", "01:00", False, "03:00")),
    ],
)
def test_expected_start_has_quantiles_and_the_planned_start(
    found: StartForecast | None, planned: int | None, expected: tuple[str | bool | None, ...] | None
) -> None:
    document = expected_starts.document(found, planned)
    if expected is None:
        assert document is None
        return
    times = [f"1970-01-01T{value}:00Z" if isinstance(value, str) else value for value in expected]
    assert document == {**dict(zip(("p50", "p90", "isBeyond", "planned"), times, strict=True)), "reason": ""}


@pytest.mark.parametrize(
    ("found", "problem", "reason"),
    [
        (StartForecast("a/b", reason="is on hold"), "", "is on hold"),
        (StartForecast("a/b", reason="waits for c/d", unknown="c/d"), "", "waits for another workload"),
        (StartForecast("a/b", reason="a/b has no estimate", unknown="a/b"), "", "a/b has no estimate"),
        (None, "too slow", "too slow"),
        (StartForecast("a/b", p50=HOUR), "too slow", "too slow"),
    ],
)
def test_expected_start_has_the_reason_of_a_missing_or_outdated_forecast(
    found: StartForecast | None, problem: str, reason: str
) -> None:
    document = expected_starts.document(found, None, problem)
    assert document is not None
    assert document["reason"] == reason


# --- Behind another API server ----------------------------------------------------------------------------------------


class Reviews:
    """Stands for an API server with three users: `all` has access to everything, `lab` to the namespace lab, and `none`
    to
    nothing. Other requests go to `others`."""

    def __init__(self, others: http_messages.Handler) -> None:
        self.others = others
        self.asked = 0

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            return await self.others(request)
        review = json.loads(await request.read(10_000))
        spec = review["spec"]
        self.asked += 1
        if review["kind"] == "TokenReview":
            known = spec["token"] in ("all", "lab", "none")
            status: Tree = {"authenticated": known, **({"user": {"username": spec["token"]}} if known else {})}
        else:
            wanted = spec["resourceAttributes"]
            status = {"allowed": spec["user"] == "all" or (spec["user"] == "lab" and wanted.get("namespace") == "lab")}
        return Response(201, json.dumps({**review, "status": status}).encode())


def sources(shown: System) -> DashboardSources:
    informers = shown.manager.informers
    return DashboardSources(
        world=shown.manager.world,
        workloads=informers.workloads,
        local_queues=informers.local_queues,
        cluster_queues=informers.cluster_queues,
        flavors=informers.flavors,
        shaping=informers.shaping,
        explain=explanation.explainer(defaults().tree),
    )


@contextlib.asynccontextmanager
async def beside(
    shown: System, authorizer_clock: Clock | None = None
) -> AsyncIterator[tuple[System, Reviews, DashboardEndpoints]]:
    """The same dashboard for users of another API server. The authorizer may have its own clock."""
    reviews = Reviews(partial(shown.serving.embedded.server.handle_as, authentication.ADMIN))
    clock = SystemClock()
    authorizer = DelegatedAuthorizer(
        ApiClient(LocalTransport(reviews.answer), random.Random(1)), authorizer_clock or clock
    )
    pages = DashboardEndpoints(DashboardSummaries(sources(shown), clock), authorizer)
    http = await http_server.serve(pages.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{http.port}"
    try:
        yield System(replace(shown.serving, url=url), shown.manager, shown.session), reviews, pages
    finally:
        pages.close()
        await http.close()


# path: what the three are answered
ALLOWED = {
    "me": "200 200 200",
    "overview": "200 403 403",
    "queues": "200 403 403",
    "queues/a": "200 403 403",
    "flavors/default": "200 403 403",
    "budgets": "501 403 403",  # the gate is off
    "workloads": "200 403 403",
    "workloads?namespace=lab": "200 200 403",
    "workloads?namespace=default": "200 403 403",
    "workloads/default/runs": "200 403 403",
    "workloads/lab/mine": "200 200 403",
    "workloads/lab/mine/explanation": "200 200 403",
    "workloads/default/runs/explanation": "200 403 403",
    "workloads/default/absent": "404 403 403",  # who may not look learns nothing
}


async def test_access_follows_permissions(laboratory: System) -> None:
    for path, codes in ALLOWED.items():
        found = [str((await laboratory.query(f"api/{path}", token=name))[0]) for name in ("all", "lab", "none")]
        assert found == codes.split(), path


@pytest.fixture
async def laboratory(shown: System) -> AsyncIterator[System]:
    await small(shown)
    await shown.create("Namespace", "lab", {})
    await shown.create("LocalQueue", "a", {"clusterQueue": "a"}, namespace="lab")
    # Workloads of the same second are ordered by UID, which is random.
    second = int(time.time())
    await eventually(lambda: time.time() >= second + 1)
    await shown.workload("mine", "a", {"cpu": "1"}, namespace="lab")
    await shown.until(lambda found: found["items"] and found["items"][0]["clusterQueue"], "api/workloads", q="mine")
    async with beside(shown) as (made, _, _):
        yield made


async def test_explanation_omits_workloads_without_permission(laboratory: System) -> None:
    path = "api/workloads/lab/mine/explanation"
    _, whole = await laboratory.query(path, token="all", suggestions="true")
    assert [held["workload"] for held in whole["holders"]] == ["default/runs"]
    assert whole["ahead"] == ["default/waits"]
    _, answered = await laboratory.query(path, token="lab", suggestions="true")
    assert "default/" not in json.dumps(answered)
    assert answered["causes"]


async def test_totals_require_permission_for_all_namespaces(laboratory: System) -> None:
    async with laboratory.session.get(
        f"{laboratory.url}api/stream", params={"namespace": "lab"}, headers={"Authorization": "Bearer lab"}
    ) as answer:
        assert set(await _news(answer)) == {"revision"}


class Stopped(SystemClock):
    def monotonic(self) -> float:
        return 0.0


async def test_authorization_is_cached(shown: System) -> None:
    async with beside(shown, Stopped()) as (made, reviews, _):
        for _ in range(20):
            assert (await made.query("api/overview", token="all"))[0] == 200
    assert reviews.asked == 2  # who it is, and whether they may


async def test_workloads_deleted_between_refreshes_are_not_kept(shown: System) -> None:
    summaries = DashboardSummaries(sources(shown), SystemClock())
    await shown.flavor("default")
    await shown.queue("a", cpu="2")
    for number in range(3):
        await shown.workload(f"brief-{number}", "a", {"cpu": "1"})
    await shown.until(lambda found: found["total"] == 3, "api/workloads")
    assert summaries.unread == 3
    for number in range(3):
        await shown.client.delete(registry.ALL.of(kueue.Workload), f"brief-{number}", "default")
    await shown.until(lambda found: found["total"] == 0, "api/workloads")
    assert summaries.unread == 0
