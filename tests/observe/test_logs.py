"""The log formats, JSON and console; and the handlers of probes."""

from __future__ import annotations

import io
import json
import logging

import pytest

from kubemachinery import http_messages
from pykueue.observe import health, logs
from pykueue.observe.logs import LogFormat

pytestmark = pytest.mark.usefixtures("same_logging")


def written(form: LogFormat, log: object) -> str:
    stream = io.StringIO()
    logs.configure(stream, form=form, role=lambda: "leader")
    assert callable(log)
    log(logging.getLogger("pykueue.controllers.scheduler"))
    return stream.getvalue()


def test_json_lines_contain_every_field() -> None:
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


def test_fields_that_are_not_json_are_written_as_text() -> None:
    line = json.loads(written(LogFormat.JSON, lambda log: log.info("x", extra={"where": io.StringIO})))
    assert "StringIO" in line["where"]


def test_an_exception_is_one_json_line() -> None:
    def fail(log: logging.Logger) -> None:
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")

    text = written(LogFormat.JSON, fail)
    assert text.count("\n") == 1
    assert "ValueError: broken" in json.loads(text)["stacktrace"]


def test_console_lines_contain_the_level_only_from_warning_on() -> None:
    calm = written(LogFormat.CONSOLE, lambda log: log.info("admitted", extra={"workload": "ns/a"}))
    assert calm[8:] == " admitted workload=ns/a\n"
    loud = written(LogFormat.CONSOLE, lambda log: log.warning("slow"))
    assert loud[8:] == " warning: slow\n"


@pytest.mark.parametrize("logger", ["kubemachinery.client.informer", "kubeserver.storage.sqlite"])
def test_all_packages_of_the_program_are_logged(logger: str) -> None:
    line = json.loads(written(LogFormat.JSON, lambda log: logging.getLogger(logger).info("watch restarted")))
    assert (line["logger"], line["msg"]) == (logger, "watch restarted")


def test_records_below_the_level_are_not_written() -> None:
    assert written(LogFormat.JSON, lambda log: log.debug("detail")) == ""


# --- Probes -----------------------------------------------------------------------------------------------------------


async def asked(handler: http_messages.Handler, path: str) -> tuple[int, str]:
    answer = await handler(http_messages.Request("GET", path))
    return answer.status, answer.body.decode()


async def test_healthz_is_ok_and_readyz_reports_failed_checks() -> None:
    lacking = {"webhooks": "no certificate yet"}
    handler = health.probes({"webhooks": lambda: lacking.get("webhooks", ""), "copies": lambda: ""})
    assert await asked(handler, "/healthz") == (200, "ok\n")
    assert await asked(handler, "/readyz") == (503, "webhooks: no certificate yet\n")
    lacking.clear()
    assert await asked(handler, "/readyz") == (200, "ok\n")
    assert (await asked(handler, "/"))[0] == 404


async def test_the_paths_of_probes_are_configurable() -> None:
    handler = health.probes({}, alive="live", ready="/is-ready")
    assert (await asked(handler, "/live"))[0] == 200
    assert (await asked(handler, "/is-ready"))[0] == 200


async def test_metrics_are_read_on_each_request() -> None:
    async def scrape() -> bytes:
        return b"kueue_build_info 1\n"

    handler = health.exposition(scrape)
    answer = await handler(http_messages.Request("GET", "/metrics"))
    assert (answer.status, answer.body) == (200, b"kueue_build_info 1\n")
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert (await asked(handler, "/"))[0] == 404
