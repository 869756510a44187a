"""Is it alive, and is it ready? The answers that probes ask for, and the metrics beside them.

alive    as long as anybody answers at all
ready    when every question that was handed in is answered with nothing: else the sentences say what is missing
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubemachinery import http_server
from pykueue.observe.metrics import CONTENT_TYPE

# Says what is missing, in a sentence; empty when all is well.
ReadinessCheck = Callable[[], str]

# Where a program shows what it was configured with, as those of Kubernetes do.
CONFIGURATION_PATH: Final = "/configz"

_TEXT = "text/plain; charset=utf-8"


def probes(
    questions: Mapping[str, ReadinessCheck], *, alive: str = "healthz", ready: str = "readyz"
) -> http_server.Handler:
    """The handler of the health server. The paths can be named otherwise in the Configuration."""
    alive_path, ready_path = f"/{alive.strip('/')}", f"/{ready.strip('/')}"

    async def answer(request: http_server.Request) -> http_server.Response:
        if request.path == alive_path:
            return _plain(200, "ok")
        if request.path != ready_path:
            return _plain(404, f"only {alive_path} and {ready_path} are answered here")
        lacking = {name: why for name, question in questions.items() if (why := question())}
        if lacking:
            return _plain(503, "\n".join(f"{name}: {why}" for name, why in lacking.items()))
        return _plain(200, "ok")

    return answer


def exposition(read: Callable[[], bytes]) -> http_server.Handler:
    """The handler of the metrics server; `read` is `Metrics.exposition`."""

    async def answer(request: http_server.Request) -> http_server.Response:
        if request.path != "/metrics":
            return _plain(404, "only /metrics is answered here")
        return http_server.Response(200, read(), CONTENT_TYPE)

    return answer


def document(tree: Mapping[str, Any]) -> http_server.Handler:
    """A page that shows one document, such as the Configuration that this program runs with."""

    async def answer(request: http_server.Request) -> http_server.Response:
        return http_server.Response(200, json.dumps(tree).encode(), "application/json")

    return answer


def _plain(code: int, text: str) -> http_server.Response:
    return http_server.Response(code, text.encode() + b"\n", _TEXT)
