"""How a line of the log reads, for machines and for people; and what probes are told."""

from __future__ import annotations

import io
import json
import logging

import pytest

from kubemachinery import http_server
from pykueue.observe import health, logs
from pykueue.observe.logs import LogFormat

pytestmark = pytest.mark.usefixtures("same_logging")


def written(form: LogFormat, log: object) -> str:
    stream = io.StringIO()
    logs.configure(stream, form=form, role=lambda: "leader")
    assert callable(log)
    log(logging.getLogger("pykueue.controllers.scheduler"))
    return stream.getvalue()


def test_a_machine_reads_json_with_every_field() -> None:
    line = json.loads(
        written(LogFormat.JSON, lambda log: log.info("admitted %s", "a", extra={"workload": "ns/a", "n": 2}))
    )
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "pykueue.controllers.scheduler",
        "msg": "admitted a",
        "replica-role": "leader",
        "workload": "ns/a",
        "n": 2,
    }


def test_what_is_no_json_is_written_as_text() -> None:
    line = json.loads(written(LogFormat.JSON, lambda log: log.info("x", extra={"where": io.StringIO})))
    assert "StringIO" in line["where"]


def test_an_exception_stays_on_one_line_for_machines() -> None:
    def fail(log: logging.Logger) -> None:
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")

    text = written(LogFormat.JSON, fail)
    assert text.count("\n") == 1
    assert "ValueError: broken" in json.loads(text)["stacktrace"]


def test_people_read_the_time_the_message_and_the_level_only_when_it_matters() -> None:
    calm = written(LogFormat.CONSOLE, lambda log: log.info("admitted", extra={"workload": "ns/a"}))
    assert calm[8:] == " admitted workload=ns/a\n"
    loud = written(LogFormat.CONSOLE, lambda log: log.warning("slow"))
    assert loud[8:] == " warning: slow\n"


def test_what_is_below_the_level_is_not_written() -> None:
    assert written(LogFormat.JSON, lambda log: log.debug("detail")) == ""


# --- Probes -----------------------------------------------------------------------------------------------------------


async def asked(handler: http_server.Handler, path: str) -> tuple[int, str]:
    answer = await handler(http_server.Request("GET", path))
    return answer.status, answer.body.decode()


async def test_alive_is_whoever_answers_and_ready_whoever_lacks_nothing() -> None:
    lacking = {"webhooks": "no certificate yet"}
    handler = health.probes({"webhooks": lambda: lacking.get("webhooks", ""), "copies": lambda: ""})
    assert await asked(handler, "/healthz") == (200, "ok\n")
    assert await asked(handler, "/readyz") == (503, "webhooks: no certificate yet\n")
    lacking.clear()
    assert await asked(handler, "/readyz") == (200, "ok\n")
    assert (await asked(handler, "/"))[0] == 404


async def test_the_paths_of_probes_can_be_named_otherwise() -> None:
    handler = health.probes({}, alive="live", ready="/is-ready")
    assert (await asked(handler, "/live"))[0] == 200
    assert (await asked(handler, "/is-ready"))[0] == 200


async def test_metrics_are_read_when_they_are_asked_for() -> None:
    handler = health.exposition(lambda: b"kueue_build_info 1\n")
    answer = await handler(http_server.Request("GET", "/metrics"))
    assert (answer.status, answer.body) == (200, b"kueue_build_info 1\n")
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert (await asked(handler, "/"))[0] == 404
